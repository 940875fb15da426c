"""ConfigJournal: rows of a config/*.json that changed since the whole file was last written.

    NAME.changes     one line per row: CRC-32 of what follows, 8 hex digits; a space; JSON; a line feed

1. Reading ends at a line that is torn, or from a failed write: its CRC is wrong or missing.
2. The next append overwrites what follows the last line known to be on disk.
3. Rows carry the table's version, so that those already in the whole file are recognised. So the whole file
   is written first, and then the journal is removed.
PocketMQ only: RocketMQ has no journal. A clean stop leaves none, and a small table never has one.
Owner: the table that it belongs to; one writer at a time.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

from pocketmq.store.log.descriptors import close_file, open_file
from pocketmq.store.log.folder import sync_folder


class ConfigJournal:
    """One file; size: bytes that are on disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.size = 0

    def load(self) -> Iterator[Any]:
        """Yield the rows, oldest first. Raises: OSError."""
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

    def append(self, rows: list[Any], *, flush: bool = True) -> None:
        """Append rows durably, all with one fsync, or without `flush`. Blocks. Raises: OSError."""
        lines = bytearray()
        for row in rows:
            # As ASCII: a name out of a damaged record need not be one that UTF-8 knows.
            text = json.dumps(row, separators=(",", ":")).encode() + b"\n"
            lines += b"%08x " % zlib.crc32(text) + text
        is_new = self.size == 0
        descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, self.size)
            written = 0
            while written < len(lines):
                written += os.pwrite(descriptor, lines[written:], self.size + written)
            if flush:
                os.fdatasync(descriptor)
        finally:
            close_file(descriptor)
        if is_new and flush:
            sync_folder(os.path.dirname(self._path))
        self.size += len(lines)

    def remove(self) -> None:
        """Delete the file once its rows are in the whole file. Blocks. Raises: OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.size = 0
