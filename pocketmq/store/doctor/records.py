"""The walk through the log: what is no record, and what queues and index must have of those that are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pocketmq.files.records import Damage, Entry
from pocketmq.store.doctor.index_entries import IndexEntries
from pocketmq.store.findings import FindingCode, Problem, problem
from pocketmq.store.log.checkpoint import MARGIN
from pocketmq.store.queue.deleted_queues import DeletedQueues
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.repairs import fillers, sure_end

QueueKey = tuple[bytes, int]
# Prepared and rolled-back messages are in no queue.
_WITHOUT_ENTRY = 0x4


@dataclass
class RecordsSeen:
    """What the walk has seen.

    end: behind the last record. looked_from: a start of PocketMQ looks at all records from here on. ends: the
    next offset of each queue, as its records say; recent: the first one from `looked_from` on.
    """

    end: int = 0
    looked_from: int = 0
    count: int = 0
    ends: dict[QueueKey, int] = field(default_factory=dict)
    recent: dict[QueueKey, int] = field(default_factory=dict)


class RecordWalk:
    """One pass over the log."""

    def __init__(self, store: StoreReader, index: IndexEntries) -> None:
        self._store = store
        self._index = index
        self._sure_end = max(store.log_start, sure_end(store))
        self._deleted = DeletedQueues(str(store.root))
        self._deleted.load()
        self.seen = RecordsSeen(end=store.log_start, looked_from=self._looked_from())

    def _looked_from(self) -> int:
        checkpoint = self._store.checkpoint
        if checkpoint.ours and checkpoint.boundary >= 0:
            return checkpoint.boundary
        return max(0, self._sure_end - MARGIN)

    def records(self) -> Iterator[Entry | Damage]:
        """Yield everything in the log. Zeros look like its end; what queues point to is before it."""
        store = self._store
        yield from store.walk(sure_end=self._sure_end)
        for found in store.walk(self._sure_end):
            yield found
            if isinstance(found, Damage) and not store.checkpoint.ours:
                # What is behind may be of an earlier truncation: a start ends the log here.
                return

    def check(self, records: Iterable[Entry | Damage]) -> Iterator[Problem]:
        """Find damage in the records, which are those of `records()`, and fill `seen`."""
        for record in records:
            if isinstance(record, Damage):
                found = self._damage(record)
                torn = found.code is FindingCode.LOG_TORN_END
                self._index.skip(self._store.log_end if torn else record.position + record.size)
                yield found
                continue
            self._see(record)
            self._index.check(record)

    def _see(self, record: Entry) -> None:
        seen = self.seen
        seen.count += 1
        seen.end = record.position + record.size
        if record.sys_flag & _WITHOUT_ENTRY:
            return
        topic = record.topic.decode("utf-8", "surrogateescape")
        if self._deleted.has(topic, record.queue_id, record.position):
            return
        key = (record.topic, record.queue_id)
        seen.ends[key] = max(seen.ends.get(key, 0), record.queue_offset + 1)
        if record.position >= seen.looked_from:
            seen.recent.setdefault(key, record.queue_offset)

    def _damage(self, place: Damage) -> Problem:
        where = f"commitlog at {place.position}"
        if place.position >= self._sure_end:
            code = FindingCode.LOG_TORN_END
        elif self._store.checkpoint.ours:
            code = FindingCode.LOG_DAMAGED
        else:
            file = self._store.log_file_of(place.position)
            can_fill = file is not None and fillers(place, file.end, 1) is not None
            code = FindingCode.LOG_WOULD_END if can_fill else FindingCode.LOG_UNFILLABLE
        return problem(code, where, place.size, place.why)
