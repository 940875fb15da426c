"""StoreSource: reads a store so that what is read fits together, whether its broker runs or not.

The order makes a cut consistent, without a word to the broker:
    tables and progress    as of some moment, or of the last seconds before: a broker writes them behind
    the end of the log     behind the last whole record
    topics and groups      once more: they are on disk before a message of theirs is in the log
    timer wheel and log    recovery cuts off what they have of messages behind the log's end
Progress that is behind the log repeats what was delivered since; progress ahead of it would lose that. So a
cut is what a kill of the broker leaves, and the next start corrects it in the same way.
Queues and index are made of the log again. Only a queue that has no record in the log any more is copied: its
next offset is known by nothing else.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pocketmq.files.layout import FileSpan, partition
from pocketmq.files.queue_files import QueueFiles
from pocketmq.files.records import Entry
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.unsupported import refuse_foreign

_FOLDERS = ("config", "conf", "deliveries", "namesrv")
_FILES = ("broker.conf", "broker.json", "deletedqueues")
_TOPICS = ("config/topics.json", "config/subscriptionGroup.json")
_CHANGES = ".changes"
# Names that change under a reader, and how often it begins again.
_LOOKS_MAX = 20


@dataclass(frozen=True, slots=True)
class SideFile:
    """A side file of a store. data: without the zeros at its end; length: with them."""

    path: str
    data: bytes
    length: int


class StoreSource:
    """One store. Raises: StoreForeign."""

    def __init__(self, folder: str) -> None:
        self.reader = StoreReader(folder)
        self.root = self.reader.root
        refuse_foreign(str(self.root))

    # ------------------------------------------------------------ the log

    def end(self, known: int) -> int:
        """Return the position behind the last whole record. known: a boundary of records before it, or 0."""
        reader = self.reader
        reader.list_again()
        end = begin = self._begin(known)
        for found in reader.follow(begin, wait=lambda: False):
            if isinstance(found, Entry):
                end = found.position + found.size
        return end

    def _begin(self, known: int) -> int:
        """Return a boundary of records near the end."""
        reader = self.reader
        if reader.log_start < known <= reader.log_end:
            return known
        boundary = reader.checkpoint.boundary if reader.checkpoint.ours else 0
        if reader.log_start <= boundary and isinstance(reader.record_at(boundary), Entry):
            return boundary
        used = [file.first for file in reader.log_files if self._is_used(file)]
        return max([reader.log_start, *used])

    def _is_used(self, file: FileSpan) -> bool:
        return isinstance(self.reader.record_at(file.first), Entry)

    # ------------------------------------------------------------ side files

    def tables(self) -> Iterator[SideFile]:
        """Yield everything but the log and what is made of it, and the timers' files."""
        for folder in _FOLDERS:
            yield from self._settled(folder)
        yield from self._read(_FILES)

    def topics_and_groups(self) -> Iterator[SideFile]:
        """Yield the tables that must be of a later moment than the log's end."""
        yield from self._read([f"{name}{_CHANGES}" for name in _TOPICS])
        yield from self._read(_TOPICS)

    def timers(self) -> Iterator[SideFile]:
        """Yield wheel and timer log; the wheel first, since it points into the log."""
        yield from self._read(["timerwheel"])
        yield from self._settled("timerlog")

    def _settled(self, folder: str) -> list[SideFile]:
        """Return the files of a folder while none came, went or was replaced by another."""
        for _ in range(_LOOKS_MAX):
            before = self._identities(folder)
            # Rows that the whole file has, too, are recognised; the other way round some would be missing.
            names = sorted(before, key=lambda name: (not name.endswith(_CHANGES), name))
            found = list(self._read(names))
            if self._identities(folder) == before:
                break
        return found

    def _identities(self, folder: str) -> dict[str, int]:
        found = {}
        for path in sorted((self.root / folder).rglob("*")):
            if path.suffix not in (".bak", ".tmp", ".new") and path.is_file():
                found[path.relative_to(self.root).as_posix()] = _inode(path)
        return found

    def _read(self, names: Iterator[str] | list[str] | tuple[str, ...]) -> Iterator[SideFile]:
        for name in names:
            try:
                data = (self.root / name).read_bytes()
            except FileNotFoundError:
                continue
            yield SideFile(name, data.rstrip(b"\0"), len(data))

    # ------------------------------------------------------------ queues

    def queues_without_records(self, begin: int, end: int) -> Iterator[SideFile]:
        """Yield the last file of each queue that has no record in the log from `begin` to `end`."""
        for queue in self.reader.queues():
            try:
                found = self._last_file(queue, begin, end)
            finally:
                queue.close()
            if found is not None:
                yield found

    def _last_file(self, queue: QueueFiles, begin: int, end: int) -> SideFile | None:
        first = queue.first_index
        # A message may have come since: it is behind the cut.
        last = partition(first, queue.end_index(), lambda at: queue.entry(at).position >= end) - 1
        if last < first or queue.entry(last).position >= begin:
            return None
        file = next(each for each in queue.files if each.end > last * queue.width)
        with open(file.path, "rb") as opened:
            data = opened.read((last + 1) * queue.width - file.first)
        path = Path(file.path).relative_to(self.root).as_posix()
        return SideFile(path, data, file.size)


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0
