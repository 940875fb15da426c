"""Pulling: PULL_MESSAGE, LITE_PULL_MESSAGE.

Messages are written as slices of the mapped log, without a copy; a small result of one piece as one frame.
"""

import struct
from functools import partial

from pocketmq.broker.acts.pull import PullActs, Waits
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.refused import Refused
from pocketmq.remoting.codes import OUR_LANGUAGE, OUR_VERSION, RequestCode, ResponseCode
from pocketmq.remoting.command import Encoding, RemotingCommand, encode_head, encode_header
from pocketmq.remoting.connection import Connection, Handler, Reply
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.remoting.outbox import JOIN_SIZE_MAX
from pocketmq.store import ReadResult

_HEAD = struct.Struct(">II")
_JSON_FOUND = (
    '{"code":0,"extFields":{"maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
    f'"suggestWhichBrokerId":"%d"}},"flag":1,"language":"{OUR_LANGUAGE}","opaque":%d,'
    f'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}'
).encode()

_BINARY = int(Encoding.ROCKETMQ)
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


class PullMessageProcessor:
    """Handlers of the two codes."""

    def __init__(self, config: BrokerConfig, acts: PullActs) -> None:
        self._config = config
        self._acts = acts

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull,
        }

    def pull(self, request: RemotingCommand, connection: Connection) -> Reply:
        """PULL_MESSAGE."""
        return self._pull(request, connection, True)

    def lite_pull(self, request: RemotingCommand, connection: Connection) -> Reply:
        """LITE_PULL_MESSAGE, the same under another code (5.x)."""
        if not self._config.lite_pull_message_enable:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] for lite pull consumer is forbidden",
                {},
            )
        return self._pull(request, connection, True)

    def _again(self, request: RemotingCommand, connection: Connection) -> None:
        """Answer a pull that is done waiting, whatever it finds."""
        reply = self._pull(request, connection, False)
        if reply is not None:
            connection.send(reply)

    def _pull(self, request: RemotingCommand, connection: Connection, first: bool) -> Reply:
        try:
            found = self._acts.pull(_header(request.ext), connection, first=first)
            if isinstance(found, Waits):
                self._acts.wait(found, connection, partial(self._again, request, connection))
                return None
        except Refused as refused:
            return request.answer(refused.code, refused.remark, {})
        code, remark, result, broker_id = found
        if not result.count:
            return request.answer(code, remark, _extension(result, broker_id))
        encoding = request.encoding
        if encoding == _BINARY:
            header = binary_found(request.opaque, result, broker_id)
        elif encoding:
            answer = request.answer(code, remark, _extension(result, broker_id))
            return [encode_head(answer, result.size), *result.buffers]
        else:
            header = _JSON_FOUND % (
                result.max_offset,
                result.min_offset,
                result.next_offset,
                broker_id,
                request.opaque,
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


def _header(ext: dict[str, str] | None) -> PullMessageHeader:
    """Parse like PullMessageHeader.parse at a quarter of the cost; it gets unusual headers and errors."""
    try:
        if ext is not None:
            size = ext.get("maxMsgBytes")
            return PullMessageHeader(
                ext["consumerGroup"],
                ext["topic"],
                int(ext["queueId"]),
                int(ext["queueOffset"]),
                int(ext["maxMsgNums"]),
                int(ext["sysFlag"]),
                int(ext["commitOffset"]),
                int(ext["suspendTimeoutMillis"]),
                int(ext["subVersion"]),
                ext.get("subscription"),
                ext.get("expressionType"),
                None if size is None else int(size),
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
