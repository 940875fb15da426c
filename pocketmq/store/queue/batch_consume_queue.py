"""BatchConsumeQueue: the index of a queue whose records hold several messages each (RocketMQ 5.x).

The entry's layout: files.layout.

1. Queue offsets count messages, entries count records; the next entry's base is base + messages.
2. A read at any offset inside a batch returns the whole record.
A topic has such queues if its attribute queue.type is BatchCQ. PocketMQ reads and continues them, but creates
no such topics. Source: BatchConsumeQueue, RocketMQ 5.5.0.
"""

from pocketmq.files.layout import BATCH_ENTRY, BATCH_ENTRY_SIZE
from pocketmq.model.message_codec import get_property
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.queue.consume_queue import ConsumeQueue

INNER_BATCH = 0x80


def messages_in(sys_flag: int, properties: bytes) -> int:
    r"""Return the number of messages in a record; 1 if the property is absent or no int of Java.

    >>> messages_in(INNER_BATCH, b"INNER_NUM\x013\x02")
    3
    >>> messages_in(INNER_BATCH, b"INNER_NUM\x01" + b"9" * 5000 + b"\x02")
    1
    """
    if not sys_flag & INNER_BATCH:
        return 1
    value = get_property(properties, b"INNER_NUM")
    return int(value) if value is not None and value.isdigit() and len(value) < 10 else 1


class BatchConsumeQueue(ConsumeQueue):
    """Like ConsumeQueue, except for invariant 1; `entry_count` counts from the queue's first entry on."""

    __slots__ = ("_first_entry", "entry_count")

    def __init__(self, folder: str, file_size: int, topic: str, queue_id: int) -> None:
        super().__init__(folder, file_size, topic, queue_id)
        # RocketMQ does not round their sizes.
        self.files.unit = 1
        self.entry_count = 0

    def load(self, file_size: int | None = None) -> None:
        # The size is that of plain queues' files.
        self.files.load()
        files = self.files.files
        self.entry_count = self.files.min_position // BATCH_ENTRY_SIZE
        for file in files:
            count = _count_of(file)
            self.entry_count = file.start // BATCH_ENTRY_SIZE + count
            if count * BATCH_ENTRY_SIZE < file.size:
                break
        self._after_end()
        self.flushed_offset = self.max_offset

    def _after_end(self) -> None:
        last = self._at(self.entry_count - 1)
        self.max_offset = last[4] + last[5] if last else 0
        self.max_position = last[0] + last[1] if last else 0
        self.release()

    def _at(self, index: int) -> tuple[int, ...] | None:
        """Return all fields of entry number `index`."""
        byte = index * BATCH_ENTRY_SIZE
        file = self.files.file_at(byte) if index >= 0 else None
        if file is None or index >= self.entry_count:
            return None
        return BATCH_ENTRY.unpack(file.read(byte - file.start, BATCH_ENTRY_SIZE))

    def _index_of(self, offset: int) -> int:
        """Return the number of the last entry whose base is at or before `offset`; -1 if absent."""
        low, high = self.files.min_position // BATCH_ENTRY_SIZE, self.entry_count
        first = low
        while low < high:
            middle = (low + high) // 2
            entry = self._at(middle)
            if entry is not None and entry[4] <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low > first else -1

    def records(self, offset: int, count: int) -> list[tuple[int, int, int, int, int]]:
        """Return (position, size, tags code, base offset, messages) of up to `count` records at `offset`."""
        index = self._index_of(offset)
        found: list[tuple[int, int, int, int, int]] = []
        while index >= 0 and len(found) < count:
            entry = self._at(index)
            if entry is None:
                break
            found.append((entry[0], entry[1], entry[2], entry[4], entry[5]))
            index += 1
        return found

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        if offset >= self.max_offset:
            return None
        found = self._at(self._index_of(offset))
        return None if found is None else (found[0], found[1], found[2])

    def entries(self, offset: int, count: int) -> memoryview | None:
        """Return None: these entries have another layout; use records()."""
        return None

    def min_offset(self, log_min: int) -> int:
        index = self.files.min_position // BATCH_ENTRY_SIZE
        while index < self.entry_count:
            entry = self._at(index)
            if entry is not None and entry[0] >= log_min:
                return entry[4]
            index += 1
        return 0

    def first_at_or_behind(self, log_position: int) -> int:
        return self.max_offset

    def end_before(self, log_position: int) -> int:
        end, index = self.max_offset, self.entry_count - 1
        while (entry := self._at(index)) is not None and entry[0] + entry[1] > log_position:
            end, index = entry[4], index - 1
        return end

    # ------------------------------------------------------------ writing

    def make_room(self) -> None:
        byte = self.entry_count * BATCH_ENTRY_SIZE
        file = self.files.file_at(byte) or self.files.add(byte)
        at = byte - file.start
        file.reserved = max(file.reserved, at)
        file.reserve(at + BATCH_ENTRY_SIZE)
        self.map = file.map
        self.put_at, self.put_end = at, at + BATCH_ENTRY_SIZE
        self.used = True

    def refusal_of(self, offset: int) -> str | None:
        return None if offset >= 0 else f"its queue offset is {offset}"

    def skip_to(self, offset: int) -> None:
        """Write nothing: an entry has its offset in it."""

    def put_batch(
        self, position: int, size: int, tags_code: int, store_ms: int, base: int, messages: int
    ) -> None:
        """Append the entry of the record at `position`."""
        if self.put_at >= self.put_end:
            self.make_room()
        BATCH_ENTRY.pack_into(
            self.map, self.put_at, position, size, tags_code, store_ms, base, messages, -1, 0
        )
        self.put_at += BATCH_ENTRY_SIZE
        self.entry_count += 1
        self.max_offset = base + messages
        self.max_position = position + size

    def truncate(self, end: int) -> int:
        first = self.files.min_position // BATCH_ENTRY_SIZE
        before = self.entry_count
        while self.entry_count > first:
            entry = self._at(self.entry_count - 1)
            if entry is None or entry[0] + entry[1] <= end:
                break
            self.entry_count -= 1
        dropped = before - self.entry_count
        if dropped:
            self._after_end()
            self.clear_behind()
        return dropped

    def clear_behind(self) -> None:
        byte = self.entry_count * BATCH_ENTRY_SIZE
        file = self.files.file_at(byte)
        if file is not None:
            file.zero_behind(byte - file.start)
            self.release()

    def delete_before(self, log_min: int) -> int:
        deleted = 0
        files = self.files.files
        while len(files) > 1:
            last = self._at(files[0].end // BATCH_ENTRY_SIZE - 1)
            if last is None or last[0] >= log_min:
                break
            files[0].delete()
            files.pop(0)
            deleted += 1
        return deleted

    def dirty_files(self) -> list[MappedFile]:
        return self.files.files[-2:]


def _count_of(file: MappedFile) -> int:
    data = file.read(0, file.size)
    count = 0
    while (count + 1) * BATCH_ENTRY_SIZE <= len(data):
        entry = BATCH_ENTRY.unpack_from(data, count * BATCH_ENTRY_SIZE)
        if entry[0] < 0 or entry[1] <= 0 or entry[5] <= 0:
            break
        count += 1
    return count
