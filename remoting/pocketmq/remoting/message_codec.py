"""The stored record (wire = disk), batches, properties, packed bodies and message ids.

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

1. Body CRC is CRC-32 (zlib's polynomial) of the stored (packed) body without its sign bit.
2. born/store host have 16 address bytes when sysFlag has 0x10 / 0x20.
3. Properties: `name 0x01 value 0x02 ...`; the last 0x02 may be missing (4.9) or not (5.x).
Source: MessageDecoder, CommitLog, RocketMQ 4.9.7 and 5.5.0; disk.md 3, wire.md 5.
"""

import socket
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import Compression
from pocketmq.remoting.message import MessageExt, Property

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124
# size, magic, crc, queue id, flag, queue offset, position, sysFlag, born time: the same in all records
FIXED = struct.Struct(">iiiiiqqiq")
# The fixed part up to the body of a record with IPv4 hosts, in one piece.
FIXED_V4 = struct.Struct(">iiiiiqqiq8sq8siqi")
PROPERTIES_SIZE_MAX = 32767
_PORT = struct.Struct(">i")

assert FIXED.size == 48
assert FIXED_V4.size == 88

Buffer = bytes | bytearray | memoryview


def body_crc(body: Buffer) -> int:
    """Invariant 1.

    >>> hex(body_crc(b"hello"))
    '0x3610a686'
    """
    return zlib.crc32(body) & 0x7FFF_FFFF


class Record(NamedTuple):
    """The fields of one stored record, nothing unpacked; body and properties are slices of the input."""

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
    """The record that starts at `at`.

    Raises: MessageCodecError when the lengths do not add up, the magic is none, or the body's CRC is
    not the stored one.
    """
    view = memoryview(data)
    try:
        size, magic, crc, queue_id, flag, queue_offset, position, sys_flag, born_ms = (
            FIXED.unpack_from(view, at)
        )
        if magic == MAGIC_V1:
            topic_prefix = 1
        elif magic == MAGIC_V2:
            topic_prefix = 2
        else:
            raise MessageCodecError(f"no record at byte {at}: magic {magic & 0xFFFFFFFF:08X}")
        if size < 91 or at + size > len(view):
            raise MessageCodecError(f"a record of {size} bytes does not fit at byte {at}")
        where = at + 48
        host_end = where + (20 if sys_flag & 0x10 else 8)
        born_host = bytes(view[where:host_end])
        store_ms = int.from_bytes(view[host_end : host_end + 8], "big", signed=True)
        where = host_end + 8
        host_end = where + (20 if sys_flag & 0x20 else 8)
        store_host = bytes(view[where:host_end])
        reconsume_times, prepared_offset, body_size = struct.unpack_from(">iqi", view, host_end)
        where = host_end + 16
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
        raise MessageCodecError(f"a record is cut off: {error}") from error
    if check_crc and body_size and body_crc(body) != crc:
        raise MessageCodecError(f"the body of the record at byte {at} does not match its CRC")
    try:
        topic_text = topic.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageCodecError(f"the topic of the record at byte {at} is not UTF-8") from error
    return Record(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        position,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        body,
        topic_text,
        properties,
    )


def record_size(topic_size: int, body_size: int, properties_size: int, sys_flag: int) -> int:
    """Bytes of a record; topic, body and properties sizes in bytes; v2 above 127 bytes of topic."""
    return (
        91
        + (12 if sys_flag & 0x10 else 0)
        + (12 if sys_flag & 0x20 else 0)
        + (1 if topic_size > 127 else 0)
        + topic_size
        + body_size
        + properties_size
    )


