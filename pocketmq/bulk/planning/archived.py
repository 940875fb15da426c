"""Archives for planning: bounds of their queues from the catalog alone, ranges cut at its marks.

An archive and the live store of one broker are one table: archived messages are read from the archive, later
ones from the store. Retention may then delete the store's files at any time.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.catalog import ArchivedFile, read_parts
from pocketmq.bulk.fetch import LocalFolders, folders_of
from pocketmq.bulk.offsets import LossRule, QueueKey
from pocketmq.bulk.partition import Partition, QueueRange
from pocketmq.bulk.planning.bounds import FileBounds
from pocketmq.bulk.store import Root, StoreIdentity, StoreSnapshot
from pocketmq.files.layout import FileSpan

Ints = dict[str, npt.NDArray[np.int64]]
_PLACE = ("topic", "queueId", "queueOffset", "storeTimestamp")
_PIECES_KEPT = 4


class ArchivedLog(StoreSnapshot):
    """The files of an archive, opened by name: a task needs no listing."""

    def __init__(self, root: Root, files: Sequence[tuple[int, int]]) -> None:
        self.root = root
        self.folders, self.base = folders_of(root.path)
        folder = f"{self.base}/commitlog"
        self.log_files = [FileSpan(first, size, f"{folder}/{first:020d}") for first, size in files]
        self._open = {}
        self._peeked = {}


class ArchivedBounds:
    """A queue of an archive: rows of the catalog from `low` on, the last of them `high` - 1."""

    __slots__ = ("_rows", "archive", "high", "key", "low", "renewed_at")

    def __init__(self, archive: "Archive", key: QueueKey, low: int, high: int) -> None:
        self.archive = archive
        self.key = key
        self.low, self.high = low, high
        self._rows = archive.rows
        #: Where its own records begin, when the topic had been deleted and made again; else -1.
        self.renewed_at = -1

    @property
    def min_offset(self) -> int:
        return int(self._rows["startOffset"][self.low])

    @property
    def max_offset(self) -> int:
        return int(self._rows["endOffset"][self.high - 1])

    @property
    def first_position(self) -> int:
        return int(self._rows["firstPosition"][self.low])

    @property
    def end_position(self) -> int:
        return int(self._rows["endPosition"][self.high - 1])

    def at_time(self, ms: int) -> int | None:
        """Return the first offset whose message was stored at `ms` or later; None if all are older."""
        late = np.flatnonzero(self._rows["lastStoreMs"][self.low : self.high] >= ms)
        for row in (late + self.low).tolist():
            if self._rows["firstStoreMs"][row] >= ms:
                return int(self._rows["startOffset"][row])
            found = self.archive.first_at(row, self.key, ms)
            if found is not None:
                return found
        return None

    def mean_size(self) -> int:
        """Return the mean size of a record, bytes, approximate."""
        size = int(self._rows["bytes"][self.low : self.high].sum())
        return max(1, size // max(1, self.max_offset - self.min_offset))


class JoinedBounds:
    """A queue that is in an archive up to `archived.max_offset`, and continues in the live store."""

    __slots__ = ("archived", "key", "live")

    def __init__(self, archived: ArchivedBounds, live: FileBounds) -> None:
        self.key = live.key
        self.archived = archived
        self.live = live

    @property
    def min_offset(self) -> int:
        return self.archived.min_offset

    @property
    def max_offset(self) -> int:
        return self.live.max_offset

    def at_time(self, ms: int) -> int | None:
        """Return the first offset whose message was stored at `ms` or later; None if all are older."""
        found = self.archived.at_time(ms)
        if found is not None:
            return found
        later = self.live.at_time(ms)
        return None if later is None else max(later, self.archived.max_offset)

    def mean_size(self) -> int:
        """Return the mean size of a record, bytes, approximate."""
        return self.archived.mean_size()


def join(archived: ArchivedBounds, live: FileBounds) -> "JoinedBounds | FileBounds":
    """Join the two as one queue; only the live one if the archive holds an earlier queue of that name."""
    end = archived.max_offset
    if live.max_offset < end:
        return live
    index = live.queue.at_offset(end - 1, live.low, live.high)
    if not live.queue.batch and live.low <= index < live.high and index == end - 1:
        entry = live.queue.entry(index)
        live.queue.close()
        if entry.position + entry.size != archived.end_position:
            return live
    return JoinedBounds(archived, live)


class Archive:
    """The catalog of one archive, read whole; the log itself is not read."""

    def __init__(self, store: StoreSnapshot, wanted: Callable[[str], bool]) -> None:
        self.root = store.root
        parts = read_parts(store.folders, store.catalog_paths)
        self.files: list[ArchivedFile] = sorted(
            (f for part in parts for f in part.files), key=lambda f: f.first
        )
        self._firsts = [f.first for f in self.files]
        self._log = ArchivedLog(store.root, [(f.first, f.size) for f in self.files])
        table = pa.concat_tables([p.rows for p in parts])
        topics = table.column("topic").combine_chunks().dictionary_encode()
        self.topics: list[str] = topics.dictionary.to_pylist()
        mine = np.array([wanted(t) for t in self.topics], np.bool_)
        codes = topics.indices.to_numpy().astype(np.int64)
        kept = mine[codes] if len(codes) else np.zeros(0, np.bool_)
        numbers = {
            name: table.column(name).to_numpy()[kept].astype(np.int64)
            for name in table.column_names
            if name != "topic"
        }
        numbers["key"] = codes[kept] << 32 | numbers["queueId"]
        order = np.lexsort((numbers["firstPosition"], numbers["key"]))
        #: Rows of the catalog by queue and position.
        self.rows: Ints = {name: values[order] for name, values in numbers.items()}
        self._pieces: dict[int, pa.RecordBatch] = {}
        self._heads: dict[int, bytes | None] = {}

    def queues(self, loss: LossRule) -> Iterator[ArchivedBounds]:
        """Yield each queue as it is since its topic was last created (catalog.py, invariant 2)."""
        keys = self.rows["key"]
        if not len(keys):
            return
        begin = np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1])
        ends = np.concatenate([begin[1:], [len(keys)]])
        steps = self.rows["startOffset"][1:] - self.rows["endOffset"][:-1]
        for low, high in zip(begin.tolist(), ends.tolist(), strict=True):
            inner = steps[low : high - 1]
            again = np.flatnonzero(inner < 0)
            first = low + int(again[-1]) + 1 if len(again) else low
            key = QueueKey(
                self.topics[int(keys[low]) >> 32],
                self.root.broker_name,
                int(keys[low]) & 0xFFFF_FFFF,
            )
            bounds = ArchivedBounds(self, key, first, high)
            if first > low:
                bounds.renewed_at = int(self.rows["firstPosition"][first])
            for gap in np.flatnonzero(steps[first : high - 1] > 0).tolist():
                before = int(self.rows["endOffset"][first + gap])
                after = int(self.rows["startOffset"][first + gap + 1])
                loss.lost(
                    f"topic {key.topic}, broker {key.broker_name}, queue {key.queue_id}: the archive lacks "
                    f"offsets {before}..{after}"
                )
            yield bounds

    def first_at(self, row: int, key: QueueKey, ms: int) -> int | None:
        """Return the first offset of a row of the catalog whose message was stored at `ms` or later."""
        low, high = int(self.rows["firstPosition"][row]), int(self.rows["endPosition"][row])
        file = self._file_of(low)
        marks = file.marks
        for number in range(bisect_right(marks, low) - 1, len(marks)):
            if marks[number] >= high:
                break
            end = marks[number + 1] if number + 1 < len(marks) else file.first + file.size
            batch = self._piece(file, marks[number], end)
            here = np.array(batch.column("topic").to_pylist(), object) == key.topic
            here &= batch.column("queueId").to_numpy() == key.queue_id
            times = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // 1000
            found = np.flatnonzero(here & (times >= ms))
            if len(found):
                return int(batch.column("queueOffset")[int(found[0])].as_py())
        return None

    def identity(self, first: int) -> StoreIdentity | None:
        """Return what the task that reads a file is to find there; None where each look is a request.

        The path of an object store leads to the same place from every host.
        """
        if not isinstance(self._log.folders, LocalFolders):
            return None
        if first not in self._heads:
            self._heads[first] = self._log.head_at(first)
            self._log.close()
        head = self._heads[first]
        return None if head is None else StoreIdentity(first, head)

    def _piece(self, file: ArchivedFile, low: int, high: int) -> pa.RecordBatch:
        kept = self._pieces.get(low)
        if kept is None:
            span = self._log.log_file_of(low)
            assert span is not None
            # The decoder, which most plans do without.
            from pocketmq.bulk.columns.decode import decode
            from pocketmq.bulk.log_walk import walk

            data = self._log.open_log(span).read(low - file.first, high - file.first)
            starts, _ = walk(data, low, _ignore)
            kept = decode(data, starts, _PLACE, on_bad=_ignore)
            if len(self._pieces) >= _PIECES_KEPT:
                self._pieces.pop(next(iter(self._pieces)))
            self._pieces[low] = kept
        return kept

    def _file_of(self, position: int) -> ArchivedFile:
        return self.files[bisect_right(self._firsts, position) - 1]


def _ignore(place: int, reason: str) -> None:
    """Ignore damage: a plan only looks for a place; the tasks that read there will report it."""


class ArchivedWork:
    """What to read from one archive."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._wanted: list[tuple[ArchivedBounds, int, int]] = []

    def add(self, bounds: ArchivedBounds, start: int, end: int) -> None:
        self._wanted.append((bounds, start, end))

    def cut(self, step: int) -> list[Partition]:
        """Return partitions of about `step` wanted bytes each, ranges between marks, in the log's order."""
        pieces = sorted(self._pieces(step))
        partitions: list[Partition] = []
        ranges: list[tuple[int, int]] = []
        size = 0.0
        for low, high, wanted in pieces:
            if ranges and size + wanted > step * 1.25:
                partitions.append(self._partition(ranges))
                ranges, size = [], 0.0
            ranges.append((low, high))
            size += wanted
        if ranges:
            partitions.append(self._partition(ranges))
        return partitions

    @property
    def bytes_estimate(self) -> int:
        return sum(int(sizes.sum()) for _, sizes in map(self._share, range(len(self._wanted))))

    def _share(self, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the rows of the catalog with wanted messages of a queue, and the wanted bytes of each."""
        bounds, start, end = self._wanted[number]
        rows = self.archive.rows
        own = slice(bounds.low, bounds.high)
        first, last = rows["startOffset"][own], rows["endOffset"][own]
        common = np.minimum(last, end) - np.maximum(first, start)
        found = np.flatnonzero(common > 0)
        share = common[found] / (last - first)[found] * rows["bytes"][own][found]
        return found + bounds.low, share

    def _pieces(self, step: int) -> Iterator[tuple[int, int, float]]:
        """Yield (first byte, end, wanted bytes) of each piece of each file that holds anything wanted."""
        rows = self.archive.rows
        found = [self._share(n) for n in range(len(self._wanted))]
        if not found:
            return
        which = np.concatenate([f for f, _ in found])
        share = np.concatenate([s for _, s in found])
        files = rows["file"][which]
        for file in self.archive.files:
            here = files == file.first
            if not here.any():
                continue
            low = int(rows["firstPosition"][which[here]].min())
            high = int(rows["endPosition"][which[here]].max())
            wanted = float(share[here].sum())
            count = max(1, -(-int(wanted) // step))
            cuts = _cuts(file.marks, low, high, count)
            for begin, end in pairwise(cuts):
                yield begin, end, wanted * (end - begin) / (high - low)

    def _partition(self, ranges: list[tuple[int, int]]) -> Partition:
        low, high = ranges[0][0], ranges[-1][1]
        rows = self.archive.rows
        queues: list[QueueRange] = []
        renewed: list[tuple[str, int, int]] = []
        for bounds, start, end in self._wanted:
            first = rows["firstPosition"][bounds.low]
            if first < high and bounds.end_position > low:
                key = bounds.key
                queues.append(QueueRange(key.topic, key.queue_id, start, end))
                if low < bounds.renewed_at:
                    renewed.append((key.topic, key.queue_id, bounds.renewed_at))
        files = {f.first: f.size for f in map(self.archive._file_of, (r[0] for r in ranges))}
        return Partition(
            self.archive.root, tuple(ranges), tuple(queues), walk=True,
            identity=self.archive.identity(next(iter(files))),
            renewed=tuple(renewed), files=tuple(files.items()),
        )  # fmt: skip


def _cuts(marks: Sequence[int], low: int, high: int, count: int) -> list[int]:
    """Return the bounds of `count` pieces of about equal size, at marks, or the first or last record."""
    inner: list[Any] = [low + (high - low) * n // count for n in range(1, count)]
    at = [marks[bisect_right(marks, p) - 1] for p in inner if bisect_right(marks, p)]
    return sorted({low, *(m for m in at if low < m < high), high})
