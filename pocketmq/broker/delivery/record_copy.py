"""RecordCopy: a slave's copy of its master's delivery record, so that a promoted broker has it. Ours.

The slave says how long its newest file is, what that ends with, and what the file before it ends with; the
master answers with the next part:

    current, previous    what follows in the file that the slave's newest one is a beginning of
    turn                 it has all of its newest file, and begins another one
    sums                 the sums, whole; only when nothing else is missing
    anew                 its files are another record's: it deletes them
    end                  it has everything

1. Files are compared by their lengths and last ENDING bytes, which hold times and a checksum.
2. While a broker follows, it records nothing of its own: what it delivers as a slave is unknown.
"""

import os
import zlib
from typing import NamedTuple

from pocketmq.books.record_file import (
    CURRENT,
    DROPPED,
    PREVIOUS,
    SUMS,
    RecordFiles,
    content,
)

ENDING, SIZE_MAX = 64, 1 << 20


class Held(NamedTuple):
    """What a slave has. size, ending: of its newest file; before: the ending of the one before it; sums:
    the checksum of its sums."""

    size: int
    ending: str
    before: str
    sums: int


def held(files: RecordFiles) -> Held:
    """Return what is here."""
    size = files.current_size
    path = files.path(CURRENT)
    return Held(size, _ending(path, size), _ending(files.path(PREVIOUS)), _sums(files))


def next_part(files: RecordFiles, has: Held) -> tuple[str, bytes]:
    """Return the name of the part that a slave gets next, and its bytes. Raises: OSError."""
    current, previous = files.path(CURRENT), files.path(PREVIOUS)
    if has.size == 0:
        if has.before == _ending(previous):
            return _rest(current, CURRENT, files, has)
        if has.before:
            return "anew", b""
        return PREVIOUS, _read(previous, 0)
    if has.ending == _ending(current, has.size) and has.before in ("", _ending(previous)):
        return _rest(current, CURRENT, files, has)
    if has.ending == _ending(previous, has.size):
        data = _read(previous, has.size)
        return (PREVIOUS, data) if data else ("turn", b"")
    return "anew", b""


def take(files: RecordFiles, part: str, data: bytes, has: Held) -> bool:
    """Apply a part. Returns: whether there is more. Raises: OSError."""
    files.is_copied = True
    if part in (CURRENT, PREVIOUS):
        files.write(has.size, data)
    elif part == "turn":
        files.turn(folds=False)
    elif part == "anew":
        files.clear()
    elif part == SUMS:
        files.replace_sums(data)
    return part != "end"


def _rest(path: str, name: str, files: RecordFiles, has: Held) -> tuple[str, bytes]:
    data = _read(path, has.size)
    if data:
        return name, data
    # Until a dropped file is folded, the sums lack it.
    if has.sums != _sums(files) and not os.path.exists(files.path(DROPPED)):
        return SUMS, content(files.path(SUMS))
    return "end", b""


def _sums(files: RecordFiles) -> int:
    return zlib.crc32(content(files.path(SUMS)))


def _read(path: str, at: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(at)
            return file.read(SIZE_MAX)
    except FileNotFoundError:
        return b""


def _ending(path: str, size: int = -1) -> str:
    """Return the last bytes of the first `size` ones of a file, in hex; "" if it is absent or shorter."""
    try:
        with open(path, "rb") as file:
            end = os.fstat(file.fileno()).st_size
            if not size or size > end:
                return ""
            end = end if size < 0 else size
            file.seek(max(0, end - ENDING))
            return file.read(min(end, ENDING)).hex()
    except FileNotFoundError:
        return ""
