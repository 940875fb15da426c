"""TimerPending: the waiting messages by topic, and the next of them. Source: TimerMetrics, RocketMQ 5.5.0.

    config/timermetrics {"dataVersion": {...}, "timingCount": {TOPIC: {"count": n, "timeStamp": ms}}}
                        and, ours: "logPosition", "readTimeMs": the state of the timers it describes,
                        "recalled": which messages were recalled (3), as numbers

1. The counts are exact: the file is written at a stop and is valid only for the state that it names. After a
   crash, or another broker, the waiting messages are counted again in the background; those that come and go
   meanwhile are counted at once, since a slot still has its units when they are delivered.
2. A message counts from when it is read until it is delivered; a recall lowers the count at once.
3. Only the first recall of a message does, and none of a second that is over: clients may recall twice, or
   too late. What a recall took from the count it gives back when its second is over, where the message that
   is dropped counts as delivered. So the counts are right again then, whatever was recalled; until then a
   recall of what never was makes them too low.
Owner: TimerService.
"""

import hashlib
import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from pocketmq.model.message_codec import get_property, offset_msg_id
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record, read_record
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.store.config_file import ConfigFile
from pocketmq.store.errors import StoreUnreadable
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.log import DELETE, ROLL, TimerLog, TimerUnit
from pocketmq.store.timer.properties import (
    DEL_KEY,
    OUT_MS,
    PRECISION_MS,
    ROLL_TIMES,
    delete_keys,
    digits,
)
from pocketmq.store.timer.wheel import TimerWheel

log = logging.getLogger(__name__)

# Units that are looked at for one answer: the event loop stands still meanwhile.
_LOOKS_MAX = 20_000
# Units that are counted in one turn of the event loop.
_COUNT_STEP = 256
# How far ahead: a broker of Apache's places units at most two days ahead, as we do.
_SECONDS_MAX = 3 * 24 * 3600


class PendingMessage(NamedTuple):
    """One waiting message. due_ms: its second begins at OUT_MS, and it is delivered when that is over.

    msg_id: of the waiting record, an offset message id. keys: as its sender gave them, "" for none.
    """

    topic: str
    queue_id: int
    unique_key: str
    due_ms: int
    store_ms: int
    roll_times: int
    size: int
    msg_id: str
    keys: str


def waiting_record(store: MessageStore, position: int, size: int = 1) -> Record | None:
    """Return the timer message whose record begins here; None if none begins here.

    size: see `record_at`.
    """
    data = store.record_at(position, size)
    try:
        record = None if data is None else read_record(data, check_crc=False)
    except MessageCodecError:
        # Its size is whole, the rest of it is not.
        return None
    return record if record is not None and record.topic == TIMER_TOPIC else None


def destination(store: MessageStore, record: Record) -> tuple[str, int] | None:
    """Return topic and queue of a waiting message.

    None if it names none, or its topic was deleted since; then the log says so.
    """
    topic = get_property(record.properties, b"REAL_TOPIC")
    queue_id = get_property(record.properties, b"REAL_QID")
    if topic is None or queue_id is None or not queue_id.isdigit():
        log.error(
            "dropped a timer message that does not name its topic position=%d", record.position
        )
        return None
    name = topic.decode("utf-8", "replace")
    if store.deleted.has_waiting(name, record.position):
        log.info("dropped a timer message of a deleted topic topic=%s", name)
        return None
    return name, int(queue_id)


