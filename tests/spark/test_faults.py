"""A broker that is killed and comes back in the middle of reads, plans, streams and writes."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pocketmq.bulk.errors import DataLoss
from pocketmq.bulk.offsets import LossRule, each
from pocketmq.bulk.rows import Read
from pocketmq.remoting.admin_headers import DeleteTopicHeader
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RemotingError
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.transport.blocking import OPAQUES
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue, NeverAnswered
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import OffsetRange, PullSettings, read_ranges
from pocketmq.spark.brokers.reader import BrokerReader
from pocketmq.spark.brokers.stream import make_broker_stream
from pocketmq.spark.columns import projection_of, schema_of
from pocketmq.spark.given_options import parse_options
from pocketmq.spark.retry import RetryPause
from pocketmq.spark.source import PocketMQDataSource
from pocketmq.spark.stream import OffsetStream
from pocketmq.spark.stream_offset import from_offset, seen_of, to_offset
from pocketmq.spark.write.rows import RowMessage
from pocketmq.spark.write.send import TaskSender
from pocketmq.spark.write.sink import make_writer
from tests.interop.brokers import PocketBroker, RunningBroker, make_broker
from tests.kit.nursery import Nursery
from tests.kit.waiting import until
from tests.spark.broker_topics import make_topic, send, wait_readable
from tests.spark.conftest import BROKER_CONF, KILLS
from tests.spark.cutting_proxy import CuttingProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY = StructType([StructField("body", StringType())])


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_pauses_double_up_to_5_s_until_the_time_is_used_up() -> None:
    clock = Clock()
    patience = RetryPause(20_000, clock=clock, sleep=clock.sleep)
    error = ConnectionLost("gone")

    def wait_for_ever() -> None:
        while True:
            patience.pause(error)

    with pytest.raises(ConnectionLost, match="gone"):
        wait_for_ever()
    assert clock.slept[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert max(clock.slept) == 5.0
    assert sum(clock.slept) == pytest.approx(20)


def test_a_fault_after_a_success_gets_the_whole_time() -> None:
    clock = Clock()
    patience = RetryPause(1000, clock=clock, sleep=clock.sleep)
    for _ in range(50):
        patience.pause(ConnectionLost("gone"))
        patience.succeeded()
    assert clock.slept == [0.1] * 50


def test_without_time_the_first_fault_is_the_last() -> None:
    clock = Clock()
    with pytest.raises(ConnectionLost):
        RetryPause(0, clock=clock, sleep=clock.sleep).pause(ConnectionLost("gone"))
    assert clock.slept == []


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """What forks brokers, which are started often here."""
    with Nursery() as made:
        yield made


@pytest.fixture
def own(tmp_path: Path, nursery: Nursery) -> Iterator[RunningBroker]:
    """A broker that this test may kill."""
    made = PocketBroker(tmp_path, config=BROKER_CONF, nursery=nursery)
    made.start()
    yield made
    made.kill()


@contextmanager
def coming_back(broker: RunningBroker) -> Iterator[None]:
    """Inside, the broker is dead at first and started again beside what is done there."""
    broker.kill()
    thread = threading.Thread(target=broker.start)
    thread.start()
    yield
    thread.join()


def test_a_plan_and_a_write_wait_for_a_cluster_that_starts(own: RunningBroker) -> None:
    topic = make_topic(own, 2)
    send(own, topic, 10)
    wait_readable(own, topic, 10)
    # Who says how long is waited at the first contact, too: the processes that plan know of none before.
    given = {"nameServer": own.namesrv, "subscribe": topic, "retryTimeoutMs": "120000"}
    source = PocketMQDataSource(given)
    with coming_back(own):
        partitions = source.reader(source.schema()).partitions()
    assert partitions
    with coming_back(own):
        make_writer(
            parse_options({"nameServer": own.namesrv, "topic": topic, "retryTimeoutMs": "120000"}),
            BODY,
        )


def test_a_read_goes_on_where_it_was_when_the_broker_comes_back(own: RunningBroker) -> None:
    topic = make_topic(own, 3)
    # More than one pull of each queue for each time that the broker is killed.
    count = 300 + 300 * KILLS
    send(own, topic, count)
    wait_readable(own, topic, count)
    access = BrokerAccess(own.namesrv, retry_timeout_ms=120_000)
    with BrokerClient(access) as client:
        queues = client.queues(topic, Perm.READ)
        ranges = [OffsetRange(q, 0, client.max_offset(q)) for q in queues]
        settings = PullSettings("TOOLS_CONSUMER", "*", "TAG", 32)
        read = Read(("queueId", "queueOffset"), batch_bytes=1)
        batches = read_ranges(client, ranges, settings, read, LossRule())
        rows = next(batches).to_pylist()
        for _ in range(KILLS):
            with coming_back(own):
                rows += next(batches).to_pylist()
        for batch in batches:
            rows += batch.to_pylist()
    found = sorted((r["queueId"], r["queueOffset"]) for r in rows)
    assert found == [(r.queue.queue_id, o) for r in ranges for o in range(r.end)]


def test_what_a_broker_passes_over_is_a_loss(tmp_path: Path) -> None:
    """It answers with what is behind a record that it cannot read, without a word."""
    small = BROKER_CONF | {"mappedFileSizeCommitLog": 1 << 14}
    broker = make_broker("pocketmq", tmp_path, config=small)
    broker.start()
    topic = make_topic(broker, 1)
    send(broker, topic, 300)
    wait_readable(broker, topic, 300)
    broker.stop()
    index = (broker.store / "consumequeue" / topic / "0").iterdir()
    position = int.from_bytes(next(index).read_bytes()[20 * 40 :][:8], "big")
    with next(p for p in (broker.store / "commitlog").iterdir() if int(p.name) == 0).open(
        "r+b"
    ) as log:
        log.seek(position + 4)
        log.write(bytes(4))
    broker.start()
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        (queue,) = client.queues(topic, Perm.READ)

        def read(start: int, end: int, loss: LossRule, expression: str = "*") -> int:
            settings = PullSettings("TOOLS_CONSUMER", expression, "TAG", 32)
            ranges = [OffsetRange(queue, start, end)]
            batches = read_ranges(client, ranges, settings, Read(("queueOffset",)), loss)
            return sum(b.num_rows for b in batches)

        with pytest.raises(DataLoss, match=r"queue 0: 1 of the offsets 32 to 64 are not in the"):
            read(0, 300, LossRule())
        loss = LossRule(fail=False)
        assert (read(0, 300, loss), len(loss.losses)) == (299, 1)
        # What is not wanted may be missing.
        assert read(0, 40, LossRule()) == 40
        assert read(0, 300, LossRule(), "a") == 100
        # RocketMQ 5.x throws away what a later message of the same key replaces, and pulls pass over it.
        broker.stop()
        table = broker.store / "config" / "topics.json"
        rows = json.loads(table.read_text())
        rows["topicConfigTable"][topic]["attributes"] = {"cleanup.policy": "COMPACTION"}
        table.write_text(json.dumps(rows))
        broker.start()
        assert read(0, 300, LossRule()) == 299
    broker.kill()


def test_a_stream_waits_for_an_absent_broker(
    own: RunningBroker,
) -> None:
    topic = make_topic(own, 2)
    send(own, topic, 10)
    wait_readable(own, topic, 10)
    given = {"nameServer": own.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    options = parse_options(given)
    # It answers at once here, so this is no limit later.
    options.first_contact_ms = 0
    reader = make_broker_stream(options, projection_of(schema_of(""), ""), 1)
    start = from_offset(reader.initialOffset())
    with coming_back(own):
        end = reader.latest_from(start, 0, 0)
    assert sum(n for _, n in each(end)) == 10
    impatient = make_broker_stream(
        parse_options(given | {"retryTimeoutMs": "300", "failOnDataLoss": "false"}),
        projection_of(schema_of(""), ""),
        1,
    )
    own.kill()
    # With failOnDataLoss=false too: a broker that is away is no loss, its queues would begin anew.
    with pytest.raises(RemotingError):
        impatient.latest_from(end, 0, 0)
    own.start()
    assert to_offset(reader.latest_from(end, 0, 0)) == to_offset(end)
    reader.stop()
    impatient.stop()


def test_a_running_query_outlives_its_broker(
    spark: "SparkSession", own: RunningBroker, tmp_path: Path
) -> None:
    """A broker killed beside micro-batches, a Parquet sink."""
    topic = make_topic(own, 2)
    count = 100
    send(own, topic, count)
    out = str(tmp_path / "out")
    options = {"nameServer": own.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    query = (
        spark.readStream.format("pocketmq")
        .options(**options, columns="body")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(out)
    )
    try:
        until(lambda: query.lastProgress is not None, "the first batch")
        for _ in range(KILLS):
            own.kill()
            own.start()
            send(own, topic, 50, first=count)
            count += 50
        wait_readable(own, topic, count)
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(out).collect()
    assert sorted(int(bytes(r.body)) for r in rows) == list(range(count))


def test_a_broker_that_comes_back_with_another_store_is_a_loss(own: RunningBroker) -> None:
    """Its offsets fit by chance, and what is at those that were read is something else."""

    def started(**options: str) -> OffsetStream:
        given = {"nameServer": own.namesrv, "subscribe": "Exchanged", "startingOffsets": "earliest"}
        return make_broker_stream(
            parse_options(given | options), projection_of(schema_of(""), ""), 1
        )

    def after(reader: OffsetStream, offset: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The next offset, and how many requests were made for it."""
        first = next(OPAQUES)
        return reader.after(offset, 0, 0), next(OPAQUES) - first

    def fill(count: int) -> None:
        make_topic(own, 2, "Exchanged")
        send(own, "Exchanged", count)
        wait_readable(own, "Exchanged", count)

    fill(10)
    reader = started()
    end, _ = after(reader, reader.initialOffset())
    ((place, mark),) = seen_of(end).topics.items()
    assert (place[0], mark[:2]) == ("Exchanged", [1, 4])
    # As a checkpoint of an earlier version says it.
    old = {name: value for name, value in end.items() if name != "topics"}
    assert seen_of(old | {"stores": {place[1]: [place[0], *mark]}}) == seen_of(end)
    # Checked over a new connection, and only once.
    again = started()
    first, second, third = (after(again, end) for _ in range(3))
    assert first[0] == second[0] == third[0] == end
    assert (first[1] - second[1], second[1]) == (1, third[1])
    own.kill()
    own.start()
    assert after(again, end)[0] == end
    own.kill()
    own.store.rename(own.store.with_name("old"))
    own.start()
    fill(30)
    strict = started()
    for one in (again, strict):
        with pytest.raises(DataLoss, match="is not the one that the checkpoint was made for"):
            after(one, end)
    lenient = started(failOnDataLoss="false")
    other, _ = after(lenient, end)
    assert sum(stop for _, stop in each(from_offset(other))) == 30
    assert seen_of(other) != seen_of(end)
    ranges = [r for p in lenient.partitions(end, other) for r in p.value.ranges]
    assert sum(r.end - r.start for r in ranges) == 30
    assert after(lenient, other)[0] == other
    # So may one topic alone, at a broker that stands all the time.
    steady = started()
    assert after(steady, other)[0] == other
    with BrokerClient(BrokerAccess(own.namesrv)) as client:
        gone = DeleteTopicHeader(topic="Exchanged")
        client.call(own.address, RequestCode.DELETE_TOPIC_IN_BROKER, gone)
    fill(50)
    with pytest.raises(DataLoss, match=r"topic Exchanged of broker .* deleted and made again"):
        after(steady, other)
    made_again, _ = after(lenient, other)
    ranges = [r for p in lenient.partitions(other, made_again) for r in p.value.ranges]
    assert sum(r.end - r.start for r in ranges) == 50
    assert after(lenient, made_again)[0] == made_again
    for one in (reader, again, strict, lenient, steady):
        one.stop()


