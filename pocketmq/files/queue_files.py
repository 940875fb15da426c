"""QueueFiles: the index of one queue, ConsumeQueue or 5.x batch queue, read by binary search.

Layout and invariants: layout.py. An index is an entry's number, not its queue offset; they differ in batch
queues only. Read only; the broker's store writes these files.
"""

from bisect import bisect_right
from typing import NamedTuple, TypeVar

from pocketmq.files.layout import (
    BATCH_ENTRY,
    BATCH_ENTRY_SIZE,
    BLANK_SIZE,
    ENTRY,
    ENTRY_SIZE,
    FileSpan,
    partition,
    row_of_files,
)
from pocketmq.files.local import FileSystem, OpenFile, list_or_empty

_HEAD_SIZE = 1000
# Entries of a short queue are kept: a plan asks for them several times.
_KEPT_MAX = 320


class IndexEntry(NamedTuple):
    """One entry; `offset` is its first message's queue offset."""

    position: int
    size: int
    code: int
    offset: int
    messages: int


class QueueFiles:
    """Bounds are looked up once and stay fixed, whatever a broker appends.

    Files are opened on demand; close() after a look, since a store has many queues.
    """

    __slots__ = (
        "_ext_folder",
        "_files",
        "_firsts",
        "_folders",
        "_kept",
        "_kept_from",
        "_open",
        "batch",
        "queue_id",
        "topic",
        "width",
    )

    def __init__(
        self,
        folders: FileSystem,
        folder: str,
        topic: str,
        queue_id: int,
        *,
        batch: bool,
        ext: str = "",
    ) -> None:
        """ext: the folder of its units in consumequeue_ext."""
        self.topic = topic
        self.queue_id = queue_id
        self.batch = batch
        self._folders = folders
        self.width = BATCH_ENTRY_SIZE if batch else ENTRY_SIZE
        self._ext_folder = ext
        self._files = row_of_files(list_or_empty(folders, folder), folder)
        self._firsts = [f.first // self.width for f in self._files]
        self._open: dict[str, OpenFile] = {}
        # All used entries of a short queue, and the number of the first.
        self._kept = b""
        self._kept_from = 0

    @property
    def files(self) -> list[FileSpan]:
        """Return its files, in order; positions count bytes of the queue."""
        return self._files

    @property
    def first_index(self) -> int:
        return self._firsts[0] if self._files else 0

    def end_index(self) -> int:
        """Return the index behind the last used entry."""
        for number in range(len(self._files) - 1, -1, -1):
            file = self._files[number]
            first = self._firsts[number]
            count = file.size // self.width
            used = self._used_at_the_head(file, count)
            if used is None:
                used = partition(first + 1, first + count, self._is_unused) - first
            if used:
                return first + used
        return self.first_index

    def _used_at_the_head(self, file: FileSpan, count: int) -> int | None:
        """Return the number of used entries of a file with only a few; None if there are more."""
        seen = min(count, _HEAD_SIZE // self.width)
        layout = BATCH_ENTRY if self.batch else ENTRY
        head = self._file(file.path).look(0, seen * self.width)
        for used, entry in enumerate(
            layout.iter_unpack(head[: len(head) // self.width * self.width])
        ):
            if entry[1] <= 0:
                if len(self._files) == 1 and used * self.width <= _KEPT_MAX:
                    self._kept, self._kept_from = head[: used * self.width], self._firsts[0]
                return used
        return seen if seen >= count else None

    def _is_unused(self, index: int) -> bool:
        return self.entry(index).size <= 0

    def entry(self, index: int) -> IndexEntry:
        """Return one entry. Raises: IndexError outside the files."""
        at = (index - self._kept_from) * self.width
        if 0 <= at < len(self._kept):
            raw = self._kept[at : at + self.width]
        else:
            number = bisect_right(self._firsts, index) - 1
            if number < 0:
                raise IndexError(index)
            at = (index - self._firsts[number]) * self.width
            raw = self._file(self._files[number].path).look(at, at + self.width)
            if len(raw) < self.width:
                raise IndexError(index)
        if self.batch:
            position, size, code, _, base, count, _, _ = BATCH_ENTRY.unpack_from(raw)
            return IndexEntry(position, size, code, base, max(count, 1))
        position, size, code = ENTRY.unpack_from(raw)
        return IndexEntry(position, size, code, index, 1)

    def bounds(self, log_start: int) -> tuple[int, int]:
        """Return entry numbers [first with a record in the log, end); equal if nothing is left."""
        end = self.end_index()
        return self.at_position(log_start, self.first_index, end), end

    def at_position(self, position: int, low: int, high: int) -> int:
        """Return the first entry in [low, high) whose record is at or behind `position`."""

        def reached(index: int) -> bool:
            entry = self.entry(index)
            return entry.size != BLANK_SIZE and entry.position >= position

        # Mostly nothing was deleted.
        return low if low < high and reached(low) else partition(low, high, reached)

    def at_offset(self, offset: int, low: int, high: int) -> int:
        """Return the first entry in [low, high) that holds `offset` or a later one."""
        if not self.batch:
            return min(max(offset, low), high)

        def reached(index: int) -> bool:
            entry = self.entry(index)
            return entry.offset + entry.messages > offset

        return partition(low, high, reached)

    def offset_at(self, index: int, low: int, high: int) -> int:
        """Return the queue offset of entry `index`; behind the last one, that of the next message."""
        if not self.batch:
            return index
        if low == high:
            return 0
        if index < high:
            return self.entry(index).offset
        last = self.entry(high - 1)
        return last.offset + last.messages

    def _file(self, path: str) -> OpenFile:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._folders.peek(path)
        return file

    def close(self) -> None:
        """Close the files; entries handed out stay valid."""
        if self._open:
            for file in self._open.values():
                file.close()
            self._open.clear()


QueueT = TypeVar("QueueT", bound=QueueFiles)