def write_record(record: Record) -> bytes:
    """The bytes of a record; `size` is computed, and `magic` says v1 or v2.

    Raises: MessageCodecError when properties or topic are longer than their length field can say.
    """
    topic = record.topic.encode("utf-8")
    topic_prefix = 2 if record.magic == MAGIC_V2 else 1
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
            struct.pack(">iqi", record.reconsume_times, record.prepared_offset, len(record.body)),
            record.body,
            len(topic).to_bytes(topic_prefix, "big"),
            topic,
            len(record.properties).to_bytes(2, "big"),
            record.properties,
        )
    )
    fixed = FIXED.pack(
        48 + len(tail),
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
    """All records of a pull reply's body, in order. Raises: MessageCodecError."""
    at = 0
    end = len(data)
    while at < end:
        record = read_record(data, at, check_crc=check_crc)
        yield record
        at += record.size


# ---------------------------------------------------------------- properties


def properties_to_dict(text: bytes | str) -> dict[str, str]:
    """Java's rules: pairs end at 0x02; a pair without 0x01, without name or value is dropped;
    the last of two equal names wins. Invalid UTF-8 becomes U+FFFD, as in Java.
    """
    if isinstance(text, (bytes, bytearray, memoryview)):
        text = bytes(text).decode("utf-8", "replace")
    found: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator and name and value:
            found[name] = value
    return found


def properties_to_text(properties: Mapping[str, str | None]) -> str:
    """`name 0x01 value 0x02 ...`, each pair closed; None values are left out."""
    return "".join(
        f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None
    )


def get_property(properties: bytes, name: bytes) -> bytes | None:
    """One value of a property text without splitting it; of two equal names the last, as Java reads."""
    needle = name + b"\x01"
    at = len(properties)
    while True:
        at = properties.rfind(needle, 0, at)
        if at < 0:
            return None
        if at == 0 or properties[at - 1] == 2:
            start = at + len(needle)
            end = properties.find(b"\x02", start)
            value = properties[start:] if end < 0 else properties[start:end]
            if value:
                return value


def add_property(properties: bytes, name: bytes, value: bytes) -> bytes:
    """The text with one more pair at its end, with or without a final separator before."""
    if properties and properties[-1] != 2:
        return b"%s\x02%s\x01%s\x02" % (properties, name, value)
    return b"%s%s\x01%s\x02" % (properties, name, value)


def remove_property(properties: bytes, name: bytes) -> bytes:
    """The text without every pair of that name."""
    needle = name + b"\x01"
    if needle not in properties:
        return properties
    kept = [pair for pair in properties.split(b"\x02") if pair and not pair.startswith(needle)]
    return b"\x02".join(kept) + b"\x02" if kept else b""


# ---------------------------------------------------------------- hosts and ids


def pack_host(host: str) -> bytes:
    """`ip:port` -> address bytes and a 4-byte port: 8 bytes, or 20 for IPv6 (`[::1]:80`)."""
    ip, _, port = host.rpartition(":")
    try:
        return pack_address(ip.strip("[]"), int(port))
    except ValueError as error:
        raise MessageCodecError(f"{host!r} is not ip:port") from error


def pack_address(ip: str, port: int) -> bytes:
    """Address bytes and a 4-byte port. Raises: MessageCodecError when `ip` is no address."""
    try:
        if ":" in ip:
            return socket.inet_pton(socket.AF_INET6, ip.partition("%")[0]) + _PORT.pack(port)
        return socket.inet_pton(socket.AF_INET, ip) + _PORT.pack(port)
    except (OSError, struct.error) as error:
        raise MessageCodecError(f"{ip!r}:{port} is not an IP address and a port") from error


def unpack_host(host: bytes) -> str:
    """8 or 20 bytes -> `ip:port`."""
    family = socket.AF_INET if len(host) == 8 else socket.AF_INET6
    ip = socket.inet_ntop(family, host[:-4])
    port = int.from_bytes(host[-4:], "big", signed=True)
    return f"{ip}:{port}"


def offset_msg_id(store_host: bytes, position: int) -> str:
    """The offset id: hex of host, port and position, 32 digits (56 for IPv6).

    >>> offset_msg_id(pack_host("192.168.1.10:10911"), 1234567890123)
    'C0A8010A00002A9F0000011F71FB04CB'
    """
    return f"{store_host.hex().upper()}{position:016X}"


def parse_offset_msg_id(msg_id: str) -> tuple[str, int]:
    """An offset id -> (`ip:port`, position). Raises: MessageCodecError."""
    try:
        raw = bytes.fromhex(msg_id)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise MessageCodecError(
            f"{msg_id!r} is not an offset message id: 32 hex digits (56 for IPv6) are expected"
        )
    return unpack_host(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True)


# ---------------------------------------------------------------- packed bodies

_INFLATED_SIZE_MAX = 64 * 1024 * 1024


def compress(body: bytes, compression: Compression = Compression.ZLIB, level: int = 5) -> bytes:
    """`body` packed. Raises: MessageCodecError when the library for LZ4 or Zstandard is missing."""
    if compression in (Compression.ZLIB, Compression.ZLIB_OLD):
        return zlib.compress(body, level)
    if compression is Compression.LZ4:
        lz4 = _import_lz4()
        packed: bytes = lz4.compress(body)
        return packed
    zstandard = _import_zstandard()
    packed_zstd: bytes = zstandard.ZstdCompressor(level=level).compress(body)
    return packed_zstd


def decompress(body: Buffer, sys_flag: int, size_max: int = _INFLATED_SIZE_MAX) -> bytes:
    """The unpacked body; `sys_flag` bits 8-10 say how it is packed (the COMPRESSED bit is not asked).

    size_max: a body that would grow beyond it is refused, so that a few bytes cannot fill memory.
    Raises: MessageCodecError.
    """
    kind = sys_flag >> 8 & 7
    try:
        if kind in (0, 3):
            inflater = zlib.decompressobj()
            unpacked = inflater.decompress(body, size_max)
            if not inflater.eof:
                raise MessageCodecError(
                    f"a zlib body is cut off or unpacks to more than {size_max} bytes"
                )
            return unpacked
        if kind == 1:
            decompressor = _import_lz4().LZ4FrameDecompressor()
            unpacked = bytes(decompressor.decompress(bytes(body), max_length=size_max))
            if not decompressor.eof:
                raise MessageCodecError(
                    f"an LZ4 body is cut off or unpacks to more than {size_max} bytes"
                )
            return unpacked
        if kind == 2:
            return _decompress_zstd(bytes(body), size_max)
    except MessageCodecError:
        raise
    except (zlib.error, RuntimeError, ValueError) as error:
        raise MessageCodecError(f"a packed body cannot be unpacked: {error}") from error
    raise MessageCodecError(f"unknown compression type {kind} in sysFlag {sys_flag}")


def _decompress_zstd(body: bytes, size_max: int) -> bytes:
    zstandard = _import_zstandard()
    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            unpacked: bytes = reader.read(size_max + 1)
    except zstandard.ZstdError as error:
        raise MessageCodecError(f"a Zstandard body cannot be unpacked: {error}") from error
    if len(unpacked) > size_max:
        raise MessageCodecError(f"a Zstandard body unpacks to more than {size_max} bytes")
    return unpacked


def _import_lz4() -> Any:
    try:
        import lz4.frame
    except ImportError as error:
        raise MessageCodecError(
            "a body is packed with LZ4; install the library: pip install 'pocketmq[compress]'"
        ) from error
    return lz4.frame


def _import_zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MessageCodecError(
            "a body is packed with Zstandard; install the library: pip install 'pocketmq[compress]'"
        ) from error
    return zstandard


# ---------------------------------------------------------------- batches


class BatchMember(NamedTuple):
    """One message of a batch body; body and properties are slices of the input."""

    flag: int
    body: memoryview
    properties: bytes


_BATCH_HEAD = struct.Struct(">iiiii")  # size, magic 0, crc 0, flag, body length


def encode_batch(members: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of SEND_BATCH_MESSAGE from (flag, body, properties) (wire.md 5.6)."""
    parts: list[bytes] = []
    for flag, body, properties in members:
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageCodecError(
                f"properties have {len(properties)} bytes; at most {PROPERTIES_SIZE_MAX} fit"
            )
        size = 22 + len(body) + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: Buffer) -> list[BatchMember]:
    """The messages of a batch body. Raises: MessageCodecError when lengths do not add up."""
    view = memoryview(data)
    end = len(view)
    at = 0
    members: list[BatchMember] = []
    while at < end:
        if end - at < 22:
            raise MessageCodecError(f"a batch ends within its message {len(members)}")
        size, _, _, flag, body_size = _BATCH_HEAD.unpack_from(view, at)
        body_end = at + 20 + body_size
        if size < 22 or body_size < 0 or body_end + 2 > at + size or at + size > end:
            raise MessageCodecError(
                f"the lengths of message {len(members)} of a batch do not add up"
            )
        properties_size = int.from_bytes(view[body_end : body_end + 2], "big", signed=True)
        if properties_size < 0 or body_end + 2 + properties_size != at + size:
            raise MessageCodecError(
                f"the lengths of message {len(members)} of a batch do not add up"
            )
        members.append(
            BatchMember(flag, view[at + 20 : body_end], bytes(view[body_end + 2 : at + size]))
        )
        at += size
    return members


# ---------------------------------------------------------------- what a consumer sees


def to_message(record: Record, broker_name: str = "", *, unpack: bool = True) -> MessageExt:
    """The message of a record as a client shows it. Raises: MessageCodecError for a bad packed body."""
    body = bytes(record.body)
    if unpack and record.sys_flag & 0x1:
        body = decompress(body, record.sys_flag)
    properties = properties_to_dict(record.properties)
    return MessageExt(
        topic=record.topic,
        body=body,
        flag=record.flag,
        properties=properties,
        transaction_id=properties.get(Property.TRANSACTION_ID.value),
        broker_name=broker_name,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.position,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_ms,
        born_host=unpack_host(record.born_host),
        store_timestamp=record.store_ms,
        store_host=unpack_host(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_offset,
        body_crc=record.body_crc,
        stored_size=record.size,
        magic=record.magic,
        offset_msg_id=offset_msg_id(record.store_host, record.position),
    )


def to_messages(record: Record, broker_name: str = "") -> list[MessageExt]:
    """The messages of a record: one, or all of an inner batch (sysFlag 0xC0, RocketMQ 5.x).

    An inner message has queue offset INNER_BASE + its place; the rest is the batch's.
    """
    whole = to_message(record, broker_name)
    if record.sys_flag & 0xC0 != 0xC0:
        return [whole]
    try:
        base = int(whole.properties.get(Property.INNER_BASE.value, record.queue_offset))
    except ValueError:
        base = record.queue_offset
    messages: list[MessageExt] = []
    for place, member in enumerate(decode_batch(whole.body)):
        inner = to_message(record, broker_name, unpack=False)
        inner.body = bytes(member.body)
        inner.flag = member.flag
        inner.properties = properties_to_dict(member.properties)
        inner.tags = inner.properties.get(Property.TAGS.value)
        inner.keys = inner.properties.get(Property.KEYS.value)
        inner.queue_offset = base + place
        messages.append(inner)
    return messages
