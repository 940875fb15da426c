"""The queues against the log: which entries are missing, and which point to something else."""

from collections.abc import Iterable, Iterator

from pocketmq.files.queue_files import IndexEntry, QueueFiles
from pocketmq.files.records import Entry
from pocketmq.store.doctor.listing import break_in
from pocketmq.store.doctor.records import QueueKey, RecordsSeen
from pocketmq.store.findings import FindingCode, Problem, problem
from pocketmq.store.repair.multi_dispatch import further_offset
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.repairs import gaps

_ELSEWHERE = "points to a record that belongs elsewhere"


class QueueChecks:
    """Checks of all queues.

    entries: how many were checked; given_up: of messages that a repair knew to be lost. ends: the next offset
    of each queue, by topic and queue id, as its files or its records say.
    """

    def __init__(self, store: StoreReader, seen: RecordsSeen) -> None:
        self._store = store
        self._seen = seen
        self._known = gaps(store.root)
        self.entries = 0
        self.given_up = 0
        self.ends: dict[tuple[str, int], int] = {}
        # Queues whose records are not all accounted for yet.
        self._waiting = dict(seen.ends)

    def forget_records(self) -> None:
        """Expect no entries of records: the queues are in RocksDB, and queue files, if any, from before."""
        self._waiting.clear()

    def check(self, queues: Iterable[QueueFiles]) -> Iterator[Problem]:
        """Check the queues, and then whether all of them are there."""
        for queue in queues:
            folder = "batchconsumequeue" if queue.batch else "consumequeue"
            name = f"{folder}/{queue.topic}/{queue.queue_id}"
            key = (queue.topic.encode("utf-8", "surrogateescape"), queue.queue_id)
            if broken := break_in(queue.files):
                self._waiting.pop(key, 0)
                yield problem(FindingCode.QUEUE_FILES, name, 0, broken)
                continue
            yield from self._check_queue(queue, name, key)
        for (topic, queue_id), end in self._waiting.items():
            text = topic.decode("utf-8", "surrogateescape")
            self.ends[text, queue_id] = end
            name = f"consumequeue/{topic.decode('utf-8', 'replace')}/{queue_id}"
            yield self._missing((topic, queue_id), name, 0, end)

    def _check_queue(self, queue: QueueFiles, name: str, key: QueueKey) -> Iterator[Problem]:
        lost = self._known.get((queue.topic, queue.queue_id), set())
        expected: int | None = None
        ahead = 0
        for entry in self._store.entries(queue):
            if entry.position < self._store.log_start:
                continue
            self.entries += 1
            where = f"{name} offset {entry.offset}"
            if expected is not None and entry.offset != expected:
                if lost.issuperset(range(expected, entry.offset)):
                    self.given_up += entry.offset - expected
                else:
                    what = "entries before it are missing"
                    yield problem(FindingCode.QUEUE_GAP, where, queue.width, what)
            expected = entry.offset + entry.messages
            what = self._wrong_with(key[0], queue, entry)
            if what and entry.position >= self._seen.end:
                ahead += 1
            elif what == _ELSEWHERE and entry.offset in lost:
                self.given_up += 1
            elif what:
                yield problem(FindingCode.ENTRY_WRONG, where, queue.width, what)
        if ahead:
            what = f"the last {ahead} entries point behind the end of the log"
            yield problem(FindingCode.QUEUE_AHEAD, name, queue.width * ahead, what)
        end = self._waiting.pop(key, 0)
        self.ends[queue.topic, queue.queue_id] = max(self._store.offsets(queue)[1] - ahead, end)
        if end > (expected or 0) and (expected is not None or end):
            yield self._missing(key, name, expected or 0, end)

    def _missing(self, key: QueueKey, name: str, first: int, end: int) -> Problem:
        """Return what is to be said of records from offset `first` to `end` that have no entry."""
        if self._seen.recent.get(key, end) <= first:
            what = f"the last {end - first} records have no entry"
            return problem(FindingCode.QUEUE_BEHIND, name, 20 * (end - first), what)
        what = f"up to {end - first} records have no entry"
        return problem(FindingCode.QUEUE_LOST, name, 20 * (end - first), what)

    def _wrong_with(self, topic: bytes, queue: QueueFiles, entry: IndexEntry) -> str:
        record = self._store.record_at(entry.position, check_crc=False)
        if not isinstance(record, Entry):
            return f"points to no record: {'nothing' if record is None else record}"
        claimed = (record.topic, record.queue_id, record.queue_offset, record.size)
        if claimed == (topic, queue.queue_id, entry.offset, entry.size):
            return ""
        if record.size == entry.size and further_offset(record.properties, topic) == entry.offset:
            return ""
        return _ELSEWHERE
