"""Recovery of the timers: wheel, timer log and commit log are made to agree after a crash.

1. The end of the timer log tells where to continue reading the queue. RocketMQ keeps the wheel in memory, so
   the wheel is corrected from the log.
2. A power cut may leave slots without their units: these slots are rebuilt from the whole log.
3. It may also leave units without their records. The log is cut at the first of them, and the queue is read
   again from there. No slot refers to what was cut, else the next unit would be chained to itself.
4. A unit behind `log_position`, which was not known to be on disk, counts only if its record is there, is the
   queue's next, and is the one that the unit was written for: other records may stand in its place.
"""

import logging
from collections import deque
from itertools import islice

from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.log import DELETE, ROLL, TimerLog, TimerUnit
from pocketmq.store.timer.pending import waiting_record
from pocketmq.store.timer.properties import OUT_MS, digits
from pocketmq.store.timer.wheel import NONE, Slot, TimerWheel

log = logging.getLogger(__name__)

# How many units are looked at to tell one that is damaged from the end of what is left.
_FOLLOWING = 16
_DAY_MS = 86_400_000


def recover(store: MessageStore, wheel: TimerWheel, timer_log: TimerLog, check: TimerCheck) -> bool:
    """Correct the wheel, the end of the log and the queue offset of `check`.

    Returns: True if the log was cut. Raises: StoreError, OSError.
    """
    size, old_end = timer_log.file_size, timer_log.end
    begin = max(check.log_position // size * size - size, timer_log.begin)
    offset = _cut(store, timer_log, begin, check.log_position)
    if offset is None and timer_log.end < old_end:
        # Nothing is left of what was looked at.
        before = deque((unit for _, unit in timer_log.walk(timer_log.begin)), maxlen=_FOLLOWING)
        offset = _offset_behind(store, before)
    for slot in wheel.written():
        if slot.last >= timer_log.end:
            wheel.put(Slot(slot.second, NONE, NONE, 0))
            begin = timer_log.begin
    for position, unit in timer_log.walk(begin):
        slot = wheel.get(unit.second)
        if slot.last < position and (
            position >= check.log_position or _is_whole(store, unit, check)
        ):
            first = position if slot.last == NONE else slot.first
            step = -1 if unit.magic & DELETE else 1
            wheel.put(Slot(unit.second, first, position, slot.number + step))
    if offset is not None:
        check.queue_offset = offset
    low = store.min_offset(TIMER_TOPIC, 0)
    high = store.max_offset(TIMER_TOPIC, 0)
    check.queue_offset = min(max(check.queue_offset, low), high)
    return timer_log.end < old_end


def _cut(store: MessageStore, timer_log: TimerLog, begin: int, synced_to: int) -> int | None:
    """Apply rules 3 and 4. Returns: the queue's offset behind the last remaining unit; None if unknown."""
    last: TimerUnit | None = None
    record: Record | None = None
    recent: deque[TimerUnit] = deque(maxlen=_FOLLOWING)
    for position, unit in timer_log.walk(begin):
        if position < synced_to:
            is_lost = _is_lost(store, timer_log, position, unit)
        else:
            if record is None and last is not None:
                record = waiting_record(store, last.position)
            offset = None if record is None else record.queue_offset + 1
            record = waiting_record(store, unit.position)
            is_lost = record is None or not _is_for(unit, record, offset)
        if is_lost:
            log.warning(
                "truncated the timer log; the messages after this position are lost position=%d",
                position,
            )
            timer_log.cut(position)
            break
        last = unit
        recent.append(unit)
    return _offset_behind(store, recent)


def _is_lost(store: MessageStore, timer_log: TimerLog, position: int, unit: TimerUnit) -> bool:
    """Return True if the log ends before a unit's record; one that others follow is only damaged."""
    end = store.commit_log_max_position
    following = islice(timer_log.walk(position), _FOLLOWING)
    return unit.position + unit.size > end and all(
        each.position + each.size > end or waiting_record(store, each.position) is None
        for _, each in following
    )


def _offset_behind(store: MessageStore, units: deque[TimerUnit]) -> int | None:
    """Return the queue's offset behind the records of these units; the last ones may be damaged."""
    for count, unit in enumerate(reversed(units), 1):
        record = waiting_record(store, unit.position)
        if record is not None:
            return record.queue_offset + count
    return None


def _is_whole(store: MessageStore, unit: TimerUnit, check: TimerCheck) -> bool:
    """Return False if a unit cannot be of its second, whose slot may be another second's."""
    record = waiting_record(store, unit.position)
    if record is None or not check.read_ms:
        return True
    out_ms = digits(get_property(record.properties, OUT_MS))
    earliest_ms = min(out_ms, record.store_ms) - _DAY_MS
    latest_ms = max(out_ms, check.read_ms) + _DAY_MS
    return earliest_ms <= unit.second * 1000 <= latest_ms and _is_for(unit, record, None)


def _is_for(unit: TimerUnit, record: Record, offset: int | None) -> bool:
    """Return True if the unit was written for the record; offset: the queue's next, None if unknown."""
    topic = get_property(record.properties, b"REAL_TOPIC") or b""
    out_ms = digits(get_property(record.properties, OUT_MS))
    return (
        offset in (None, record.queue_offset)
        and unit.size == record.size
        and unit.topic_hash == string_hash(topic.decode("utf-8", "replace"))
        and (bool(unit.magic & ROLL) or unit.second >= out_ms // 1000)
    )
