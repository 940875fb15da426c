"""The whole examination of a store: `store verify`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pocketmq.model.names import TIMER_TOPIC
from pocketmq.store.doctor.config_files import ConfigChecks
from pocketmq.store.doctor.index_entries import IndexEntries
from pocketmq.store.doctor.listing import (
    check_checkpoint,
    check_foreign,
    check_log_files,
    check_lost_found,
)
from pocketmq.store.doctor.queues import QueueChecks
from pocketmq.store.doctor.records import RecordWalk
from pocketmq.store.doctor.timers import check_timers
from pocketmq.store.findings import FindingCode, Problem
from pocketmq.store.repair.reader import StoreReader

Progress = Callable[[Iterable[Any], str], Iterable[Any]]
# Behind these the log cannot be read, so everything else would seem wrong, too.
_NO_LOG = (FindingCode.LOG_MISSING, FindingCode.LOG_FILES)


@dataclass
class Diagnosis:
    """What was checked, and the problems found.

    given_up: messages that a repair knew to be lost. queues_unseen: the queues are in RocksDB, which is not
    read; what queue files there are may be from before. ends: the next offset of each queue, by topic and id.
    """

    records: int = 0
    entries: int = 0
    side_files: int = 0
    given_up: int = 0
    queues_unseen: bool = False
    problems: list[Problem] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)


def diagnose(
    store: StoreReader,
    progress: Progress = lambda each, _: each,
    *,
    now_ms: int = 1 << 62,
) -> Diagnosis:
    """Check everything.

    progress: wraps the items walked through, and gets their plural. now_ms: no stored time is taken to be
    later.
    """
    found = Diagnosis()
    problems = found.problems
    problems += check_foreign(store)
    problems += check_log_files(store)
    problems += check_lost_found(store.root)
    config = ConfigChecks(store.root)
    found.side_files = config.files
    problems += config.check()
    if any(each.code in _NO_LOG for each in problems):
        return found
    index = IndexEntries(store)
    walk = RecordWalk(store, index)
    problems += walk.check(progress(walk.records(), "records"))
    problems += index.problems()
    problems += check_checkpoint(store, walk.seen.end)
    queues = QueueChecks(store, walk.seen)
    if store.has_rocksdb():
        found.queues_unseen = True
        queues.forget_records()
    problems += queues.check(progress(store.queues(), "queues"))
    found.records, found.entries = walk.seen.count, queues.entries
    found.given_up, found.ends = queues.given_up, queues.ends
    if not found.queues_unseen:
        problems += config.check_offsets(queues.ends)
        waiting = queues.ends.get((TIMER_TOPIC, 0), 0)
        problems += check_timers(store, walk.seen.end, waiting, now_ms)
    return found
