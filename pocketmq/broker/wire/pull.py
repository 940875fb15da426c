"""Pulling: PULL_MESSAGE, LITE_PULL_MESSAGE.

Messages are written as slices of the mapped log, without a copy; a small result of one piece as one frame.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from pocketmq.broker.acts.pull import PullActs, Waits
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.latencies import Latencies
from pocketmq.broker.refused import Refused
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import OUR_LANGUAGE, OUR_VERSION, RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, encode_head, encode_header
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.remoting.java_number import long
from pocketmq.remoting.quick.by_pattern import CutRule, Cuttable, Quick
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply
from pocketmq.remoting.transport.outbox import JOIN_SIZE_MAX
from pocketmq.store import ReadResult

_HEAD = struct.Struct(">II")
_JSON_FOUND = (
    '{"code":0,"extFields":{"maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
    f'"suggestWhichBrokerId":"%d"}},"flag":1,"language":"{OUR_LANGUAGE}","opaque":%d,'
    f'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}'
).encode()

# Fields that differ between the pulls of one client; sysFlag holds whether an offset is committed.
_FIELDS = ("queueId", "queueOffset", "sysFlag", "commitOffset")
_LITE_PULL = int(RequestCode.LITE_PULL_MESSAGE)
_BINARY = int(SerializeType.ROCKETMQ)
_NAMES = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
_BINARY_NAMES_SIZE = sum(2 + len(name) + 4 for name in _NAMES)


def _binary_template() -> bytes:
    """Return what the encoder makes of it, with places for the opaque, the fields' size and values."""
    sample = RemotingCommand(
        ResponseCode.SUCCESS, dict.fromkeys(_NAMES, "0"), flag=1, remark="FOUND", encoding=_BINARY
    )
    header = encode_header(sample).replace(b"%", b"%%")
    sized = header.replace(bytes((0, 0, 0, 1)) + b"0", bytes(3) + b"%c%b")
    # Code, language and version come before the opaque; flag and remark between it and the fields' size.
    fields_at = sized.index(b"FOUND") + 5
    return sized[:5] + b"%b" + sized[9 : fields_at + 3] + b"%c" + sized[fields_at + 4 :]


_BINARY_FOUND = _binary_template()


class AlikePulls(NamedTuple):
    """Values that pulls share whose headers differ in _FIELDS only.

    place: group and topic; rest: what follows the commit offset in a PullMessageHeader.
    """

    code: int
    encoding: int
    place: tuple[str, str]
    count_max: int
    rest: tuple[Any, ...]


class Pull(NamedTuple):
    """A pull, and what its answer needs of its request."""

    code: int
    encoding: int
    opaque: int
    ask: PullMessageHeader

    def answer(self, code: int, remark: str | None, ext: dict[str, str]) -> RemotingCommand:
        """Return an answer without messages."""
        request = RemotingCommand(self.code, opaque=self.opaque, encoding=self.encoding)
        return request.answer(code, remark, ext)


