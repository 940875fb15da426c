"""StoreReader: reads a store on this machine, record by record, without a broker.

Works beside a running broker: only follow() sees what is appended later. Nothing is locked or written.
"""

import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pocketmq.files.layout import BLANK_SIZE, FileSpan
from pocketmq.files.local import LocalFiles
from pocketmq.files.queue_files import IndexEntry, QueueFiles
from pocketmq.files.records import Damage, Entry, check_record, ends_here, next_record
from pocketmq.files.store_files import StoreFiles
from pocketmq.store.errors import StoreForeign
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.store_lock import AbortFile

# What recovery.py calls a file of what was cut off a log: where it begins, and which one of these.
_KEPT = re.compile(r"commitlog-(\d{20})(?:\.\d+)?")

_USUAL = "Name the broker's --data directory (storePathRootDir)"


@dataclass(frozen=True, slots=True)
class Summary:
    """A store at a glance; sizes in bytes."""

    root: str
    written_by: str | None
    stopped_cleanly: bool
    log_first: int
    log_end: int
    log_files: int
    disk_size: int


class StoreReader(StoreFiles[QueueFiles]):
    """One store directory, or a file of its folder `dropped`. Raises: StoreForeign if it is neither."""

    def __init__(self, root: str) -> None:
        self.root = Path(root).expanduser().resolve()
        super().__init__(LocalFiles(), str(self.root), QueueFiles)
        if self.why_not:
            raise StoreForeign(
                str(self.root),
                f"{self.why_not}. {self.instead or _USUAL}",
            )
        self._maps: dict[str, tuple[mmap.mmap, memoryview]] = {}

    def list_again(self) -> None:
        """List the folder again."""
        if not self.root.is_file():
            super().list_again()
            return
        self.list_log()
        self.was_not_stopped = False
        self.instead = None
        self.why_not = None if self.log_files else "it is a file, and not one of a folder `dropped`"
        self._queue_folders = []

    def list_log(self) -> None:
        """List the log's files again."""
        if not self.root.is_file():
            super().list_log()
            return
        kept = _KEPT.fullmatch(self.root.name)
        size = self.root.stat().st_size
        self.log_files = [FileSpan(int(kept[1]), size, str(self.root))] if kept and size else []

    # ------------------------------------------------------------ the log

    def _map(self, file: FileSpan) -> tuple[mmap.mmap, memoryview]:
        found = self._maps.get(file.path)
        if found is None:
            with open(file.path, "rb") as opened:
                data = mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ)
            found = self._maps[file.path] = data, memoryview(data)
        return found

    def record_at(self, position: int, *, check_crc: bool = True) -> Entry | str | None:
        """Return the record at a position; None if nothing is there; a text if it is bad."""
        file = self.log_file_of(position)
        if file is None:
            return None
        view = self._map(file)[1]
        return check_record(view, position - file.first, file.size, position, check_crc=check_crc)

    def bytes_at(self, position: int, size: int) -> memoryview:
        """Return the bytes of a record known to be there."""
        file = self.log_file_of(position)
        assert file is not None
        at = position - file.first
        return self._map(file)[1][at : at + size]

    def walk(
        self, position: int | None = None, *, sure_end: int | None = None
    ) -> Iterator[Entry | Damage]:
        """Yield every record from `position` on, continuing behind damage at the next record of the file.

        sure_end: end there; zeros in front of it are damage, too.
        """
        at = self.log_start if position is None else position
        while (file := self.log_file_of(at)) is not None and (sure_end is None or at < sure_end):
            view = self._map(file)[1]
            found = check_record(view, at - file.first, file.size, at)
            if isinstance(found, Entry):
                yield found
                at += found.size
                continue
            if not ends_here(view, at - file.first, file.size):
                if found is not None or sure_end is not None:
                    following = next_record(view, at + 1 - file.first, file.size, file.first)
                    end = file.end if following is None else file.first + following
                    yield Damage(at, end - at, found or "zeros in front of a record")
                    at = end
                    continue
                if file is self.log_files[-1]:
                    return
            at = file.end

    def follow(
        self, position: int | None = None, *, wait: Callable[[], bool]
    ) -> Iterator[Entry | Damage]:
        """Like walk(), then yield what a broker appends. `wait` is called at the end of the log; False ends
        it.

        Incomplete bytes at the end are read again: they are being written.
        """
        at = self.log_start if position is None else position
        while True:
            for found in self.walk(at):
                if isinstance(found, Damage):
                    if found.position + found.size >= self.log_end:
                        break
                elif found.properties.endswith(b"\0"):
                    # The body's CRC is right, and the properties are not there yet.
                    break
                yield found
                at = found.position + found.size
            if not wait():
                return
            self.list_log()
            # Retention may have taken what was not read yet.
            at = max(at, self.log_start)

    # ------------------------------------------------------------ queues

    def entries(self, queue: QueueFiles, first: int = 0) -> Iterator[IndexEntry]:
        """Yield a queue's entries from offset `first` on, without those of deleted records."""
        end = queue.end_index()
        for index in range(queue.at_offset(first, queue.first_index, end), end):
            entry = queue.entry(index)
            if entry.size != BLANK_SIZE:
                yield entry
        queue.close()

    def offsets(self, queue: QueueFiles) -> tuple[int, int]:
        """Return [min, max) offset: messages whose record is still in the log. O(log n) reads."""
        low, high = queue.bounds(self.log_start)
        found = queue.offset_at(low, low, high), queue.offset_at(high, low, high)
        queue.close()
        return found

    # ------------------------------------------------------------ side files

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.load(str(self.root / "checkpoint"))

    def end_of_records(self) -> int:
        """Return the position behind the last whole record; walks the last file that has one.

        That is not the last file of a RocketMQ broker that runs or was killed: it makes one ahead.
        """
        for file in reversed(self.log_files):
            ends = [e.position + e.size for e in self.walk(file.first) if isinstance(e, Entry)]
            if ends:
                return ends[-1]
        return self.log_start

    def written_by(self) -> str | None:
        """Return the broker that wrote the store last; None if nothing tells it.

        One that runs, or was killed, has made `abort`; it writes its first checkpoint after some seconds.
        """
        is_ours = AbortFile(str(self.root)).is_ours
        if is_ours is None:
            checkpoint = self.checkpoint
            is_ours = checkpoint.ours
            if not is_ours and not os.path.exists(checkpoint.path):
                return None
        return "PocketMQ" if is_ours else "RocketMQ"

    def summary(self) -> Summary:
        """Return a summary; walks the end of the log."""
        disk = sum(
            (Path(folder) / name).stat().st_blocks * 512
            for folder, _, names in os.walk(self.root)
            for name in names
        )
        return Summary(
            str(self.root),
            self.written_by(),
            not self.was_not_stopped,
            self.log_start,
            self.end_of_records(),
            len(self.log_files),
            disk,
        )
