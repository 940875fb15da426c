"""Brokers that are broken or hostile: never a silent loss or a foreign row, never the driver's memory."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pocketmq.bulk.errors import DataLoss
from pocketmq.bulk.offsets import LossRule, Offsets, QueueKey, store_at
from pocketmq.bulk.partition import Sizes
from pocketmq.bulk.rows import Read
from pocketmq.model.record import MAGIC_V1, Record, body_crc, write_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import IllegalArgument, RequestRefused, RequestTimeout
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.headers import GetMinOffsetHeader
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.pull import OffsetRange, PullSettings, read_ranges
from pocketmq.spark.brokers.reader import cut_ranges
from pocketmq.spark.brokers.times import first_at_time
from pocketmq.spark.retry import RetryPause

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
QUEUES = [BrokerQueue("T", "broker-a", "b:1", number) for number in range(2)]
END = 8


def record(offset: int, queue_id: int = 0, topic: str = "T", store_ms: int = 0) -> bytes:
    body = b"%d-%d" % (queue_id, offset)
    return write_record(
        Record(
            0, MAGIC_V1, body_crc(body), queue_id, 0, offset, offset * 100, 0, 0, HOST, store_ms, HOST,
            0, 0, memoryview(body), topic, b"",
        )
    )  # fmt: skip


Given = Callable[[int, int], "tuple[int, int, bytes]"]
"""(queue id, offset asked for) -> code, next offset, records."""


class OneBroker:
    """What `read_ranges` asks of its client, answered by a function."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._asked: dict[int, RemotingCommand] = {}

    def connection(self, address: str) -> "OneBroker":
        return self

    def patience(self) -> RetryPause:
        return RetryPause(0)

    def call(self, address: str, code: RequestCode, header: object) -> RemotingCommand:
        raise RequestRefused(int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), "too old", address)

    def forget(self, address: str) -> None:
        pass

    def request(self, code: RequestCode, header: object) -> int:
        ext = header.ext()  # type: ignore[attr-defined]
        code_, following, body = self._given(int(ext["queueId"]), int(ext["queueOffset"]))
        fields = {
            "nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(END),
            "suggestWhichBrokerId": "0",
        }  # fmt: skip
        opaque = len(self._asked) + 1
        self._asked[opaque] = RemotingCommand(code_, fields, body)
        return opaque

    def answer(self, opaque: int, what: str) -> RemotingCommand:
        return self._asked[opaque]


def read(given: Given, loss: LossRule, expression: str = "*") -> list[tuple[str, int, int, str]]:
    settings = PullSettings("TOOLS_CONSUMER", expression, "TAG", 32)
    ranges = [OffsetRange(queue, 0, END) for queue in QUEUES]
    columns = Read(("topic", "queueId", "queueOffset", "body"))
    batches = read_ranges(OneBroker(given), ranges, settings, columns, loss)  # type: ignore[arg-type]
    return [
        (row["topic"], row["queueId"], row["queueOffset"], row["body"].decode())
        for batch in batches
        for row in batch.to_pylist()
    ]


def right(queue_id: int, at: int) -> tuple[int, int, bytes]:
    return 0, END, b"".join(record(offset, queue_id) for offset in range(at, END))


def rows(*queues: int) -> list[tuple[str, int, int, str]]:
    return [("T", queue, offset, f"{queue}-{offset}") for queue in queues for offset in range(END)]


def with_third(queue_id: int, at: int, third: bytes) -> tuple[int, int, bytes]:
    """Queue 0 with another record in place of the one of offset 3."""
    if queue_id:
        return right(queue_id, at)
    records = [record(offset, 0) for offset in range(END)]
    records[3] = third
    return 0, END, b"".join(records[at:])


def test_what_a_broker_should_answer_is_read() -> None:
    loss = LossRule()
    assert sorted(read(right, loss)) == rows(0, 1)
    assert sorted(read(right, loss, "a")) == rows(0, 1)


@pytest.mark.parametrize("expression", ["*", "a"])
@pytest.mark.parametrize(
    "third",
    [
        record(3, 1),
        record(3, 7),
        record(3, 0, "Other"),
        record(2, 0),
        record(1, 0),
        record(2**40, 0),
        record(-3, 0),
    ],
    ids=["of queue 1", "of no queue", "of another topic", "twice", "back", "beyond", "negative"],
)
def test_a_record_that_was_not_asked_for_is_a_loss_and_no_row(
    third: bytes, expression: str
) -> None:
    """As many records as offsets: only a look at each tells that one of them is missing."""

    def given(queue_id: int, at: int) -> tuple[int, int, bytes]:
        return with_third(queue_id, at, third)

    with pytest.raises(
        DataLoss, match=r"queue 0: 1 of the|not asked for, of topic 'Other', queue 0"
    ):
        read(given, LossRule(), expression)
    loss = LossRule(fail=False)
    assert sorted(read(given, loss, expression)) == [
        each for each in rows(0, 1) if each[1:3] != (0, 3)
    ]
    assert loss.losses


def test_a_record_that_reaches_into_the_next_answer_hides_none_of_it() -> None:
    """Answers are joined before they are decoded."""
    last, first = record(END - 1, 0), record(0, 1)
    longer = (len(last) + len(first)).to_bytes(4, "big") + last[4:]

    def given(queue_id: int, at: int) -> tuple[int, int, bytes]:
        code, end, body = right(queue_id, at)
        return code, end, (body if queue_id else body[: -len(last)] + longer)

    with pytest.raises(DataLoss, match="queue 0"):
        read(given, LossRule(), "a")
    loss = LossRule(fail=False)
    assert rows(1) == [each for each in read(given, loss, "a") if each[1] == 1]
    assert loss.losses


