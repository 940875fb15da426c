"""SendAnswers: SUCCESS for a send as a whole frame, from a template.

    {MSG_REGION, TRACE_ON, msgId, queueId, queueOffset}

1. Equal, field for field, to the output of `encode` for the same response, in the encoding of the request.
2. A batch's msgId names all its records, joined by commas.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence

from pocketmq.remoting.codes import OUR_LANGUAGE, OUR_VERSION, LanguageCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, encode
from pocketmq.remoting.flags import FrameFlag

_HEAD = struct.Struct(">II")
# total, mark, code, language, version, opaque, flag, remark size, size of the fields
_BINARY_HEAD = struct.Struct(">IIhBhiiii")
_BINARY_FIXED_SIZE = 21
_ROCKETMQ, _JSON = int(SerializeType.ROCKETMQ), int(SerializeType.JSON)
_LANGUAGE = int(LanguageCode[OUR_LANGUAGE])
_RESPONSE = int(FrameFlag.RESPONSE)


class SendAnswers:
    """Templates for one broker address and one setting of region and trace."""

    def __init__(self, host: str, ext: Mapping[str, str]) -> None:
        """Args: host, the store host in hex, with which every msgId begins; ext, MSG_REGION and TRACE_ON."""
        self._host = host
        self._ext = dict(ext)
        fields = "".join(f"{_json_text(name)}:{_json_text(value)}," for name, value in ext.items())
        before = f'{{"code":0,"extFields":{{{fields}"msgId":"'
        self._json_end = (
            f'","queueId":"%d","queueOffset":"%d"}},"flag":{_RESPONSE},"language":"{OUR_LANGUAGE}",'
            f'"opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}'
        ).encode()
        self._json_one = f"{before}{host}%016X".encode() + self._json_end
        self._json_before = before.replace("%%", "%").encode()
        constant = b"".join(_field(name, value) for name, value in ext.items()).replace(b"%", b"%%")
        self._binary = constant + b"\0\x05msgId%b\0\x07queueId\0\0\0%c%d\0\x0bqueueOffset\0\0\0%c%d"
        size = (len(host) + 16).to_bytes(4, "big")
        self._binary_one = self._binary.replace(b"%b", size + host.encode() + b"%016X")
        # Between the positions of a batch's msgId; how many positions are packed.
        self._host_between = f",{host}"
        self._pack_positions: dict[int, Callable[..., bytes]] = {}

    def one(
        self, request: RemotingCommand, position: int, queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a single message."""
        encoding = request.encoding
        if encoding == _JSON:
            return self.one_json(request.opaque, position, queue_id, queue_offset)
        if encoding == _ROCKETMQ:
            return self.one_binary(request.opaque, position, queue_id, queue_offset)
        return self._other(request, f"{self._host}{position:016X}", queue_id, queue_offset)

    def one_json(self, opaque: int, position: int, queue_id: int, queue_offset: int) -> bytes:
        """Return the response to a single message with this opaque, in JSON."""
        header = self._json_one % (position, queue_id, queue_offset, opaque)
        return _HEAD.pack(len(header) + 4, len(header)) + header

    def one_binary(self, opaque: int, position: int, queue_id: int, queue_offset: int) -> bytes:
        """The same with a ROCKETMQ header."""
        fields = self._binary_one % (
            position,
            len(str(queue_id)),
            queue_id,
            len(str(queue_offset)),
            queue_offset,
        )
        return _binary(opaque, fields)

    def batch(
        self, request: RemotingCommand, positions: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a batch; queue_offset is that of its first message."""
        msg_id = self._batch_id(positions)
        encoding = request.encoding
        if encoding == _JSON:
            return self._json_batch(request.opaque, msg_id, queue_id, queue_offset)
        if encoding == _ROCKETMQ:
            return self._binary_batch(request.opaque, msg_id, queue_id, queue_offset)
        return self._other(request, msg_id, queue_id, queue_offset)

    def batch_json(
        self, opaque: int, positions: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a batch with this opaque, in JSON."""
        return self._json_batch(opaque, self._batch_id(positions), queue_id, queue_offset)

    def batch_binary(
        self, opaque: int, positions: Sequence[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a batch with this opaque, with a ROCKETMQ header."""
        return self._binary_batch(opaque, self._batch_id(positions), queue_id, queue_offset)

    def _binary_batch(self, opaque: int, msg_id: str, queue_id: int, queue_offset: int) -> bytes:
        fields = self._binary % (
            len(msg_id).to_bytes(4, "big") + msg_id.encode(),
            len(str(queue_id)),
            queue_id,
            len(str(queue_offset)),
            queue_offset,
        )
        return _binary(opaque, fields)

    def _json_batch(self, opaque: int, msg_id: str, queue_id: int, queue_offset: int) -> bytes:
        end = self._json_end % (queue_id, queue_offset, opaque)
        header = b"".join((self._json_before, msg_id.encode(), end))
        return _HEAD.pack(len(header) + 4, len(header)) + header

    def _batch_id(self, positions: Sequence[int]) -> str:
        count = len(positions)
        pack = self._pack_positions.get(count)
        if pack is None:
            if len(self._pack_positions) > 256:
                self._pack_positions.clear()
            pack = self._pack_positions[count] = struct.Struct(f">{count}q").pack
        joined = pack(*positions).hex(",", 8).upper()
        return self._host + joined.replace(",", self._host_between)

    def _other(
        self, request: RemotingCommand, msg_id: str, queue_id: int, queue_offset: int
    ) -> bytes:
        ext = {
            **self._ext,
            "msgId": msg_id,
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
        }
        return encode(request.answer(0, None, ext))


def _binary(opaque: int, fields: bytes) -> bytes:
    size = _BINARY_FIXED_SIZE + len(fields)
    head = _BINARY_HEAD.pack(
        size + 4,
        _ROCKETMQ << 24 | size,
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
