"""SUCCESS for a send as a whole frame, from a template.

    {MSG_REGION, TRACE_ON, msgId, queueId, queueOffset}

1. Equal, field for field, to the output of `encode` for the same response, in the encoding of the request.
2. A batch's msgId names all its records, joined by commas.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pocketmq.remoting.codes import OUR_LANGUAGE, OUR_VERSION, LanguageCode
from pocketmq.remoting.command import SerializeType
from pocketmq.remoting.flags import FrameFlag

_HEAD = struct.Struct(">II")
# total, mark, code, language, version, opaque, flag, remark size, size of the fields
_BINARY_HEAD = struct.Struct(">IIhBhiiii")
_BINARY_FIXED_SIZE = 21
_LANGUAGE = int(LanguageCode[OUR_LANGUAGE])
_RESPONSE, _MARK = int(FrameFlag.RESPONSE), int(SerializeType.ROCKETMQ) << 24
_PACKINGS_MAX = 256


class SendAnswers(Protocol):
    """Answers in one encoding."""

    def one(self, opaque: int, position: int, queue_id: int, queue_offset: int) -> bytes:
        """Return the response to a single message."""
        ...

    def batch(
        self, opaque: int, positions: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a batch; queue_offset is that of its first message."""
        ...


def send_answers(host: str, ext: Mapping[str, str]) -> dict[int, SendAnswers]:
    """Return the answers of one broker address and one setting of region and trace, by encoding.

    Args: host, the store host in hex, with which every msgId begins; ext, MSG_REGION and TRACE_ON.
    """
    ids = _BatchIds(host)
    return {
        SerializeType.JSON: _InJson(host, ext, ids),
        SerializeType.ROCKETMQ: _InFields(host, ext, ids),
    }


def no_answer(*_: object) -> bytes:
    """Answer a one-way request."""
    return b""


class _BatchIds:
    """Makes the msgId of a batch."""

    def __init__(self, host: str) -> None:
        self._host = host
        # Between the positions; how many positions are packed.
        self._host_between = f",{host}"
        self._pack_positions: dict[int, Callable[..., bytes]] = {}

    def join(self, positions: Sequence[int]) -> bytes:
        count = len(positions)
        pack = self._pack_positions.get(count)
        if pack is None:
            if len(self._pack_positions) > _PACKINGS_MAX:
                self._pack_positions.clear()
            pack = self._pack_positions[count] = struct.Struct(f">{count}q").pack
        joined = pack(*positions).hex(",", 8).upper()
        return (self._host + joined.replace(",", self._host_between)).encode()


class _InJson:
    """SendAnswers with a JSON header."""

    def __init__(self, host: str, ext: Mapping[str, str], ids: _BatchIds) -> None:
        self._ids = ids
        fields = "".join(f"{_json_text(name)}:{_json_text(value)}," for name, value in ext.items())
        before = f'{{"code":0,"extFields":{{{fields}"msgId":"'
        self._end = (
            f'","queueId":"%d","queueOffset":"%d"}},"flag":{_RESPONSE},"language":"{OUR_LANGUAGE}",'
            f'"opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}'
        ).encode()
        self._one = f"{before}{host}%016X".encode() + self._end
        self._before = before.replace("%%", "%").encode()

    def one(self, opaque: int, position: int, queue_id: int, queue_offset: int) -> bytes:
        header = self._one % (position, queue_id, queue_offset, opaque)
        return _HEAD.pack(len(header) + 4, len(header)) + header

    def batch(
        self, opaque: int, positions: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        end = self._end % (queue_id, queue_offset, opaque)
        header = b"".join((self._before, self._ids.join(positions), end))
        return _HEAD.pack(len(header) + 4, len(header)) + header


class _InFields:
    """SendAnswers with a ROCKETMQ header."""

    def __init__(self, host: str, ext: Mapping[str, str], ids: _BatchIds) -> None:
        self._ids = ids
        constant = b"".join(_field(name, value) for name, value in ext.items()).replace(b"%", b"%%")
        self._many = constant + b"\0\x05msgId%b\0\x07queueId\0\0\0%c%d\0\x0bqueueOffset\0\0\0%c%d"
        size = (len(host) + 16).to_bytes(4, "big")
        self._one = self._many.replace(b"%b", size + host.encode() + b"%016X")

    def one(self, opaque: int, position: int, queue_id: int, queue_offset: int) -> bytes:
        fields = self._one % (
            position,
            len(str(queue_id)),
            queue_id,
            len(str(queue_offset)),
            queue_offset,
        )
        return _binary(opaque, fields)

    def batch(
        self, opaque: int, positions: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        msg_id = self._ids.join(positions)
        fields = self._many % (
            len(msg_id).to_bytes(4, "big") + msg_id,
            len(str(queue_id)),
            queue_id,
            len(str(queue_offset)),
            queue_offset,
        )
        return _binary(opaque, fields)


def _binary(opaque: int, fields: bytes) -> bytes:
    size = _BINARY_FIXED_SIZE + len(fields)
    head = _BINARY_HEAD.pack(
        size + 4,
        _MARK | size,
        0,
        _LANGUAGE,
        OUR_VERSION,
        opaque,
        _RESPONSE,
        0,
        len(fields),
    )
    return head + fields


def _field(name: str, value: str) -> bytes:
    """Encode one field of a ROCKETMQ header."""
    key, raw = name.encode(), value.encode()
    return len(key).to_bytes(2, "big") + key + len(raw).to_bytes(4, "big") + raw


def _json_text(text: str) -> str:
    """Encode `text` as JSON for a %-template."""
    return json.dumps(text).replace("%", "%%")