def rerouted(proxy: CuttingProxy) -> Callable[[BrokerQueue], BrokerQueue]:
    return lambda q: BrokerQueue(q.topic, q.broker_name, proxy.address, q.queue_id)


def test_a_send_with_a_lost_answer_is_repeated_and_counted(broker: RunningBroker) -> None:
    """What was acknowledged before is not sent again."""
    topic = make_topic(broker, 1)
    count = 0

    def cut(request: RemotingCommand) -> str:
        nonlocal count
        if request.code not in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            return ""
        count += 1
        return {3: "answer", 5: "request"}.get(count, "")

    with (
        CuttingProxy(broker.address, cut) as proxy,
        BrokerClient(BrokerAccess(broker.namesrv, retry_timeout_ms=60_000)) as client,
    ):
        sender = TaskSender(client, "SparkTests", "q/0/0", "roundrobin", 1000)
        sender._routes[topic] = [rerouted(proxy)(q) for q in client.queues(topic, Perm.WRITE)]
        for i in range(100):
            sender.send(RowMessage(topic, b"%d" % i, "", 0, None, None, False))
        sender.finish()
    assert sender.sent == 100
    assert 0 < sender.repeated < 40
    wait_readable(broker, topic, 100)
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        (queue,) = client.queues(topic, Perm.READ)
        stored = client.max_offset(queue)
    # One of the two batches had arrived.
    assert 100 < stored < 100 + sender.repeated


