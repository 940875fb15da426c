"""Copies finished files of a broker's log to any file system: the work of `pocketmq store archive`.

A file of the log never changes once the next one has begun, so it is copied while the broker runs. See
catalog.py for the layout of an archive. Files already there are left alone: run it again for the rest. A note
in the store says how far the archive goes, for a broker whose retention waits for it.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pocketmq.bulk.catalog import COLUMNS, FILES_A_PART, ArchivedFile, CatalogPart, read_parts
from pocketmq.bulk.columns.arrays import Int64s
from pocketmq.bulk.errors import DataLoss, NotAStore
from pocketmq.bulk.fetch import LocalFolders, file_system_of
from pocketmq.bulk.log_walk import walk
from pocketmq.bulk.side_files import name_of_offsets
from pocketmq.bulk.store import CATALOG, Root, StoreSnapshot
from pocketmq.files.broker_name import BROKER
from pocketmq.files.layout import ARCHIVED, FileSpan
from pocketmq.files.side_file import OFFSETS
from pocketmq.remoting.errors import IllegalArgument

_log = logging.getLogger(__name__)
_CHUNK = 16 << 20
_MARK_SIZE = 8 << 20
_PLACE = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "storeTimestamp")


@dataclass(frozen=True)
class CopiedFile:
    """One file of the log that was copied to the archive."""

    file: ArchivedFile
    topics: int


class Archiver:
    """Brings an archive up to the last finished file of a store. Raises: NotAStore."""

    def __init__(self, source: str, dest: str) -> None:
        self.store = StoreSnapshot(Root(source, ""))
        if os.path.abspath(source) == os.path.abspath(dest):
            raise IllegalArgument("the archive must be in a different folder from the store")
        self._to = _Target(dest)
        self._parts = _parts_of(dest, self.store)
        known = {f.first for part in self._parts for f in part.files}
        finished = _finished(self.store)
        #: What is to be copied, in the order of the log.
        self.waiting = [f for f in finished if f.first not in known]
        self._end = finished[-1].end if finished else 0

    def run(self) -> Iterator[CopiedFile]:
        """Copy each file, then add it to the catalog. Raises: DataLoss for a damaged file."""
        for file in self.waiting:
            opened = self.store.open_log(file)
            _make_durable(self.store, file)
            data = opened.read(0, file.size)
            found, rows = described(data, file.first, file.path)
            self._to.write(f"commitlog/{file.first:020d}", data)
            self._add(found, rows)
            self.store.close()
            self._note(file.end)
            yield CopiedFile(found, len(rows.column("topic").unique()))
        self._note(self._end)
        self._copy_config()

    def _note(self, position: int) -> None:
        """Note in the store that everything before `position` is in the archive and its catalog."""
        if not isinstance(self.store.folders, LocalFolders) or not self.store.log_files:
            return
        log_folder = os.path.dirname(self.store.log_files[0].path)
        path = os.path.join(os.path.dirname(log_folder), ARCHIVED)
        try:
            with open(f"{path}.part", "w", encoding="ascii") as file:
                json.dump({"position": position}, file)
            os.replace(f"{path}.part", path)
        except OSError as error:
            _log.warning(
                "archive_not_noted path=%s error=%s; until it is, a broker with waitForArchive "
                "deletes nothing",
                path,
                error,
            )

    def _add(self, file: ArchivedFile, rows: pa.Table) -> None:
        if not self._parts or len(self._parts[-1].files) >= FILES_A_PART:
            self._parts.append(CatalogPart([], COLUMNS.empty_table()))
        last = self._parts[-1]
        last.files.append(file)
        last.rows = pa.concat_tables([last.rows, rows])
        self._to.write(f"{CATALOG}/{len(self._parts) - 1:08d}.arrow", last.to_bytes())

    def _copy_config(self) -> None:
        for name in ("topics.json", OFFSETS, "subscriptionGroup.json"):
            source = name_of_offsets(self.store) if name == OFFSETS else name
            try:
                opened = self.store.folders.open(f"{self.store.base}/config/{source}")
            except FileNotFoundError:
                continue
            self._to.write(f"config/{name}", opened.read(0, opened.size))
        with suppress(FileNotFoundError):
            told = self.store.folders.open(f"{self.store.base}/{BROKER}")
            self._to.write(BROKER, told.read(0, told.size))


def _parts_of(dest: str, source: StoreSnapshot) -> list[CatalogPart]:
    """Return an existing archive's catalog. Raises: IllegalArgument if it is another broker's, or a store."""
    try:
        there = StoreSnapshot(Root(dest, ""))
    except NotAStore:
        # Nothing is there yet; what cannot be opened has been reported.
        return []
    if there.has_queues() or there.has_rocksdb() or there.was_not_stopped:
        raise IllegalArgument(
            f"{dest} is the store of a broker: choose another folder for the archive"
        )
    parts = read_parts(there.folders, there.catalog_paths)
    archived = {f.first for part in parts for f in part.files}
    common = [f for f in source.log_files if f.first in archived]
    copy = there.log_file_of(common[-1].first) if common else None
    # A log continues behind its archived part; files before that end are archived, or of another log.
    apart = not common and any(f.first < max(archived, default=0) for f in source.log_files)
    if apart or (copy is not None and source.head(common[-1]) != there.head(copy)):
        raise IllegalArgument(
            f"{dest} is the archive of a different store, not of {source.root.path}"
        )
    return parts


def described(data: pa.Buffer, first: int, path: str) -> tuple[ArchivedFile, pa.Table]:
    """Describe a whole file of the log. Raises: DataLoss if its records do not reach its end."""

    def on_torn(position: int, reason: str) -> None:
        raise DataLoss(reason, path, position)

    # Where nothing is to be copied, what decodes would be most of the command's time.
    from pocketmq.bulk.columns.decode import decode

    starts, _ = walk(data, first, on_torn)
    rows = decode(data, starts, _PLACE, on_bad=lambda at, reason: on_torn(first + at, reason))
    topics = rows.column("topic").dictionary_encode()
    keys = topics.indices.to_numpy().astype(np.int64) << 32 | rows.column("queueId").to_numpy()
    order = np.argsort(keys, kind="stable")
    columns = {
        name: rows.column(name).to_numpy()[order]
        for name in ("queueOffset", "commitLogOffset", "storeSize")
    }
    columns["ms"] = rows.column("storeTimestamp").cast(pa.int64()).to_numpy()[order] // 1000
    table = _runs(first, keys[order], topics.dictionary, columns)
    marks = np.searchsorted(starts, np.arange(0, data.size, _MARK_SIZE))
    known = sorted({first + int(starts[m]) for m in marks.tolist() if m < len(starts)})
    return ArchivedFile(first, data.size, len(starts), tuple(known)), table


def _runs(first: int, keys: Int64s, topics: pa.Array, columns: dict[str, Any]) -> pa.Table:
    """Return one row per queue, and one for each gap in a queue's offsets."""
    if not len(keys):
        return COLUMNS.empty_table()
    offsets, positions = columns["queueOffset"], columns["commitLogOffset"]
    new = (np.diff(keys) != 0) | (np.diff(offsets) != 1)
    begin = np.concatenate([[0], np.flatnonzero(new) + 1])
    last = np.concatenate([begin[1:], [len(keys)]]) - 1
    sizes = columns["storeSize"].astype(np.int64)
    values: Sequence[Any] = [
        np.full(len(begin), first),
        topics.take(pa.array(keys[begin] >> 32)),
        (keys[begin] & 0xFFFF_FFFF).astype(np.int32),
        offsets[begin],
        offsets[last] + 1,
        positions[begin],
        positions[last] + sizes[last],
        np.add.reduceat(sizes, begin),
        np.minimum.reduceat(columns["ms"], begin),
        np.maximum.reduceat(columns["ms"], begin),
    ]
    arrays = [pa.array(v, f.type) for v, f in zip(values, COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


def _finished(store: StoreSnapshot) -> list[FileSpan]:
    """Return the files behind which another one has a record; a broker creates the next file in advance."""
    used = [f for f in store.log_files if any(store.peek(f, 0, 4).to_pybytes())]
    return used[:-1]


def _make_durable(store: StoreSnapshot, file: FileSpan) -> None:
    # A record that a power cut takes from the broker must not live on here: its offset is given again.
    if isinstance(store.folders, LocalFolders):
        _sync(file.path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Target:
    """The destination of an archive."""

    def __init__(self, dest: str) -> None:
        self._fs, self._base = file_system_of(dest)
        self._is_local = self._fs is None
        if self._is_local:
            self._base = os.path.abspath(self._base)

    def write(self, name: str, data: pa.Buffer) -> None:
        """Write a whole file under its name; an object store shows it once it is whole.

        Raises: OSError, by its path; then a folder holds nothing of it.
        """
        path = f"{self._base}/{name}"
        part = f"{path}.part" if self._is_local else path
        try:
            if self._is_local:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with (
                open(part, "wb") if self._is_local else self._fs.open_output_stream(part) as stream
            ):
                for at in range(0, data.size, _CHUNK):
                    stream.write(data.slice(at, min(_CHUNK, data.size - at)))
            if self._is_local:
                _sync(part)
                os.replace(part, path)
        except OSError as error:
            if self._is_local:
                # On a full disk it would take the room that is made for the next run.
                with suppress(OSError):
                    os.remove(part)
            why = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(
                error.errno, f"cannot write to the archive: {why}; run it again to resume", path
            ) from error
