"""A master that is frozen, cut from its controller, or has a tail that no other broker has: real processes.

RocketMQ 5.5.0 with all its safe settings loses 4 of 776, 377 of 2,218, and keeps two different logs.
"""

from pathlib import Path

import pytest

from pocketmq.remoting.codes import ResponseCode
from tests.interop.failover.scenarios import cut_off, frozen, two_elections


def test_a_frozen_master_that_thaws_promises_nothing(tmp_path: Path) -> None:
    judged = frozen(tmp_path)
    assert not judged.wrong
    assert ResponseCode.SUCCESS not in judged.late_codes


def test_a_master_cut_from_its_controller_promises_nothing(tmp_path: Path) -> None:
    judged = cut_off(tmp_path)
    assert not judged.wrong
    assert ResponseCode.SUCCESS not in judged.late_codes


@pytest.mark.parametrize(
    "kinds",
    [
        "pocket pocket",
        pytest.param("java pocket", marks=pytest.mark.reference),
        pytest.param("pocket java", marks=pytest.mark.reference),
    ],
)
def test_of_two_elections_at_one_end_the_later_log_stays(kinds: str, tmp_path: Path) -> None:
    """Its tail was never promised; lists of epochs do not show it (RocketMQ keeps both logs)."""
    judged = two_elections(tmp_path, kinds)
    assert not judged.wrong
    if kinds.endswith("pocket"):
        assert set(judged.late_codes) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
