"""Batch reads of live brokers: the same rows as from their files, filters, offsets by time, mistakes."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyspark
import pytest

from pocketmq.bulk.columns.schema import ALL
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.rows import Read
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import ConnectFailed, IllegalArgument, RemotingError
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import OffsetRange, PullSettings, read_ranges
from pocketmq.spark.brokers.times import first_at_time
from pocketmq.spark.source import PocketMQDataSource
from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic, send, wait_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Load = Callable[..., "DataFrame"]
SETTINGS = PullSettings("TOOLS_CONSUMER", "*", "TAG", 32)


@pytest.fixture
def load(spark: "SparkSession", broker: RunningBroker) -> Load:
    def load(**options: str) -> "DataFrame":
        given = {"nameServer": broker.namesrv} | options
        return spark.read.format("pocketmq").options(**given).load()

    return load


@pytest.fixture(scope="module")
def topic(broker: RunningBroker) -> str:
    """500 messages in three queues."""
    name = make_topic(broker)
    send(broker, name, 500)
    wait_readable(broker, name, 500)
    return name


def numbers(frame: "DataFrame") -> list[int]:
    return sorted(int(bytes(r.body)) for r in frame.select("body").collect())


def test_rows_pulled_from_a_broker_equal_those_of_its_files(
    load: Load, spark: "SparkSession", broker: RunningBroker, topic: str
) -> None:
    """Identical rows for the same offsets."""
    pulled = load(subscribe=topic, columns="all", minPartitions="5")
    options = {"subscribe": topic, "columns": "all", "brokerName": pulled.collect()[0].brokerName}
    files = spark.read.format("pocketmq").options(**options).load(str(broker.store))
    order = ["queueId", "queueOffset"]
    rows = pulled.orderBy(*order).collect()
    assert rows == files.orderBy(*order).collect()
    assert len(rows) == 500
    assert numbers(pulled) == list(range(500))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subExpression": "a || c"}, lambda i: i % 3 != 1),
        ({"expressionType": "SQL92", "subExpression": "n > 489"}, lambda i: i > 489),
        ({"keys": "k7,k8"}, lambda i: i in (7, 8)),
        ({"pullBatchSize": "5", "batchBytes": "1k"}, lambda i: True),
        ({"minPartitions": "11"}, lambda i: True),
    ],
)
def test_options_choose_rows(
    options: dict[str, str], wanted: Callable[[int], bool], broker: RunningBroker, topic: str
) -> None:
    """The reader that Spark calls, without Spark."""
    given = {"nameServer": broker.namesrv, "subscribe": topic, "columns": "body"} | options
    source = PocketMQDataSource(given)
    reader = source.reader(source.schema())
    bodies = [
        body
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    ]
    assert sorted(map(int, bodies)) == [i for i in range(500) if wanted(i)]


def test_where_clauses_narrow_what_is_pulled(load: Load, topic: str) -> None:
    frame = load(subscribe=topic)
    # As many tasks as can run at once: two, of three queues. 4.0 keeps the source that it has found by its
    # module, which knows nothing of them.
    knows = not pyspark.__version__.startswith("4.0")
    assert frame.rdd.getNumPartitions() == (2 if knows else 1)
    assert frame.where("queueOffset >= 3 and queueOffset < 5").count() == 6
    assert frame.where("queueId = 1 and queueOffset = 0").count() == 1
    assert set(numbers(frame.where("tags = 'b'"))) == set(range(1, 500, 3))


def test_offsets_by_time_are_exact(broker: RunningBroker, topic: str) -> None:
    """RocketMQ 4.9 answers with the nearest message; Kafka's meaning is the first at or behind the time."""
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        queue = client.queues(topic, Perm.READ)[0]
        high = client.max_offset(queue)
        times: list[int] = []
        for batch in read_ranges(
            client, [OffsetRange(queue, 0, high)], SETTINGS, Read(ALL), LossRule()
        ):
            times += [t.value // 1_000 for t in batch.column("storeTimestamp")]
        probes = {t + d for t in times for d in (-1, 0, 1)}
        for ms in sorted(probes)[:: max(1, len(probes) // 40)]:
            judge = next((o for o, t in enumerate(times) if t >= ms), None)
            assert first_at_time(client, {queue: (0, high)}, ms, SETTINGS)[queue] == judge


def test_a_deleted_range_follows_fail_on_data_loss(broker: RunningBroker, topic: str) -> None:
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        queue = client.queues(topic, Perm.READ)[0]
        high = client.max_offset(queue)
        beyond = [OffsetRange(queue, high - 2, high + 5)]
        with pytest.raises(Exception, match="truncated or recreated"):
            list(read_ranges(client, beyond, SETTINGS, Read(ALL), LossRule()))
        loss = LossRule(fail=False)
        rows = sum(b.num_rows for b in read_ranges(client, beyond, SETTINGS, Read(ALL), loss))
        assert (rows, len(loss.losses)) == (2, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "NoSuchTopic"}, "topic 'NoSuchTopic' does not exist"),
        ({"nameServer": "127.0.0.1:1", "retryTimeoutMs": "0"}, "cannot connect to 127.0.0.1:1"),
        ({"nameServer": "somewhere"}, 'nameServer must be "host:port;host:port"'),
        ({"accessKey": "a"}, "accessKey and secretKey belong together"),
        ({"expressionType": "SQL92"}, "needs option subExpression"),
        (
            {"startingOffsets": '{"TOPIC":{"absent":{"0":1}}}'},
            "broker 'absent'.*Read are the brokers",
        ),
    ],
)
def test_a_mistake_is_reported_before_a_task_starts(
    options: dict[str, str], message: str, load: Load, topic: str
) -> None:
    given = {k: v.replace("TOPIC", topic) for k, v in options.items()}
    with pytest.raises(Exception, match=message):
        load(**({"subscribe": topic} | given)).collect()


def test_a_group_begins_where_its_offsets_stand(
    load: Load, broker: RunningBroker, topic: str
) -> None:
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        queues = client.queues(topic, Perm.READ)
        ends = [client.max_offset(q) for q in queues]
        for queue, end in zip(queues, ends, strict=True):
            client.commit_offset(queue, "SparkGroupReads", end - 4)
    frame = load(subscribe=topic, startingOffsets="group", group="SparkGroupReads")
    assert frame.count() == 4 * len(queues)


@pytest.fixture
def dying_server() -> Iterator[tuple[str, list[int]]]:
    """A server that closes each connection after the first bytes, and counts them."""
    listening = socket.create_server(("127.0.0.1", 0))
    taken: list[int] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                taken.append(len(connection.recv(100)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}", taken
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_read_is_tried_again_on_a_new_connection(dying_server: tuple[str, list[int]]) -> None:
    address, taken = dying_server
    with BrokerClient(BrokerAccess(address)) as client, pytest.raises(RemotingError, match=address):
        client.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    assert len(taken) >= 3


def test_names_servers_are_tried_in_turn(broker: RunningBroker, topic: str) -> None:
    with BrokerClient(BrokerAccess(f"127.0.0.1:1;{broker.namesrv}")) as client:
        assert client.queues(topic, Perm.READ)
    with BrokerClient(BrokerAccess("127.0.0.1:1")) as client, pytest.raises(ConnectFailed):
        client.topics()
    with BrokerClient(BrokerAccess("")) as client, pytest.raises(IllegalArgument):
        client.topics()
