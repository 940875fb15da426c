"""A store's folder seen read-only: its log, its queues, its side files. Nothing is locked or written.

Works beside a running broker: what is appended later is simply not seen. File lists are taken once.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pocketmq.cli.exits import CannotBegin
from pocketmq.remoting.record import MAGIC_AT, MAGIC_BLANK, MAGIC_START, SIZE_AND_MAGIC
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.commit_log import Damage, Entry, check_record
from pocketmq.store.consume_queue import BLANK_SIZE, ENTRY, ENTRY_SIZE


class QueueEntry(NamedTuple):
    """One entry of a consume queue."""

    queue_offset: int
    position: int
    size: int
    code: int


class _File:
    """One file of a run of files, mapped read-only when first needed."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        self.start = start
        self.size = path.stat().st_size
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        if self._view is None:
            with self.path.open("rb") as file:
                self._view = memoryview(
                    mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
                )
        return self._view


@dataclass(frozen=True, slots=True)
class Summary:
    """A store at a glance; sizes in bytes."""

    root: str
    written_by: str
    stopped_cleanly: bool
    log_first: int
    log_end: int
    log_files: int
    disk_size: int


class StoreFolder:
    """One store directory. Raises CannotBegin when it is none."""

    def __init__(self, root: str) -> None:
        self.root = Path(root).expanduser().resolve()
        log_folder = self.root / "commitlog"
        if not log_folder.is_dir():
            raise CannotBegin(
                f"{self.root} is no store: it has no directory 'commitlog'. Name the broker's --data "
                "directory (storePathRootDir)"
            )
        self._log = _run_of(log_folder)

    # ------------------------------------------------------------ the log

    @property
    def log_first(self) -> int:
        """Position of the first byte that is still there."""
        return self._log[0].start if self._log else 0

    def log_capacity(self) -> int:
        """Position behind the last file; the used part ends before."""
        return self._log[-1].start + self._log[-1].size if self._log else 0

    def _file_at(self, position: int) -> _File | None:
        for file in self._log:
            if file.start <= position < file.start + file.size:
                return file
        return None

    def record_at(self, position: int, *, check_crc: bool = True) -> Entry | str | None:
        """The record at a position; None when nothing is there; else what is wrong."""
        file = self._file_at(position)
        if file is None:
            return None
        return check_record(
            file.view, position - file.start, file.size, position, check_crc=check_crc
        )

    def bytes_at(self, position: int, size: int) -> memoryview:
        """Bytes of a record that is known to be there."""
        file = self._file_at(position)
        assert file is not None
        at = position - file.start
        return file.view[at : at + size]

    def walk(self, position: int | None = None) -> Iterator[Entry | Damage]:
        """Every record from `position` on; behind damage it goes on at the next record of the file."""
        at = self.log_first if position is None else position
        while (file := self._file_at(at)) is not None:
            found = check_record(file.view, at - file.start, file.size, at)
            if isinstance(found, Entry):
                yield found
                at += found.size
                continue
            if found is not None and not self._is_blank(file, at):
                following = self._next_record(file, at + 1)
                end = file.start + file.size if following is None else following
                yield Damage(at, end - at, found)
                if following is not None:
                    at = following
                    continue
            elif found is None and not self._is_blank(file, at) and file is self._log[-1]:
                return
            at = file.start + file.size

    def _is_blank(self, file: _File, position: int) -> bool:
        at = position - file.start
        return (
            file.size - at < SIZE_AND_MAGIC.size
            or SIZE_AND_MAGIC.unpack_from(file.view, at)[1] == MAGIC_BLANK
        )

    def _next_record(self, file: _File, position: int) -> int | None:
        """Where the next intact record of this file begins."""
        view = file.view
        raw = view.obj
        assert isinstance(raw, mmap.mmap)
        at = position - file.start
        while (magic := raw.find(MAGIC_START, at + MAGIC_AT)) >= 0:
            at = magic - MAGIC_AT
            if isinstance(check_record(view, at, file.size, file.start + at), Entry):
                return file.start + at
            at += 1
        return None

    # ------------------------------------------------------------ queues

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue folder."""
        folder = self.root / "consumequeue"
        found: list[tuple[str, int]] = []
        for topic in sorted(folder.iterdir()) if folder.is_dir() else ():
            if topic.is_dir():
                ids = [int(each.name) for each in topic.iterdir() if each.name.isdecimal()]
                found += [(topic.name, queue_id) for queue_id in sorted(ids)]
        return found

    def entries(self, topic: str, queue_id: int, first: int = 0) -> Iterator[QueueEntry]:
        """The entries of a queue from offset `first` on, without those of records long deleted."""
        for file in _run_of(self.root / "consumequeue" / topic / str(queue_id)):
            low = file.start // ENTRY_SIZE
            begin = max(first, low)
            for place in range(begin - low, file.size // ENTRY_SIZE):
                position, size, code = ENTRY.unpack_from(file.view, place * ENTRY_SIZE)
                if size <= 0:
                    return
                if size != BLANK_SIZE:
                    yield QueueEntry(low + place, position, size, code)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """[min, max) offset: entries whose record is still in the log. O(log n) reads."""
        files = _run_of(self.root / "consumequeue" / topic / str(queue_id))
        end = 0
        for file in reversed(files):
            low = file.start // ENTRY_SIZE
            used = _partition(file.size // ENTRY_SIZE, partial(_is_used, file))
            if used:
                end = low + used
                break
        for file in files:
            low = file.start // ENTRY_SIZE
            count = min(file.size // ENTRY_SIZE, end - low)
            gone = _partition(count, partial(_is_gone, file, self.log_first))
            if gone < count:
                return low + gone, end
        return end, end

    # ------------------------------------------------------------ side files

    def summary(self) -> Summary:
        """See Summary; walks the last log file to find its end."""
        end = self._log[-1].start if self._log else 0
        for found in self.walk(end):
            end = found.position + found.size
        checkpoint = Checkpoint.load(str(self.root / "checkpoint"))
        disk = sum(
            (Path(folder) / name).stat().st_blocks * 512
            for folder, _, names in os.walk(self.root)
            for name in names
        )
        return Summary(
            str(self.root),
            "PocketMQ" if checkpoint.ours else "RocketMQ",
            not (self.root / "abort").exists(),
            self.log_first,
            end,
            len(self._log),
            disk,
        )


def _run_of(folder: Path) -> list[_File]:
    """The files of a folder whose names are 20 digits, in order."""
    if not folder.is_dir():
        return []
    names = sorted(each.name for each in folder.iterdir())
    return [
        _File(folder / name, int(name))
        for name in names
        if len(name) == 20 and name.isdecimal() and (folder / name).stat().st_size
    ]


def _partition(count: int, holds: Callable[[int], bool]) -> int:
    """How many of the first `count` satisfy `holds`, which is true first and false behind."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _is_used(file: _File, place: int) -> bool:
    return bool(ENTRY.unpack_from(file.view, place * ENTRY_SIZE)[1] > 0)


def _is_gone(file: _File, log_first: int, place: int) -> bool:
    position, size, _ = ENTRY.unpack_from(file.view, place * ENTRY_SIZE)
    return bool(size == BLANK_SIZE or position < log_first)
