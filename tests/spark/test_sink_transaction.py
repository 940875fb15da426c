"""delivery=transaction, without Spark: what the driver's commit does when connections break."""

import itertools
from collections.abc import Callable

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.given_options import parse_options
from pocketmq.spark.write.rows import RowMessage
from pocketmq.spark.write.send import Half, TaskSender, WriteFailed
from pocketmq.spark.write.sink import BatchWriter, TaskCommit, make_writer
from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic, wait_readable
from tests.spark.cutting_proxy import CuttingProxy

GROUP = "SparkTxTests"
BODY = StructType([StructField("body", StringType())])


def writer_of(broker: RunningBroker, topic: str, **more: str) -> BatchWriter:
    given = {
        "nameServer": broker.namesrv, "topic": topic, "delivery": "transaction", "group": GROUP,
    }  # fmt: skip
    return make_writer(parse_options(given | more), BODY)


def halves_of(broker: RunningBroker, topic: str, count: int, address: str) -> list[Half]:
    """Half messages that a task sent; they are to be ended at `address`."""
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        sender = TaskSender(client, GROUP, "q/0/0", "roundrobin", 4096, half=True)
        for i in range(count):
            sender.send(RowMessage(topic, b"%d" % i, "", 0, None, None, False))
        sender.finish()
    for half in sender.halves:
        half.address = address
    return sender.halves


def visible(broker: RunningBroker, topic: str) -> int:
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        return sum(client.max_offset(q) for q in client.queues(topic, Perm.READ))


def at_end(cuts: dict[int, str]) -> Callable[[RemotingCommand], str]:
    """Cuts at the n-th END_TRANSACTION; 0 stands for all others."""
    count = itertools.count(1)

    def cut(request: RemotingCommand) -> str:
        if request.code != RequestCode.END_TRANSACTION:
            return ""
        return cuts.get(next(count), cuts.get(0, ""))

    return cut


def test_a_commit_shows_every_row_once_though_connections_break(broker: RunningBroker) -> None:
    """RocketMQ carries a repeated commit out again, so what is visible is not committed a second time."""
    topic = make_topic(broker, 2)
    cuts = at_end({1: "request", 150: "answer", 400: "request", 700: "answer"})
    with CuttingProxy(broker.address, cuts) as proxy:
        halves = halves_of(broker, topic, 1000, proxy.address)
        writer_of(broker, topic).commit([TaskCommit(0, 1000, False, halves)])
    assert proxy.cuts == 4
    ended = [(r.ext or {})["tranStateTableOffset"] for r in proxy.passed if r.code == 37]
    assert len(ended) == len(set(ended)) == 1000
    wait_readable(broker, topic, 1000)
    assert visible(broker, topic) == 1000


def test_a_failed_commit_says_how_many_messages_are_visible(
    broker: RunningBroker,
) -> None:
    topic = make_topic(broker, 1)
    with CuttingProxy(
        broker.address, at_end({0: "request"} | dict.fromkeys(range(1, 601), ""))
    ) as proxy:
        halves = halves_of(broker, topic, 1000, proxy.address)
        writer = writer_of(broker, topic, retryTimeoutMs="50")
        with pytest.raises(WriteFailed, match=r"of 1000 messages, 600 were made visible"):
            writer.commit([TaskCommit(0, 1000, False, halves)])
    assert visible(broker, topic) == 600


def test_a_commit_that_the_broker_refuses_raises(broker: RunningBroker) -> None:
    """The half message of another group is not ours: RocketMQ answers with an error."""
    topic = make_topic(broker, 1)
    halves = halves_of(broker, topic, 3, broker.address)
    writer = writer_of(broker, topic, group="AnotherGroup")
    with pytest.raises(WriteFailed, match=r"The producer group wrong"):
        writer.commit([TaskCommit(0, 3, False, halves)])
    assert visible(broker, topic) == 0
