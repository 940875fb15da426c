"""Load on a broker over one plain socket, at next to no cost of its own: frames made before, replies searched
and not decoded. It measures the broker, where an official client would measure itself.

    send    a fixed number of requests in flight; latency from a request's write to its answer's read
    pull    one pull at a time over the queues in turn, as fast as answers come

The headers are JSON, the default of the official clients. All loads end by time or by count.
"""

import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pocketmq.model.record import encode_batch
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode

# Ten digits in every frame, so that all frames of a load have one length.
_OPAQUE_BASE = 1_000_000_000
_FRAMES = 8_192
_OPAQUE = re.compile(rb'"opaque":(\d+)[,}]')
_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"?(\d+)')
_CODE = re.compile(rb'"code":(\d+)')
_SUCCESS = re.compile(rb'"code":0[,}]')
_INT = struct.Struct(">i")
_TIMEOUT_S = 30


class LoadFailed(Exception):
    """The broker refused or ended the connection; the text holds its answer."""


@dataclass
class SendResult:
    """What a load sent: requests answered with SUCCESS within the window, and how long each took."""

    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    latencies_us: list[float] = field(default_factory=list)

    def percentile_us(self, share: float) -> float:
        ordered = sorted(self.latencies_us)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass
class PullResult:
    """What a load pulled: records that came, entries of the queues that were passed."""

    records: int = 0
    passed: int = 0
    pulls: int = 0
    seconds: float = 0.0


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def call(address: str, command: RemotingCommand) -> tuple[int, bytes, bytes]:
    """One request on a connection of its own: (response code, header, body)."""
    with connected(address) as connection:
        connection.sendall(encode(command))
        return _reply(connection, bytearray())


def create_topic(broker: str, topic: str, queues: int, attributes: str = "") -> None:
    """As `mqadmin updateTopic -b`; attributes: as `+name=value`. Raises: LoadFailed."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **({"attributes": attributes} if attributes else {}),
    }
    code, header, _ = call(
        broker, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, opaque=1)
    )
    if code != ResponseCode.SUCCESS:
        raise LoadFailed(f"topic {topic} was not created: {header!r}")


def has_route(namesrv: str, topic: str) -> bool:
    fields = {"topic": topic}
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, opaque=1)
    return call(namesrv, request)[0] == ResponseCode.SUCCESS


def unindexed(broker: str) -> int:
    """Bytes of its log that are not in the index yet."""
    _, _, body = call(broker, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(json.loads(body)["table"]["dispatchBehindBytes"])


def first_send(address: str) -> bool:
    """Whether a message is acknowledged now; for the time from a process's start to that moment."""
    try:
        with connected(address) as connection:
            connection.sendall(_send_frame("StartTopic", 0, b"x" * 128, _properties(1, ""), 1))
            return _reply(connection, bytearray())[0] == ResponseCode.SUCCESS
    except OSError:
        return False


class Frames:
    """Requests made before: the n-th has opaque base + n, queue n % queues, a UNIQ_KEY of its own."""

    def __init__(self, topic: str, queues: int, body_size: int, *, batch: int = 0) -> None:
        """Args: batch, messages a request (SEND_BATCH_MESSAGE); 0 sends single messages."""
        self.messages_per_request = batch or 1
        body = b"x" * body_size
        count = _FRAMES if not batch else 2_048
        if batch:
            self.frames = [
                _batch_frame(topic, n % queues, body, batch, n, _OPAQUE_BASE + n)
                for n in range(count)
            ]
        else:
            self.frames = [
                _send_frame(topic, n % queues, body, _properties(n, "TagA"), _OPAQUE_BASE + n)
                for n in range(count)
            ]


def send(
    address: str,
    frames: Sequence[bytes],
    *,
    in_flight: int,
    warmup_s: float,
    window_s: float,
    begins: Callable[[], None] = lambda: None,
) -> SendResult:
    """Keep `in_flight` requests on their way; `begins` is called when the warm-up is over.

    Raises: LoadFailed when a request is refused, OSError.
    """
    result = SendResult()
    with connected(address) as connection:
        # Warm-up and window run on one connection, without a gap between them.
        state = _Sending(connection, frames, in_flight)
        state.run(warmup_s, None)
        begins()
        state.run(window_s, result)
        state.drain()
    return result


def send_count(address: str, frames: Sequence[bytes], *, requests: int, in_flight: int) -> float:
    """Send so many requests and return the seconds until the last answer. Raises: LoadFailed."""
    with connected(address) as connection:
        start = time.perf_counter()
        state = _Sending(connection, frames, in_flight)
        state.run_requests(requests)
        state.drain()
        return time.perf_counter() - start


