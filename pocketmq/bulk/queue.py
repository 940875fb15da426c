"""The index files of one queue as numpy columns. Layout: files.layout; read only."""

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pocketmq.bulk.fetch import File
from pocketmq.files.layout import (
    BATCH_ENTRY_FIELDS,
    ENTRY_FIELDS,
    EXT_ADDRESS_BASE,
    EXT_ADDRESS_MAX,
    row_of_files,
)
from pocketmq.files.local import list_or_empty
from pocketmq.files.queue_files import QueueFiles
from pocketmq.model.record import numpy_fields

ENTRY = np.dtype(numpy_fields(ENTRY_FIELDS))
BATCH_ENTRY = np.dtype(numpy_fields(BATCH_ENTRY_FIELDS))

Int64s = npt.NDArray[np.int64]


class Entries(NamedTuple):
    """Some entries in queue order. table: dtype ENTRY, big-endian as on disk; offsets: queue offsets."""

    table: npt.NDArray[Any]
    offsets: Int64s


class Queue(QueueFiles):
    """QueueFiles, and its entries as columns."""

    __slots__ = ()

    def entries(self, low: int, high: int) -> Entries:
        """Return entries [low, high); those outside the files are left out."""
        dtype = BATCH_ENTRY if self.batch else ENTRY
        pieces: list[npt.NDArray[Any]] = []
        starts: list[Int64s] = []
        for file, first in zip(self._files, self._firsts, strict=True):
            begin = max(low, first)
            end = min(high, first + file.size // self.width)
            if begin < end:
                raw = self._read(file.path).read(
                    (begin - first) * self.width, (end - first) * self.width
                )
                pieces.append(np.frombuffer(raw, dtype))
                starts.append(np.arange(begin, begin + len(pieces[-1]), dtype=np.int64))
        if not pieces:
            return Entries(np.empty(0, ENTRY), np.empty(0, np.int64))
        table = joined(pieces)
        if self.batch:
            plain = np.empty(len(table), ENTRY)
            for name in ENTRY.names or ():
                plain[name] = table[name]
            return Entries(plain, table["base"].astype(np.int64))
        if self._ext_folder and len(table) and int(table["code"].min()) <= EXT_ADDRESS_MAX:
            codes = self._resolve(table["code"].astype(np.int64))
            table = table.copy()
            table["code"] = codes
        return Entries(table, np.concatenate(starts) if len(starts) > 1 else starts[0])

    def _resolve(self, codes: Int64s) -> Int64s:
        """Replace addresses of ext units by their tags codes; an address without a file stays."""
        resolved = codes.copy()
        addressed = codes <= EXT_ADDRESS_MAX
        # Two's complement: subtracting Long.MIN_VALUE is flipping the sign bit.
        units = codes ^ np.int64(EXT_ADDRESS_BASE)
        files = row_of_files(list_or_empty(self._folders, self._ext_folder), self._ext_folder)
        for file in files:
            inside = np.flatnonzero(addressed & (units >= file.first) & (units < file.end - 9))
            if len(inside):
                opened = self._read(file.path)
                data = np.frombuffer(opened.read(0, opened.size), np.uint8)
                at = (units[inside] - file.first)[:, None] + np.arange(2, 10)
                resolved[inside] = data[at].copy().view(">i8")[:, 0]
        return resolved

    def _read(self, path: str) -> File:
        # A queue of bulk reading stands on bulk's file systems.
        return cast(File, self._file(path))


def joined(tables: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate tables of one dtype.

    As opaque bytes: numpy would compare the fields of thousands of tables, and change their byte order.
    """
    if len(tables) == 1:
        return tables[0]
    opaque = f"V{tables[0].itemsize}"
    return np.concatenate([np.ascontiguousarray(t).view(opaque) for t in tables]).view(
        tables[0].dtype
    )
