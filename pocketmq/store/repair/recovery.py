"""Recovery: finds the end of the log, and adds missing queue entries.

    last writer, last stop   checked from                                        behind a bad record
    ours, clean              a record boundary 1 MiB before the flushed end      the next good record
    ours, not clean          a record boundary 1 MiB before the flushed end      the next good record
    RocketMQ's, clean        a record boundary 1 MiB before the queues' end      the log ends
    RocketMQ's, not clean    the file that its checkpoint points to              the log ends

0. If everything written is there (ours; clean, or killed while the machine kept running), only the queues
   that these records name are opened: the entries of all others were flushed, or point to earlier records.
   Otherwise every queue is opened; likewise if a record has no entry and another may point to it.
1. Every record from there on is checked (lengths, own position, CRC of the body) and gets its entry if it is
   missing or wrong: there is one way to build an entry, whether 1 or all are missing.
2. A RocketMQ broker leaves stale records of an earlier truncation behind its end, which look intact. So
   nothing behind a bad record in its store is trusted. Our own logs have zeros there: valid records behind a
   bad one are real, and are kept.
3. A record's header has no checksum. If a queue's entry points to a record that claims to belong elsewhere,
   the entry is trusted and the record counts as damaged: nothing is renumbered.
4. Entries that point behind the end are dropped. Bytes cut off the log are kept in dropped/, for StoreReader.
Source of RocketMQ's rules: CommitLog.recoverNormally, recoverAbnormally, 4.9.7.
"""

import bisect
import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pocketmq.files.layout import (
    BLANK_SIZE,
    ENTRY,
    ENTRY_SIZE,
    EXPIRED_ENTRY,
    EXT_ADDRESS_MAX,
    surely_indexed_ms,
)
from pocketmq.files.records import Damage, Entry, check_record, next_record
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.store.errors import RecordIllegal, StoreForeign
from pocketmq.store.log.checkpoint import MARGIN, Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.batch_consume_queue import BatchConsumeQueue, messages_in
from pocketmq.store.queue.consume_queue import ConsumeQueue, records_before
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.tags_code import LONGEST_DELAY_MS, entry_code
from pocketmq.store.store_lock import LastStop

if TYPE_CHECKING:
    from pocketmq.store.findings import Problem

log = logging.getLogger(__name__)

_SECTOR = 512


@dataclass
class RecoveryReport:
    """The findings and actions of a recovery."""

    checked_from: int = 0
    end: int = 0
    records: int = 0
    entries_added: int = 0
    entries_repaired: int = 0
    entries_dropped: int = 0
    damages: list[Damage] = field(default_factory=list)
    # What was found, as `store verify` names it: of damage to the log, and of entries.
    findings: "list[Problem]" = field(default_factory=list)
    last_store_ms: int = 0
    # The end of the log may be missing: the machine lost power, or how the broker stopped is unknown.
    may_have_lost: bool = False
    # The memory of the machine is another one than the last process had, or may be.
    is_other_memory: bool = False