@pytest.mark.parametrize("cut", [1, 50, 95])
def test_an_answer_that_ends_amid_a_record_costs_no_other_answer(cut: int) -> None:
    def given(queue_id: int, at: int) -> tuple[int, int, bytes]:
        code, end, body = right(queue_id, at)
        return code, end, (body if queue_id else body[:-cut])

    loss = LossRule(fail=False)
    assert rows(1) == [each for each in read(given, loss) if each[1] == 1]
    assert "queue 0" in loss.losses[0]
    with pytest.raises(DataLoss, match="queue 0"):
        read(given, LossRule())


def test_an_answer_that_goes_back_brings_no_row_twice() -> None:
    def given(queue_id: int, at: int) -> tuple[int, int, bytes]:
        code, end, body = right(queue_id, at)
        return code, (end if queue_id or at else -5), body

    loss = LossRule(fail=False)
    assert sorted(read(given, loss)) == rows(0, 1)


def test_pulls_that_are_to_be_tried_again_for_ever_are_a_loss() -> None:
    def given(queue_id: int, at: int) -> tuple[int, int, bytes]:
        if queue_id:
            return right(queue_id, at)
        return int(ResponseCode.PULL_RETRY_IMMEDIATELY), at, b""

    for expression in ("*", "a"):
        loss = LossRule(fail=False)
        assert read(given, loss, expression) == rows(1)
        assert loss.losses


# ------------------------------------------------------------ plans


class Told:
    """Bounds as a broker tells them."""

    def __init__(self, queue: BrokerQueue, mean: int) -> None:
        self.queue = queue
        self._mean = mean

    def mean_size(self) -> int:
        return self._mean


@pytest.mark.parametrize(("end", "mean"), [(2**62, 1024), (2**63 - 1, 91), (10**9, 16 << 20)])
def test_a_plan_over_offsets_that_cannot_be_is_refused(end: int, mean: int) -> None:
    """It made a partition for each 256 MiB of them, until the driver had no memory."""
    key = QueueKey("T", "broker-a", 0)
    starts: Offsets = {}
    ends: Offsets = {}
    store_at(starts, key, 0)
    store_at(ends, key, end)
    bounds = {key: Told(QUEUES[0], mean)}
    with pytest.raises(IllegalArgument, match="topic T, broker broker-a, queue 0: 0 to"):
        cut_ranges(bounds, starts, ends, Sizes(), 2)  # type: ignore[arg-type]


def test_a_time_is_looked_for_among_the_offsets_that_were_asked_for() -> None:
    """Neighbours of other offsets would lead out of the queue."""

    class Client:
        def many(self, requests: list[tuple[str, RequestCode, object]]) -> list[RemotingCommand]:
            return [self._answer(code, header.ext()) for _, code, header in requests]  # type: ignore[attr-defined]

        def _answer(self, code: RequestCode, ext: dict[str, str]) -> RemotingCommand:
            if code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                return RemotingCommand(0, {"offset": "50"})
            at = int(ext["queueOffset"])
            foreign = record(-9, 0, store_ms=10**6) + record(2**50, 0, store_ms=5)
            return RemotingCommand(0, {}, foreign + record(at, 0, store_ms=at * 10))

    settings = PullSettings("TOOLS_CONSUMER", "*", "TAG", 32)
    found = first_at_time(Client(), {QUEUES[0]: (0, 100)}, 300, settings)  # type: ignore[arg-type]
    assert found == {QUEUES[0]: 30}


# ------------------------------------------------------------ connections


@contextmanager
def answering(write: Callable[[socket.socket, RemotingCommand], None]) -> Iterator[str]:
    """A peer that gives each request to `write`; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            frames = FrameDecoder()
            with peer:
                try:
                    while data := peer.recv(1 << 16):
                        for frame in frames.feed(data):
                            write(peer, decode(frame))
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join()


def test_answers_that_nobody_asked_for_are_not_kept() -> None:
    def write(peer: socket.socket, request: RemotingCommand) -> None:
        for opaque in range(10**6, 10**6 + 100):
            peer.sendall(encode(RemotingCommand(0, {}, bytes(1000), flag=1, opaque=opaque)))
        peer.sendall(encode(request.answer(0, None, {"offset": "7"})))

    with answering(write) as address:
        connection = BrokerAccess(address).connect(address)
        header = GetMinOffsetHeader(topic="T", queue_id=0)
        try:
            opaque = connection.request(RequestCode.GET_MIN_OFFSET, header)
            assert connection.answer(opaque, "a test").ext == {"offset": "7"}
            assert not connection.arrived()
        finally:
            connection.close()


def test_bytes_that_are_no_answer_do_not_hold_a_plan_up() -> None:
    def write(peer: socket.socket, request: RemotingCommand) -> None:
        junk = encode(RemotingCommand(0, {}, b"", flag=1, opaque=10**6))
        for _ in range(200):
            peer.sendall(junk)
            time.sleep(0.02)

    with answering(write) as address:
        access = BrokerAccess(address, timeout_ms=200, retry_timeout_ms=0)
        header = GetMinOffsetHeader(topic="T", queue_id=0)
        began = time.monotonic()
        with BrokerClient(access) as client, pytest.raises(RequestTimeout):
            client.many([(address, RequestCode.GET_MIN_OFFSET, header)])
        assert time.monotonic() - began < 3
