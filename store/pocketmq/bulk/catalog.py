"""The catalog of an archive: which queues, offsets and times each of its files contains.

    DEST/commitlog/{first byte, 20 digits}     a whole file of the log, byte for byte
    DEST/catalog/{number, 8 digits}.arrow      the content of up to 32 of them, an Arrow file
    DEST/config/                               topics and consumer offsets, as of the last run

One row for each queue of each file, and one more where a queue's offsets have a gap (COLUMNS). The files
themselves are in the schema's metadata, key `files`, as JSON: first byte, size, records, and `marks`,
positions where records begin, about 8 MiB apart, so that a reader can begin in the middle.

1. A file belongs to the archive once a catalog names it; other files are still being written.
2. Rows of one queue are in the order of the log. An offset that is not greater than the previous one means
   that the topic was deleted and created again: everything before belongs to the old topic.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from pocketmq.bulk.fetch import Folders

FILES_A_PART = 32
_VERSION = 1
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
class Part:
    """One file of the catalog."""

    files: list[ArchivedFile]
    rows: pa.Table

    def to_bytes(self) -> pa.Buffer:
        """Encode as an Arrow file, readable by anything that reads Arrow."""
        metadata = {"version": str(_VERSION), "files": json.dumps([asdict(f) for f in self.files])}
        table = self.rows.replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    @classmethod
    def of_bytes(cls, data: pa.Buffer) -> "Part":
        table = pa.ipc.open_file(data).read_all()
        metadata: dict[bytes, bytes] = table.schema.metadata or {}
        files = [
            ArchivedFile(one["first"], one["size"], one["records"], tuple(one["marks"]))
            for one in json.loads(metadata[b"files"])
        ]
        return cls(files, table.replace_schema_metadata(None))


def read_parts(folders: Folders, paths: Iterable[str]) -> list[Part]:
    """Read parts of the catalog in order; two requests for each."""
    parts = []
    for path in paths:
        opened = folders.open(path)
        parts.append(Part.of_bytes(opened.read(0, opened.size)))
        opened.close()
    return parts
