"""The stored record (wire = disk): its one field table, and everything derived from it. Batches of
messages, too.

    #  field               size      #  field                    size
    1  total size          4         10 born host                4+4 or 16+4
    2  magic               4         11 store timestamp          8
    3  body CRC            4         12 store host               4+4 or 16+4
    4  queue id            4         13 reconsume times          4
    5  flag                4         14 prepared trans. offset   8
    6  queue offset        8         15 body length, body        4+n
    7  physical offset     8         16 topic length, topic      1+n (v1), 2+n (v2)
    8  sysFlag             4         17 properties length, text  2+n
    9  born timestamp      8         big-endian, signed

1. Body CRC is CRC-32 (zlib's polynomial) of the stored (compressed) body without its sign bit.
2. born/store host have 16 address bytes if sysFlag has 0x10 / 0x20.
3. A message of a batch body: size 4, magic 0, CRC 0, flag 4, body length 4 + n, properties length 2 + n.
Structs, offsets and numpy fields are computed from HEAD_FIELDS and TAIL_FIELDS: no other module knows a
number of this layout. Source: MessageDecoder, CommitLog, RocketMQ 4.9.7 and 5.5.0.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import MessageSysFlag

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124
MAGIC_SIZE = 4
# Both magics of a record begin with these bytes: what a search for the next record looks for.
MAGIC_START = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]
PROPERTIES_SIZE_MAX = 32767
BATCH_COUNT_MAX = 8_192
"""Messages that are stored at once. More, which RocketMQ allows too, would hold up a broker's event loop."""
INNER_COUNT_MAX = 32_767
"""Messages of an inner batch: an index entry of RocketMQ 5 counts them in 16 bits."""
BORN_V6 = int(MessageSysFlag.BORN_HOST_V6)
STORE_V6 = int(MessageSysFlag.STORE_HOST_V6)
WRAPPED_BATCH = int(MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP)

