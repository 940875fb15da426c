"""Our `mqadmin` prints what RocketMQ's prints: the same site, asked by both."""

import re

import pytest

from pocketmq.cli.mqadmin.main import run
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import Shared
from tests.interop.driver import Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
TOPIC, GROUP = "AliasTopic", "alias_group"
# BROKER, TOPIC, GROUP, MSG_ID are put in. What is told of the same thing must be the same words in the same
# order; blanks between columns do not count.
SAME = (
    "topicList",
    "topicRoute -t TOPIC -l",
    "topicStatus -t TOPIC",
    "topicClusterList -t TOPIC",
    "updateTopic -b BROKER -t TOPIC -r 4 -w 4",
    "updateTopicPerm -b BROKER -t TOPIC -p 6",
    "updateOrderConf -t TOPIC -m put -v broker-a:4",
    "updateOrderConf -t TOPIC -m get",
    "updateOrderConf -t TOPIC -m delete",
    "consumerConnection -g GROUP",
    "consumerProgress -g GROUP",
    "getConsumerConfig -g GROUP",
    "producerConnection -g GROUP-p -t TOPIC",
    "queryMsgByKey -t TOPIC -k k3",
    "brokerConsumeStats -b BROKER",
    "getBrokerConfig -b BROKER",
    "updateBrokerConfig -b BROKER -k flushIntervalCommitLog -v 500",
    "getNamesrvConfig",
    "wipeWritePerm -b broker-a",
    "addWritePerm -b broker-a",
    "updateKvConfig -s space -k key -v value",
    "deleteKvConfig -s space -k key",
    "clusterList -m",
    "cleanExpiredCQ -b BROKER",
)
# Lines about measured or remembered things, which differ from one second to the next.
_MEASURED = re.compile(r"Consume TPS|bootTimestamp|^$")


@pytest.fixture(params=["pocketmq", pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference)])
def asked(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """Ours, and with --reference the real broker: our program works there, too."""
    return shared.broker(request.param)


def words_of(printed: str) -> list[str]:
    lines = (" ".join(line.split()) for line in printed.splitlines())
    return [line for line in lines if not _MEASURED.search(line)]


def test_our_mqadmin_prints_the_words_of_rocketmqs(
    asked: RunningBroker,
    shared: Shared,
    java_498: Session,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One test, so that both programs find the same site: a topic, a producer and a consumer online."""
    theirs = shared.mqadmin("4.9.7").at(asked.namesrv)
    theirs("updateTopic", "-b", asked.address, "-t", TOPIC, "-r", 4, "-w", 4)
    producer = java_498.producer(asked.namesrv, GROUP + "-p")
    producer.send(*(message(TOPIC, f"m{i}", tags="A", keys=f"k{i}") for i in range(8)))
    consumer = java_498.push_consumer(asked.namesrv, GROUP, {TOPIC: "A"}, settings=FIRST)
    consumer.wait(8)
    consumer.persist_offsets()
    online = ("producerConnection", "-g", GROUP + "-p", "-t", TOPIC)
    until(lambda: f"@{producer.name}" in theirs(*online).out, "the producer online")
    put = {"BROKER": asked.address, "TOPIC": TOPIC, "GROUP": GROUP}
    different: dict[str, tuple[list[str], list[str]]] = {}
    for line in SAME:
        words = [re.sub("BROKER|TOPIC|GROUP", lambda m: put[m[0]], word) for word in line.split()]
        assert run([*words, "-n", asked.namesrv]) == 0, line
        mine = words_of(capsys.readouterr().out)
        their = words_of(theirs(*words).out)
        if sorted(mine) != sorted(their):
            different[line] = (mine, their)

    assert different == {}