class _Sending:
    def __init__(self, connection: socket.socket, frames: Sequence[bytes], in_flight: int) -> None:
        self._connection = connection
        self._frames = frames
        self._in_flight = in_flight
        self._next = 0
        self._outstanding = 0
        self._started = [0.0] * len(frames)
        self._left = b""

    def run(self, seconds: float, result: SendResult | None) -> None:
        start = now = time.perf_counter()
        end = start + seconds
        while now < end:
            self._fill(self._in_flight - self._outstanding, now)
            now = self._receive(result)
        if result is not None:
            result.seconds = now - start

    def run_requests(self, requests: int) -> None:
        while requests > 0:
            count = min(requests, self._in_flight - self._outstanding)
            self._fill(count, 0.0)
            requests -= count
            self._receive(None)

    def drain(self) -> None:
        while self._outstanding:
            self._receive(None)

    def _fill(self, count: int, now: float) -> None:
        frames, started = self._frames, self._started
        while count > 0:
            first = self._next
            last = min(first + count, len(frames))
            for n in range(first, last):
                started[n] = now
            self._connection.sendall(b"".join(frames[first:last]))
            self._outstanding += last - first
            count -= last - first
            self._next = last % len(frames)

    def _receive(self, result: SendResult | None) -> float:
        data = self._connection.recv(1 << 18)
        now = time.perf_counter()
        if not data:
            raise LoadFailed("the broker closed the connection")
        data = self._left + data
        answered = end = 0
        started = self._started
        if result is None:
            for match in _OPAQUE.finditer(data):
                answered += 1
                end = match.end()
        else:
            append = result.latencies_us.append
            for match in _OPAQUE.finditer(data):
                answered += 1
                end = match.end()
                append((now - started[int(match[1]) - _OPAQUE_BASE]) * 1e6)
        # In a JSON header "code" stands before "opaque", so both lie before `end` or both behind it.
        good = len(_SUCCESS.findall(data, 0, end))
        self._left = data[end:]
        self._outstanding -= answered
        if good != answered:
            raise LoadFailed(f"a request was refused: {data[:600]!r}")
        if result is not None:
            result.requests += answered
        return now


def pull(
    address: str,
    topic: str,
    queues: int,
    *,
    expression: str = "*",
    records: int = 1 << 62,
    seconds: float = 60.0,
    pull_size: int = 32,
    from_offset: int = 0,
) -> PullResult:
    """Pull from the queues in turn, from `from_offset` to their ends or until a limit is reached.

    Raises: LoadFailed, OSError.
    """
    result = PullResult()
    offsets = dict.fromkeys(range(queues), from_offset)
    head, tail = _pull_frame(topic, expression, pull_size)
    with connected(address) as connection:
        left = bytearray()
        start = now = time.perf_counter()
        end = start + seconds
        while offsets and result.records < records and now < end:
            for queue, offset in list(offsets.items()):
                connection.sendall(_pull_of(head, tail, queue, offset))
                code, header, body = _reply(connection, left)
                found = _NEXT_OFFSET.search(header)
                if code == ResponseCode.SUCCESS and found:
                    result.records += _records(body)
                elif code != ResponseCode.PULL_RETRY_IMMEDIATELY or not found:
                    # 19: the end of this queue.
                    if code != ResponseCode.PULL_NOT_FOUND:
                        raise LoadFailed(f"a pull was refused: {header!r}")
                    del offsets[queue]
                    continue
                result.pulls += 1
                result.passed += int(found[1]) - offset
                offsets[queue] = int(found[1])
            now = time.perf_counter()
        result.seconds = time.perf_counter() - start
    return result


def _records(body: bytes) -> int:
    count = at = 0
    size = len(body)
    while at < size:
        at += _INT.unpack_from(body, at)[0]
        count += 1
    return count


def _reply(connection: socket.socket, left: bytearray) -> tuple[int, bytes, bytes]:
    while len(left) < 4 or len(left) < 4 + _INT.unpack_from(left)[0]:
        data = connection.recv(1 << 18)
        if not data:
            raise LoadFailed("the broker closed the connection")
        left += data
    end = 4 + int(_INT.unpack_from(left)[0])
    header_end = 8 + (_INT.unpack_from(left, 4)[0] & 0xFF_FFFF)
    header, body = bytes(left[8:header_end]), bytes(left[header_end:end])
    del left[:end]
    found = _CODE.search(header)
    if found is None:
        raise LoadFailed(f"an answer without a code: {header!r}")
    return int(found[1]), header, body


def _properties(number: int, tag: str) -> str:
    key = f"7F000001{number:024X}"
    pairs = {"UNIQ_KEY": key, "WAIT": "true"} | ({"TAGS": tag} if tag else {})
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def _send_fields(topic: str, queue: int, properties: str) -> dict[str, str]:
    return {
        "a": "RawProducer",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
    }


def _send_frame(topic: str, queue: int, body: bytes, properties: str, opaque: int) -> bytes:
    fields = _send_fields(topic, queue, properties) | {"m": "false"}
    return encode(RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body, opaque=opaque))


def _batch_frame(
    topic: str, queue: int, body: bytes, count: int, number: int, opaque: int
) -> bytes:
    members = [
        # Of a hundred messages one has the tag that the filter benchmark asks for.
        (0, body, _properties(first, "rare" if first % 100 == 7 else "TagA").encode())
        for first in range(number * count, number * count + count)
    ]
    fields = _send_fields(topic, queue, "WAIT\x01true\x02") | {"m": "true"}
    return encode(
        RemotingCommand(
            RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(members), opaque=opaque
        )
    )


def _pull_frame(topic: str, expression: str, pull_size: int) -> tuple[bytes, bytes]:
    fields = {
        "consumerGroup": "RawConsumer",
        "topic": topic,
        "queueId": "@",
        "queueOffset": "@",
        "maxMsgNums": str(pull_size),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": expression,
        "expressionType": "TAG",
    }
    header = {"code": int(RequestCode.PULL_MESSAGE), "extFields": fields, "flag": 0}
    header |= {"language": "JAVA", "opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": 407}
    text = json.dumps(header, separators=(",", ":")).encode()
    head, _, rest = text.partition(b'"queueId":"@"')
    middle, _, tail = rest.partition(b'"queueOffset":"@"')
    return head + b'"queueId":"%d"' + middle + b'"queueOffset":"%d"', tail


def _pull_of(head: bytes, tail: bytes, queue: int, offset: int) -> bytes:
    header = head % (queue, offset) + tail
    return struct.pack(">II", 4 + len(header), len(header)) + header
