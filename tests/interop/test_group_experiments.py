"""The articles' experiments: one group whose members subscribe differently (acceptance E2a to E3c).

The members are official clients; `MEMBERS` names which. What is random or slow in the articles is
forced here: queues are chosen by the producer, members heartbeat when told to, and the last one to
change its subscription is made sure of before anything is sent.
"""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.model.subscription import parse_tags
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.requests import PocketRequestCode
from tests.interop.asking import ask, ask_json, connection_of, offsets_of, subscriptions_of
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.interop.conftest import MakeTopic, NewBroker, Shared
from tests.interop.driver import Producer, PushConsumer, Sent, Session, message
from tests.interop.mqadmin import Mqadmin
from tests.kit.waiting import until

MEMBERS = ["java-4.9.8"]
# Members heartbeat when they start, when their queues change and when the test says so, not by time.
SETTINGS = {
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "heartbeatBrokerInterval": 3_600_000,
    "persistConsumerOffsetInterval": 1_000,
}


@pytest.fixture(params=MEMBERS)
def members(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Session]:
    """The client library that the group's members use."""
    _, _, version = request.param.partition("-")
    with shared.java(f"{version}-JSON").session() as session:
        yield session


@pytest.fixture
def tool(shared: Shared) -> Mqadmin:
    return shared.mqadmin("4.9.7")


class Group:
    """One group in which two members join, the first named so that its client id sorts first."""

    def __init__(self, broker: RunningBroker, members: Session, name: str) -> None:
        self.broker, self.members, self.name = broker, members, name
        self._joined_s = 0.0

    def join(self, who: str, topic: str, tags: str, **settings: object) -> PushConsumer:
        consumer = self.members.push_consumer(
            self.broker.namesrv,
            self.name,
            {topic: tags},
            settings={**SETTINGS, **settings},
            name=f"{self.name}-{who}",
            instance=f"{self.name}-{who}",
        )
        self._joined_s = time.monotonic()
        return consumer

    def producer(self) -> Producer:
        return self.members.producer(self.broker.namesrv, f"{self.name}_producer")

    def shown(self) -> dict[str, set[str]]:
        """Topic -> tags of the group's subscription, as the broker shows it."""
        found = subscriptions_of(self.broker.address, self.name)
        return {topic: data.tags_set for topic, data in found.items()}

    def wait_until_shown(self, expected: dict[str, set[str]]) -> None:
        until(lambda: self.shown() == expected, f"{self.name} subscribes {expected}")

    def wait_until_shared(self, *halves: tuple[PushConsumer, set[int]]) -> None:
        """Wait until each member holds exactly these queues, the retry topic's left aside.

        And until the heartbeat that a client sends one second after its start, which nothing turns off,
        is behind them: it would undo what a test forces.
        """

        def state() -> bool:
            for consumer, expected in halves:
                held = {q.queue for q in consumer.assigned() if not q.topic.startswith("%RETRY%")}
                assert held == expected
            return time.monotonic() > self._joined_s + 1.5

        until(state, "each member has its half of the queues", within_s=60)


def pull(broker: RunningBroker, group: str, topic: str) -> Any:
    """What the broker answers to a pull of this group now: the pull of any member."""
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subVersion": "0",
        "subscription": "",
        "expressionType": "TAG",
    }
    return ask(broker.address, RequestCode.PULL_MESSAGE, ext)


def broker_log(broker: RunningBroker) -> str:
    return broker.broker_log() if isinstance(broker, JavaBroker) else broker.log()


def send(producer: Producer, topic: str, tags: str | None, bodies: list[str]) -> list[Sent]:
    """The n-th to queue n % 4."""
    return [
        producer.send(message(topic, body, tags=tags), queue=number % 4)[0]
        for number, body in enumerate(bodies)
    ]


def eight(prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in range(8)]


def texts(consumer: PushConsumer) -> list[str]:
    return sorted(each.text for each in consumer.received)


