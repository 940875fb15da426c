"""Groups whose members subscribe differently, as PocketMQ alone treats them: guard, strict, isolate.

Official, unmodified Java clients are the members; the experiments are those of acceptance E2 and E3.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.remoting.requests import PocketRequestCode
from tests.interop.asking import ask_json, offsets_of
from tests.interop.brokers import PocketBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Json, PeerError, Producer, PushConsumer, Session, message
from tests.interop.mqadmin import Mqadmin
from tests.interop.test_group_experiments import Group, eight, make_last, send, texts, tracks
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture
def tool(shared: Shared) -> Mqadmin:
    return shared.mqadmin("4.9.7")


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


# ------------------------------------------------------------ strict


def test_strict_refuses_a_second_subscription_until_free(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """The refused client's own log says why; the group's member loses nothing."""
    with pocketmq(tmp_path / "b", groupMode="strict") as broker:
        make_topic(broker, topic)
        both = Group(broker, members, group)
        producer = both.producer()
        first = both.join("1", topic, "A")
        both.wait_until_shown({topic: {"A"}})
        second = both.join("2", topic, "B", heartbeatBrokerInterval=1_000)
        until(lambda: "heartbeat refused" in broker.log(), "the refusal")

        send(producer, topic, "A", eight("A"))
        send(producer, topic, "B", eight("B"))

        first.wait(8)
        both.wait_until_shared((first, {0, 1, 2, 3}), (second, set()))
        assert texts(first) == eight("A")
        assert both.shown() == {topic: {"A"}}
        log = members.driver.client_log()
        assert f"CODE: 16  DESC: group {group} is strict" in log
        assert texts(second) == []

        first.close()
        both.wait_until_shown({topic: {"B"}})
        both.wait_until_shared((second, {0, 1, 2, 3}))
        send(producer, topic, "B", ["late"])
        until(lambda: "late" in texts(second), "the second member consumes")


# ------------------------------------------------------------ isolate


def test_two_topics_in_an_isolated_group_reach_both_members(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """E2a without loss: the experiment's own steps."""
    first_topic, second_topic = f"{topic}_TopicTest", f"{topic}_mytest"
    with pocketmq(tmp_path / "b", groupMode="isolate") as broker:
        for name in (first_topic, second_topic):
            make_topic(broker, name)
        both = Group(broker, members, group)
        producer = both.producer()
        first = both.join("1", first_topic, "*")
        second = both.join("2", second_topic, "*")
        both.wait_until_shared((first, {0, 1, 2, 3}), (second, {0, 1, 2, 3}))
        second.heartbeat()

        send(producer, first_topic, None, eight("T"))
        send(producer, second_topic, None, eight("m"))

        first.wait(8)
        second.wait(8)
        assert texts(first) == eight("T")
        assert texts(second) == eight("m")
        assert both.shown() == {first_topic: set(), second_topic: set()}


def test_two_tags_in_an_isolated_group_reach_both_members_whole(
    tmp_path: Path, members: Session, make_topic: MakeTopic, tool: Mqadmin, topic: str, group: str
) -> None:
    """E2b and E3 without loss; administrators see the tags of both and the lowest offsets."""
    with pocketmq(tmp_path / "b", groupMode="isolate", longPollingEnable="false") as broker:
        make_topic(broker, topic)
        both = Group(broker, members, group)
        producer = both.producer()
        first, second = both.join("A", topic, "tagA"), both.join("B", topic, "tagB")
        both.wait_until_shared((first, {0, 1, 2, 3}), (second, {0, 1, 2, 3}))

        sent = send(producer, topic, "tagA", eight("A"))
        sent += send(producer, topic, "tagB", eight("B"))

        first.wait(8)
        second.wait(8)
        assert texts(first) == eight("A")
        assert texts(second) == eight("B")
        assert both.shown() == {topic: {"tagA", "tagB"}}
        until(
            lambda: offsets_of(broker.address, group, topic) == dict.fromkeys(range(4), (4, 4)),
            "every queue: broker offset 4, group offset 4",
        )
        assert tracks(tool, broker, group, sent) == ["CONSUMED"] * 16


