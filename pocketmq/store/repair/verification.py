"""Verification: old records are checked when they are first read.

1. `trusted_from`: records at or behind it were written or checked by this process. Below, an entry is only
   trusted if the record it points to agrees, and the body matches its CRC. It is at least 1: entries that
   stand for no record point to 0.
2. A check walks on to the end of its 64 KiB block, so each block is walked about once; one number per block
   read is kept.
3. For a wrong entry the record is searched between its neighbours, and the entry repaired; the record may be
   fine.
Owner: MessageStore.
"""

import logging
from typing import TYPE_CHECKING

from pocketmq.files.layout import BLANK_SIZE
from pocketmq.files.records import Damage, Entry
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.record import HEAD, RECORD_SIZE_MIN, body_at, body_size_of
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.tags_code import tags_code
from pocketmq.store.repair.recovery import RecoveryReport

if TYPE_CHECKING:
    from pocketmq.store.findings import Problem

log = logging.getLogger(__name__)

_BLOCK = 64 << 10
_SEARCH_MAX = 64 << 20


class Verification:
    """Knows which old records are good."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self.trusted_from = 1
        # Block number -> lowest position in the block from which on all records were checked.
        self._checked: dict[int, int] = {}
        # Positions of records that are damaged, each reported once.
        self._bad: set[int] = set()
        self._findings: list[Problem] = []

    def start(self, report: RecoveryReport) -> None:
        """Take over which records recovery has checked, and where it found damage."""
        self._findings = report.findings
        self._bad.update(damage.position for damage in report.damages)
        # Entries may point to the damaged places: then all is checked when it is read.
        self.trusted_from = max(1, report.end if report.damages else report.checked_from)

    def entry(
        self, queue: ConsumeQueue, offset: int, position: int, size: int
    ) -> tuple[int, int] | None:
        """Return (position, size) of the record at `offset` of `queue`; None if there is no good one."""
        if self._says_the_same(queue, offset, position, size):
            return (position, size) if self._is_good(position) else None
        if size == BLANK_SIZE or 0 <= position < self._log.min_position:
            return None
        return self._repair(queue, offset)

    def is_good(self, position: int) -> bool:
        """Return True if a whole, undamaged record begins at `position`."""
        return position >= self.trusted_from or self._is_good(position)

    def _says_the_same(self, queue: ConsumeQueue, offset: int, position: int, size: int) -> bool:
        record = (
            self._log.slice(position, size) if position >= 0 and size >= RECORD_SIZE_MIN else None
        )
        if record is None:
            return False
        own_size, _, _, queue_id, _, queue_offset, own_position, sys_flag, _ = HEAD.unpack_from(
            record
        )
        if (own_size, queue_id, queue_offset, own_position) != (
            size,
            queue.queue_id,
            offset,
            position,
        ):
            return False
        topic_at = body_at(sys_flag) + body_size_of(record, sys_flag)
        return bool(record[topic_at : topic_at + len(queue.topic_part)] == queue.topic_part)

    def _is_good(self, position: int) -> bool:
        if position in self._bad:
            return False
        block = position // _BLOCK
        checked = self._checked.get(block)
        if checked is not None and position >= checked:
            return True
        end = (block + 1) * _BLOCK if checked is None else checked
        first = True
        for found in self._log.walk(position, min(end, self._log.end)):
            if isinstance(found, Damage):
                if first:
                    self._bad.add(position)
                    self._report(position, found)
                # What is behind it is checked when it is asked for.
                return not first
            first = False
        if first:
            return False
        self._checked[block] = position
        return True

    def _report(self, position: int, damage: Damage) -> None:
        # A sound store needs none of the table of findings.
        from pocketmq.store.repair.start_findings import FOUND_MAX, damaged_record

        if len(self._findings) < FOUND_MAX:
            self._findings.append(damaged_record(position, damage))
        log.error("not serving a damaged record position=%d why=%s", position, damage.why)

    def _repair(self, queue: ConsumeQueue, offset: int) -> tuple[int, int] | None:
        """Find the record that belongs at `offset` between the records of its neighbours."""
        start = self._log.min_position
        before = queue.entry(offset - 1) if offset else None
        if before is not None and self._says_the_same(queue, offset - 1, before[0], before[1]):
            start = before[0] + before[1]
        behind = queue.entry(offset + 1)
        end = start + _SEARCH_MAX
        if behind is not None and self._says_the_same(queue, offset + 1, behind[0], behind[1]):
            end = min(end, behind[0])
        topic = queue.topic_part[-len(queue.topic.encode("utf-8", "surrogateescape")) :]
        for found in self._log.walk(start, min(end, self._log.end)):
            if isinstance(found, Entry) and (
                found.queue_offset == offset
                and found.queue_id == queue.queue_id
                and found.topic == topic
                and not found.sys_flag & 0x4
            ):
                known = queue.entry(offset)
                code = tags_code(found.properties)
                if known is not None and queue.topic == SCHEDULE_TOPIC:
                    code = known[2]
                queue.replace(offset, found.position, found.size, code)
                log.warning(
                    "repaired an entry topic=%s queue=%d offset=%d position=%d",
                    queue.topic,
                    queue.queue_id,
                    offset,
                    found.position,
                )
                return found.position, found.size
        log.error(
            "skipped an entry that points to no record of its queue topic=%s queue=%d offset=%d",
            queue.topic,
            queue.queue_id,
            offset,
        )
        return None