def test_answers_before_a_lost_connection_count() -> None:
    """Of three sends the last two were answered: the first one alone goes out again, and counts."""
    asked: list[int] = []

    def serve(listener: socket.socket) -> None:
        for answered in ((1, 2), (0,)):
            near, _ = listener.accept()
            with near:
                frames, requests = FrameDecoder(), list[RemotingCommand]()
                while len(requests) < len(answered) + (answered == (1, 2)):
                    requests += map(decode, frames.feed(near.recv(65_536)))
                asked.extend(int((each.ext or {})["e"]) for each in requests)
                for number in answered:
                    ext = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
                    near.sendall(encode(requests[number].answer(ResponseCode.SUCCESS, ext=ext)))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        peer = threading.Thread(target=serve, args=(listener,), daemon=True)
        peer.start()
        with BrokerClient(BrokerAccess(address, retry_timeout_ms=5_000)) as client:
            sender = TaskSender(client, "SparkTests", "q/0/0", "column", 1000)
            sender._routes["T"] = [BrokerQueue("T", "b", address, n) for n in range(3)]
            for number in range(3):
                sender.send(RowMessage("T", b"x", "", 0, number, None, False))
            sender.finish()
        peer.join()
    assert asked == [0, 1, 2, 0]
    assert (sender.sent, sender.repeated) == (3, 1)


