"""Exports stores to Parquet files without Spark: the work of `pocketmq store export --format parquet`.

One file for all, or one per topic and part, written in one pass over the log; several topics are open at the
same time. A file appears under its name when it is whole.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pocketmq import bulk
from pocketmq.remoting.errors import IllegalArgument

_OPEN_MAX = 64
_ROW_GROUP_BYTES = 64 << 20
# In the place of a topic: no topic is empty.
_ALL = ""
COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")


@dataclass(frozen=True)
class Exported:
    """The result of an export. files: path -> rows."""

    rows: int
    files: dict[str, int]


class _TopicFile:
    """The Parquet file of one topic that is being written; rows are collected into row groups."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.rows = 0
        self._part = path.with_name(f".{path.name}.part")
        self._writer = pq.ParquetWriter(self._part, schema, compression=compression)
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._size += batch.nbytes
        self.rows += batch.num_rows
        if self._size >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._size = [], 0

    def finish(self) -> None:
        self._flush()
        self._writer.close()
        os.replace(self._part, self.path)

    def drop(self) -> None:
        self._writer.close()
        self._part.unlink(missing_ok=True)


def export_parquet(
    path: str | Iterable[str],
    out: str | os.PathLike[str],
    *,
    by_topic: bool = True,
    columns: str | Iterable[str] | None = "all",
    compression: str = "zstd",
    **selection: Any,
) -> Exported:
    """Write the messages of stores to `out`/TOPIC-NNNNN.parquet, or to the file `out`.

    by_topic: false makes `out` one file.
    selection: what bulk.scan takes (topics, tags, starting_ms ...).
    A folder with Parquet files, in folders below it, too, is refused: a reader takes all of a folder, and
    rows of an earlier export would be there twice.
    Raises: IllegalArgument, NotAStore, DataLoss; then nothing but whole files is left in `out`.
    """
    if compression not in COMPRESSIONS:
        raise IllegalArgument(
            f"compression must be one of {', '.join(COMPRESSIONS)}, not {compression!r}"
        )
    wanted = bulk.resolve(columns)
    read = wanted if "topic" in wanted else (*wanted, "topic")
    folder = Path(out)
    if by_topic and (found := next(folder.rglob("*.parquet"), None)) is not None:
        raise IllegalArgument(
            f"{folder} has Parquet files already, such as {found.relative_to(folder)}: a reader of the "
            "folder would get their rows, too. Name an empty or new folder, or delete them first"
        )
    reader = bulk.scan(path, columns=read, **selection)
    (folder if by_topic else folder.parent).mkdir(parents=True, exist_ok=True)
    schema = bulk.schema_of(wanted)
    opened: dict[str, _TopicFile] = {}
    done: dict[str, int] = {}
    parts: dict[str, int] = {}

    def close(topic: str) -> None:
        file = opened.pop(topic)
        file.finish()
        done[str(file.path)] = file.rows

    try:
        if not by_topic:
            opened[_ALL] = _TopicFile(folder, schema, compression)
        for batch in reader:
            for topic, rows in _by_topic(batch) if by_topic else [(_ALL, batch)]:
                file = opened.get(topic)
                if file is None:
                    if len(opened) >= _OPEN_MAX:
                        close(next(iter(opened)))
                    number = parts[topic] = parts.get(topic, -1) + 1
                    name = folder / f"{_file_name(topic)}-{number:05d}.parquet"
                    file = opened[topic] = _TopicFile(name, schema, compression)
                file.write(rows.select(list(wanted)))
        for topic in list(opened):
            close(topic)
    finally:
        for file in opened.values():
            file.drop()
    return Exported(sum(done.values()), done)


def _by_topic(batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
    topics = pc.unique(batch.column("topic")).to_pylist()
    if len(topics) == 1:
        return [(topics[0], batch)]
    return [(t, batch.filter(pc.equal(batch.column("topic"), t))) for t in topics]


def _file_name(topic: str) -> str:
    """Escape characters of a topic that have a meaning to a shell or file system."""
    return "".join(c if c.isalnum() or c in "_-%." else f"={ord(c):x}=" for c in topic)
