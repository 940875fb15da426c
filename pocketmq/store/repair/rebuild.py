"""Rebuild: `store repair`. The log is mended, and everything that can be derived from it is built again.

1. Nothing is changed while a broker has the store, nor for a finding whose row says that a repair refuses it.
2. Queues, index and the copy of damaged places are kept in before-repair-*; nothing is deleted.
3. Recovery is the only builder of entries: derived files are moved away, and the store is opened.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pocketmq.files.records import Damage
from pocketmq.remoting.clock import Clock
from pocketmq.store.config_file import OffsetFile
from pocketmq.store.doctor.config_files import ConfigChecks, offsets_ahead
from pocketmq.store.doctor.examination import Progress
from pocketmq.store.doctor.listing import check_foreign, check_log_files, check_lost_found
from pocketmq.store.doctor.timers import check_timers
from pocketmq.store.errors import StoreError, StoreLocked
from pocketmq.store.findings import FINDINGS, AtRepair, FindingCode, Mender, Problem, problem
from pocketmq.store.message_store import MessageStore
from pocketmq.store.repair.multi_dispatch import further_queues
from pocketmq.store.repair.reader import StoreReader
from pocketmq.store.repair.repairs import Repairs, note_gaps, sure_end
from pocketmq.store.store_config import StoreConfig, sizes_of
from pocketmq.store.store_lock import StoreLock

_STORE_HOST = b"\x7f\0\0\1\0\0\x2a\x9f"


class NotRepairable(StoreError):
    """A repair refuses this store, and has changed nothing."""


@dataclass
class Repaired:
    """What a repair has done. left: what it found and could not mend, nor a start can."""

    old_files: Path
    queues: int = 0
    damaged_places: int = 0
    offsets_moved: int = 0
    left: list[Problem] = field(default_factory=list)


class Repair:
    """One repair. Raises (each method): NotRepairable, StoreError, OSError."""

    def __init__(self, root: str, clock: Clock) -> None:
        self._store = StoreReader(root)
        self._clock = clock

    def check(self) -> None:
        """Look whether it can begin: a long walk through the log may be for nothing."""
        self._lock().release()
        store = self._store
        found = [*check_foreign(store), *check_log_files(store), *ConfigChecks(store.root).check()]
        _refuse(found)

    def prepare(self, progress: Progress = lambda each, _: each) -> Repairs:
        """Look at the whole log. Returns: what is to be mended in it. Nothing is changed."""
        store = self._store
        records = store.walk(sure_end=sure_end(store))
        mending = Repairs(store, progress(records, "records"))
        if not store.checkpoint.ours:
            _refuse([_unfillable(place) for place in mending.unfilled])
        return mending

    def run(self, mending: Repairs) -> Repaired:
        """Mend the log, build queues and index again, and bring offsets back into their queues."""
        root, is_foreign = self._store.root, not self._store.checkpoint.ours
        kept = root / time.strftime("before-repair-%Y%m%d-%H%M%S")
        try:
            self._build(mending, kept, is_foreign=is_foreign)
        except StoreError as error:
            raise StoreError(f"{error}. The old files are in {kept}") from error
        note_gaps(root, kept, bridged=is_foreign)
        store = StoreReader(str(root))
        ends = {(each.topic, each.queue_id): store.offsets(each)[1] for each in store.queues()}
        moved = _move_offsets(root, ends)
        return Repaired(kept, len(ends), len(mending.places), moved, [*_left(store)])

    def _lock(self) -> StoreLock:
        lock = StoreLock(str(self._store.root))
        try:
            lock.acquire()
        except StoreLocked as error:
            raise NotRepairable(
                f"the store {self._store.root} is in use by a broker{error.holder}; nothing was changed. "
                "Stop that broker, repair, and start it again"
            ) from error
        return lock

    def _build(self, mending: Repairs, kept: Path, *, is_foreign: bool) -> None:
        store = self._store
        root = store.root
        sizes = sizes_of(root)
        lock = self._lock()
        try:
            kept.mkdir()
            # Recovery builds the queue a message was sent to, and no other.
            not_built = further_queues(store)
            mending.set_aside(store, kept / "damaged")
            mending.fill()
            # RocketMQ's checkpoint would let recovery begin behind records whose entries were moved away.
            derived = ("consumequeue", "consumequeue_ext", "index", "checkpoint")
            for name in derived if is_foreign else derived[:3]:
                if (root / name).exists():
                    (root / name).rename(kept / name)
        finally:
            lock.release()
        config = StoreConfig(store_path_root_dir=str(root), **sizes)
        opened = MessageStore(config, clock=self._clock, store_host=_STORE_HOST)
        opened.open()
        opened.close()
        for folder in not_built:
            shutil.copytree(kept / folder, root / folder, dirs_exist_ok=True)


def _unfillable(place: Damage) -> Problem:
    return problem(
        FindingCode.LOG_UNFILLABLE, f"commitlog at {place.position}", place.size, place.why
    )


def _refuse(problems: list[Problem]) -> None:
    """Raises: NotRepairable for the first problem that a repair refuses."""
    for each in problems:
        if FINDINGS[each.code].repair is AtRepair.REFUSES:
            raise NotRepairable(
                f"{each.code}, {each.where}: {each.what}. {_sentence(each.advice)}; nothing was changed"
            )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _move_offsets(root: Path, ends: dict[tuple[str, int], int]) -> int:
    """Move offsets beyond the end of their queue to it. Returns: how many. Raises: OSError."""
    file = OffsetFile(str(root / "config"))
    try:
        value: Any = file.load()
    except StoreError:
        # Unreadable: one of what is left.
        return 0
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        return 0
    ahead = [*offsets_ahead(table, ends)]
    for key, queue_id, _, end in ahead:
        table[key][str(queue_id)] = end
    if ahead:
        file.save(value)
    return len(ahead)


def _left(store: StoreReader) -> Iterator[Problem]:
    """Yield what neither the repair has mended nor a start mends."""
    config = ConfigChecks(store.root)
    found = [*check_lost_found(store.root), *config.check()]
    found += check_timers(store, store.end_of_records(), 1 << 62, 1 << 62)
    yield from (each for each in found if each.mender is not Mender.START)
