"""Stores by their roots: files.store_files with numpy's queues, open files, and names of brokers.

A store without ConsumeQueue files (or with RocksDB queues) can still be walked.
"""

import glob
import os
import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from pocketmq.bulk.errors import NotAStore
from pocketmq.bulk.fetch import File, Folders, folders_of
from pocketmq.bulk.queue import Queue
from pocketmq.files.broker_name import BROKER, kept_name, name_in
from pocketmq.files.layout import FileSpan, Listed
from pocketmq.files.local import list_or_empty
from pocketmq.files.store_files import StoreFiles
from pocketmq.remoting.errors import IllegalArgument

# The first record's place, times, hosts and checksum, and some of its body.
_HEAD_SIZE = 128
_PEEKED_MAX = 8
_ADDRESS = re.compile(r"[\w.-]+:\d{2,5}", re.ASCII)
# The folder that makes a copy of a log an archive, see catalog.py.
CATALOG = "catalog"


class StoreIdentity(NamedTuple):
    """The newest log file that holds a record: its position, and its first bytes.

    They never change while the file exists, and retention deletes the newest file last.
    """

    first: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Root:
    """The path of a store and its broker; primitives only, so that it travels to executors."""

    path: str
    broker_name: str
    #: Whether the user gave the name; else it is that of a folder.
    is_named: bool = field(default=True, compare=False)


class StoreSnapshot(StoreFiles[Queue]):
    """A store as of its opening. Raises: NotAStore."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.folders: Folders
        self.folders, base = folders_of(root.path)
        self._open: dict[str, File] = {}
        self._peeked: dict[str, File] = {}
        super().__init__(self.folders, base, Queue)

    def list_again(self) -> None:
        """List the files again. Raises: NotAStore."""
        super().list_again()
        self.__dict__.pop("catalog", None)
        if self.why_not:
            raise NotAStore(self.root.path, self.why_not, self.instead)

    @cached_property
    def catalog(self) -> list[Listed]:
        """The parts of the catalog that makes a copy of a log an archive; else none."""
        return [
            e
            for e in list_or_empty(self.folders, f"{self.base}/{CATALOG}")
            if e.name.endswith(".arrow") and e.name[:-6].isdecimal()
        ]

    @property
    def catalog_paths(self) -> list[str]:
        return [f"{self.base}/{CATALOG}/{e.name}" for e in self.catalog]

    @property
    def is_archive(self) -> bool:
        """Return True if a catalog describes its files."""
        return bool(self.catalog)

    def open_log(self, file: FileSpan) -> File:
        """Return the opened file; it stays open until `close`. Raises: FileNotFoundError if deleted."""
        opened = self._open.get(file.path)
        if opened is None:
            opened = self._open[file.path] = self.folders.open(file.path)
        return opened

    def peek(self, file: FileSpan, start: int, end: int) -> pa.Buffer:
        """Return a few bytes of a log file. Raises: FileNotFoundError if it was deleted."""
        opened = self._peeked.get(file.path)
        if opened is None:
            if len(self._peeked) >= _PEEKED_MAX:
                self._peeked.pop(next(iter(self._peeked))).close()
            opened = self._peeked[file.path] = self.folders.peek(file.path)
        return opened.read(start, end)

    def identity(self) -> StoreIdentity | None:
        """Return what identifies this store, even while it grows; None for one without a record."""
        for file in reversed(self.log_files):
            head = self.head(file)
            if head is not None and any(head[:4]):
                return StoreIdentity(file.first, head)
        return None

    def is_the(self, planned: StoreIdentity) -> bool:
        """Return True if this is the store that a plan was made for."""
        file = self.log_file_of(planned.first)
        return file is not None and file.first == planned.first and self.head(file) == planned.head

    def head(self, file: FileSpan) -> bytes | None:
        """Return the first bytes of a log file; None if it was deleted."""
        return self.head_at(file.first)

    def head_at(self, position: int) -> bytes | None:
        """Return the first bytes of a record, not reaching into the next one; None if deleted."""
        file = self.log_file_of(position)
        if file is None:
            return None
        at = position - file.first
        try:
            head = bytes(self.peek(file, at, at + _HEAD_SIZE))
        except FileNotFoundError:
            return None
        return head[: max(4, int.from_bytes(head[:4], "big", signed=True))]

    def close(self) -> None:
        """Close the files; slices handed out stay valid."""
        self._open.clear()
        for file in self._peeked.values():
            file.close()
        self._peeked.clear()


def find_roots(
    path: str | Iterable[str], broker_names: dict[str, str] | str | None = None
) -> list[Root]:
    """Return the stores that `path` names: one folder, a comma list, globs, or several of these.

    broker_names: root -> name, or one name if there is one root; else the name that the store tells
    (files.broker_name), the folder above `store` (`/data/broker-a/store` is broker-a), or the folder itself.
    Raises: NotAStore, IllegalArgument if two roots would have the same name.
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
    for one in found:
        if _ADDRESS.fullmatch(one) and not os.path.exists(one):
            raise IllegalArgument(
                f"path {one} is an address: option nameServer takes it, and load() no path"
            )
    roots = [_root(p, broker_names or {}) for p in found]
    by_name: dict[str, str] = {}
    for root in roots:
        other = by_name.setdefault(root.broker_name, root.path)
        if other != root.path and _are_archives(other, root.path) != [False, True]:
            raise IllegalArgument(
                f"{other} and {root.path} would both be broker {root.broker_name!r}: of replicas give one; "
                "else name them with option brokerName, a JSON map of root to name, "
                '{"/data/a/store":"broker-a"}'
            )
    return list({root.path: root for root in roots}.values())


def _are_archives(*paths: str) -> list[bool]:
    """Return whether each is an archive, sorted: an archive and a live store may be one broker."""

    def is_one(path: str) -> bool:
        try:
            return StoreSnapshot(Root(path, "")).is_archive
        except NotAStore:
            return False

    return sorted(map(is_one, paths))


def _told(folder: str) -> str:
    """Return the name that a store tells of its broker; an empty text if it does not."""
    if "://" not in folder:
        return kept_name(folder)
    try:
        folders, base = folders_of(folder)
        file = folders.peek(f"{base}/{BROKER}")
        with closing(file):
            return name_in(bytes(file.read(0, file.size)))
    except (OSError, NotAStore, pa.ArrowException):
        return ""


def _local(path: str) -> str:
    """Turn a file URI into a path; Spark's catalog keeps the folder of a table as file:/data/store."""
    return re.sub(r"^file:/+", "/", path)


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"


def _root(path: str, names: dict[str, str]) -> Root:
    clean = _clean(path.partition("?")[0] if "://" in path else path)
    for given, name in names.items():
        if _clean(_local(given)) == clean:
            return Root(_clean(path), name)
    above, last = os.path.split(clean if "://" in clean else os.path.abspath(clean))
    if last == "commitlog":
        above, last = os.path.split(above)
    told = _told(os.path.join(above, last))
    if told:
        return Root(_clean(path), told)
    if last == "store":
        last = os.path.basename(above) or last
    return Root(_clean(path), last, is_named=False)
