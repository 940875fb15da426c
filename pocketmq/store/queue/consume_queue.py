"""ConsumeQueue: the index of one queue into the commit log. Source: ConsumeQueue, RocketMQ 4.9.7.

The entry's layout: files.layout. Its tags code is Java's String.hashCode, sign-extended; the delivery time in
SCHEDULE_TOPIC_XXXX.

1. Entry n starts at byte n * 20, so a queue offset is an array index.
2. An entry is written only after its record is readable in the commit log.
3. The record's own queue offset decides where its entry goes, even when it is rewritten.
4. Entries before the first one of a rebuilt queue are (0, 2147483647, 0): no record. So are those of records
   that a crash has removed from the middle, and those of expired messages, with code 1 (topic_retention.py).
5. Behind the last entry are zeros (RocketMQ leaves stale entries there; recovery clears them).
Owner: MessageStore, on the event loop; it writes entries in place through `map`, `put_at`, `put_end`.
"""

import mmap
from collections.abc import Iterable

from pocketmq.files.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, EXPIRED_ENTRY
from pocketmq.store.errors import DiskFull
from pocketmq.store.log.folder import sync_folder
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.log.mapped_file_queue import MappedFileQueue

# A record's header has no checksum: one that skips more offsets of its queue than this is not believed.
GAP_MAX = 1_000_000
_OFFSET_MAX = (1 << 63) // ENTRY_SIZE - 1
_BLANK_ENTRY = ENTRY.pack(0, BLANK_SIZE, 0)
_EXPIRED = ENTRY.pack(*EXPIRED_ENTRY)
_BLANKS = 4_096
_CHUNK = 200 * ENTRY_SIZE
_ZEROS = bytes(_CHUNK)
_LOST_MAX = 1_000
_STRETCH_MAX = 256 << 10
_SEARCHED_MAX = 64
_SMALL = 8_192
_PIECE = 256
_NO_MAP = mmap.mmap(-1, mmap.PAGESIZE)


