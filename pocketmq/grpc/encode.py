"""Hand-written protobuf encoders of the hottest messages: a delivered message, and answers with status OK.

The runtime's objects, which are filled and then written, cost three times as much for a small message. The
numbers are those of schema.py; tests compare every field with the one that the runtime reads.

    field: key (number << 3 | kind), then a varint (kind 0), or a length and bytes (kind 2)
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from pocketmq.grpc.answers import OK
from pocketmq.grpc.mapping import RESERVED, type_of
from pocketmq.grpc.messages import SendMessageResponse, classes
from pocketmq.grpc.schema import Encoding, MessageType
from pocketmq.grpc.unpacking import Unpacking
from pocketmq.model.message_codec import offset_msg_id
from pocketmq.model.names import DLQ_PREFIX
from pocketmq.model.record import Buffer, Record
from pocketmq.remoting.hosts import unpack_host

_SENT: bytes = SendMessageResponse(status=OK).SerializeToString()
_ENTRY: bytes = classes["SendResultEntry"](status=OK).SerializeToString()
_ACKED: bytes = classes["AckMessageResponse"](status=OK).SerializeToString()
_ENTRY_ACKED: bytes = b"\x1a" + _ENTRY[1:]
_NORMAL = int(MessageType.NORMAL)
# The field body_encoding, and the tag of the field after it: IDENTITY, GZIP.
_AS_IT_IS, _PACKED = b"\x28\x01\x30", b"\x28\x02\x30"
_MASK = (1 << 64) - 1
_DIGITS_MAX = 18
# A message with no other properties has none of the user's, and is of no special kind.
_PLAIN = frozenset(
    b"UNIQ_KEY __BORNHOST BORN_TIMESTAMP RECONSUME_TIME PGROUP TAGS KEYS CLUSTER".split()
)


def sent(message_id: str, offset: int) -> bytes:
    """A SendMessageResponse with one entry that is well: what nearly all sends are answered with."""
    name = message_id.encode()
    size = _CODED[len(name)]
    entry = b"".join((_ENTRY, b"\x12", size, name, b"\x1a", size, name, b"\x20", varint(offset)))
    return _SENT + b"\x12" + _CODED[len(entry)] + entry


def acked(entries: list[bytes]) -> bytes:
    """An AckMessageResponse of entries that are all well. entries: of the request, without a lite topic;
    an answer's entry begins as the request's."""
    parts = [_ACKED]
    for entry in entries:
        parts += (b"\x12", _CODED[len(entry) + len(_ENTRY_ACKED)], entry, _ENTRY_ACKED)
    return b"".join(parts)


def framed_message(
    record: Record, unpacking: Unpacking, topic: str, handle: str = "", attempt: int = 0
) -> tuple[bytes, Buffer] | None:
    """The answer of a stream that brings a message, with gRPC's prefix: what stands before the body, and the
    body; None if it has to wait for another answer. It is field 2 of ReceiveMessageResponse as of
    PullMessageResponse."""
    found = unpacking.body_of(record)
    if found is None:
        return None
    head, body = message(record, found, topic, handle, attempt)
    size = len(head) + len(body)
    coded = _CODED[size]
    prefix = (1 + len(coded) + size).to_bytes(5, "big")
    return b"".join((prefix, b"\x12", coded, head)), body


def message(
    record: Record,
    content: tuple[Buffer, Encoding],
    topic: str,
    handle: str = "",
    attempt: int = 0,
) -> tuple[bytes, Buffer]:
    """A record as consumers get it: what stands before the body, and the body. content: the body, and how it
    is packed; handle, attempt: of this delivery, where it is one."""
    found = _properties(record.properties)
    body = content[0]
    encoding = _AS_IT_IS if content[1] is Encoding.IDENTITY else _PACKED
    users, kind, rest = b"", _NORMAL, b""
    if not found.keys() <= _PLAIN:
        users, kind, rest = _special(found, topic)
    name = found.get(b"UNIQ_KEY") or offset_msg_id(record.store_host, record.position).encode()
    born_host = found.get(b"__BORNHOST") or _host(record.born_host)
    tag, keys = found.get(b"TAGS"), found.get(b"KEYS")
    given = handle.encode()
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()
    system = b"".join(
        (
            b"\x0a" + _sized(tag) if tag else b"",
            b"".join([b"\x12" + _sized(key) for key in keys.split()]) if keys else b"",
            b"\x1a",
            _CODED[len(name)],
            name,
            # The digest: MD5, and its 32 digits. The body as it is.
            b"\x22\x24\x08\x02\x12\x20",
            digest,
            encoding,
            _CODED[kind],
            b"\x3a",
            _moment(record.born_ms),
            b"\x42",
            _CODED[len(born_host)],
            born_host,
            b"\x4a",
            _moment(record.store_ms),
            b"\x52",
            _sized(_host(record.store_host)),
            b"\x62" + _CODED[len(given)] + given if given else b"",
            b"\x68",
            _CODED[record.queue_id],
            b"\x70",
            varint(record.queue_offset),
            b"\x80\x01" + _CODED[attempt] if attempt else b"",
            rest,
        )
    )
    head = b"".join(
        (_topic(topic), users, b"\x1a", _CODED[len(system)], system, b"\x22", _CODED[len(body)])
    )
    return head, body


def message_alone(
    record: Record, language: str, topic: str, handle: str = "", attempt: int = 0
) -> bytes:
    """The same for a message that no other goes with, for a client of this language."""
    content = Unpacking(language).body_of(record)
    assert content is not None
    return b"".join(message(record, content, topic, handle, attempt))


def _properties(text: bytes) -> dict[bytes, bytes]:
    """By Java's rules: remoting.message_codec.properties_to_dict."""
    if not text.isascii():
        text = text.decode("utf-8", "replace").encode()
    pairs = [pair.partition(b"\x01") for pair in text.split(b"\x02")]
    return {name: value for name, _, value in pairs if name and value}


