"""Due: what one second of the timers delivers, and what its damaged units were written for.

1. No checksum says that a unit is whole. It is damaged if it cannot be read, if its time is not its record's,
   or if the records of a chain are not in the order of the log.
2. The timers' queue and the log have the same order, a record for each unit. So the neighbours of a damaged
   unit tell which record it was for, by their majority: only what they name is believed against a unit.
3. In doubt a message is delivered, or goes round once more: it may arrive twice, but is never lost.
Owner: TimerService.
"""

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Iterator

from pocketmq.model.message_codec import get_property
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.log import DELETE, NORMAL, ROLL, TimerLog, TimerUnit
from pocketmq.store.timer.pending import waiting_record
from pocketmq.store.timer.properties import DEL_KEY, OUT_MS, digits
from pocketmq.store.timer.wheel import NONE, Slot

log = logging.getLogger(__name__)

_NEIGHBOURS = [step for step in range(-4, 5) if step]


class Due:
    """The records of one second that are still to be delivered, last first; 8 bytes each."""

    def __init__(
        self,
        store: MessageStore,
        timer_log: TimerLog,
        slot: Slot,
        is_recall: Callable[[TimerUnit], bool],
    ) -> None:
        """is_recall: notes what a unit recalls; False if it waits itself."""
        self._store = store
        self._log = timer_log
        self._slot = slot
        # By the position of its record, where each unit is: only once it is asked for.
        self._places: dict[int, int] | None = None
        self._codes = array("q")
        recalls: list[TimerUnit] = []
        if not self._collect(self._whole_units(), recalls):
            del self._codes[:], recalls[:]
            self._collect(self._mended_units(), recalls)
        # Not before: a recall is noted once.
        for unit in recalls:
            if not is_recall(unit):
                self._codes.append(_code(unit))

    def __len__(self) -> int:
        return len(self._codes)

    def next(self) -> tuple[int, Record | None, bool]:
        """Return the next record, with its position, and whether it goes round; it stays until `pop`."""
        code = self._codes[-1]
        position, goes_round = code >> 2, bool(code & 1)
        record = waiting_record(self._store, position)
        ahead = 0 if record is None else _second_of(record) - self._slot.second
        # One that goes round is due later, one that came late was due earlier.
        if record is None or (ahead > 0 and not goes_round) or (ahead < 0 and not code & 2):
            position = self._true_position(position)
            record = waiting_record(self._store, position)
            goes_round = record is not None and _second_of(record) > self._slot.second
        return position, record, goes_round

    def pop(self) -> None:
        self._codes.pop()

    def _collect(self, units: Iterator[TimerUnit | None], recalls: list[TimerUnit]) -> bool:
        """Keep these; False if one of them is damaged, as far as the log alone can tell."""
        for unit in units:
            if unit is None:
                return False
            if unit.magic & DELETE and not unit.magic & ROLL:
                recalls.append(unit)
            else:
                self._codes.append(_code(unit))
        return True

    def _whole_units(self) -> Iterator[TimerUnit | None]:
        """Yield the units of the second; None and no more at the first that is damaged."""
        behind = None
        for _, unit in self._log.chain(self._slot):
            if unit is None or unit.second != self._slot.second:
                yield None
                return
            if behind is not None and unit.position >= behind:
                yield None
                return
            behind = unit.position
            yield unit

    def _mended_units(self) -> Iterator[TimerUnit]:
        """Yield the units of the second as they were written, as far as their neighbours know."""
        for at, unit in self._log.chain(self._slot):
            mended = self._mend(at, unit)
            if mended is not None:
                yield mended

    def _mend(self, at: int, unit: TimerUnit | None) -> TimerUnit | None:
        """Apply invariant 2; None where nothing is known, or the unit is another second's."""
        named = self._named(at, unit)
        if named is None:
            return unit if unit is not None and unit.second == self._slot.second else None
        position, record = named
        ahead = _second_of(record) - self._slot.second
        if unit is not None and unit.position == position:
            if unit.second == self._slot.second:
                return unit
            if ahead and not unit.magic & ROLL:
                return None
        self._say_damaged(at)
        is_recall = get_property(record.properties, DEL_KEY) is not None
        magic = NORMAL | (ROLL if ahead > 0 else 0) | (DELETE if is_recall else 0)
        return TimerUnit(NONE, magic, 0, 0, position, record.size, 0)

    def _named(self, at: int, unit: TimerUnit | None) -> tuple[int, Record] | None:
        """Return position and record that most of a unit's neighbours, and itself, name; None without any."""
        votes: Counter[int] = Counter()
        for step in (0, *_NEIGHBOURS):
            near = unit if step == 0 else self._log.neighbour(at, step)
            record = None if near is None else waiting_record(self._store, near.position)
            if record is not None:
                votes[record.queue_offset - step] += 1
        for offset, _ in votes.most_common(1):
            for position, size, _ in self._store.entries(TIMER_TOPIC, 0, offset, 1):
                record = waiting_record(self._store, position, size)
                return None if record is None else (position, record)
        return None

    def _true_position(self, position: int) -> int:
        """Return where the record is that the unit with this position was written for."""
        if self._places is None:
            self._places = {
                unit.position: at for at, unit in self._log.chain(self._slot) if unit is not None
            }
        at = self._places.get(position)
        named = None if at is None else self._named(at, self._log.read(at))
        if at is None or named is None or named[0] == position:
            return position
        self._say_damaged(at)
        return named[0]

    def _say_damaged(self, at: int) -> None:
        log.error(
            "a unit of the timer log is damaged; its neighbours say which message it is for "
            "second=%d position=%d",
            self._slot.second,
            at,
        )


def _code(unit: TimerUnit) -> int:
    """Return a unit's position and, in the lowest bits: it came late, it goes round."""
    return unit.position << 2 | (unit.delay_ms <= 0) << 1 | bool(unit.magic & ROLL)


def _second_of(record: Record) -> int:
    """Return the second that a waiting record is due in."""
    return digits(get_property(record.properties, OUT_MS)) // 1000
