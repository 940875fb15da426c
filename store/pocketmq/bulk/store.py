"""What lies in a store folder, seen by a reader: commit log files, queues, names. Nothing is written.

A root is the broker's storePathRootDir (holds `commitlog`), or a commitlog folder itself when only the
log was copied. A store without ConsumeQueue files (or with RocksDB queues) can still be walked.
"""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from pocketmq.bulk.errors import NotAStore
from pocketmq.bulk.fetch import File, Folders, folders_of, list_or_empty
from pocketmq.bulk.queue import Queue, index_files
from pocketmq.remoting.errors import IllegalArgument


class LogFile(NamedTuple):
    """One commit log file: position of its first byte, size in bytes, path."""

    first: int
    size: int
    path: str


# The first record's place, times, hosts and checksum, and some of its body.
_HEAD_SIZE = 128
_PEEKED_MAX = 8


class Identity(NamedTuple):
    """The newest log file that holds a record: its position, and the bytes that it begins with.

    They never change while the file is there, and retention takes the newest file last.
    """

    first: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Root:
    """Where a store is and whose it is; primitives only, so that it travels to executors."""

    path: str
    broker_name: str


class Store:
    """A store as it was when it was opened: file lists are taken once."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.folders: Folders
        self.folders, self.base = folders_of(root.path)
        top = {e.name: e for e in list_or_empty(self.folders, self.base)}
        log_folder = f"{self.base}/commitlog" if "commitlog" in top else self.base
        self.log_files = [
            LogFile(*f) for f in index_files(list_or_empty(self.folders, log_folder), log_folder)
        ]
        if not self.log_files and "commitlog" not in top:
            reason = "it has no folder `commitlog`" if top else "there is no such folder"
            raise NotAStore(root.path, reason)
        self.was_not_stopped = "abort" in top
        self._queue_folders = [
            (name, name == "batchconsumequeue")
            for name in ("consumequeue", "batchconsumequeue")
            if name in top and log_folder != self.base
        ]
        self._open: dict[str, File] = {}
        self._peeked: dict[str, File] = {}

    @property
    def log_start(self) -> int:
        """Position of the first byte that is still there."""
        return self.log_files[0].first if self.log_files else 0

    @property
    def log_end(self) -> int:
        """Position behind the last file; the used part ends before."""
        return self.log_files[-1].first + self.log_files[-1].size if self.log_files else 0

    def has_queues(self) -> bool:
        """Whether any ConsumeQueue is there; if not, the log has to be walked."""
        return any(
            list_or_empty(self.folders, f"{self.base}/{name}") for name, _ in self._queue_folders
        )

    def queues(self, wanted: Callable[[str], bool]) -> Iterator[Queue]:
        """The queues of the topics that `wanted` says yes to, by topic and queue id."""
        for kind, batch in self._queue_folders:
            for topic in list_or_empty(self.folders, f"{self.base}/{kind}"):
                if topic.size >= 0 or not wanted(topic.name):
                    continue
                folder = f"{self.base}/{kind}/{topic.name}"
                ids = [int(e.name) for e in self.folders.list(folder) if e.name.isdecimal()]
                for queue_id in sorted(ids):
                    yield self._queue(kind, topic.name, queue_id, batch=batch)

    def queue(self, topic: str, queue_id: int, *, batch: bool = False) -> Queue:
        """One queue; a missing one is empty."""
        kind = "batchconsumequeue" if batch else "consumequeue"
        return self._queue(kind, topic, queue_id, batch=batch)

    def _queue(self, kind: str, topic: str, queue_id: int, *, batch: bool) -> Queue:
        return Queue(
            self.folders,
            f"{self.base}/{kind}/{topic}/{queue_id}",
            topic,
            queue_id,
            batch=batch,
            ext="" if batch else f"{self.base}/consumequeue_ext/{topic}/{queue_id}",
        )

    def log_file_of(self, position: int) -> LogFile | None:
        """The file that holds `position`."""
        low, high = 0, len(self.log_files)
        while low < high:
            middle = (low + high) // 2
            if self.log_files[middle].first + self.log_files[middle].size <= position:
                low = middle + 1
            else:
                high = middle
        if low < len(self.log_files) and self.log_files[low].first <= position:
            return self.log_files[low]
        return None

    def spans(self) -> Iterator[tuple[int, int]]:
        """(first byte, byte behind the last) of every file and of every gap between two files.

        Retention deletes from the front and never cuts a file off: records in a gap are lost.
        """
        at = self.log_start
        for file in self.log_files:
            if at < file.first:
                yield at, file.first
            at = file.first + file.size
            yield file.first, at

    def missing_file(self, position: int) -> str:
        """Where the file would be that holds `position`: behind the one before it."""
        behind = [f for f in self.log_files if f.first <= position]
        folder = os.path.dirname(behind[-1].path) if behind else f"{self.base}/commitlog"
        return f"{folder}/{behind[-1].first + behind[-1].size if behind else position:020d}"

    def open_log(self, file: LogFile) -> File:
        """The opened file; kept open until `close`. Raises: FileNotFoundError when it is gone."""
        opened = self._open.get(file.path)
        if opened is None:
            opened = self._open[file.path] = self.folders.open(file.path)
        return opened

    def peek(self, file: LogFile, start: int, end: int) -> pa.Buffer:
        """A few bytes of a log file. Raises: FileNotFoundError when it is gone."""
        opened = self._peeked.get(file.path)
        if opened is None:
            if len(self._peeked) >= _PEEKED_MAX:
                self._peeked.pop(next(iter(self._peeked))).close()
            opened = self._peeked[file.path] = self.folders.peek(file.path)
        return opened.read(start, end)

    def identity(self) -> Identity | None:
        """What tells this store from others, also while it grows; None for one without a record."""
        for file in reversed(self.log_files):
            head = self._head(file)
            if head is not None and any(head[:4]):
                return Identity(file.first, head)
        return None

    def is_the(self, planned: Identity) -> bool:
        """Whether this is the store that a plan was made with."""
        file = self.log_file_of(planned.first)
        return file is not None and file.first == planned.first and self._head(file) == planned.head

    def _head(self, file: LogFile) -> bytes | None:
        try:
            return bytes(self.peek(file, 0, _HEAD_SIZE))
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Forget the open files; slices that were handed out stay valid."""
        self._open.clear()
        for file in self._peeked.values():
            file.close()
        self._peeked.clear()