HEAD_FIELDS = (
    ("size", "i"),
    ("magic", "i"),
    ("body_crc", "i"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("position", "q"),
    ("sys_flag", "i"),
    ("born_ms", "q"),
)
# Between head and tail: born host, store time, store host.
TAIL_FIELDS = (("reconsume_times", "i"), ("prepared_offset", "q"), ("body_size", "i"))
HOST_SIZE, HOST_SIZE_V6 = 8, 20
STORE_MS_SIZE = 8
V6_EXTRA = HOST_SIZE_V6 - HOST_SIZE

_HEAD_CODES = "".join(code for _, code in HEAD_FIELDS)
_TAIL_CODES = "".join(code for _, code in TAIL_FIELDS)
HEAD = struct.Struct(">" + _HEAD_CODES)
TAIL = struct.Struct(">" + _TAIL_CODES)
# The end mark of a file: free bytes, MAGIC_BLANK. A record begins with its size and magic, too.
SIZE_AND_MAGIC = struct.Struct(">ii")
# From the position on: what a walk over records asks of each.
POSITION_AND_FLAG = struct.Struct(">qi")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")


def fixed_struct(born_host_size: int, store_host_size: int) -> struct.Struct:
    """Return the struct of all fields up to and including the body length; host sizes in bytes (8 or 20)."""
    return struct.Struct(f">{_HEAD_CODES}{born_host_size}sq{store_host_size}s{_TAIL_CODES}")


def middle_struct(born_host_size: int, store_host_size: int) -> struct.Struct:
    """Return the struct of sysFlag to prepared offset, the fields that all records of a batch share."""
    first = _index_of("sys_flag")
    return struct.Struct(
        f">{_HEAD_CODES[first:]}{born_host_size}sq{store_host_size}s{_TAIL_CODES[:-1]}"
    )


def _index_of(field: str) -> int:
    return [name for name, _ in HEAD_FIELDS].index(field)


def _offset_of(field: str) -> int:
    return struct.calcsize(">" + _HEAD_CODES[: _index_of(field)])


FIXED_V4 = fixed_struct(HOST_SIZE, HOST_SIZE)
# Fields in front of sysFlag, for a batch whose records share the rest.
BEFORE_MIDDLE = struct.Struct(">" + _HEAD_CODES[: _index_of("sys_flag")])

MAGIC_AT = _offset_of("magic")
QUEUE_OFFSET_AT = _offset_of("queue_offset")
POSITION_AT = _offset_of("position")
SYS_FLAG_AT = _offset_of("sys_flag")
BORN_HOST_AT = HEAD.size
# magic v1, IPv4 hosts, no body, no topic, no properties
RECORD_SIZE_MIN = FIXED_V4.size + 1 + 2

_V6_BOTH = BORN_V6 | STORE_V6
_FIXED = tuple(
    fixed_struct(
        HOST_SIZE_V6 if flag & BORN_V6 else HOST_SIZE,
        HOST_SIZE_V6 if flag & STORE_V6 else HOST_SIZE,
    )
    for flag in range(_V6_BOTH + 1)
)
_BODY_AT = tuple(fixed.size for fixed in _FIXED)

assert (HEAD.size, FIXED_V4.size, RECORD_SIZE_MIN) == (48, 88, 91)
assert (QUEUE_OFFSET_AT, POSITION_AT, SYS_FLAG_AT) == (20, 28, 36)

Buffer = bytes | bytearray | memoryview


def numpy_fields(fields: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return fields of the table in the form of numpy's dtype.

    >>> numpy_fields(TAIL_FIELDS)
    [('reconsume_times', '>i4'), ('prepared_offset', '>i8'), ('body_size', '>i4')]
    """
    return [(name, {"h": ">i2", "i": ">i4", "q": ">i8"}[code]) for name, code in fields]


# ---------------------------------------------------------------- one field of a record


def size_of(record: Buffer, at: int = 0) -> int:
    """Return the size of the record that starts at `at`, bytes."""
    return int(_INT.unpack_from(record, at)[0])


def magic_of(record: Buffer, at: int = 0) -> int:
    """Return the magic; 0 if there are too few bytes."""
    return int.from_bytes(record[at + MAGIC_AT : at + MAGIC_AT + MAGIC_SIZE], "big", signed=True)


def queue_offset_of(record: Buffer, at: int = 0) -> int:
    """Return the queue offset of the record that starts at `at`."""
    return int(_LONG.unpack_from(record, at + QUEUE_OFFSET_AT)[0])


def sys_flag_of(record: Buffer, at: int = 0) -> int:
    return int(_INT.unpack_from(record, at + SYS_FLAG_AT)[0])


def store_ms_of(record: Buffer, at: int = 0) -> int:
    """Return the store time of a valid record."""
    return int(_LONG.unpack_from(record, at + store_ms_at(sys_flag_of(record, at)))[0])


def store_ms_at(sys_flag: int) -> int:
    """Return where the store time begins."""
    return BORN_HOST_AT + (HOST_SIZE_V6 if sys_flag & BORN_V6 else HOST_SIZE)


def tail_at(sys_flag: int) -> int:
    """Return where TAIL begins: behind the store host."""
    return _BODY_AT[sys_flag & _V6_BOTH] - TAIL.size


def body_at(sys_flag: int) -> int:
    """Return where the body begins."""
    return _BODY_AT[sys_flag & _V6_BOTH]


def body_size_of(record: Buffer, sys_flag: int, at: int = 0) -> int:
    """Return the body size of the record that starts at `at`, bytes."""
    return int(_INT.unpack_from(record, at + body_at(sys_flag) - _INT.size)[0])


def topic_length_size(magic: int) -> int:
    """Return the size of the topic's length: 2 in a record of version 2."""
    return 2 if magic == MAGIC_V2 else 1


def topic_of(record: Buffer) -> bytes:
    """Return the topic of a valid record."""
    start, end = _topic_bounds(record)
    return bytes(record[start:end])


def properties_of(record: Buffer) -> bytes:
    """Return the property bytes of a valid record, found by its lengths."""
    at = _topic_bounds(record)[1] + 2
    return bytes(record[at : at + (record[at - 2] << 8 | record[at - 1])])


def _topic_bounds(record: Buffer) -> tuple[int, int]:
    sys_flag = sys_flag_of(record)
    at = body_at(sys_flag) + body_size_of(record, sys_flag)
    if magic_of(record) == MAGIC_V2:
        return at + 2, at + 2 + (record[at] << 8 | record[at + 1])
    return at + 1, at + 1 + record[at]


# ---------------------------------------------------------------- whole records


def body_crc(body: Buffer) -> int:
    """Return the CRC of a body (invariant 1).

    >>> hex(body_crc(b"hello"))
    '0x3610a686'
    """
    return zlib.crc32(body) & 0x7FFF_FFFF


class Record(NamedTuple):
    """The fields of one stored record, not decompressed; body and properties are slices of the input."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    position: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: memoryview
    topic: str
    properties: bytes


def read_record(data: Buffer, at: int = 0, *, check_crc: bool = True) -> Record:
    """Read the record that starts at `at`.

    Raises: MessageCodecError if the lengths do not add up, the magic is wrong, or the body's CRC differs from
    the stored one.
    """
    view = memoryview(data)
    try:
        fixed = _FIXED[sys_flag_of(view, at) & _V6_BOTH]
        values = fixed.unpack_from(view, at)
        size, magic, crc, body_size = *values[:3], values[-1]
        if magic == MAGIC_V1:
            topic_prefix = 1
        elif magic == MAGIC_V2:
            topic_prefix = 2
        else:
            raise MessageCodecError(f"no record at byte {at}: magic {magic & 0xFFFFFFFF:08X}")
        if size < RECORD_SIZE_MIN or at + size > len(view):
            raise MessageCodecError(f"a record of {size} bytes does not fit at byte {at}")
        where = at + fixed.size
        end = at + size
        if body_size < 0 or where + body_size > end:
            raise MessageCodecError(f"a body of {body_size} bytes does not fit in its record")
        body = view[where : where + body_size]
        where += body_size
        topic_size = int.from_bytes(view[where : where + topic_prefix], "big")
        where += topic_prefix
        topic = bytes(view[where : where + topic_size])
        where += topic_size
        properties_size = int.from_bytes(view[where : where + 2], "big", signed=True)
        where += 2
        if properties_size < 0 or where + properties_size != end:
            raise MessageCodecError(
                f"the lengths of the record at byte {at} do not add up to its {size} bytes"
            )
        properties = bytes(view[where:end])
    except struct.error as error:
        raise MessageCodecError(f"a record is truncated: {error}") from error
    if check_crc and body_size and body_crc(body) != crc:
        raise MessageCodecError(f"the body of the record at byte {at} does not match its CRC")
    try:
        topic_text = topic.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageCodecError(f"the topic of the record at byte {at} is not UTF-8") from error
    return Record._make((*values[:-1], body, topic_text, properties))


def record_size(topic_size: int, body_size: int, properties_size: int, sys_flag: int) -> int:
    """Return the size of a record from those of topic, body and properties; v2 above 127 bytes of topic."""
    return (
        body_at(sys_flag)
        + 3
        + (1 if topic_size > 127 else 0)
        + topic_size
        + body_size
        + properties_size
    )


def write_record(record: Record) -> bytes:
    """Encode a record; `size` is computed, and `magic` chooses v1 or v2.

    Raises: MessageCodecError if properties or topic are too long for their length field.
    """
    topic = record.topic.encode("utf-8")
    topic_prefix = topic_length_size(record.magic)
    if len(topic) > (0x7FFF if topic_prefix == 2 else 0x7F):
        raise MessageCodecError(f"a topic of {len(topic)} bytes does not fit in its length field")
    if len(record.properties) > PROPERTIES_SIZE_MAX:
        raise MessageCodecError(
            f"properties have {len(record.properties)} bytes; at most {PROPERTIES_SIZE_MAX} are stored"
        )
    tail = b"".join(
        (
            record.born_host,
            record.store_ms.to_bytes(8, "big", signed=True),
            record.store_host,
            TAIL.pack(record.reconsume_times, record.prepared_offset, len(record.body)),
            record.body,
            len(topic).to_bytes(topic_prefix, "big"),
            topic,
            len(record.properties).to_bytes(2, "big"),
            record.properties,
        )
    )
    fixed = HEAD.pack(
        HEAD.size + len(tail),
        record.magic,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.position,
        record.sys_flag,
        record.born_ms,
    )
    return fixed + tail


def read_records(data: Buffer, *, check_crc: bool = True) -> Iterator[Record]:
    """Yield all records of a pull reply's body, in order. Raises: MessageCodecError."""
    at = 0
    end = len(data)
    while at < end:
        record = read_record(data, at, check_crc=check_crc)
        yield record
        at += record.size


# ---------------------------------------------------------------- batches


class BatchMember(NamedTuple):
    """One message of a batch body; body and properties are slices of the input."""

    flag: int
    body: memoryview
    properties: bytes


# size, magic 0, crc 0, flag, body length
BATCH_MEMBER = struct.Struct(">iiiii")
BATCH_MEMBER_SIZE_MIN = BATCH_MEMBER.size + 2


def encode_batch(members: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encode the body of SEND_BATCH_MESSAGE from (flag, body, properties) (invariant 3)."""
    parts: list[bytes] = []
    for flag, body, properties in members:
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageCodecError(
                f"properties have {len(properties)} bytes; at most {PROPERTIES_SIZE_MAX} fit"
            )
        size = BATCH_MEMBER_SIZE_MIN + len(body) + len(properties)
        parts += (
            BATCH_MEMBER.pack(size, 0, 0, flag, len(body)),
            body,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: Buffer, count_max: int | None = None) -> list[BatchMember]:
    """Return the messages of a batch body. Raises: MessageCodecError if they are more, or lengths wrong."""
    view = memoryview(data)
    end = len(view)
    at = 0
    members: list[BatchMember] = []
    while at < end:
        if end - at < BATCH_MEMBER_SIZE_MIN:
            raise MessageCodecError(f"a batch ends inside message {len(members)}")
        if len(members) == count_max:
            raise MessageCodecError(f"a batch holds more than {count_max} messages")
        size, _, _, flag, body_size = BATCH_MEMBER.unpack_from(view, at)
        body_end = at + BATCH_MEMBER.size + body_size
        if (
            size < BATCH_MEMBER_SIZE_MIN
            or body_size < 0
            or body_end + 2 > at + size
            or at + size > end
        ):
            raise MessageCodecError(
                f"the lengths of message {len(members)} of a batch do not add up"
            )
        properties_size = int.from_bytes(view[body_end : body_end + 2], "big", signed=True)
        if properties_size < 0 or body_end + 2 + properties_size != at + size:
            raise MessageCodecError(
                f"the lengths of message {len(members)} of a batch do not add up"
            )
        members.append(
            BatchMember(
                flag, view[at + BATCH_MEMBER.size : body_end], bytes(view[body_end + 2 : at + size])
            )
        )
        at += size
    return members
