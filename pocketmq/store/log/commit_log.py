"""CommitLog: all records of all topics in arrival order. Record layout: remoting.record.

    {folder}/%020d        files of one size (default 1 GiB); a record never straddles two
    end of a file         int free bytes, int BLANK magic; zeros where a magic should be: nothing yet

1. A record needs its size + 8 free bytes in its file, so that a blank always fits behind it.
2. A record contains its own position: bytes that claim another position are not a record.
3. Below `limit` every byte has a disk block (mapped_file.py, invariant 2).
4. Behind the end are zeros. RocketMQ leaves stale bytes of a truncated end there; recovery clears them.
5. Store times never decrease along the log.
Owner: MessageStore, on the event loop. `map`, `base`, `at`, `limit` and `store_ms` are public because
MessageStore.append writes the record in place: a send has no time for a method call each.
Source: CommitLog, DefaultAppendMessageCallback, RocketMQ 4.9.7.
"""

import asyncio
import mmap
from collections.abc import Iterator

from pocketmq.files.records import Damage, Entry, check_record, ends_here
from pocketmq.model.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    SIZE_AND_MAGIC,
    magic_of,
    store_ms_of,
)
from pocketmq.store.errors import DiskFull, RecordTooLarge
from pocketmq.store.log.folder import sync_folder
from pocketmq.store.log.mapped_file import MappedFile, refusal
from pocketmq.store.log.mapped_file_queue import MappedFileQueue

BLANK = SIZE_AND_MAGIC
# Blocks are asked for in stretches of this size, so that a fresh store stays small.
STRETCH = 8 << 20
# The writer says how far it got each time it has written this much; see Preallocation.
STEP = 512 << 10


