"""The catalog of an archive: which queues, offsets and times each of its files contains.

    DEST/commitlog/{first byte, 20 digits}     a whole file of the log, byte for byte
    DEST/catalog/{number, 8 digits}.arrow      the content of up to 32 of them, an Arrow file
    DEST/config/                               topics and consumer offsets, as of the last run

One row for each queue of each file, and one more where a queue's offsets have a gap (COLUMNS). The files
themselves are in the schema's metadata, key `files`, as JSON: first byte, size, records, and `marks`,
positions where records begin, about 8 MiB apart, so that a reader can begin in the middle. `checksum` is of
all values: a row that names another queue would silently take its messages away.

1. A file belongs to the archive once a catalog names it; other files are still being written.
2. Rows of one queue are in the order of the log. An offset that is not greater than the previous one means
   that the topic was deleted and created again: everything before belongs to the old topic.
3. Nothing of a catalog is used before all of it was checked: Arrow follows the offsets in its files wherever
   they lead, so one changed bit would end the process.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pocketmq.bulk.errors import NotAStore
from pocketmq.bulk.fetch import Folders

FILES_A_PART = 32
_VERSION = 1
_POSITION_MAX, _SIZE_MAX = 1 << 62, (1 << 31) - 1
COLUMNS = pa.schema(
    [
        ("file", pa.int64()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("startOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("firstPosition", pa.int64()),
        ("endPosition", pa.int64()),
        ("bytes", pa.int64()),
        ("firstStoreMs", pa.int64()),
        ("lastStoreMs", pa.int64()),
    ]
)


@dataclass(frozen=True)
class ArchivedFile:
    """One file of the log: its first byte in the log, its size, its record count, where records begin."""

    first: int
    size: int
    records: int
    marks: tuple[int, ...]


@dataclass
class CatalogPart:
    """One file of the catalog."""

    files: list[ArchivedFile]
    rows: pa.Table

    def to_bytes(self) -> pa.Buffer:
        """Encode as an Arrow file, readable by anything that reads Arrow."""
        files = json.dumps([asdict(f) for f in self.files])
        metadata = {
            "version": str(_VERSION),
            "files": files,
            "checksum": str(_checksum(files.encode(), self.rows)),
        }
        table = self.rows.replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    @classmethod
    def of_bytes(cls, data: pa.Buffer) -> "CatalogPart":
        """Decode and check it (invariant 3). Raises: ValueError, LookupError, TypeError."""
        table = pa.ipc.open_file(data).read_all()
        table.validate(full=True)
        metadata: dict[bytes, bytes] = table.schema.metadata or {}
        if metadata[b"version"] != str(_VERSION).encode():
            raise ValueError(f"its version is {metadata[b'version'][:20]!r}, not {_VERSION}")
        files = [_file(one) for one in json.loads(metadata[b"files"])]
        rows = table.replace_schema_metadata(None)
        _check_rows(files, rows)
        # Parts of before have none.
        said = metadata.get(b"checksum")
        if said is not None and int(said) != _checksum(metadata[b"files"], rows):
            raise ValueError("its checksum is another one")
        return cls(files, rows)


def _checksum(files: bytes, rows: pa.Table) -> int:
    """Return what of a part's values a changed bit changes, whatever chunks they are in."""
    found = zlib.crc32(files)
    for column in rows.columns:
        if column.type == pa.string():
            found = zlib.crc32(json.dumps(column.to_pylist()).encode(), found)
        else:
            found = zlib.crc32(column.to_numpy(), found)
    return found


def _file(one: dict[str, Any]) -> ArchivedFile:
    """Raises: ValueError, LookupError, TypeError."""
    first, size, records, marks = one["first"], one["size"], one["records"], tuple(one["marks"])
    if not all(type(number) is int for number in (first, size, records, *marks)):
        raise TypeError("a file is described by something that is no number")
    if not (0 <= first <= _POSITION_MAX and 0 < size <= _SIZE_MAX and 0 <= records <= size):
        raise ValueError(f"no file of a log begins at {first} and has {size} bytes")
    if any(low >= high for low, high in pairwise((first - 1, *marks, first + size))):
        raise ValueError(f"the marks of file {first} are not places in it, in order")
    return ArchivedFile(first, size, records, marks)


def _check_rows(files: list[ArchivedFile], rows: pa.Table) -> None:
    """Raises: ValueError unless each row is of one of the files, and can be true of it."""
    if not rows.schema.equals(COLUMNS):
        raise ValueError(f"its columns are {rows.schema.names}")
    if any(column.null_count for column in rows.columns):
        raise ValueError("it has empty places")
    by_first = {file.first: file for file in files}
    named = rows.column("file").to_pylist()
    if len(by_first) < len(files) or not by_first.keys() >= set(named):
        raise ValueError("its rows are not of the files that it names, each once")
    row = {name: rows.column(name).to_numpy() for name in COLUMNS.names if name != "topic"}
    ends = np.array([first + by_first[first].size for first in named], np.int64)
    records = np.array([by_first[first].records for first in named], np.int64)
    start, end = row["startOffset"], row["endOffset"]
    first, last = row["firstPosition"], row["endPosition"]
    # In this order: the differences of what is at least 0 fit into 64 bits.
    if not (
        np.all((row["queueId"] >= 0) & (start >= 0) & (first >= row["file"]))
        and np.all((end > start) & (last > first) & (last <= ends))
        and np.all((end - start <= records) & (row["bytes"] > 0) & (row["bytes"] <= last - first))
        and np.all(row["firstStoreMs"] <= row["lastStoreMs"])
    ):
        raise ValueError("a row has impossible offsets, positions or times")
    counts = dict.fromkeys(by_first, 0)
    for name, count in zip(named, (end - start).tolist(), strict=True):
        counts[name] += count
    if any(counts[file.first] != file.records for file in files):
        raise ValueError("the number of its rows disagrees with the file that they describe")


def read_parts(folders: Folders, paths: Iterable[str]) -> list[CatalogPart]:
    """Read parts of the catalog in order; two requests for each.

    Raises: NotAStore if one cannot be read, or two of them name one file of the log.
    """
    parts: list[CatalogPart] = []
    known: set[int] = set()
    for path in paths:
        opened = folders.open(path)
        try:
            part = CatalogPart.of_bytes(opened.read(0, opened.size))
            firsts = {file.first for file in part.files}
            if known & firsts:
                raise ValueError(f"another part names file {min(known & firsts)}, too")
        # Arrow's errors are ValueErrors, and OSErrors.
        except (
            LookupError,
            OSError,
            OverflowError,
            TypeError,
            ValueError,
            pa.ArrowException,
        ) as error:
            raise NotAStore(
                path,
                f"this part of an archive's catalog cannot be read: {str(error)[:200]}",
                "Bring back this file from a copy of the archive, or make a new archive in another folder",
            ) from error
        finally:
            opened.close()
        known |= firsts
        parts.append(part)
    return parts
