"""The work that remains per record: compressed bodies, checksums, inner batches. Only records with them pay.

Type bits 0x700 of sysFlag: 0 and 3 zlib, 1 LZ4 frame, 2 Zstandard frame. An inner batch (0xC0, 5.x) is one
record that holds several messages; it becomes that many rows, with queue offsets counting from its own.
"""

import zlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.model.message_codec import decompress
from pocketmq.model.record import decode_batch
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import COMPRESSION_MASK, Compression, MessageSysFlag

COMPRESSED = int(MessageSysFlag.COMPRESSED)
INNER = int(MessageSysFlag.NEED_UNWRAP | MessageSysFlag.INNER_BATCH)
BODY_SIZE_MAX = 1 << 28

_ARROW_CODECS = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}


def unpack(body: pa.Buffer | bytes, sys_flag: int) -> bytes:
    """Decompress one body. LZ4 and Zstandard go through pyarrow, so executors need no more packages.

    Raises: MessageCodecError.
    """
    codec = _ARROW_CODECS.get((sys_flag & COMPRESSION_MASK) >> 8)  # type: ignore[call-overload]
    if codec is None:
        return decompress(memoryview(body), sys_flag, BODY_SIZE_MAX)
    try:
        with pa.input_stream(pa.py_buffer(body), compression=codec) as stream:
            unpacked: bytes = stream.read(BODY_SIZE_MAX + 1)
    except (OSError, pa.ArrowException) as error:
        raise MessageCodecError(f"a compressed body cannot be decompressed: {error}") from error
    if len(unpacked) > BODY_SIZE_MAX:
        raise MessageCodecError(f"a body decompresses to more than {BODY_SIZE_MAX} bytes")
    return unpacked


class BadBody(NamedTuple):
    """A row whose body cannot be trusted."""

    row: int
    reason: str


def unpack_bodies(
    bodies: pa.BinaryArray, sys_flags: Int64s
) -> tuple[pa.BinaryArray, list[BadBody]]:
    """Decompress bodies; return them, and those that failed (they become null)."""
    packed = np.flatnonzero(sys_flags & COMPRESSED)
    if not len(packed):
        return bodies, []
    unpacked: list[bytes | None] = []
    bad: list[BadBody] = []
    for row in packed.tolist():
        try:
            unpacked.append(unpack(bodies[row].as_buffer(), int(sys_flags[row])))
        except MessageCodecError as error:
            unpacked.append(None)
            bad.append(BadBody(row, str(error)))
    both = pa.concat_arrays([bodies, pa.array(unpacked, pa.binary())])
    order = np.arange(len(bodies))
    order[packed] = len(bodies) + np.arange(len(packed))
    return both.take(pa.array(order)), bad


def wrong_crcs(data: pa.Buffer, starts: Int64s, ends: Int64s, crcs: Int64s) -> Bools:
    """Return the rows whose stored body does not match its CRC (31 bits; empty bodies are not checked)."""
    view = memoryview(data)
    crc32 = zlib.crc32
    actual = np.fromiter(
        (crc32(view[s:e]) for s, e in zip(starts.tolist(), ends.tolist(), strict=True)),
        np.int64,
        len(starts),
    )
    wrong: Bools = ((actual & 0x7FFFFFFF) != crcs) & (ends > starts)
    return wrong


class InnerRows(NamedTuple):
    """The rows that result when inner batches are opened.

    record: (m,) the record of each row; place: (m,) the row's number within its record; bodies, properties,
    flags: values of the rows of opened batches, `opened` says which rows.
    """

    record: Int64s
    place: Int64s
    opened: Bools
    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]
    bad: list[BadBody]


def open_batches(data: pa.Buffer, starts: Int64s, ends: Int64s, sys_flags: Int64s) -> InnerRows:
    """Open the inner batches among records; an unreadable batch stays one row."""
    counts = np.ones(len(starts), np.int64)
    opened_record = np.zeros(len(starts), np.bool_)
    bodies: list[bytes] = []
    properties: list[bytes] = []
    flags: list[int] = []
    bad: list[BadBody] = []
    for row in np.flatnonzero((sys_flags & INNER) == INNER).tolist():
        body = data.slice(int(starts[row]), int(ends[row] - starts[row]))
        try:
            whole = unpack(body, int(sys_flags[row])) if sys_flags[row] & COMPRESSED else body
            members = decode_batch(memoryview(whole))
        except MessageCodecError as error:
            bad.append(BadBody(row, str(error)))
            continue
        counts[row] = len(members)
        opened_record[row] = True
        for member in members:
            bodies.append(bytes(member.body))
            properties.append(member.properties)
            flags.append(member.flag)
    record = np.repeat(np.arange(len(starts)), counts)
    first_row = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    place = np.arange(len(record)) - first_row[record]
    return InnerRows(record, place, opened_record[record], bodies, properties, flags, bad)