class CommitLog:
    """The files, the end of the log, and read access."""

    def __init__(self, folder: str, file_size: int) -> None:
        self.files = MappedFileQueue(folder, file_size, keep_open=True)
        self.map: mmap.mmap = mmap.mmap(-1, mmap.PAGESIZE)
        self.base = 0
        self.at = 0
        self.limit = 0
        self.store_ms = 0
        self._file: MappedFile | None = None
        self._ahead: MappedFile | None = None
        # Set each STEP: blocks may run low, or the next file be wanted (Preallocation).
        self.low = asyncio.Event()

    # ------------------------------------------------------------ positions

    @property
    def min_position(self) -> int:
        """Return the position of the first byte still there."""
        return self.files.min_position

    @property
    def end(self) -> int:
        """Return the position behind the last record: where the next one would go, if it fits."""
        return self.base + self.at

    @property
    def file_size(self) -> int:
        return self.files.file_size

    def next_file_position(self, position: int) -> int:
        """Return where the file behind that of `position` begins."""
        size = self.files.file_size
        return position - position % size + size

    # ------------------------------------------------------------ writing

    def open_at(self, position: int) -> None:
        """Continue appending at `position`, dropping everything behind it (invariant 4)."""
        files = self.files
        if files.files:
            files.cut(max(position, files.min_position))
        if not files.files:
            self._file, self.base, self.at, self.limit = None, position, 0, 0
            return
        last = files.files[-1]
        self._use(last)
        self.at = min(position - last.start, last.size)
        last.reserved = max(last.reserved, self.at)

    def _use(self, file: MappedFile) -> None:
        """Make `file` the one to write. Raises: StoreUnreadable; then nothing has changed."""
        self.map = file.map
        self._file = file
        self.base = file.start
        self.at = 0
        self.limit = 0

    def make_room(self, size: int) -> None:
        """Make sure that a record of `size` bytes fits between `at` and `limit`.

        Raises: RecordTooLarge if it fits in no file; DiskFull or StoreUnreadable, and then nothing has
        changed.
        """
        file_size = self.files.file_size
        if size + BLANK.size > file_size:
            # RocketMQ writes blank files and answers SEND_OK for a record that it then lost.
            raise RecordTooLarge("a record", size, file_size - BLANK.size)
        if self._file is None:
            first = self.files.files[-1] if self.files.files else self.files.add(self.base)
            # The queues' files may reach the disk at any time. With them but without a log a store does
            # not open, so the log is there before the first entry is.
            try:
                sync_folder(self.files.folder)
            except OSError as error:
                raise refusal(self.files.folder, error) from error
            self._use(first)
        file = self._file
        assert file is not None
        if self.at + size + BLANK.size > file_size:
            file = self._roll(file)
        end = self.at + size
        if end > file.reserved:
            _reserve(file, end)
        # Come back here soon, so that the pool learns in time how far we are.
        self.limit = min(file.reserved, file_size - BLANK.size, end + STEP)
        self.low.set()

    def _roll(self, file: MappedFile) -> MappedFile:
        following = self._ahead
        if following is None:
            following = MappedFile.create(
                self.files.folder, file.end, self.files.file_size, keep_open=True
            )
            self._ahead = following
        _reserve(following, 1)
        # Mapped now, while nothing has changed yet, should that be refused.
        _ = following.map
        free = file.size - self.at
        if free >= BLANK.size:
            file.reserve(self.at + BLANK.size)
            BLANK.pack_into(self.map, self.at, free, MAGIC_BLANK)
        self.files.adopt(following)
        self._ahead = None
        self._use(following)
        return following

    # ------------------------------------------------------------ following

    def write_raw(self, position: int, data: bytes | memoryview) -> None:
        """Write a master's bytes at their position, across files; the end stays where it is.

        Raises: DiskFull, StoreUnreadable.
        """
        data = memoryview(data)
        while data:
            file = self.files.file_at(position) or self._add_raw(position)
            at = position - file.start
            part = data[: file.size - at]
            if at + len(part) > file.reserved:
                _reserve(file, at + len(part))
            file.map[at : at + len(part)] = part
            position += len(part)
            data = data[len(part) :]

    def _add_raw(self, position: int) -> MappedFile:
        file = self.files.add(position)
        try:
            sync_folder(self.files.folder)
        except OSError as error:
            raise refusal(self.files.folder, error) from error
        return file

    def move_end(self, position: int, store_ms: int) -> None:
        """Move the end of the log to `position`; what is before it was processed."""
        file = self._file
        if file is None or not file.start <= position < file.start + file.size:
            file = self.files.file_at(position) or self.files.files[-1]
        if file is not self._file:
            self._use(file)
        self.at = position - file.start
        self.limit = -1
        if store_ms > self.store_ms:
            self.store_ms = store_ms

    def drop_ahead(self) -> None:
        """Discard a file created ahead: another way of writing creates its own."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if self.files.file_at(ahead.start) is None:
                ahead.delete()
            else:
                ahead.close()

    # ------------------------------------------------------------ preallocation

    def ahead_wanted(self) -> int | None:
        """Return the start of the file to create now, ahead of the writer; None if it is too early."""
        if self._file is None or self._ahead is not None or self.at < self.files.file_size // 2:
            return None
        return self._file.end

    def take_ahead(self, file: MappedFile) -> None:
        """Keep a file created ahead until the current one is full."""
        if self._file is not None and self._ahead is None and file.start == self._file.end:
            self._ahead = file
        else:
            # The writer was faster and has made a file of that name itself.
            file.close()

    @property
    def current(self) -> MappedFile | None:
        """Return the file being written."""
        return self._file

    # ------------------------------------------------------------ reading

    def slice(self, position: int, size: int) -> memoryview | None:
        """Return bytes of the log without a copy; None if they are not there (deleted, not written)."""
        file = self.files.file_at(position)
        if file is None or position + size > self.base + self.at:
            return None
        at = position - file.start
        if at + size > file.size:
            return None
        return file.view[at : at + size]

    def stretch(self, position: int, size_max: int) -> memoryview | None:
        """Return the bytes from `position` on, up to the end of their file or of the log, without a copy.

        They may begin and end within a record, and include what is behind the blank at a file's end.
        Returns: at most size_max bytes, none at the log's end; None if the position is not there.
        """
        if position == self.base + self.at:
            return memoryview(b"")
        file = self.files.file_at(position)
        if file is None or position > self.base + self.at:
            return None
        at = position - file.start
        end = min(at + size_max, file.size, self.base + self.at - file.start)
        return file.view[at:end]

    def entry_at(self, position: int, *, check_crc: bool = True) -> Entry | str | None:
        """Check the record at `position`; None if nothing is there; a text if it is bad."""
        file = self.files.file_at(position)
        if file is None or position >= self.base + self.at:
            return None
        return check_record(
            file.view, position - file.start, file.size, position, check_crc=check_crc
        )

    def walk(self, position: int, end: int, *, check_crc: bool = True) -> Iterator[Entry | Damage]:
        """Yield the records from `position` (where one begins) up to `end`, from file to file.

        A bad record is yielded as Damage and ends the walk: the caller decides whether to look for more
        behind it (recovery.py). The walk also ends, without Damage, where nothing was written yet.
        """
        while position < end:
            file = self.files.file_at(position)
            if file is None:
                return
            view, start, size = file.view, file.start, file.size
            while position < end:
                at = position - start
                found = check_record(view, at, size, position, check_crc=check_crc)
                if isinstance(found, Entry):
                    yield found
                    position += found.size
                    if position >= start + size:
                        break
                    continue
                if ends_here(view, at, size):
                    position = file.end
                    break
                if found is not None:
                    yield Damage(position, max(0, BLANK.unpack_from(view, at)[0]), found)
                return

    def first_store_ms(self, file: MappedFile) -> int:
        """Return the store time of a file's first record; 0 if the file holds no record."""
        head = file.read(0, RECORD_SIZE_MIN)
        if len(head) < RECORD_SIZE_MIN or magic_of(head) not in (
            MAGIC_V1,
            MAGIC_V2,
        ):
            return 0
        return store_ms_of(head)

    def close(self) -> None:
        """Drop all maps; an unused file created ahead is deleted, as in RocketMQ."""
        if self._ahead is not None:
            self._ahead.delete()
            self._ahead = None
        self._file = None
        self.limit = 0
        self.map = mmap.mmap(-1, mmap.PAGESIZE)
        self.files.close()


def _reserve(file: MappedFile, end: int) -> None:
    """Reserve blocks up to `end` and, if the disk has them, some more."""
    try:
        file.reserve(end + min(STRETCH, max(1 << 16, file.size // 8)))
    except DiskFull:
        file.reserve(end)
