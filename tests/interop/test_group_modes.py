"""Groups whose members subscribe differently, as PocketMQ alone treats them: guard, strict, isolate.

Official, unmodified Java clients are the members; the experiments are those of acceptance E2 and E3.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.asking import ask_json
from tests.interop.brokers import PocketBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Session
from tests.interop.test_group_experiments import Group, make_last
from tests.interop.waiting import until

from pocketmq.remoting.codes import PocketRequestCode


@pytest.fixture
def members(shared: Shared) -> Iterator[Session]:
    with shared.java("4.9.8-JSON").session() as session:
        yield session


def pocketmq(folder: Path, **config: object) -> PocketBroker:
    """A broker with these settings; `with` starts it."""
    return PocketBroker(folder, config=config)


def test_the_guard_names_both_clients_and_what_each_queue_loses(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """E2b seen by the broker: the same loss as in the experiment, said aloud."""
    with pocketmq(tmp_path / "b", groupGuardGraceTime=500) as broker:
        make_topic(broker, topic)
        both = Group(broker, members, group)
        first, second = both.join("1", topic, "A"), both.join("2", topic, "B")
        both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
        make_last(both, second, topic, "B")
        line = "group guard: members of group"
        until(lambda: line in broker.log(), "the guard's log line")

        said = ask_json(broker.address, PocketRequestCode.GET_GROUP_FINDINGS)

        [found] = said["groups"]
        ids = sorted(each["clientId"] for each in found["members"])
        [one, two] = ids
        assert (found["group"], found["mode"]) == (group, "compatible")
        [finding] = found["findings"]
        assert (finding["topic"], finding["stored"], finding["raised"]) == (topic, "B", True)
        assert {(each["expression"], *each["clientIds"]) for each in finding["camps"]} == {
            ("A", one),
            ("B", two),
        }
        assert {
            (tuple(each["queueIds"]), each["holder"], each["lost"], *each["lostTo"])
            for each in finding["losses"]
        } == {
            ((0, 1), one, "A", one),
            ((0, 1), one, "B", two),
            ((2, 3), two, "A", one),
        }
        [warning] = [each for each in broker.log().splitlines() if line in each]
        assert one in warning
        assert two in warning
        second.close()
        until(
            lambda: not ask_json(broker.address, PocketRequestCode.GET_GROUP_FINDINGS)["groups"],
            "the finding is over",
        )
