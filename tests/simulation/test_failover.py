"""A slave is promoted once its master has died: what was acknowledged is there, by one broker at a time."""

import pytest

from tests.simulation.failover import plan_of, run


@pytest.mark.slow
def test_what_a_pair_acknowledged_outlives_its_master(failover: int) -> None:
    outcome = run(failover)
    wrong = "\n".join(outcome.wrong[:20])
    assert not wrong, (
        f"{plan_of(failover)}\n{wrong}\npython -m tests.simulation.failover {failover} --said"
    )
    assert outcome.promised
