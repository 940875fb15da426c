"""ConfigJournal: rows of a config/*.json that changed since it was last written as a whole.

    NAME.changes     one line a row: CRC-32 of what follows, 8 hex digits; a space; JSON; a line feed

1. A line that is torn, or of a failed write, ends the reading: its CRC is wrong, or it is not there.
2. What follows the last line that is known to be on the disk is written over by the next one.
3. Rows carry the table's version: those that the whole file has already are nothing new. So the whole file
   is written first, and then the journal is removed.
Ours: RocketMQ does not know it. A clean stop leaves none, and a small table never has one.
Owner: the table that it belongs to; one writer at a time.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

from pocketmq.store.descriptors import close_file, open_file
from pocketmq.store.folder import sync_folder


class ConfigJournal:
    """One file; size: bytes that are on the disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.size = 0

    def load(self) -> Iterator[Any]:
        """The rows, oldest first. Raises: OSError."""
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    crc, _, text = line.partition(b" ")
                    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text):
                        return
                    self.size += len(line)
                    yield json.loads(text)
        except FileNotFoundError:
            return

    def append(self, rows: list[Any]) -> None:
        """Bring rows to the disk, all of them with one fsync. Blocks. Raises: OSError."""
        lines = bytearray()
        for row in rows:
            text = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            lines += b"%08x " % zlib.crc32(text) + text
        is_new = self.size == 0
        descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, self.size)
            written = 0
            while written < len(lines):
                written += os.pwrite(descriptor, lines[written:], self.size + written)
            os.fdatasync(descriptor)
        finally:
            close_file(descriptor)
        if is_new:
            sync_folder(os.path.dirname(self._path))
        self.size += len(lines)

    def remove(self) -> None:
        """Its rows are in the whole file now. Blocks. Raises: OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.size = 0