class TimerPending:
    """Counts by topic, and queries of wheel and log."""

    def __init__(
        self, store: MessageStore, wheel: TimerWheel, timer_log: TimerLog, path: str
    ) -> None:
        """path: of config/timermetrics."""
        self._store = store
        self._wheel = wheel
        self._log = timer_log
        self._file = ConfigFile(path)
        self.counts: Counter[str] = Counter()
        self._changed_ms: dict[str, int] = {}
        self._change_count = 0
        self._uncounted: Iterator[TimerUnit] | None = None
        # Messages whose recall has lowered a count (3), and those whose recall was over uncounted (1).
        self._recalled: set[int] = set()
        self._recalled_early: set[int] = set()

    # ------------------------------------------------------------ counts

    def add(self, record: Record, number: int, now_ms: int) -> None:
        """Count one more (1) or one less (-1) message for the topic that the record names."""
        topic = _topic(record).decode("utf-8", "replace")
        self.counts[topic] += number
        self._changed_ms[topic] = now_ms
        self._change_count += 1

    def recall(self, record: Record, unit: TimerUnit, now_ms: int) -> None:
        """Count one less for a recall that is in a slot now, if it is the first and not too late (3)."""
        recalled = _recalled(record)
        late = digits(get_property(record.properties, OUT_MS)) // PRECISION_MS < unit.second
        if not late and recalled not in self._recalled:
            self._recalled.add(recalled)
            self.add(record, -1, now_ms)

    def recall_is_over(self, record: Record, now_ms: int) -> None:
        """Give back what a recall took: it leaves its slot (3)."""
        recalled = _recalled(record)
        if recalled in self._recalled:
            self._recalled.remove(recalled)
            self.add(record, 1, now_ms)
        elif self.counting:
            self._recalled_early.add(recalled)

    def load(self, read_ms: int) -> None:
        """Load the counts of the file, or count (1)."""
        try:
            value = self._file.load()
        except StoreUnreadable as error:
            log.warning("the waiting timers are counted anew: %s", error)
            value = None
        state = self._state(read_ms).items()
        if isinstance(value, dict) and state <= value.items() and "recalled" in value:
            self._recalled.update(value["recalled"])
            for topic, each in value["timingCount"].items():
                self.counts[str(topic)] = int(each["count"])
                self._changed_ms[str(topic)] = int(each["timeStamp"])
            self._change_count = int(value["dataVersion"]["counter"])
            return
        self._uncounted = self._all(read_ms, self._log.end)

    def count_anew(self, read_ms: int) -> None:
        """Start counting again: the counts are no longer valid."""
        self.counts.clear()
        self._recalled.clear()
        self._recalled_early.clear()
        self._uncounted = self._all(read_ms, self._log.end)

    def count_some(self, now_ms: int) -> bool:
        """Continue counting for a piece; False when done."""
        if self._uncounted is None:
            return False
        piece = list(itertools.islice(self._uncounted, _COUNT_STEP))
        for unit in piece:
            record = waiting_record(self._store, unit.position)
            if record is None:
                continue
            if not unit.magic & DELETE:
                self.add(record, 1, now_ms)
            elif _recalled(record) not in self._recalled_early:
                self.recall(record, unit, now_ms)
        if len(piece) < _COUNT_STEP:
            self._uncounted = None
            self._recalled_early.clear()
        return self.counting

    @property
    def counting(self) -> bool:
        """Return True while the counts are still too low (1)."""
        return self._uncounted is not None

    def save(self, read_ms: int) -> None:
        """Write the file, at a stop. Blocks."""
        if (self.counts or self._log.end) and not self.counting:
            recalled = {"recalled": sorted(self._recalled)}
            self._file.save({**self.to_json(), **self._state(read_ms), **recalled})

    def _state(self, read_ms: int) -> dict[str, int]:
        return {"logPosition": self._log.end, "readTimeMs": read_ms}

    def to_json(self) -> dict[str, Any]:
        """Return the answer of GET_TIMER_METRICS."""
        newest = max(self._changed_ms.values(), default=0)
        return {
            "dataVersion": {"counter": self._change_count, "stateVersion": 0, "timestamp": newest},
            "timingCount": {
                topic: {"count": count, "timeStamp": self._changed_ms[topic]}
                for topic, count in sorted(self.counts.items())
            },
        }

    # ------------------------------------------------------------ the messages

    def next(
        self, read_ms: int, count: int, topic: str | None = None, key: str | None = None
    ) -> list[PendingMessage]:
        """Return some waiting messages, next due first; those that go round (1 of timer.py) only if there
        is room.

        topic, key: only of that topic, and with that key. Looks at a bounded number of units: with very many
        of other topics, some may be missing.
        """
        near: list[PendingMessage] = []
        far: list[PendingMessage] = []
        recalled: set[bytes] = set()
        for number, unit in enumerate(self._coming(read_ms)):
            if len(near) >= count or number >= _LOOKS_MAX:
                break
            record = waiting_record(self._store, unit.position)
            if record is None:
                continue
            if unit.magic & DELETE:
                recalled.add(get_property(record.properties, DEL_KEY) or b"")
                continue
            found = _waiting(record, unit)
            keys = delete_keys(found.topic.encode(), found.unique_key.encode())
            if topic not in (None, found.topic) or not recalled.isdisjoint(keys):
                continue
            if key is not None and key not in found.keys.split():
                continue
            if unit.magic & ROLL:
                far.append(found)
            else:
                near.append(found)
        near += sorted(far, key=lambda each: each.due_ms)
        return near[:count]

    def _coming(self, read_ms: int) -> Iterator[TimerUnit]:
        """Yield units in the order of their seconds; within a second newest first, and so recalls first."""
        for slot in self._wheel.coming(read_ms // PRECISION_MS, _SECONDS_MAX):
            for _, unit in self._log.chain(slot):
                if unit is not None and unit.second == slot.second:
                    yield unit

    def _all(self, read_ms: int, end: int) -> Iterator[TimerUnit]:
        """Yield the units of seconds to come that are before a position of the log."""
        for slot in self._wheel.written():
            if slot.second < read_ms // PRECISION_MS:
                continue
            for position, unit in self._log.chain(slot):
                if position < end and unit is not None and unit.second == slot.second:
                    yield unit


def _topic(record: Record) -> bytes:
    return get_property(record.properties, b"REAL_TOPIC") or b""


def _recalled(record: Record) -> int:
    """Return 64 bits that stand for the message that a recall names, in either of its spellings."""
    topic, key = _topic(record), get_property(record.properties, DEL_KEY) or b""
    key = key.removeprefix(delete_keys(topic, b"")[0])
    return int.from_bytes(hashlib.blake2b(topic + b"\0" + key, digest_size=8).digest(), "big")


def _waiting(record: Record, unit: TimerUnit) -> PendingMessage:
    def text(name: bytes) -> str:
        return (get_property(record.properties, name) or b"").decode("utf-8", "replace")

    def number(name: bytes) -> int:
        return digits(get_property(record.properties, name))

    return PendingMessage(
        text(b"REAL_TOPIC"),
        number(b"REAL_QID"),
        text(b"UNIQ_KEY"),
        number(OUT_MS) + PRECISION_MS,
        record.store_ms,
        number(ROLL_TIMES),
        unit.size,
        offset_msg_id(record.store_host, record.position),
        text(b"KEYS"),
    )