def test_isolate_retries_at_the_subscriber_of_the_message(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """The retry topic is filtered by the message's own topic and tag; an orderly member has its locks."""
    with pocketmq(tmp_path / "b", groupMode="isolate") as broker:
        make_topic(broker, topic)
        both = Group(broker, members, group)
        producer = both.producer()
        before = both.join("0", topic, "none")
        # A group's first members learn the retry topic's route late: see test_push_consumer.py.
        until(lambda: producer.queues(f"%RETRY%{group}"), "its route", ignoring=PeerError)
        before.close()
        one, two = both.join("A", topic, "tagA"), both.join("B", topic, "tagB")
        both.wait_until_shared((one, {0, 1, 2, 3}), (two, {0, 1, 2, 3}))
        failing = {"fail_times": "2"}
        for tags in ("tagA", "tagB"):
            producer.send(message(topic, f"bad {tags}", tags=tags, properties=failing))

        one.wait(3)
        two.wait(3)

        assert texts(one) == ["bad tagA"] * 3
        assert texts(two) == ["bad tagB"] * 3
        assert [each.reconsume_times for each in two.received] == [0, 1, 2]


def test_isolated_members_lock_their_queues_for_themselves(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Two orderly sub-groups hold every queue at the same time, each for its own messages."""
    with pocketmq(tmp_path / "b", groupMode="isolate") as broker:
        make_topic(broker, topic)
        producer = members.producer(broker.namesrv, f"{group}-p")
        both = [
            members.push_consumer(
                broker.namesrv, group, {topic: tags}, settings=FIRST, orderly=True
            )
            for tags in ("A", "B")
        ]
        sent = [f"{tags}{number}" for number in range(6) for tags in "AB"]
        for text in sent:
            producer.send(message(topic, text, tags=text[0]), queue=0)
        for consumer, tags in zip(both, "AB", strict=True):
            consumer.wait(6)
            assert [each.text for each in consumer.received] == [f"{tags}{n}" for n in range(6)]


def test_a_rolling_change_under_load_loses_nothing(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    members: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """tagA -> tagA || tagC, member by member, while messages flow; 100,000 of them by --rolling-count."""
    count = request.config.getoption("--rolling-count")
    with pocketmq(tmp_path / "b", groupMode="isolate", isolateKeepTime=1_000) as broker:
        make_topic(broker, topic)
        both = Group(broker, members, group)
        flood = members.producer(broker.namesrv, f"{group}-p1")
        old = [both.join(f"old{number}", topic, "tagA") for number in range(2)]
        both.wait_until_shared((old[0], {0, 1}), (old[1], {2, 3}))
        number = flood.begin_flood(topic, count=count, tags="tagA", prefix="A", size=1)
        new: list[PushConsumer] = []
        for leaving in old:
            until(lambda: len(flood.acks) > count // 10 * (1 + len(new)), "load", within_s=300)
            new.append(both.join(f"new{len(new)}", topic, "tagA || tagC"))
            leaving.close()
        c_sent = send(both.producer(), topic, "tagC", eight("C"))
        assert len(c_sent) == 8
        flood.end_flood(number, stop=False, within_s=600)
        everybody = [*old, *new]
        wanted = {body for body, _ in flood.acks} | set(eight("C"))
        assert len(wanted) == count + 8

        def all_are_there() -> bool:
            missing = sorted(wanted - {text for each in everybody for text in texts(each)})
            assert not missing, f"{len(missing)} are missing: {missing[:20]}"
            return True

        until(all_are_there, f"all {len(wanted)} messages", within_s=300)
        for each in old:
            assert {got.tags for got in each.received} <= {"tagA"}


def test_a_member_killed_with_kill_9_loses_nothing(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """What the killed one held goes to its peer, or, when it had none, to members that ask for the same."""
    with (
        pocketmq(tmp_path / "b", groupMode="isolate", isolateKeepTime=500) as broker,
        members.driver.twin() as doomed_driver,
    ):
        make_topic(broker, topic)
        both = Group(broker, members, group)
        producer = both.producer()
        peer = both.join("B", topic, "tagB")
        heir = both.join("C", topic, "tagA || tagC")
        doomed = [
            Group(broker, doomed_driver.session(), group).join(who, topic, tags)
            for who, tags in (("a", "tagA"), ("b", "tagB"))
        ]
        both.wait_until_shared(
            (heir, {0, 1, 2, 3}), (peer, {0, 1}), (doomed[0], {0, 1, 2, 3}), (doomed[1], {2, 3})
        )
        for each in doomed:
            each.behave(delay_ms=600_000)
        for tags in ("tagA", "tagB", "tagC"):
            send(producer, topic, tags, eight(tags[-1]))
        peer.wait(4)
        heir.wait(8)

        doomed_driver.kill()

        peer.wait(8)
        heir.wait(16, within_s=90)
        assert texts(peer) == eight("B")
        assert sorted(set(texts(heir))) == [*eight("A"), *eight("C")]


def test_an_isolated_group_goes_on_after_kill_9_of_the_broker(
    tmp_path: Path, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Sub-groups, their order and offsets come back from the disk; clients reconnect by themselves."""
    with pocketmq(tmp_path / "b", groupMode="isolate") as broker:
        make_topic(broker, topic)
        both = Group(broker, members, group)
        producer = both.producer()
        first, second = both.join("A", topic, "tagA"), both.join("B", topic, "*")
        both.wait_until_shared((first, {0, 1, 2, 3}), (second, {0, 1, 2, 3}))
        send(producer, topic, "tagA", eight("A"))
        send(producer, topic, "tagB", eight("B"))
        first.wait(8)
        second.wait(8)
        file = broker.store / "config" / "isolatedGroup.json"
        until(file.exists, "the sub-groups are saved")

        broker.kill()
        broker.start()

        def again() -> bool:
            first.heartbeat()
            second.heartbeat()
            return both.shown() == {topic: set()}

        until(again, "both members are back")
        for tags in ("tagA", "tagB"):
            until_sent(producer, message(topic, f"late {tags}", tags=tags))
        until(lambda: "late tagA" in texts(first), "tagA continues", within_s=90)
        until(lambda: "late tagB" in texts(second), "tagB continues", within_s=90)
        assert "late tagA" not in texts(second)


def until_sent(producer: Producer, text: Json) -> None:
    """Send as soon as the producer has found the broker again."""
    until(lambda: producer.send(text), "a send", within_s=60, ignoring=PeerError)


def test_mqadmin_of_rocketmq_5_sets_the_mode_of_one_group(
    tmp_path: Path, shared: Shared, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """The mode is an attribute of the group, as RocketMQ 5 keeps attributes."""
    tool = shared.mqadmin("5.5.0")
    with pocketmq(tmp_path / "b") as broker:
        make_topic(broker, topic)
        words = ["-b", broker.address, "-g", group, "-a", "true", "--attributes"]
        tool.at(broker.namesrv)("updateSubGroup", *words, "+group.mode=isolate")
        both = Group(broker, members, group)
        first, second = both.join("1", topic, "A"), both.join("2", topic, "B")
        both.wait_until_shared((first, {0, 1, 2, 3}), (second, {0, 1, 2, 3}))
        said = ask_json(broker.address, PocketRequestCode.GET_GROUP_FINDINGS, {"group": group})
        [found] = said["groups"]
        assert (found["mode"], found["findings"]) == ("isolate", [])
        assert [each["state"] for each in found["subGroups"]] == ["active", "active"]

        tool.at(broker.namesrv)("updateSubGroup", *words, "+group.mode=compatible")
        both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