class Recovery:
    """One pass over log and queues at start; the store is not in use yet."""

    def __init__(
        self,
        root: str,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        checkpoint: Checkpoint,
        *,
        last_stop: LastStop,
        delay_levels: Sequence[int],
    ) -> None:
        self._root = root
        self._log = commit_log
        self._table = table
        self._checkpoint = checkpoint
        self._clean = last_stop is LastStop.CLEAN
        self._whole = checkpoint.ours and last_stop in (LastStop.CLEAN, LastStop.KILLED)
        self._writes_again = last_stop is LastStop.FORGOTTEN
        self._levels = delay_levels
        self._now_ms = 1 << 62
        self._report = RecoveryReport(
            is_other_memory=last_stop in (LastStop.UNKNOWN, LastStop.FORGOTTEN)
        )
        self._claimed: array[int] | None = None
        self._claimed_end = 0
        self._topics: dict[bytes, str] = {}
        self._ends_at_damage = False

    def run(self, *, follows: bool = False, now_ms: int = 1 << 62) -> RecoveryReport:
        """Recover. follows: the log is a master's, and ends where it is damaged (following.py, invariant 3).
        now_ms: no record is taken to be younger.

        Raises: StoreForeign if there are queues but no log.
        """
        report = self._report
        self._now_ms = now_ms
        self._ends_at_damage = follows or not self._checkpoint.ours
        if not self._log.files.files:
            if self._look_at_all():
                raise StoreForeign(
                    self._root,
                    "it has consume queues but no commit log. If the commit log is on another disk, "
                    "mount it or set storePathCommitLog; if it is lost, remove 'consumequeue' too",
                )
            return report
        start = report.checked_from = report.end = self._start()
        self._walk(start)
        # A first start has nothing to keep, and is quicker without it.
        from pocketmq.store.repair.kept_rest import keep_rest

        keep_rest(self._root, self._log, report.end)
        # The queues first: if this fails half-way, the next start must not find queues without a log.
        self._cut_queues(report.end)
        report.may_have_lost = not (self._clean or self._whole)
        self._log.open_at(report.end)
        self._log.store_ms = report.last_store_ms
        if not self._clean:
            self._mark_unflushed(start)
        self._name_findings(report)
        if not self._clean or report.entries_added or report.entries_dropped or report.damages:
            log.warning(
                "recovered clean_stop=%s checked_from=%d end=%d records=%d entries_added=%d "
                "entries_repaired=%d entries_dropped=%d damaged_places=%d",
                self._clean,
                report.checked_from,
                report.end,
                report.records,
                report.entries_added,
                report.entries_repaired,
                report.entries_dropped,
                len(report.damages),
            )
        return report

    def _name_findings(self, report: RecoveryReport) -> None:
        added, dropped = report.entries_added, report.entries_dropped
        if report.damages or added or dropped or report.entries_repaired:
            # A sound store needs none of the table of findings.
            from pocketmq.store.repair.start_findings import found_at_start

            counts = {"added": added, "repaired": report.entries_repaired, "dropped": dropped}
            report.findings += found_at_start(report.damages, report.end, **counts)

    # ------------------------------------------------------------ where to begin

    def _start(self) -> int:
        checkpoint = self._checkpoint
        if self._whole and checkpoint.boundary >= 0 and self._table.topics():
            start = max(checkpoint.boundary, self._log.min_position)
            if isinstance(next(self._log.walk(start, self._log.files.end_position), None), Entry):
                return start
        known = self._look_at_all()
        if self._clean or checkpoint.ours:
            if checkpoint.ours:
                known = min(known, checkpoint.flushed_position)
            return self._boundary(known - MARGIN)
        return self._first_file_to_check()

    def _look_at_all(self) -> int:
        """Open every queue. Returns: the end of the last record that any of them points to."""
        self._whole = False
        self._table.open_all()
        self._claimed_end = self._table.max_position
        return self._claimed_end

    def _boundary(self, target: int) -> int:
        """Return a record boundary at or below `target`, close to it if the queues know one."""
        file = self._log.files.file_at(max(target, 0))
        best = file.start if file is not None else self._log.min_position
        if best >= target:
            return best if best <= max(target, 0) else self._log.min_position
        for position in sorted(records_before(self._table.queues.values(), target), reverse=True):
            if position <= best:
                break
            # An entry may be damaged itself; only a real record makes its position a boundary.
            candidate = self._log.files.file_at(position)
            if candidate is not None and isinstance(
                check_record(candidate.view, position - candidate.start, candidate.size, position),
                Entry,
            ):
                return position
        return best

    def _first_file_to_check(self) -> int:
        """Apply RocketMQ's rule after a crash: the newest file whose first record certainly was flushed."""
        safe_ms = surely_indexed_ms(self._checkpoint.log_ms, self._checkpoint.queue_ms)
        for file in reversed(self._log.files.files):
            first_ms = self._log.first_store_ms(file)
            if first_ms and first_ms <= safe_ms:
                return file.start
        return self._log.min_position

    # ------------------------------------------------------------ the walk

    def _walk(self, position: int) -> None:
        report = self._report
        while True:
            bad: Damage | None = None
            for found in self._log.walk(position, self._log.files.end_position):
                if isinstance(found, Damage):
                    bad = found
                    break
                torn = self._torn_text(found)
                if torn:
                    bad = Damage(found.position, found.size, torn)
                    break
                report.records += 1
                why = self._restore(found)
                if why:
                    report.damages.append(Damage(found.position, found.size, why))
                else:
                    report.last_store_ms = found.store_ms
                report.end = found.position + found.size
            if self._ends_at_damage:
                if bad is not None:
                    report.damages.append(bad)
                return
            following = self._next_good(max(report.end, bad.position if bad else 0) + 1)
            if following is None:
                if bad is not None:
                    report.damages.append(bad)
                return
            hole = max(report.end, bad.position if bad else 0)
            if bad is not None or not self._is_end_of_file(hole):
                why = bad.why if bad else "zeros before a record"
                report.damages.append(Damage(hole, following - hole, why))
            position = following

    def _torn_text(self, record: Entry) -> str | None:
        """Return why a record that passes the checks is torn nevertheless: properties have no checksum.

        Zeros from a disk sector's boundary to the end of the record are bytes that never arrived.
        """
        end = record.position + record.size
        cut_at = self._log.files.cut_at
        if cut_at is not None and end > cut_at:
            return "the file ends inside it"
        if record.properties.endswith(b"\0"):
            tail = min(end - (end - 1) // _SECTOR * _SECTOR, len(record.properties))
            if not record.properties[-tail:].strip(b"\0"):
                return "its properties end in zeros"
        return None

    def _is_end_of_file(self, position: int) -> bool:
        file = self._log.files.file_at(position)
        return file is not None and file.size - (position - file.start) < 8

    def _next_good(self, position: int) -> int | None:
        """Return where the next valid record begins, in this file or a later one."""
        files = self._log.files
        while position < files.end_position:
            file = files.file_at(position)
            if file is None:
                return None
            at = position - file.start
            found = next_record(file.view, at, file.data_end(at), file.start)
            if found is not None:
                return file.start + found
            position = file.end
        return None

    # ------------------------------------------------------------ entries

    def _restore(self, record: Entry) -> str | None:
        """Give the record its entry if it has none. Returns: why it cannot have one, or None."""
        if record.sys_flag & 0x4:
            return self._claim_text(record)
        topic = self._topics.get(record.topic)
        if topic is None:
            topic = record.topic.decode("utf-8", "surrogateescape")
            self._topics[record.topic] = topic
        if self._table.deleted.has(topic, record.queue_id, record.position):
            return None
        try:
            queue = self._table.open(topic, record.queue_id)
        except RecordIllegal as error:
            return str(error)
        # As MessageStore does: a store time may be that of a clock that ran ahead.
        written_ms = min(record.store_ms, self._now_ms)
        code = entry_code(topic, record.properties, written_ms, self._levels)
        if isinstance(queue, BatchConsumeQueue):
            return self._put_batch(queue, record, code)
        return self._put(queue, record, code)

    def _put_batch(self, queue: BatchConsumeQueue, record: Entry, code: int) -> str | None:
        offset = record.queue_offset
        if offset < queue.max_offset:
            known = queue.entry(offset)
            if known is not None and known[:2] == (record.position, record.size):
                return None
            return "its queue offset belongs to another record"
        messages = messages_in(record.sys_flag, record.properties)
        queue.put_batch(record.position, record.size, code, record.store_ms, offset, messages)
        self._report.entries_added += 1
        return None

    def _put(self, queue: ConsumeQueue, record: Entry, code: int) -> str | None:
        offset, report = record.queue_offset, self._report
        if 0 <= offset < queue.max_offset:
            known = _peek(queue, offset)
            if known in ((record.position, record.size, code), EXPIRED_ENTRY):
                return None
            if known is not None and known[:2] == (record.position, record.size):
                if self._means_the_same(queue, record, known[2], code):
                    return None
            elif known is not None and self._is_newer(queue, offset, known, record):
                return None
            elif known is None or known[0] != record.position:
                why = self._claim_text(record)
                if why:
                    return why
            queue.replace(offset, record.position, record.size, code)
            report.entries_repaired += 1
            return None
        why = self._claim_text(record)
        if why:
            return why
        why = queue.refusal_of(offset)
        if why:
            return why
        queue.skip_to(offset)
        queue.put(record.position, record.size, code)
        report.entries_added += 1
        return None

    def _means_the_same(self, queue: ConsumeQueue, record: Entry, known: int, code: int) -> bool:
        """Return True if an entry's code may stay though it is not the one we would write."""
        if known <= EXT_ADDRESS_MAX:
            ext = self._table.ext(queue)
            unit = None if ext is None else ext.get(known)
            if unit is None:
                return False
            known = unit.tags_code
        if known == code:
            return True
        # The delays, or the clock, may have been others when it was written. A code below is a tag's.
        latest_ms = record.store_ms + max(LONGEST_DELAY_MS, *self._levels)
        return queue.topic == SCHEDULE_TOPIC and 1 << 32 < known <= latest_ms

    def _is_newer(
        self, queue: ConsumeQueue, offset: int, known: tuple[int, int, int], record: Entry
    ) -> bool:
        """Return True if the entry is of a later record, in a topic that was deleted and created again."""
        if known[0] <= record.position or known[1] == BLANK_SIZE:
            return False
        file = self._log.files.file_at(known[0])
        if file is None:
            return False
        later = check_record(file.view, known[0] - file.start, file.size, known[0])
        return isinstance(later, Entry) and (later.topic, later.queue_id, later.queue_offset) == (
            record.topic,
            queue.queue_id,
            offset,
        )

    def _claim_text(self, record: Entry) -> str | None:
        """Apply invariant 3: if another entry points to this record, its header is not trusted."""
        if self._whole:
            self._look_at_all()
        if record.position >= self._claimed_end:
            return None
        if self._claimed is None:
            self._claimed = self._claims()
        place = bisect.bisect_left(self._claimed, record.position)
        if place < len(self._claimed) and self._claimed[place] == record.position:
            return "its header does not name the queue and offset of the entry that points to it"
        return None

    def _claims(self) -> "array[int]":
        """Return the positions that entries point to, from the checked part of the log on, sorted.

        Blank entries, and zeros left by a power cut, point to nothing; not to position 0.
        """
        found: array[int] = array("q")
        for queue in self._table.queues.values():
            offset = queue.first_at_or_behind(self._report.checked_from)
            while offset < queue.max_offset:
                entries = queue.entries(offset, queue.max_offset - offset)
                if entries is None:
                    break
                found.extend(
                    position
                    for position, size, _ in ENTRY.iter_unpack(entries)
                    if 0 < size < BLANK_SIZE
                )
                offset += len(entries) // ENTRY_SIZE
        return array("q", sorted(found))

    # ------------------------------------------------------------ the end

    def _mark_unflushed(self, start: int) -> None:
        """Mark queue and index data behind the checkpoint for flushing: it may be in the page cache only.

        The next checkpoint will claim that it is on disk. After a failed fsync it must be written once
        more.
        """
        for queue in self._table.queues.values():
            if queue.max_position > start:
                in_batches = isinstance(queue, BatchConsumeQueue)
                first = 0 if in_batches else queue.first_at_or_behind(start)
                queue.flushed_offset = min(queue.flushed_offset, first)
                if self._writes_again:
                    for file in queue.dirty_files():
                        file.write_again(0, file.size)
        if self._writes_again:
            for file in self._log.files.files:
                if file.end > start:
                    file.write_again(max(0, start - file.start), file.size)

    def _cut_queues(self, end: int) -> None:
        if self._whole and end < self._checkpoint.flushed_position:
            self._look_at_all()
        has_ext = not self._clean and self._table.has_ext
        for queue in self._table.queues.values():
            ext = self._table.ext(queue) if has_ext else None
            whole = queue.seen_whole and self._checkpoint.ours and not self._writes_again
            if queue.max_position > end or not ((self._clean and self._checkpoint.ours) or whole):
                self._report.entries_dropped += queue.truncate(end)
                if not (self._clean and self._checkpoint.ours):
                    queue.clear_behind()
            if ext is not None:
                ext.truncate(queue)
            queue.release()


def _peek(queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
    """Return an entry through the map, which recovery uses often."""
    entries = queue.entries(offset, 1)
    if entries is None:
        return None
    entry: tuple[int, int, int] = ENTRY.unpack(entries)
    return entry
