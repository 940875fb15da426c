"""Topics and messages at a running broker, by our own blocking client."""

import itertools
import time

from pocketmq.remoting.admin_headers import CreateTopicHeader
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.write.rows import RowMessage
from pocketmq.spark.write.send import TaskSender
from tests.interop.brokers import RunningBroker
from tests.kit.waiting import until

_NUMBERS = itertools.count(1)


def make_topic(broker: RunningBroker, queues: int = 3, name: str = "") -> str:
    """A topic of the test's own, writable and known to the name server."""
    topic = name or f"Spark{next(_NUMBERS)}_{time.time_ns() % 1_000_000}"
    header = CreateTopicHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        client.call(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        until(
            lambda: len(client.queues(topic, Perm.WRITE)) == queues,
            f"{queues} queues of {topic} at the name server",
        )
    return topic


def send(broker: RunningBroker, topic: str, count: int, *, first: int = 0) -> None:
    """Messages `first` .. of alternating tags a, b, c and one property n; bodies are their numbers."""
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        sender = TaskSender(client, "SparkTests", "q/0/0", "roundrobin", 4096)
        for i in range(first, first + count):
            properties = f"TAGS\x01{'abc'[i % 3]}\x02KEYS\x01k{i}\x02n\x01{i}\x02"
            sender.send(RowMessage(topic, b"%d" % i, properties, i % 5, None, None, False))
        sender.finish()
        assert sender.sent == count


def wait_readable(broker: RunningBroker, topic: str, count: int) -> None:
    """Until the queues' ends show all messages: RocketMQ indexes behind the answer."""
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        until(
            lambda: sum(client.max_offset(q) for q in client.queues(topic, Perm.READ)) >= count,
            f"{count} messages of {topic} readable",
        )