def _special(found: Mapping[bytes, bytes], topic: str) -> tuple[bytes, int, bytes]:
    """What few messages have: the user's properties, the kind, further system properties. A field that is
    set without need shows in clients as an empty text."""
    texts = {name.decode(): value.decode() for name, value in found.items()}
    users = [
        b"\x12" + _sized(b"\x0a" + _text(name) + b"\x12" + _text(value))
        for name, value in texts.items()
        if name not in RESERVED
    ]
    rest = b""
    due, priority = _number(texts.get("TIMER_DELIVER_MS")), _number(texts.get("_SYS_MSG_PRIORITY_"))
    group, trace = texts.get("__SHARDINGKEY"), texts.get("TRACE_CONTEXT")
    if due is not None:
        rest += b"\x5a" + _moment(due)
    if group is not None:
        rest += b"\x8a\x01" + _text(group)
    if trace is not None:
        rest += b"\x92\x01" + _text(trace)
    if topic.startswith(DLQ_PREFIX) and "RETRY_TOPIC" in texts:
        first = texts.get("UNIQ_KEY") or texts.get("ORIGIN_MESSAGE_ID", "")
        dead = b"\x0a" + _text(texts["RETRY_TOPIC"]) + b"\x12" + _text(first)
        rest += b"\xa2\x01" + _sized(dead)
    lite_topic = texts.get("__LITE_TOPIC")
    if lite_topic is not None:
        rest += b"\xaa\x01" + _text(lite_topic)
    if priority is not None:
        rest += b"\xb0\x01" + varint(priority)
    return b"".join(users), type_of(texts), rest


def _number(text: str | None) -> int | None:
    """Anybody may have written it."""
    return int(text) if text and text.isdecimal() and len(text) <= _DIGITS_MAX else None


def _text(text: str) -> bytes:
    return _sized(text.encode())


@lru_cache(maxsize=256)
def _topic(name: str) -> bytes:
    return b"\x0a" + _sized(b"\x12" + _sized(name.encode()))


@lru_cache(maxsize=256)
def _host(packed: bytes) -> bytes:
    return unpack_host(packed).encode()


@lru_cache(maxsize=256)
def _moment(ms: int) -> bytes:
    """A Timestamp with its length: many messages come in one ms."""
    return _sized(b"\x08" + varint(ms // 1000) + b"\x10" + varint(ms % 1000 * 1_000_000))


def _sized(text: bytes) -> bytes:
    return _CODED[len(text)] + text


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number has 64 bits.

    >>> [varint(number).hex() for number in (0, 300, -1)]
    ['00', 'ac02', 'ffffffffffffffffff01']
    """
    number &= _MASK
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _CODED[number >> 7]


class _Coded(dict[int, bytes]):
    """Varints by number: those of most lengths are there, others are made each time."""

    def __missing__(self, number: int) -> bytes:
        return varint(number)


_CODED = _Coded()
_CODED.update({number: varint(number) for number in range(0x400)})