class ConsumeQueue:
    """One queue. Offsets count entries; max_offset is the next one to be assigned."""

    __slots__ = (
        "_min",
        "_put_file",
        "_stretch",
        "files",
        "floor",
        "flushed_offset",
        "key_hash",
        "magic",
        "map",
        "max_offset",
        "max_position",
        "overhead",
        "put_at",
        "put_end",
        "queue_id",
        "seen_whole",
        "special",
        "topic",
        "topic_part",
        "used",
    )

    def __init__(self, folder: str, file_size: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(folder, file_size, unit=ENTRY_SIZE)
        self.max_offset = 0
        # End of the last record that an entry points to.
        self.max_position = 0
        # What MessageStore.append keeps per queue: see there.
        self.topic_part = b""
        self.overhead = 0
        self.magic = 0
        self.special = False
        self.key_hash = 0
        # Where the next entry goes, and up to where the map may be written; 0 and 0: go by make_room.
        self.map = _NO_MAP
        self.put_at = 0
        self.put_end = 0
        # Entries below are on the disk.
        self.flushed_offset = 0
        self.used = True
        # Found by load(): the last entry may be one, and behind it are zeros (invariant 5).
        self.seen_whole = False
        self._put_file: MappedFile | None = None
        self._stretch = 4096
        # Where the log began, and the min offset of then.
        self._min = (-1, 0)
        # Entries below are known to be blanks: their messages have expired (topic_retention.py).
        self.floor = 0

    # ------------------------------------------------------------ opening

    def load(self, file_size: int | None = None) -> None:
        """Find the files and the last entry. Cost: some ten small reads, whatever the size."""
        self.files.load(file_size=file_size)
        files = self.files.files
        place = len(files) - 1
        while place > 0 and not files[place].read(0, ENTRY_SIZE).strip(b"\0"):
            place -= 1
        if files:
            small = files[0].read_all(_SMALL) if len(files) == 1 else None
            if small is not None:
                self._set_end_of(small)
            else:
                with files[place].held_open():
                    self._set_end(files[place].start // ENTRY_SIZE + _count_of(files[place]))
        self.flushed_offset = self.max_offset

    def _set_end_of(self, data: bytes) -> None:
        """Find the last entry of a lone file in all that it holds: one read, where there are many queues."""
        end = len(data)
        # Comparing is ten times faster than rstrip, and this is done for each queue after a power cut.
        while end > _PIECE and data.endswith(_ZEROS[:_PIECE], 0, end):
            end -= _PIECE
        data = data[:end].rstrip(b"\0")
        count = -(-len(data) // ENTRY_SIZE)
        self.max_offset = self.files.min_position // ENTRY_SIZE + count
        if count:
            last = data[(count - 1) * ENTRY_SIZE :].ljust(ENTRY_SIZE, b"\0")
            position, size, _ = ENTRY.unpack(last)
            if size != BLANK_SIZE:
                self.max_position = position + size
            self.seen_whole = size == BLANK_SIZE or (position >= 0 and size > 0)

    def _set_end(self, max_offset: int) -> None:
        self.max_offset = max_offset
        self.max_position = 0
        last = self.entry(max_offset - 1)
        if last is not None and last[1] != BLANK_SIZE:
            self.max_position = last[0] + last[1]
        self.release()

    def truncate(self, end: int) -> int:
        """Drop the last entries that point behind `end` of the log. Returns: how many."""
        offset = self.max_offset
        first = self.files.min_position // ENTRY_SIZE
        while offset > first:
            entry = self.entry(offset - 1)
            if entry is None:
                break
            position, size, _ = entry
            if size == BLANK_SIZE or (position >= 0 and size > 0 and position + size <= end):
                break
            offset -= 1
        dropped = self.max_offset - offset
        if dropped:
            self._set_end(offset)
            self.flushed_offset = min(self.flushed_offset, offset)
            self.clear_behind()
        return dropped

    def clear_behind(self) -> None:
        """Zero everything behind the last entry (invariant 5), durably; files without entries are deleted."""
        byte = self.max_offset * ENTRY_SIZE
        files = self.files
        if files.files and byte < files.end_position:
            # The file is kept even when it is empty: it says where the queue's offsets continue.
            count = len(files.files)
            while len(files.files) > 1 and files.files[-1].start >= byte:
                files.files[-1].delete()
                files.files.pop()
            if len(files.files) < count:
                sync_folder(files.folder)
            last = files.files[-1]
            if last.start <= byte < last.end:
                last.zero_behind(byte - last.start)
            self.release()

    # ------------------------------------------------------------ writing

    def make_room(self) -> None:
        """Make sure that one entry can be written at `put_at`. Raises: DiskFull; then nothing has changed."""
        byte = self.max_offset * ENTRY_SIZE
        file = self.files.file_at(byte)
        if file is None:
            file = self.files.add(byte)
            self._stretch = 4096
            if byte > file.start and len(self.files.files) == 1:
                self._fill_blank(file, byte - file.start)
        at = byte - file.start
        file.reserved = max(file.reserved, at)
        if at + ENTRY_SIZE > file.reserved:
            try:
                file.reserve(-(-(at + self._stretch) // 4096) * 4096, fill=True)
            except DiskFull:
                file.reserve(at + ENTRY_SIZE, fill=True)
            self._stretch = min(self._stretch * 2, _STRETCH_MAX)
        self._put_file = file
        self.map = file.map
        self.put_at = at
        # Whole entries only; the file's size is a multiple of theirs.
        self.put_end = min(file.reserved, file.size) // ENTRY_SIZE * ENTRY_SIZE
        self.used = True

    def _fill_blank(self, file: MappedFile, size: int) -> None:
        """Apply invariant 4: a queue that does not begin at 0 has no records before."""
        file.reserve(size)
        file.map[:size] = _BLANK_ENTRY * (size // ENTRY_SIZE)

    def put(self, position: int, size: int, tags_code: int) -> None:
        """Append the entry of the record at `position`."""
        if self.put_at >= self.put_end:
            self.make_room()
        ENTRY.pack_into(self.map, self.put_at, position, size, tags_code)
        self.put_at += ENTRY_SIZE
        self.max_offset += 1
        self.max_position = position + size

    def make_room_for(self, count: int) -> None:
        """Make sure that put_many of `count` entries cannot fail: files, blocks, maps. Raises: DiskFull."""
        if self.put_at + count * ENTRY_SIZE <= self.put_end:
            return
        self.make_room()
        while self.put_at + count * ENTRY_SIZE > self.put_end:
            file = self._put_file
            assert file is not None
            if self.put_end + ENTRY_SIZE > file.size:
                self._make_next(file.end, count * ENTRY_SIZE - (self.put_end - self.put_at))
                return
            file.reserve(self.put_at + count * ENTRY_SIZE, fill=True)
            self.put_end = min(file.reserved, file.size) // ENTRY_SIZE * ENTRY_SIZE

    def _make_next(self, position: int, size: int) -> None:
        """Make the files from `position` on for `size` bytes of entries: make_room finds them."""
        while size > 0:
            following = self.files.file_at(position) or self.files.add()
            following.reserve(size, fill=True)
            # A map that cannot be made must be known before the log has the records, too.
            _ = following.map
            position, size = following.end, size - following.size

    def put_many(self, entries: bytes | bytearray, max_position: int) -> None:
        """Append packed entries; the last record they point to ends at `max_position`."""
        while entries:
            if self.put_at >= self.put_end:
                self.make_room()
            part = entries[: self.put_end - self.put_at]
            size = len(part)
            self.map[self.put_at : self.put_at + size] = part
            self.put_at += size
            self.max_offset += size // ENTRY_SIZE
            entries = entries[size:]
        self.max_position = max_position

    def refusal_of(self, offset: int) -> str | None:
        """Return why no record may have this queue offset, which is new to the queue; None if one may.

        The first record of a queue may have any that a file can be named after: the log may begin later.
        """
        if 0 <= offset <= (self.max_offset + GAP_MAX if self.files.files else _OFFSET_MAX):
            return None
        return (
            f"its queue offset is {offset}, and queue {self.queue_id} of {self.topic} ends at "
            f"{self.max_offset}"
        )

    def skip_to(self, offset: int) -> None:
        """Write blanks for the missing entries before `offset` (invariant 4)."""
        if not self.files.files:
            self.max_offset = offset
        while self.max_offset < offset:
            missing = min(offset - self.max_offset, _BLANKS)
            self.put_many(_BLANK_ENTRY * missing, self.max_position)

    def replace(self, offset: int, position: int, size: int, tags_code: int) -> None:
        """Overwrite an existing entry."""
        byte = offset * ENTRY_SIZE
        file = self.files.file_at(byte)
        if file is not None:
            at = byte - file.start
            file.reserved = 0 if at >= file.reserved else file.reserved
            file.reserve(at + ENTRY_SIZE)
            ENTRY.pack_into(file.map, at, position, size, tags_code)
            self.flushed_offset = min(self.flushed_offset, offset)
            if offset == self.max_offset - 1:
                self.max_position = position + size

    def release(self) -> None:
        """Drop the maps of an idle queue; the next use maps again."""
        self.map = _NO_MAP
        self.put_at = self.put_end = 0
        self._put_file = None
        for file in self.files.files:
            file.unmap()

    # ------------------------------------------------------------ reading

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Return (position, size, tags code) at `offset`, as stored; None if there is no such entry."""
        if offset >= self.max_offset:
            return None
        byte = offset * ENTRY_SIZE
        file = self.files.file_at(byte)
        if file is None:
            return None
        entry: tuple[int, int, int] = ENTRY.unpack(file.read(byte - file.start, ENTRY_SIZE))
        return entry

    def entries(self, offset: int, count: int) -> memoryview | None:
        """Return entries from `offset` on in one piece: (n * 20,) bytes, 1 <= n <= count, no copy.

        Never beyond the end of one file: as in RocketMQ the next read continues there.
        Returns: None if no file holds the offset.
        """
        byte = offset * ENTRY_SIZE
        file = self.files.file_at(byte)
        if file is None or offset >= self.max_offset:
            return None
        self.used = True
        at = byte - file.start
        end = min(at + count * ENTRY_SIZE, file.size, self.max_offset * ENTRY_SIZE - file.start)
        return file.view[at:end]

    def end_before(self, log_position: int) -> int:
        """Return the offset behind the last entry whose record ends at or before `log_position`.

        Entries behind it are few: they are looked at from the end on.
        """
        first, high, step = self.files.min_position // ENTRY_SIZE, self.max_offset, 1
        low = high
        while low > first:
            low = max(first, high - step)
            if self._ends_by(low, log_position):
                break
            high, step = low, step * 2
        while low < high:
            middle = (low + high) // 2
            if self._ends_by(middle, log_position):
                low = middle + 1
            else:
                high = middle
        return low

    def _ends_by(self, offset: int, log_position: int) -> bool:
        entry = self.entry(offset)
        return entry is None or _is_blank(entry) or entry[0] + entry[1] <= log_position

    def next_file_offset(self, offset: int) -> int:
        """Return the first offset of the file behind that of `offset`."""
        per_file = self.files.file_size // ENTRY_SIZE
        return offset - offset % per_file + per_file

    def min_offset(self, log_min: int) -> int:
        """Return the first entry whose record is still in a log that begins at `log_min`.

        If no record is left, the queue keeps the first offset of its files, as in RocketMQ 4.9; if they have
        expired, it begins at its end.
        """
        if self._min[0] != log_min:
            if self.max_offset and _is_blank(self.entry(self.max_offset - 1)):
                return self.max_offset
            found = self.first_at_or_behind(log_min)
            first = self.files.min_position // ENTRY_SIZE
            is_left = found < self.max_offset
            # Without a record, the next one will be the minimum: do not remember it.
            self._min = (log_min, found) if is_left else (-1, first)
        return self._min[1]

    def first_at_or_behind(self, log_position: int) -> int:
        """Return the first offset whose record is at or behind `log_position`; max_offset without one."""
        low, high = max(self.floor, self.files.min_position // ENTRY_SIZE), self.max_offset
        found = high
        while low < high:
            middle = (low + high) // 2
            # A few blanks may stand for records that were lost in the middle (invariant 4).
            probe = middle
            entry = self.entry(probe)
            while _is_blank(entry) and probe + 1 < min(high, middle + _LOST_MAX):
                probe += 1
                entry = self.entry(probe)
            if probe + 1 == high and _is_blank(entry):
                high = middle
            elif entry is None or _is_blank(entry) or entry[0] < log_position:
                low = probe + 1
            else:
                found, high = probe, middle
        return found

    # ------------------------------------------------------------ retention

    def delete_before(self, log_min: int) -> int:
        """Delete files whose last record the log no longer holds; never the last file. Returns: how many."""
        deleted = 0
        files = self.files.files
        while len(files) > 1:
            last = ENTRY.unpack(files[0].read(files[0].size - ENTRY_SIZE, ENTRY_SIZE))
            if last[1] != BLANK_SIZE and last[0] >= log_min:
                break
            self._min = (-1, 0)
            files[0].delete()
            files.pop(0)
            deleted += 1
        return deleted

    def expire_before(self, offset: int, log_min: int) -> int:
        """Put blanks in the place of entries below `offset`; whole files of them go, never the last.

        Returns: how many had a record. Raises: OSError, DiskFull.
        """
        begin = self.min_offset(log_min)
        if offset <= begin:
            return 0
        self._min = (-1, 0)
        files = self.files.files
        while len(files) > 1 and files[0].end <= offset * ENTRY_SIZE:
            files[0].delete()
            files.pop(0)
        at = max(begin, self.files.min_position // ENTRY_SIZE)
        self.flushed_offset = min(self.flushed_offset, at)
        while at < offset:
            file = self.files.file_at(at * ENTRY_SIZE)
            if file is None:
                break
            start = at * ENTRY_SIZE - file.start
            end = min(offset * ENTRY_SIZE - file.start, file.size // ENTRY_SIZE * ENTRY_SIZE)
            file.reserved = 0 if end > file.reserved else file.reserved
            file.reserve(end)
            file.map[start:end] = _EXPIRED * ((end - start) // ENTRY_SIZE)
            at = (file.start + end) // ENTRY_SIZE
        self.floor = offset
        return offset - begin

    def dirty_files(self) -> list[MappedFile]:
        """Return the files with entries that may not be on disk yet."""
        byte = self.flushed_offset * ENTRY_SIZE
        return [file for file in self.files.files if file.end > byte]

    def close(self) -> None:
        self.release()
        self.files.close()

    def destroy(self) -> None:
        self.release()
        self.files.destroy()
        self.max_offset = 0


def records_before(queues: Iterable[ConsumeQueue], target: int) -> list[int]:
    """Return positions at or below `target` in the log where a record begins or the last one ends.

    The nearest one per queue, by its entries. Only some queues are searched, so that many cost little.
    """
    found: list[int] = []
    searched = 0
    for queue in queues:
        if queue.max_position <= target:
            found.append(queue.max_position)
        elif searched < _SEARCHED_MAX:
            searched += 1
            entry = queue.entry(queue.first_at_or_behind(target + 1) - 1)
            if entry is not None and entry[1] != BLANK_SIZE and 0 <= entry[0] <= target:
                found.append(entry[0])
    return found


def _is_blank(entry: tuple[int, int, int] | None) -> bool:
    return entry is not None and entry[1] == BLANK_SIZE


def _count_of(file: MappedFile) -> int:
    """Return the number of entries of a file before its zeros: a binary search over pieces."""
    low, high = 0, -(-file.data_end(0) // _CHUNK)
    while low < high:
        middle = (low + high) // 2
        piece = file.read(middle * _CHUNK, _CHUNK)
        if piece != _ZEROS[: len(piece)]:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0
    piece = file.read((low - 1) * _CHUNK, _CHUNK).rstrip(b"\0")
    return (low - 1) * (_CHUNK // ENTRY_SIZE) + -(-len(piece) // ENTRY_SIZE)
