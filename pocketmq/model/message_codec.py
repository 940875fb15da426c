"""Around the record: properties, message ids, compressed bodies, and the message that a client sees.

1. Properties: `name 0x01 value 0x02 ...`; the last 0x02 may be missing (4.9) or not (5.x).
2. An offset message id is hex of store host, port and position. The record itself: remoting.record.
Source: MessageDecoder, MessageId, CompressionType, RocketMQ 4.9.7 and 5.5.0.
"""

import zlib
from collections.abc import Mapping
from typing import Any

from pocketmq.model.message import MessageExt, Property
from pocketmq.model.record import INNER_COUNT_MAX, WRAPPED_BATCH, Buffer, Record, decode_batch
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import Compression
from pocketmq.remoting.hosts import unpack_host
from pocketmq.remoting.java_number import number
from pocketmq.remoting.lazy_names import needs

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
    """Encode as `name 0x01 value 0x02 ...`, each pair closed; None values are left out."""
    # A list: a generator is run by a call for each of its values.
    return "".join(
        [f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None]
    )


def get_property(properties: bytes, name: bytes) -> bytes | None:
    """Return one value of a property text without splitting it; of equal names the last, as in Java."""
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
    """Append a pair to the text, whether or not it ends with a separator."""
    if properties and properties[-1] != 2:
        return b"%s\x02%s\x01%s\x02" % (properties, name, value)
    return b"%s%s\x01%s\x02" % (properties, name, value)


def remove_property(properties: bytes, name: bytes) -> bytes:
    """Return the text without any pair of that name."""
    needle = name + b"\x01"
    if needle not in properties:
        return properties
    pairs = properties.split(b"\x02")
    kept = [pair for pair in pairs if pair and not pair.startswith(needle)]
    if len(kept) == len(pairs) - pairs.count(b""):
        return properties
    return b"\x02".join(kept) + b"\x02" if kept else b""


# ---------------------------------------------------------------- ids


def offset_msg_id(store_host: bytes, position: int) -> str:
    """Return the offset id: hex of host, port and position, 32 digits (56 for IPv6).

    >>> from pocketmq.remoting.hosts import pack_host
    >>> offset_msg_id(pack_host("192.168.1.10:10911"), 1234567890123)
    'C0A8010A00002A9F0000011F71FB04CB'
    """
    return f"{store_host.hex().upper()}{position:016X}"


def parse_offset_msg_id(msg_id: str) -> tuple[str, int]:
    """Split an offset id into (`ip:port`, position). Raises: MessageCodecError."""
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

INFLATED_SIZE_MAX = 64 << 20
"""Bytes of a body that is unpacked."""


def compress(body: bytes, compression: Compression = Compression.ZLIB, level: int = 5) -> bytes:
    """Compress `body`. Raises: MessageCodecError if the library for LZ4 or Zstandard is missing."""
    if compression in (Compression.ZLIB, Compression.ZLIB_OLD):
        return zlib.compress(body, level)
    if compression is Compression.LZ4:
        lz4 = _import_lz4()
        packed: bytes = lz4.compress(body)
        return packed
    zstandard = _import_zstandard()
    packed_zstd: bytes = zstandard.ZstdCompressor(level=level).compress(body)
    return packed_zstd


def decompress(body: Buffer, sys_flag: int, size_max: int = INFLATED_SIZE_MAX) -> bytes:
    """Decompress a body; `sys_flag` bits 8-10 give the method (the COMPRESSED bit is ignored).

    size_max: a body that would exceed it is refused, so that a few bytes cannot fill memory.
    Raises: MessageCodecError.
    """
    kind = sys_flag >> 8 & 7
    try:
        if kind in (0, 3):
            inflater = zlib.decompressobj()
            unpacked = inflater.decompress(body, size_max)
            if not inflater.eof:
                raise MessageCodecError(
                    f"a zlib body is truncated or decompresses to more than {size_max} bytes"
                )
            return unpacked
        if kind == 1:
            decompressor = _import_lz4().LZ4FrameDecompressor()
            unpacked = bytes(decompressor.decompress(bytes(body), max_length=size_max))
            if not decompressor.eof:
                raise MessageCodecError(
                    f"an LZ4 body is truncated or decompresses to more than {size_max} bytes"
                )
            return unpacked
        if kind == 2:
            return _decompress_zstd(bytes(body), size_max)
    except MessageCodecError:
        raise
    except (zlib.error, RuntimeError, ValueError) as error:
        raise MessageCodecError(f"a compressed body cannot be decompressed: {error}") from error
    raise MessageCodecError(f"unknown compression type {kind} in sysFlag {sys_flag}")


def _decompress_zstd(body: bytes, size_max: int) -> bytes:
    zstandard = _import_zstandard()
    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            unpacked: bytes = reader.read(size_max + 1)
    except zstandard.ZstdError as error:
        raise MessageCodecError(f"a Zstandard body cannot be decompressed: {error}") from error
    if len(unpacked) > size_max:
        raise MessageCodecError(f"a Zstandard body decompresses to more than {size_max} bytes")
    return unpacked


def _import_lz4() -> Any:
    try:
        import lz4.frame
    except ImportError as error:
        raise MessageCodecError(
            needs("a body that is compressed with LZ4", "lz4", "compress")
        ) from error
    return lz4.frame


def _import_zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MessageCodecError(
            needs("a body that is compressed with Zstandard", "zstandard", "compress")
        ) from error
    return zstandard


# ---------------------------------------------------------------- what a consumer sees


def to_message(record: Record, broker_name: str = "", *, unpack: bool = True) -> MessageExt:
    """Return a record as the message that a client sees. Raises: MessageCodecError for a corrupt body."""
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
    """Return the messages of a record: one, or all of an inner batch (sysFlag 0xC0, RocketMQ 5.x).

    An inner message has queue offset INNER_BASE + its place; the rest is the batch's.
    """
    whole = to_message(record, broker_name)
    if record.sys_flag & WRAPPED_BATCH != WRAPPED_BATCH:
        return [whole]
    try:
        base = number(whole.properties.get(Property.INNER_BASE.value, record.queue_offset))
    except ValueError:
        base = record.queue_offset
    messages: list[MessageExt] = []
    for place, member in enumerate(decode_batch(whole.body, INNER_COUNT_MAX)):
        inner = to_message(record, broker_name, unpack=False)
        inner.body = bytes(member.body)
        inner.flag = member.flag
        inner.properties = properties_to_dict(member.properties)
        inner.tags = inner.properties.get(Property.TAGS.value)
        inner.keys = inner.properties.get(Property.KEYS.value)
        inner.queue_offset = base + place
        messages.append(inner)
    return messages
