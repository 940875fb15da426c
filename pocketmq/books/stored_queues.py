"""StoredQueues: queues, records and side files of a store's folder, for the books. Read only.

On any file system that pocketmq.files reads, in pure Python: an entry costs less than a microsecond.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from pocketmq.files.layout import (
    BLANK_SIZE,
    ENTRY,
    ENTRY_SIZE,
    EXT_ADDRESS_BASE,
    Listed,
    partition,
    row_of_files,
)
from pocketmq.files.local import FileSystem, OpenFile, list_or_empty
from pocketmq.files.queue_files import QueueFiles
from pocketmq.files.side_file import SideFileBroken, read_or_backup
from pocketmq.files.store_files import StoreFiles
from pocketmq.model.record import Record, read_record, store_ms_of
from pocketmq.remoting.errors import IllegalArgument, ProtocolError

_EXT_UNIT = struct.Struct(">hq")
_OPEN_MAX = 8
_HEAD_SIZE = 88


class ExtCode(NamedTuple):
    """What the books need of a unit of consumequeue_ext."""

    tags_code: int


class QueueBounds(NamedTuple):
    """Of a queue: its files, its entries [first, end), and their offsets [low, high)."""

    files: QueueFiles
    first: int
    end: int
    low: int
    high: int


class StoredQueues:
    """As Sorter's Queues. Raises: IllegalArgument if the folder is no store, or its queues cannot be read."""

    def __init__(self, folders: FileSystem, base: str) -> None:
        self._folders = folders
        self._store = StoreFiles(folders, base, QueueFiles)
        self._bounds: dict[str, dict[int, QueueBounds]] = {}
        self._open: dict[str, OpenFile] = {}
        if self._store.why_not:
            advice = f". {self._store.instead}" if self._store.instead else ""
            raise IllegalArgument(f"{base} is no store: {self._store.why_not}{advice}")
        if self._store.has_rocksdb():
            raise IllegalArgument(f"the queues of {base} are in RocksDB, which is not read")
        there = {each.name for each in list_or_empty(folders, base)}
        if self._store.log_files and not there & {"consumequeue", "batchconsumequeue"}:
            raise IllegalArgument(
                f"{base} has no queues: on a copy, `pocketmq store repair` makes them from the log"
            )

    def topics(self, prefix: str) -> list[str]:
        """Return the topics whose names begin so."""
        return [
            each.topic for each in self._store.topic_folders(lambda name: name.startswith(prefix))
        ]

    def queues(self, topic: str) -> dict[int, QueueBounds]:
        """Return the queues of a topic by id."""
        found = self._bounds.get(topic)
        if found is None:
            found = self._bounds[topic] = {
                files.queue_id: self._bounds_of(files) for files in self._store.queues(topic.__eq__)
            }
        return found

    def _bounds_of(self, files: QueueFiles) -> QueueBounds:
        first, end = files.bounds(self._store.log_start)
        low, high = (files.offset_at(index, first, end) for index in (first, end))
        if first == end and not files.batch:
            low = high = end
        files.close()
        return QueueBounds(files, first, end, low, high)

    def offset_at_time(self, topic: str, queue_id: int, ms: int) -> int:
        """Return the first offset whose message was stored at `ms` or later; the end if all are older."""
        bounds = self.queues(topic)[queue_id]
        files, first, end = bounds.files, bounds.first, bounds.end

        def reached(index: int) -> bool:
            entry = files.entry(index)
            record = self.record_at(entry.position, min(entry.size, _HEAD_SIZE))
            return record is not None and store_ms_of(record) >= ms

        return files.offset_at(partition(first, end, reached), first, end)

    # ------------------------------------------------------------ as Queues

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (position, size, tags code) of the messages from an offset on, up to `count`; also of those
        whose records are deleted.
        """
        bounds = self.queues(topic).get(queue_id)
        if bounds is None:
            return []
        files, end = bounds.files, min(bounds.high, queue_offset + count)
        if not files.batch:
            is_there = queue_offset >= files.first_index
            return list(self._read(files, queue_offset, end)) if is_there else []
        if queue_offset < bounds.low:
            return []
        index = files.at_offset(queue_offset, bounds.first, bounds.end)
        found: list[tuple[int, int, int]] = []
        while queue_offset + len(found) < end:
            entry = files.entry(index)
            behind = min(end, entry.offset + entry.messages)
            found += [entry[:3]] * (behind - queue_offset - len(found))
            index += 1
        return found

    def _read(self, files: QueueFiles, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        for file in files.files:
            first = file.first // ENTRY_SIZE
            low, high = max(begin, first), min(end, first + file.size // ENTRY_SIZE)
            if low < high:
                opened = self._opened(file.path)
                data = opened.look((low - first) * ENTRY_SIZE, (high - first) * ENTRY_SIZE)
                yield from ENTRY.iter_unpack(data)

    def record_at(self, position: int, size: int) -> memoryview | None:
        """Return `size` bytes of the log; None where they are deleted, or no entry has them."""
        file = self._store.log_file_of(position)
        if file is None or size <= 0 or size == BLANK_SIZE:
            return None
        at = position - file.first
        return memoryview(self._opened(file.path).look(at, at + size))

    def ext_unit(self, topic: str, queue_id: int, code: int) -> ExtCode | None:
        """Return the unit that a code is the address of; None if it is missing."""
        at = code - EXT_ADDRESS_BASE
        folder = f"{self._store.base}/consumequeue_ext/{topic}/{queue_id}"
        for file in row_of_files(list_or_empty(self._folders, folder), folder):
            if file.first <= at < file.end - _EXT_UNIT.size:
                data = self._opened(file.path).look(
                    at - file.first, at - file.first + _EXT_UNIT.size
                )
                return ExtCode(_EXT_UNIT.unpack(data)[1])
        return None

    # ------------------------------------------------------------ records, side files

    def records(self, topic: str, queue_id: int, first: int = 0) -> Iterator[tuple[int, Record]]:
        """Yield offset and record of the messages of a queue, from an offset on, as far as they are whole."""
        bounds = self.queues(topic).get(queue_id)
        if bounds is None:
            return
        for begin in range(max(first, bounds.low), bounds.high, 1_000):
            for place, entry in enumerate(self.entries(topic, queue_id, begin, 1_000)):
                record = self.record(*entry[:2])
                if record is not None:
                    yield begin + place, record

    def record(self, position: int, size: int) -> Record | None:
        """Return a record; None if there is no whole one. size: 0 if it is not known."""
        if not size:
            head = self.record_at(position, 4)
            size = 0 if head is None else int.from_bytes(head, "big", signed=True)
        data = self.record_at(position, size)
        try:
            return None if data is None else read_record(data, check_crc=False)
        except ProtocolError:
            return None

    def side_file(self, name: str) -> Any:
        """Return the content of config/`name`, {} without one. Raises: IllegalArgument if it is broken."""
        try:
            found = read_or_backup(f"{self._store.base}/config/{name}", self.content)[0]
        except SideFileBroken as error:
            raise IllegalArgument(f"{error} cannot be read") from error
        return found if isinstance(found, dict) else {}

    def names(self, folder: str) -> dict[str, Listed]:
        """Return what a folder of the store has, by name."""
        return {e.name: e for e in list_or_empty(self._folders, f"{self._store.base}/{folder}")}

    @property
    def base(self) -> str:
        """Return the store's folder."""
        return self._store.base

    def content(self, path: str) -> bytes:
        """Return the bytes of a file. Raises: FileNotFoundError."""
        folder, _, name = path.rpartition("/")
        sizes = {each.name: each.size for each in list_or_empty(self._folders, folder)}
        if sizes.get(name, -1) < 0:
            raise FileNotFoundError(path)
        file = self._folders.peek(path)
        try:
            return file.look(0, sizes[name])
        finally:
            file.close()

    def _opened(self, path: str) -> OpenFile:
        found = self._open.pop(path, None) or self._folders.peek(path)
        if len(self._open) >= _OPEN_MAX:
            self._open.pop(next(iter(self._open))).close()
        self._open[path] = found
        return found