class PullMessageProcessor:
    """Handlers of the two codes."""

    def __init__(
        self, config: BrokerConfig, acts: PullActs, latencies: Latencies, clock: Clock
    ) -> None:
        self._config = config
        self._acts = acts
        self._latencies = latencies
        self._monotonic_ms = clock.monotonic_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self._cuttable(self.pull),
            RequestCode.LITE_PULL_MESSAGE: self._cuttable(self.lite_pull),
        }

    def _cuttable(self, handle: Callable[[RemotingCommand, Connection], Reply]) -> Cuttable:
        return Cuttable(handle, CutRule(_FIELDS, "", self._admit, self._take))

    def pull(self, request: RemotingCommand, connection: Connection) -> Reply:
        """PULL_MESSAGE."""
        ask = _header(request.ext)
        return self._pull(Pull(request.code, request.encoding, request.opaque, ask), connection)

    def lite_pull(self, request: RemotingCommand, connection: Connection) -> Reply:
        """LITE_PULL_MESSAGE, the same under another code (5.x)."""
        if not self._config.lite_pull_message_enable:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] for lite pull consumer is forbidden",
                {},
            )
        return self.pull(request, connection)

    # ------------------------------------------------------------ the short way

    def _admit(self, request: RemotingCommand, _: Sequence[str]) -> AlikePulls | None:
        """Return the values that pulls share whose headers differ in _FIELDS only."""
        try:
            ask = _header(request.ext)
        except HeaderError:
            return None
        rest = (
            ask.suspend_timeout_millis,
            ask.sub_version,
            ask.subscription,
            ask.expression_type,
            ask.max_msg_bytes,
        )
        place = ask.consumer_group, ask.topic
        return AlikePulls(request.code, request.encoding, place, ask.max_msg_nums, rest)

    def _take(
        self,
        alike: AlikePulls,
        values: Sequence[bytes],
        opaque: int,
        body: bytes,
        connection: Connection,
    ) -> Quick:
        """Answer a pull whose header was cut, not parsed."""
        queue, place_, flags, committed, _ = values
        is_plain = queue.isdigit() and place_.isdigit() and flags.isdigit() and committed.isdigit()
        try:
            queue_id, offset, sys_flag, commit_offset = map(int if is_plain else _long, values[:4])
        except ValueError:
            return None
        code, encoding, place, count, rest = alike
        if code == _LITE_PULL and not self._config.lite_pull_message_enable:
            return None
        group, topic = place
        ask = PullMessageHeader(
            group, topic, queue_id, offset, count, sys_flag, commit_offset, *rest
        )
        reply = self._pull(Pull(code, encoding, opaque, ask), connection)
        return b"" if reply is None else reply

    # ------------------------------------------------------------ both ways

    def _pull(self, pull: Pull, connection: Connection) -> Reply:
        """Answer a pull that has just come, now or later. A held one is not measured (timed.py)."""
        reply = self._answer(pull, connection, True)
        if reply is not None:
            ms = self._monotonic_ms() - connection.last_read_ms
            answer = reply.code if isinstance(reply, RemotingCommand) else ResponseCode.SUCCESS
            self._latencies.add(pull.code, int(answer), ms)
        return reply

    def _again(self, pull: Pull, connection: Connection) -> None:
        """Answer a pull that is done waiting, whatever it finds."""
        reply = self._answer(pull, connection, False)
        if reply is not None:
            connection.send(reply)

    def _answer(self, pull: Pull, connection: Connection, first: bool) -> Reply:
        _, encoding, opaque, ask = pull
        try:
            found = self._acts.pull(ask, connection, first=first)
            if isinstance(found, Waits):
                self._acts.wait(found, connection, partial(self._again, pull, connection))
                return None
        except Refused as refused:
            return pull.answer(refused.code, refused.remark, {})
        code, remark, result, broker_id = found
        if not result.count:
            return pull.answer(code, remark, _extension(result, broker_id))
        if encoding == _BINARY:
            header = binary_found(opaque, result, broker_id)
        elif encoding:
            answer = pull.answer(code, remark, _extension(result, broker_id))
            return [encode_head(answer, result.size), *result.buffers]
        else:
            header = _JSON_FOUND % (
                result.max_offset,
                result.min_offset,
                result.next_offset,
                broker_id,
                opaque,
            )
        size = len(header)
        head = _HEAD.pack(4 + size + result.size, encoding << 24 | size)
        buffers = result.buffers
        if result.size <= JOIN_SIZE_MAX:
            return b"".join((head, header, *buffers))
        return [head + header, *buffers]


def binary_found(opaque: int, result: ReadResult, broker_id: int) -> bytes:
    """Return the same header in encoding ROCKETMQ, which official clients of Java can be told to use."""
    values = (broker_id, result.next_offset, result.min_offset, result.max_offset)
    first, following, low, high = [b"%d" % value for value in values]
    sizes = len(first), len(following), len(low), len(high)
    number, size = opaque.to_bytes(4, "big", signed=True), _BINARY_NAMES_SIZE + sum(sizes)
    # A number has 20 digits at most: the upper three bytes of its size are zeros.
    return _BINARY_FOUND % (
        number,
        size,
        sizes[0],
        first,
        sizes[1],
        following,
        sizes[2],
        low,
        sizes[3],
        high,
    )


def _long(value: bytes) -> int:
    """Return any number as Java reads it. Raises: ValueError."""
    return long(value.decode())


def _header(ext: dict[str, str] | None) -> PullMessageHeader:
    """Parse like PullMessageHeader.parse at a quarter of the cost; it gets unusual headers and errors."""
    try:
        if ext is not None:
            size = ext.get("maxMsgBytes")
            return PullMessageHeader(
                ext["consumerGroup"],
                ext["topic"],
                long(ext["queueId"]),
                long(ext["queueOffset"]),
                long(ext["maxMsgNums"]),
                long(ext["sysFlag"]),
                long(ext["commitOffset"]),
                long(ext["suspendTimeoutMillis"]),
                long(ext["subVersion"]),
                ext.get("subscription"),
                ext.get("expressionType"),
                None if size is None else long(size),
            )
    except (KeyError, ValueError):
        pass
    return PullMessageHeader.parse(ext)


def _extension(result: ReadResult, suggestion: int) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(suggestion),
        "nextBeginOffset": str(result.next_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
    }