def tracks(tool: Mqadmin, broker: RunningBroker, group: str, sent: list[Sent]) -> list[str]:
    """The group's track type of each message, computed by RocketMQ's own admin library (S89)."""
    found = []
    for each in sent:
        printed = tool.at(broker.namesrv)("queryMsgById", "-i", each.offset_msg_id)
        types = re.findall(
            rf"MessageTrack \[consumerGroup={re.escape(group)}, trackType=(\w+)", printed.out
        )
        assert len(types) == 1, printed
        found += types
    return found


def wait_for_tracks(
    tool: Mqadmin, broker: RunningBroker, group: str, sent: list[Sent], expected: str
) -> None:
    def state() -> bool:
        assert tracks(tool, broker, group, sent) == [expected] * len(sent)
        return True

    until(state, f"the track of every message is {expected}", within_s=60)


def check_balance(
    broker: RunningBroker,
    group: str,
    topic: str,
    expected: dict[str, int],
    lost: set[tuple[int, int]],
) -> None:
    """The balance names every message that members lost; RocketMQ's broker knows of none.

    lost: queue ids and offsets.
    """
    if not isinstance(broker, PocketBroker):
        return

    def state() -> bool:
        ask_for = {"group": group, "topic": topic}
        [row] = ask_json(broker.address, PocketRequestCode.GET_GROUP_BALANCE, ask_for)["topics"]
        numbers = {name: count for name, count in row.items() if name not in ("topic", "group")}
        assert {name: count for name, count in numbers.items() if count} == expected
        ask_for |= {"states": "lost"}
        rows = ask_json(broker.address, PocketRequestCode.GET_GROUP_BALANCE, ask_for)["rows"]
        assert lost == {
            (each["queueId"], offset)
            for each in rows
            for offset in range(each["first"], each["last"] + 1)
        }
        return True

    until(state, "the balance says what members saw", within_s=60)


