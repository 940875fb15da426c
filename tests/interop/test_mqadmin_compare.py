"""The words of mqadmin at PocketMQ are those at RocketMQ 4.9.7.

The same session is played at both brokers with mqadmin 4.9.7; what each command prints is held
against the other's, with addresses, ids, times and measured rates taken out.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.interop.brokers import RunningBroker, make_broker
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import PeerError, Sent, Session, message
from tests.interop.mqadmin import Mqadmin
from tests.kit.waiting import until

TOPIC, ORDERED, GROUP = "CompareTopic", "CompareOrdered", "compare_group"
SENDERS = "compare_senders"
FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}

# What each step prints is compared line by line (sorted where the order means nothing) ...
STEPS: dict[str, tuple[str, ...]] = {
    "create a topic": ("updateTopic", "-b", "BROKER", "-t", TOPIC, "-r", "2", "-w", "2"),
    "create an ordered topic": (
        *("updateTopic", "-c", "CLUSTER", "-t", ORDERED),
        *("-r", "2", "-w", "3", "-p", "6", "-o", "true"),
    ),
    "create a topic with a bad name": ("updateTopic", "-b", "BROKER", "-t", "a b!", "-r", "1"),
    "create a system topic": ("updateTopic", "-b", "BROKER", "-t", "SCHEDULE_TOPIC_XXXX"),
    "(send and consume)": (),
    "topics": ("topicList",),
    "topics with groups": ("topicList", "-c"),
    "route": ("topicRoute", "-t", TOPIC),
    "route of none": ("topicRoute", "-t", "none"),
    "status of a topic": ("topicStatus", "-t", TOPIC),
    "status of no topic": ("topicStatus", "-t", "none"),
    "cluster of a topic": ("topicClusterList", "-t", TOPIC),
    "read only": ("updateTopicPerm", "-b", "BROKER", "-t", ORDERED, "-p", "4"),
    "read only again": ("updateTopicPerm", "-b", "BROKER", "-t", ORDERED, "-p", "4"),
    "read and write": ("updateTopicPerm", "-c", "CLUSTER", "-t", ORDERED, "-p", "6"),
    "order": ("updateOrderConf", "-t", ORDERED, "-m", "get"),
    "no order": ("updateOrderConf", "-t", ORDERED, "-m", "delete"),
    "order of none": ("updateOrderConf", "-t", ORDERED, "-m", "get"),
    "create a group": ("updateSubGroup", "-b", "BROKER", "-g", "gnew", "-r", "3", "-q", "2"),
    "configuration of a group": ("getConsumerConfig", "-g", GROUP),
    "progress of a group": ("consumerProgress", "-g", GROUP),
    "status of a group": ("consumerStatus", "-g", GROUP),
    "connections of a group": ("consumerConnection", "-g", GROUP),
    "connections of no group": ("consumerConnection", "-g", "none"),
    "connections of producers": ("producerConnection", "-g", SENDERS, "-t", TOPIC),
    "connections of no producers": ("producerConnection", "-g", "none", "-t", TOPIC),
    "status of the broker": ("brokerStatus", "-b", "BROKER"),
    "consumption at the broker": ("brokerConsumeStats", "-b", "BROKER"),
    "message by key": ("queryMsgByKey", "-t", TOPIC, "-k", "k2"),
    "message by no key": ("queryMsgByKey", "-t", TOPIC, "-k", "none"),
    "message by id": ("queryMsgById", "-i", "OFFSET_ID"),
    "message by unique key": ("queryMsgByUniqueKey", "-t", TOPIC, "-i", "MSG_ID"),
    "message by offset": ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1"),
    "message by no offset": (
        "queryMsgByOffset",
        "-t",
        TOPIC,
        "-b",
        "broker-a",
        "-i",
        "0",
        "-o",
        "99",
    ),
    "queue entries": ("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "9"),
    "queue entries of a group": (
        *("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "2"),
        *("-b", "BROKER", "-g", GROUP),
    ),
    "messages": ("printMsg", "-t", TOPIC, "-d", "true"),
    "messages of a tag": ("printMsg", "-t", TOPIC, "-s", "B", "-d", "true"),
    "messages of a queue": (
        *("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1"),
        *("-p", "true", "-f", "true"),
    ),
    "consume": ("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0", "-c", "2"),
    "allocation": ("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1@A,10.0.0.2@B"),
    "reset offsets of a live group": ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0"),
    "(stop the consumer)": (),
    "reset offsets": ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0"),
    "progress after the reset": ("consumerProgress", "-g", GROUP),
    "skip": ("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC),
    "progress after the skip": ("consumerProgress", "-g", GROUP),
    "clone offsets": ("cloneGroupOffset", "-s", GROUP, "-d", "gnew", "-t", TOPIC),
    "status of a group without members": ("consumerStatus", "-g", GROUP),
    "no write permission": ("wipeWritePerm", "-b", "broker-a"),
    "route without writing": ("topicRoute", "-t", TOPIC),
    "write permission": ("addWritePerm", "-b", "broker-a"),
    "no write permission at none": ("wipeWritePerm", "-b", "none"),
    "put a key": ("updateKvConfig", "-s", "NS", "-k", "k", "-v", "v"),
    "delete a key": ("deleteKvConfig", "-s", "NS", "-k", "k"),
    "clean expired queues": ("cleanExpiredCQ", "-b", "BROKER"),
    "clean unused topics": ("cleanUnusedTopic", "-c", "CLUSTER"),
    "delete expired files": ("deleteExpiredCommitLog", "-b", "BROKER"),
    "change a setting": (
        "updateBrokerConfig",
        "-b",
        "BROKER",
        "-k",
        "fileReservedTime",
        "-v",
        "71",
    ),
    "cluster": ("clusterList",),
    "cluster in numbers": ("clusterList", "-m"),
    "delete a group": ("deleteSubGroup", "-b", "BROKER", "-g", "gnew"),
    "delete a topic": ("deleteTopic", "-c", "CLUSTER", "-t", ORDERED),
}
SORTED = {"topics", "topics with groups", "consumption at the broker", "allocation"}
# ... or by its keys only, where the values are the machine's or the broker's own; PocketMQ adds
# the keys that the tools of 5.x ask for.
KEYS_ONLY = {"status of the broker"}


@dataclass
class Play:
    """The whole session at one broker; `printed` holds what each step gave."""

    broker: RunningBroker
    admin: Mqadmin
    java: Session
    printed: dict[str, str] = field(default_factory=dict)

    def run(self) -> dict[str, str]:
        for step, command in STEPS.items():
            if step == "(send and consume)":
                self._send_and_consume()
            elif step == "(stop the consumer)":
                self._stop_the_consumer()
            else:
                self._ask(step, command)
        return self.printed

    def _send_and_consume(self) -> None:
        until(lambda: {TOPIC, ORDERED} <= set(self.admin("topicList").lines), "the topics' routes")
        namesrv, java = self.broker.namesrv, self.java
        self.producer = producer = java.producer(namesrv, SENDERS, name="sender")
        # A first member makes the retry topic, so that the second finds its route.
        before = java.push_consumer(namesrv, GROUP, TOPIC, settings=FIRST)
        retry_topic = f"%RETRY%{GROUP}"
        until(lambda: producer.queues(retry_topic), "the retry topic", ignoring=PeerError)
        before.close()
        self.sent: list[Sent] = []
        for number in range(8):
            tags = "AB"[number // 2 % 2]
            one = message(TOPIC, f"hello{number}", tags=tags, keys=f"k{number}")
            self.sent += producer.send(one, queue=number % 2)
        until(lambda: producer.query_key(TOPIC, "k7"), "the index", ignoring=PeerError)
        self.consumer = java.push_consumer(
            namesrv, GROUP, {TOPIC: "A||B"}, settings=FIRST, name="member"
        )
        self.consumer.wait(8)
        for words, name in (
            (("consumerConnection", "-g", GROUP), "member"),
            (("producerConnection", "-g", SENDERS, "-t", TOPIC), "sender"),
        ):
            until(
                lambda words=words, name=name: f"@{name}" in self.admin(*words).out,  # type: ignore[misc]
                f"the connection of the {name}",
            )

        def committed() -> bool:
            self.consumer.persist_offsets()
            progress = self.admin("consumerProgress", "-g", GROUP)
            return len(progress.rows) == 5 and "Diff Total: 0" in progress.out

        until(committed, "offsets of all three queues at the broker")

    def _stop_the_consumer(self) -> None:
        consumed = self.java.driver.consumed["member"]
        self.java.driver.wait(lambda: len(consumed) >= 16, "all once more", 60)
        self.consumer.close()
        until(
            lambda: "CODE: 206" in self.admin("consumerConnection", "-g", GROUP).err,
            "no connection of the group",
        )

    def _ask(self, step: str, command: tuple[str, ...]) -> None:
        names = {"BROKER": self.broker.address, "CLUSTER": self.broker.cluster}
        if hasattr(self, "sent"):
            names["OFFSET_ID"] = self.sent[2].offset_msg_id
            names["MSG_ID"] = self.sent[2].msg_id
        words = [names.get(word, word) for word in command]
        answer = self.admin(words[0], *words[1:])
        failure = re.search(r"CODE: \d+.*", answer.err)
        text = answer.out + (failure.group(0) if failure else "")
        self.printed[step] = plain(text, self.broker)


_REPLACED: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"\b[0-9A-F]{32,56}\b", "ID"),
    (r"\d+\.\d+\.\d+\.\d+@(sender|member)", r"\1"),
    (r"127\.0\.0\.1:\d+", "CLIENT_ADDRESS"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "TIME"),
    (r"\d{13}/", "MS/"),
    (r"(Timestamp|subVersion\"?)([=:])\d+", r"\1\2MS"),
    (r"(?m)(DefaultCluster broker-a \d+ \d+) \d+ \d+$", r"\1 IN OUT"),
    (r"(TPS: )\d+\.\d+", r"\1N"),
    (r"\d+\.\d+\(0,\d+ms\)", "N(0,Nms)"),
    (r"(V4_9_7\s.*?)\s+\d+\s+-?\d+\.\d+\s+\d\.\d{4}", r"\1 PCWAIT HOUR SPACE"),
    # The order of a Java map of properties is that of its hash table.
    (r"\{[^{}]*\}", lambda found: "{" + ", ".join(sorted(found.group(0)[1:-1].split(", "))) + "}"),
]


def plain(text: str, broker: RunningBroker) -> str:
    """The text without what differs between two runs of the same broker."""
    text = text.replace(broker.address, "BROKER").replace(broker.namesrv, "NAMESRV")
    text = re.sub(r"[ \t]+", " ", text).strip()
    for pattern, by in _REPLACED:
        text = re.sub(pattern, by, text)
    return text


def play(kind: str, shared: Shared, folder: str) -> dict[str, str]:
    """The session at a broker of its own, which no other test has written to."""
    broker = or_missing(lambda: make_broker(kind, shared.folder / folder))
    try:
        broker.start()
        admin = shared.mqadmin("4.9.7").at(broker.namesrv)
        with shared.java("4.9.8-JSON").twin() as driver, driver.session() as java:
            return Play(broker, admin, java).run()
    finally:
        broker.kill()


@pytest.fixture(scope="session")
def at_both(shared: Shared) -> dict[str, dict[str, str]]:
    """The session at both brokers at once: a consumer takes ten seconds to follow a reset."""
    shared.mqadmin("4.9.7")  # started here, not by two threads
    shared.java("4.9.8-JSON")
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(play, "pocketmq", shared, "compared")
        theirs = pool.submit(play, "rocketmq-4.9.7", shared, "reference")
        return {"pocketmq": ours.result(), "rocketmq": theirs.result()}


@pytest.fixture(scope="session")
def at_pocketmq(at_both: dict[str, dict[str, str]]) -> dict[str, str]:
    return at_both["pocketmq"]


@pytest.fixture(scope="session")
def at_rocketmq(at_both: dict[str, dict[str, str]]) -> dict[str, str]:
    return at_both["rocketmq"]


def seen(printed: str, step: str) -> list[str]:
    # How many topics a name server knows of a broker depends on how far the broker has told it of them.
    lines = [re.sub(r" OK, \d+$", " OK, n", line.strip()) for line in printed.splitlines()]
    lines = [line for line in lines if line]
    if step in KEYS_ONLY:
        return sorted(re.split(r"_/|[: ]", line)[0] for line in lines)
    return sorted(lines) if step in SORTED else lines


@pytest.mark.parametrize("step", [step for step, command in STEPS.items() if command])
def test_mqadmin_prints_the_same_as_at_the_real_broker(
    step: str, at_rocketmq: dict[str, str], at_pocketmq: dict[str, str]
) -> None:
    """The answers are RocketMQ's, not only accepted by its tools."""
    ours, theirs = seen(at_pocketmq[step], step), seen(at_rocketmq[step], step)
    if step in KEYS_ONLY:
        assert set(theirs) <= set(ours)
    else:
        assert ours == theirs


@pytest.mark.reference
def test_two_real_brokers_print_the_same(at_rocketmq: dict[str, str], shared: Shared) -> None:
    """Judges this module: what differs between two runs of RocketMQ itself is taken out."""
    again = play("rocketmq-4.9.7", shared, "second-reference")
    assert {step: seen(text, step) for step, text in again.items()} == {
        step: seen(text, step) for step, text in at_rocketmq.items()
    }
