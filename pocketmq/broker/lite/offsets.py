"""LiteOffsets: how far each group is in each lite topic, in store/lite/offsets, and offsets.table beside it.

    16 bytes a row, little-endian: key 8 (a hash of group and lite topic), offset + 1 8, 0: removed

1. Each change is one row at the end of the file, written before the acknowledgement is answered; the last one
   of a key counts. So kill -9 loses none, where RocketMQ writes its table every five seconds.
2. From time to time, and when the broker stops, the whole table is written, and the file begins anew. Rows
   that the table has already change nothing when they are read again.
3. After a power cut an offset may lie behind the end of its lite topic, or name one that the log has lost: it
   would pass over what comes there, so `cut` follows.
16 bytes a row in memory, as many again that are free; no object for any.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from struct import Struct

from pocketmq.broker.lite.packed import PackedTable, load_table, save_table

_ROW = Struct("<QQ")
# A start after a kill reads so many at most, and a save is due.
_ROWS_MAX = 500_000


class LiteOffsets:
    """See the head of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table = PackedTable()
        self._file = -1
        self._written = 0

    def __len__(self) -> int:
        return len(self._table)

    def open(self) -> None:
        """Raises: OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        load_table(self._path.with_suffix(".table"), self._table)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        data = self._path.read_bytes()
        whole = len(data) - len(data) % _ROW.size
        if whole < len(data):
            os.ftruncate(self._file, whole)
        for key, value in _ROW.iter_unpack(data[:whole]):
            if value and key:
                self._table.put(key, value)
            else:
                self._table.remove(key)
        self._written = whole // _ROW.size

    @staticmethod
    def _key(group: str, lite: int) -> int:
        digest = blake2b(b"%d$%b" % (lite, group.encode()), digest_size=8).digest()
        return int.from_bytes(digest) or 1

    def get(self, group: str, lite: int) -> int:
        """Return the group's next offset; -1 if it has none."""
        return max(0, self._table.get(self._key(group, lite))) - 1

    def set(self, group: str, lite: int, offset: int) -> None:
        """Set the group's next offset (invariant 1). Raises: OSError."""
        self._put(self._key(group, lite), offset + 1)

    def remove(self, group: str, lite: int) -> None:
        """Remove it, if there is one. Raises: OSError."""
        key = self._key(group, lite)
        if self._table.get(key) >= 0:
            self._put(key, 0)

    def _put(self, key: int, value: int) -> None:
        os.write(self._file, _ROW.pack(key, value))
        self._written += 1
        if value:
            self._table.put(key, value)
        else:
            self._table.remove(key)

    def cut(self, ends: Iterable[tuple[str, int, int]]) -> None:
        """Keep only these groups' offsets in these lite topics, none beyond its end (invariant 3).

        ends: group, key of the lite topic, offset of its next message. Raises: OSError.
        """
        kept = PackedTable()
        for group, lite, end in ends:
            key = self._key(group, lite)
            value = self._table.get(key)
            if value > 0:
                kept.put(key, min(value, end + 1))
        self._table = kept
        self._written += 1
        self.save()

    def tick(self) -> None:
        """Apply invariant 2. Raises: OSError."""
        if self._written > _ROWS_MAX:
            self.save()

    def save(self) -> None:
        """Write the whole table, and begin the file anew. Raises: OSError."""
        if self._written:
            save_table(self._path.with_suffix(".table"), self._table, 0)
            os.ftruncate(self._file, 0)
            self._written = 0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
