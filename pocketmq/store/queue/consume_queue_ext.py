"""ConsumeQueueExt: what does not fit into 20 bytes: an entry's tags code, store time and filter bit map.

    consumequeue_ext/{topic}/{queue_id}/{first byte, 20 digits}
    unit:  size of the whole unit 2, tags code 8, store ms 8, bit map size 2, bit map
    end of a file: short -1 where a unit and 4 more bytes do not fit; the next unit is in the next file

1. The queue's entry holds the unit's position + Long.MIN_VALUE instead of a tags code.
2. Bit p of the map is byte p // 8, bit p % 8 from the least significant side (the broker computes the map).
Owner: MessageStore. Source: ConsumeQueueExt, RocketMQ 4.9.7.
"""

import struct
from typing import NamedTuple

from pocketmq.files.layout import EXT_ADDRESS_BASE, EXT_ADDRESS_MAX
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.queue.consume_queue import ConsumeQueue

_UNIT = struct.Struct(">hqqh")
_END_SPACE = 4

assert _UNIT.size == 20


class ExtUnit(NamedTuple):
    """bit_map is empty if no filter was known for the topic."""

    size: int
    tags_code: int
    store_ms: int
    bit_map: bytes


class ConsumeQueueExt:
    """The units of one queue."""

    def __init__(self, folder: str, file_size: int) -> None:
        self.files = MappedFileQueue(folder, file_size)
        self._end = -1

    def load(self) -> None:
        """Find the files, and take their size from them."""
        self.files.load()

    def get(self, code: int) -> ExtUnit | None:
        """Return the unit at an entry's address; None if it is missing."""
        position = code - EXT_ADDRESS_BASE
        file = self.files.file_at(position)
        if file is None:
            return None
        at = position - file.start
        head = file.read(at, _UNIT.size)
        if len(head) < _UNIT.size:
            return None
        size, tags_code, store_ms, map_size = _UNIT.unpack(head)
        if size < _UNIT.size or map_size < 0 or _UNIT.size + map_size > size:
            return None
        return ExtUnit(size, tags_code, store_ms, file.read(at + _UNIT.size, map_size))

    def make_room(self, size: int) -> None:
        """Make sure that a unit of up to `size` bytes can be put. Raises: DiskFull."""
        if self._end < 0:
            self._end = self._find_end()
        file = self.files.file_at(self._end) or self.files.add()
        at = self._end - file.start
        file.reserved = max(file.reserved, at)
        file.reserve(at + size + _END_SPACE)
        if at + size + _END_SPACE > file.size:
            following = self.files.file_at(file.end) or self.files.add()
            following.reserve(size + _END_SPACE)

    def put(self, tags_code: int, store_ms: int, bit_map: bytes = b"") -> int:
        """Append a unit. Returns: the address for the queue's entry. Raises: DiskFull."""
        if self._end < 0:
            self._end = self._find_end()
        size = _UNIT.size + len(bit_map)
        file = self.files.file_at(self._end) or self.files.add()
        at = self._end - file.start
        if at + size + _END_SPACE > file.size:
            file.reserve(min(file.size, at + 2))
            if at + 2 <= file.size:
                file.map[at : at + 2] = b"\xff\xff"
            file = self.files.file_at(file.end) or self.files.add()
            at = 0
        file.reserved = max(file.reserved, at)
        file.reserve(at + size)
        file.map[at : at + size] = _UNIT.pack(size, tags_code, store_ms, len(bit_map)) + bit_map
        self._end = file.start + at + size
        return file.start + at + EXT_ADDRESS_BASE

    def truncate(self, queue: ConsumeQueue) -> None:
        """Drop units that no entry points to, by the queue's last address."""
        offset = queue.max_offset - 1
        while offset >= queue.files.min_position // 20:
            entry = queue.entry(offset)
            if entry is None:
                break
            if entry[2] <= EXT_ADDRESS_MAX:
                unit = self.get(entry[2])
                if unit is not None:
                    self._end = entry[2] - EXT_ADDRESS_BASE + unit.size
                    self.files.cut(self._end)
                    return
            offset -= 1

    def dirty_files(self, first_code: int) -> list[MappedFile]:
        """Return the files with units that may not be on disk; first_code: of the first such entry."""
        position = first_code - EXT_ADDRESS_BASE if first_code <= EXT_ADDRESS_MAX else 0
        return [file for file in self.files.files if file.end > position]

    def delete_before(self, first_code: int) -> None:
        """Delete files that are entirely before the unit of the queue's first entry."""
        if first_code > EXT_ADDRESS_MAX:
            return
        position = first_code - EXT_ADDRESS_BASE
        while len(self.files.files) > 1 and self.files.files[0].end <= position:
            self.files.files[0].delete()
            self.files.files.pop(0)

    def _find_end(self) -> int:
        end = self.files.min_position
        for file in self.files.files:
            at = _end_of(file)
            if at == 0 and file is not self.files.files[0]:
                break
            end = file.start + at
        return end

    def close(self) -> None:
        self.files.close()

    def destroy(self) -> None:
        self.files.destroy()


def _end_of(file: MappedFile) -> int:
    at = 0
    data = file.view
    while at + _UNIT.size <= file.size:
        size = int.from_bytes(data[at : at + 2], "big", signed=True)
        if size < _UNIT.size or at + size > file.size:
            break
        at += size
    return at