def find_roots(
    path: str | Iterable[str], broker_names: dict[str, str] | str | None = None
) -> list[Root]:
    """The stores that `path` means: one folder, a comma list, globs, or several of these.

    broker_names: root -> name for files that do not say it, or one name when there is one root; else
    the folder above `store` (`/data/broker-a/store` is broker-a), or the folder itself.
    Raises: NotAStore, IllegalArgument when two roots would have one name.
    """
    parts = (
        path.split(",") if isinstance(path, str) else [p for one in path for p in one.split(",")]
    )
    found: list[str] = []
    for part in (_local(p.strip()) for p in parts):
        if not part:
            continue
        if "://" not in part and glob.has_magic(part) and not os.path.exists(part):
            matches = sorted(m for m in glob.glob(part) if os.path.isdir(m))
            if not matches:
                raise NotAStore(part, "no folder matches the pattern")
            found += matches
        else:
            found.append(part)
    if not found:
        raise IllegalArgument("path is empty: give the folder of a store")
    if isinstance(broker_names, str):
        if len(found) > 1:
            raise IllegalArgument(
                f"brokerName names one broker, but path means {len(found)} stores: give a JSON map "
                'of root to name, {"/data/a/store":"broker-a"}'
            )
        broker_names = {found[0]: broker_names}
    roots = [Root(_clean(p), _broker_name(p, broker_names or {})) for p in found]
    by_name: dict[str, str] = {}
    for root in roots:
        other = by_name.setdefault(root.broker_name, root.path)
        if other != root.path:
            raise IllegalArgument(
                f"{other} and {root.path} would both be broker {root.broker_name!r}: name them with "
                'option brokerName, a JSON map of root to name, {"/data/a/store":"broker-a"}'
            )
    return list({root.path: root for root in roots}.values())


def _local(path: str) -> str:
    """A file URI as a path; Spark's catalog keeps the folder of a table as file:/data/store."""
    return re.sub(r"^file:/+", "/", path)


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"


def _broker_name(path: str, names: dict[str, str]) -> str:
    clean = _clean(path)
    for given, name in names.items():
        if _clean(_local(given)) == clean:
            return name
    above, last = os.path.split(clean if "://" in clean else os.path.abspath(clean))
    if last == "commitlog":
        above, last = os.path.split(above)
    if last == "store":
        last = os.path.basename(above) or last
    return last