def test_two_topics_in_one_group_starve_one_member(
    broker: RunningBroker, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """E2a: code 24 and its log line, 4 of 8 for the last to heartbeat; a heartbeat turns the roles."""
    first_topic, second_topic = f"{topic}_TopicTest", f"{topic}_mytest"
    for name in (first_topic, second_topic):
        make_topic(broker, name)
    both = Group(broker, members, group)
    producer = both.producer()
    first = both.join("1", first_topic, "*")
    second = both.join("2", second_topic, "*")
    both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
    second.heartbeat()
    both.wait_until_shown({second_topic: set()})

    send(producer, first_topic, None, eight("T"))
    send(producer, second_topic, None, eight("m"))

    second.wait(4)
    refused = pull(broker, group, first_topic)
    assert refused.code == 24
    line = f"the consumer's subscription not exist, group: {group}, topic:{first_topic}"
    warnings = [each for each in broker_log(broker).splitlines() if line in each]
    assert warnings
    assert all(" WARN" in each for each in warnings)
    assert texts(second) == ["m2", "m3", "m6", "m7"]
    assert {each.queue for each in second.received} == {2, 3}
    assert texts(first) == []

    first.heartbeat()
    both.wait_until_shown({first_topic: set()})

    first.wait(4)
    assert pull(broker, group, second_topic).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    send(producer, second_topic, None, eight("later"))
    send(producer, first_topic, None, eight("U"))
    first.wait(8)
    assert texts(first) == ["T0", "T1", "T4", "T5", "U0", "U1", "U4", "U5"]
    assert texts(second) == ["m2", "m3", "m6", "m7"]


def make_last(group: Group, consumer: PushConsumer, topic: str, tags: str) -> None:
    """Make this member the last that changed its subscription: which one is last is a race (trap 1)."""

    def state() -> bool:
        if group.shown() == {topic: parse_tags(tags)}:
            return True
        consumer.subscribe(topic, tags)
        return False

    until(state, f"the broker shows {tags}")


def test_two_tags_lose_one_tag_and_half_of_the_other(
    new_broker: NewBroker, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """E2b: the stored subscription is the last member's, and filters the pulls of both."""
    broker = new_broker(longPollingEnable="false")
    make_topic(broker, topic)
    both = Group(broker, members, group)
    producer = both.producer()
    first, second = both.join("1", topic, "A"), both.join("2", topic, "B")
    both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
    make_last(both, second, topic, "B")

    stored = connection_of(broker.address, group)["subscriptionTable"][topic]
    assert stored.pop("subVersion") > 1_696_901_014_319
    assert stored == {
        "classFilterMode": False,
        "codeSet": [66],
        "expressionType": "TAG",
        "subString": "B",
        "tagsSet": ["B"],
        "topic": topic,
    }
    send(producer, topic, "A", eight("A"))
    send(producer, topic, "B", eight("B"))

    second.wait(4)
    until(
        lambda: offsets_of(broker.address, group, topic) == dict.fromkeys(range(4), (4, 4)),
        "every queue was read to its end",
        within_s=60,
    )
    assert texts(second) == ["B2", "B3", "B6", "B7"]
    assert texts(first) == []
    # Each queue has two A, then two B: all A, and the B of the first member's queues.
    lost = {(queue, offset) for queue in range(4) for offset in range(4)}
    lost -= {(queue, offset) for queue in (2, 3) for offset in (2, 3)}
    check_balance(broker, group, topic, {"stored": 16, "consumed": 4, "lost": 12}, lost)


def test_post_subscription_when_pull_gets_the_own_tag(
    broker: RunningBroker, members: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """E2b with postSubscriptionWhenPull (S45): the expression of the pull wins over the group's."""
    make_topic(broker, topic)
    both = Group(broker, members, group)
    producer = both.producer()
    first = both.join("1", topic, "A", postSubscriptionWhenPull=True)
    second = both.join("2", topic, "B")
    both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
    make_last(both, second, topic, "B")

    send(producer, topic, "A", eight("A"))
    send(producer, topic, "B", eight("B"))

    first.wait(4)
    second.wait(4)
    assert texts(first) == ["A0", "A1", "A4", "A5"]
    assert texts(second) == ["B2", "B3", "B6", "B7"]


def test_the_last_tag_decides_and_the_other_member_drops(
    broker: RunningBroker,
    members: Session,
    make_topic: MakeTopic,
    tool: Mqadmin,
    topic: str,
    group: str,
) -> None:
    """E3, E3b, E3c: B2, B3, B6, B7 are consumed, the rest by no member, and every offset says it was."""
    make_topic(broker, topic)
    both = Group(broker, members, group)
    producer = both.producer()
    first = both.join("A", topic, "tagA")
    both.wait_until_shown({topic: {"tagA"}})
    second = both.join("B", topic, "tagB")
    both.wait_until_shared((first, {0, 1}), (second, {2, 3}))
    make_last(both, second, topic, "tagB")

    sent = send(producer, topic, "tagB", eight("B"))

    second.wait(4)
    # The first member's queues move on when its next pull returns empty: after 15 s of long polling.
    until(
        lambda: offsets_of(broker.address, group, topic) == dict.fromkeys(range(4), (2, 2)),
        "every queue: broker offset 2, group offset 2",
        within_s=90,
    )
    assert texts(second) == ["B2", "B3", "B6", "B7"]
    assert texts(first) == []
    assert tracks(tool, broker, group, sent) == ["CONSUMED"] * 8
    lost = {(queue, offset) for queue in (0, 1) for offset in (0, 1)}
    check_balance(broker, group, topic, {"stored": 8, "consumed": 4, "lost": 4}, lost)

    # E3b: B leaves, A's queues change, so it tells the broker its subscription with a new version.
    second.close()
    both.wait_until_shown({topic: {"tagA"}})
    assert tracks(tool, broker, group, sent) == ["CONSUMED_BUT_FILTERED"] * 8

    # E3c: a message that an online group has not reached, then a group that is not online.
    both.wait_until_shared((first, {0, 1, 2, 3}))
    first.behave(delay_ms=30_000)
    [later] = producer.send(message(topic, "A0", tags="tagA"), queue=0)
    wait_for_tracks(tool, broker, group, [later], "NOT_CONSUME_YET")
    first.close()
    wait_for_tracks(tool, broker, group, [*sent, later], "NOT_ONLINE")
    assert texts(first) == []