def test_a_name_server_that_never_answered_is_given_up_soon() -> None:
    """A wrong address cost two minutes."""
    address = "127.0.0.1:1"
    given = {"nameServer": address, "subscribe": "T"}
    assert parse_options(given).first_contact_ms == 10_000
    assert parse_options(given | {"retryTimeoutMs": "7"}).first_contact_ms == 7
    options = parse_options(given)
    options.first_contact_ms = 1
    with pytest.raises(
        NeverAnswered, match=f"connect to {address}.*has answered yet.*retryTimeoutMs"
    ):
        BrokerReader(options, projection_of(schema_of(""), ""), 1).partitions()
    with pytest.raises(NeverAnswered):
        make_broker_stream(options, projection_of(schema_of(""), ""), 1).initialOffset()
    writing = parse_options({"nameServer": address, "topic": "T"})
    writing.first_contact_ms = 1
    with pytest.raises(NeverAnswered):
        make_writer(writing, BODY)


def test_a_broker_that_stays_away_ends_the_read_in_time(own: RunningBroker) -> None:
    own.kill()
    source = PocketMQDataSource(
        {"nameServer": own.namesrv, "subscribe": "T", "retryTimeoutMs": "100"}
    )
    with pytest.raises(ConnectFailed):
        source.reader(source.schema()).partitions()
    own.start()
