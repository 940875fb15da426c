"""One record of the log: checks it, and finds the next one. Layout: remoting.record."""

import zlib
from typing import NamedTuple

from pocketmq.model.record import (
    BORN_V6,
    FIXED_V4,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_START,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    SIZE_AND_MAGIC,
    STORE_V6,
    body_at,
    body_size_of,
    store_ms_of,
    topic_length_size,
)

# How much is searched at once.
_SEARCHED = 1 << 16


class Entry(NamedTuple):
    """The fields of a record that the rest of the store needs; topic and properties in bytes."""

    position: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_ms: int
    properties: bytes
    magic: int


class Damage(NamedTuple):
    """Bytes of the log that are not a record: where, how many (0: unknown), and why."""

    position: int
    size: int
    why: str


def check_record(
    view: memoryview, at: int, end: int, position: int, *, check_crc: bool = True
) -> Entry | str | None:
    """Check the record at byte `at` of a file's view, whose bytes end at `end`.

    Returns: the record; None where nothing was written yet; else a text that says what is wrong with it.
    """
    if end - at < RECORD_SIZE_MIN:
        return None if not any(view[at:end]) else "too few bytes are left for a record"
    fixed = FIXED_V4.unpack_from(view, at)
    size, magic, crc, queue_id, _, queue_offset, own_position, sys_flag, _, _, store_ms, *_ = fixed
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return None if magic == 0 and size == 0 else f"magic {magic & 0xFFFF_FFFF:08X}"
    topic_prefix = topic_length_size(magic)
    if size < RECORD_SIZE_MIN or at + size > end:
        return f"a size of {size} bytes"
    if own_position != position:
        return f"it claims to be at position {own_position}"
    where = at + body_at(sys_flag)
    record_end = at + size
    if where > record_end:
        return "its lengths do not add up"
    body_size = fixed[-1]
    if sys_flag & (BORN_V6 | STORE_V6):
        store_ms, body_size = store_ms_of(view, at), body_size_of(view, sys_flag, at)
    body_end = where + body_size
    if body_size < 0 or body_end + topic_prefix + 2 > record_end:
        return f"a body of {body_size} bytes"
    if check_crc and body_size and zlib.crc32(view[where:body_end]) & 0x7FFF_FFFF != crc:
        return "its body does not match its CRC"
    where = body_end + topic_prefix
    topic_end = where + int.from_bytes(view[body_end:where], "big")
    if topic_end + 2 > record_end:
        return "its lengths do not add up"
    if topic_end + 2 + int.from_bytes(view[topic_end : topic_end + 2], "big") != record_end:
        return "its lengths do not add up"
    return Entry(
        position,
        size,
        bytes(view[where:topic_end]),
        queue_id,
        queue_offset,
        sys_flag,
        store_ms,
        bytes(view[topic_end + 2 : record_end]),
        magic,
    )


def ends_here(view: memoryview, at: int, end: int) -> bool:
    """Return True if no record of this file is behind `at`: its end mark is there, or has no room."""
    return end - at < SIZE_AND_MAGIC.size or SIZE_AND_MAGIC.unpack_from(view, at)[1] == MAGIC_BLANK


def next_record(view: memoryview, at: int, end: int, start: int) -> int | None:
    """Return where in a file the next valid record begins, from byte `at` on.

    view: the file; end: of its bytes to be searched; start: its position in the log.
    """
    magic = _found(view, at + MAGIC_AT, end)
    while magic >= 0:
        found = magic - MAGIC_AT
        if isinstance(check_record(view, found, len(view), start + found), Entry):
            return found
        magic = _found(view, magic + 1, end)
    return None


def _found(view: memoryview, at: int, end: int) -> int:
    """Return where MAGIC_START begins next, -1 if it does not.

    In copies of some pages: mmap.find() of Python 3.11.0 to 3.11.4 reads behind the map, which ends the
    process (python/cpython#105235).
    """
    more = len(MAGIC_START) - 1
    for begin in range(at, end, _SEARCHED):
        found = bytes(view[begin : min(begin + _SEARCHED + more, end)]).find(MAGIC_START)
        if found >= 0:
            return begin + found
    return -1
