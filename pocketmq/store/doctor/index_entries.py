"""The index against the records: which keys it lacks, and which entries no record has.

Both are in the order of the log, so they are compared while the log is walked, with the entries of one record
in memory.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from pocketmq.files.records import Entry
from pocketmq.model.java_hash import string_hash
from pocketmq.store.findings import FindingCode, Problem, problem
from pocketmq.store.index.index_file import IndexShape, entries_in, index_names, shape_of
from pocketmq.store.index.record_keys import hashes_of
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.store_config import StoreConfig

_ROLLED_BACK = 0xC


class IndexEntries:
    """The index files of a store, opened read-only; check() takes its records in their order."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._folder = store.root / "index"
        self._unreadable: list[str] = []
        self._first = self._last = -1
        self._end_ms = 0
        self._entries = self._listed()
        self._next = next(self._entries, None)
        self._hashes: dict[bytes, int] = {}
        self._wrong = self._missing = 0

    def _listed(self) -> Iterator[tuple[int, int]]:
        """Return (position, hash) of all entries of the files that can be read."""
        slots, entries = StoreConfig.max_hash_slot_num, StoreConfig.max_index_num
        files: list[tuple[mmap.mmap, IndexShape]] = []
        for name in index_names(str(self._folder)):
            data = _mapped(self._folder / name)
            shape = None if data is None else shape_of(data, slots, entries)
            if data is None or shape is None:
                self._unreadable.append(name)
                continue
            files.append((data, shape))
            if shape.behind_last > 1:
                self._first = shape.begin_position if self._first < 0 else self._first
                self._last, self._end_ms = shape.end_position, shape.end_ms
        return (entry for data, shape in files for entry in entries_in(data, shape))

    def skip(self, end: int) -> None:
        """Pass over the entries before `end`: the records that they point to are lost."""
        while self._next is not None and self._next[0] < end:
            self._next = next(self._entries, None)

    def check(self, record: Entry) -> None:
        """Compare one record's keys with its entries."""
        following = self._next
        while following is not None and following[0] < record.position:
            # What retention has deleted is no finding.
            self._wrong += following[0] >= self._store.log_start
            following = next(self._entries, None)
        found = set()
        while following is not None and following[0] == record.position:
            found.add(following[1])
            following = next(self._entries, None)
        self._next = following
        if not found and not self._first <= record.position <= self._last:
            return
        if record.sys_flag & _ROLLED_BACK == _ROLLED_BACK:
            expected, possible = set[int](), set[int]()
        else:
            start = self._start_of(record.topic)
            expected = set(hashes_of(start, record.properties, tags=False))
            possible = set(hashes_of(start, record.properties, tags=True)) if found else expected
        self._wrong += len(found - possible)
        self._missing += bool(expected - found) and self._first <= record.position <= self._last

    def _start_of(self, topic: bytes) -> int:
        known = self._hashes.get(topic)
        if known is None:
            text = topic.decode("utf-8", "replace") + "#"
            known = self._hashes[topic] = string_hash(text) & 0xFFFF_FFFF
        return known

    def problems(self) -> Iterator[Problem]:
        """Return what was found, after the last record."""
        ahead = 0 if self._next is None else 1 + sum(1 for _ in self._entries)
        if ahead:
            what = f"{ahead} entries point behind the last record of the log"
            yield problem(FindingCode.INDEX_AHEAD, "index", 20 * ahead, what)
        for name in self._unreadable:
            size = (self._folder / name).stat().st_size
            what = f"its size of {size} bytes fits no number of slots: a broker ignores it"
            yield problem(FindingCode.INDEX_UNREADABLE, f"index/{name}", size, what)
        known_ms = self._store.checkpoint.index_ms
        if known_ms > self._end_ms and not self._unreadable:
            what = "the checkpoint knows of newer index files than there are"
            yield problem(FindingCode.INDEX_LOST, "index", 0, what)
        if self._wrong:
            what = f"{self._wrong} entries point to records without that key"
            yield problem(FindingCode.INDEX_WRONG, "index", 20 * self._wrong, what)
        # With an unreadable file all of its keys are missing.
        if self._missing and not self._unreadable:
            what = f"keys of {self._missing} records are missing: a search does not find them"
            yield problem(FindingCode.INDEX_GAP, "index", 0, what)


def _mapped(path: Path) -> mmap.mmap | None:
    """Return a file's bytes, without a change; None for an empty file."""
    with path.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            return None
