"""Doctor: checks every record, queue entry and side file of a store, without serving or changing it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pocketmq.files.queue_files import IndexEntry, QueueFiles
from pocketmq.files.records import Damage, Entry
from pocketmq.remoting import fastjson
from pocketmq.store.queue.deleted_queues import DeletedQueues
from pocketmq.store.repair.multi_dispatch import further_offset
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.repairs import gaps, sure_end

# Prepared and rolled-back messages are in no queue.
_WITHOUT_ENTRY = 0x4
_ELSEWHERE = "points to a record that belongs elsewhere"


class Problem(NamedTuple):
    """One problem; `bytes`: how much of the file it concerns."""

    where: str
    bytes: int
    what: str


@dataclass
class Diagnosis:
    """What was checked, and the problems found.

    given_up: messages that a repair knew to be lost. queues_unseen: the queues are in RocksDB, which is not
    read; what queue files there are may be from before.
    """

    records: int = 0
    entries: int = 0
    side_files: int = 0
    given_up: int = 0
    queues_unseen: bool = False
    problems: list[Problem] = field(default_factory=list)


def diagnose(
    store: StoreReader,
    progress: Callable[[Iterable[Any], str], Iterable[Any]] = lambda each, _: each,
) -> Diagnosis:
    """Check everything. progress: wraps the items walked through, and gets their plural."""
    found = Diagnosis()
    # The next offset of each queue, as the records say it.
    ends: dict[tuple[bytes, int], int] = {}
    deleted = DeletedQueues(str(store.root))
    deleted.load()
    for record in progress(_records(store), "records"):
        if isinstance(record, Damage):
            where = f"commitlog at {record.position}"
            found.problems.append(Problem(where, record.size, record.why))
            continue
        found.records += 1
        if not record.sys_flag & _WITHOUT_ENTRY:
            topic = record.topic.decode("utf-8", "surrogateescape")
            if deleted.has(topic, record.queue_id, record.position):
                continue
            key = (record.topic, record.queue_id)
            ends[key] = max(ends.get(key, 0), record.queue_offset + 1)
    if store.has_rocksdb():
        found.queues_unseen = True
        # Queue files are from before, if there are any: they need not reach the log's end.
        ends.clear()
    known = gaps(store.root)
    for queue in progress(store.queues(), "queues"):
        lost = known.get((queue.topic, queue.queue_id), set())
        _check_queue(store, queue, ends, lost, found)
    for (topic, queue_id), end in ends.items():
        _missing(found, f"consumequeue/{topic.decode('utf-8', 'replace')}/{queue_id}", end)
    _check_side_files(store, found)
    return found


def _records(store: StoreReader) -> Iterable[Entry | Damage]:
    # Zeros look like the end of the log; what queues point to is in it, whatever stands before.
    end = max(store.log_start, sure_end(store))
    yield from store.walk(sure_end=end)
    yield from store.walk(end)


def _check_queue(
    store: StoreReader,
    queue: QueueFiles,
    ends: dict[tuple[bytes, int], int],
    lost: set[int],
    found: Diagnosis,
) -> None:
    topic = queue.topic.encode("utf-8", "surrogateescape")
    folder = "batchconsumequeue" if queue.batch else "consumequeue"
    name = f"{folder}/{queue.topic}/{queue.queue_id}"
    expected: int | None = None
    for entry in store.entries(queue):
        if entry.position < store.log_start:
            continue
        found.entries += 1
        where = f"{name} offset {entry.offset}"
        if expected is not None and entry.offset != expected:
            if lost.issuperset(range(expected, entry.offset)):
                found.given_up += entry.offset - expected
            else:
                found.problems.append(Problem(where, queue.width, "entries before it are missing"))
        expected = entry.offset + entry.messages
        what = _wrong_with(store.record_at(entry.position, check_crc=False), topic, queue, entry)
        if what == _ELSEWHERE and entry.offset in lost:
            found.given_up += 1
        elif what:
            found.problems.append(Problem(where, queue.width, what))
    end = ends.pop((topic, queue.queue_id), 0)
    if expected is None and end:
        what = "has no entry, but the log has records of it: run `pocketmq store repair`"
        found.problems.append(Problem(name, 0, what))
    elif expected is not None and end > expected:
        _missing(found, name, end - expected)


def _wrong_with(
    record: Entry | str | None, topic: bytes, queue: QueueFiles, entry: IndexEntry
) -> str | None:
    if not isinstance(record, Entry):
        return f"points to no record: {'nothing' if record is None else record}"
    claimed = (record.topic, record.queue_id, record.queue_offset, record.size)
    if claimed == (topic, queue.queue_id, entry.offset, entry.size):
        return None
    if record.size == entry.size and further_offset(record.properties, topic) == entry.offset:
        return None
    return _ELSEWHERE


def _missing(found: Diagnosis, where: str, count: int) -> None:
    what = f"the last {count} records have no entry; the broker adds them at its next start"
    found.problems.append(Problem(where, 20 * count, what))


def _check_side_files(store: StoreReader, found: Diagnosis) -> None:
    for path in sorted((store.root / "config").glob("*.json")):
        found.side_files += 1
        try:
            fastjson.loads(path.read_bytes())
        except (OSError, fastjson.FastjsonError) as error:
            found.problems.append(Problem(f"config/{path.name}", path.stat().st_size, str(error)))
