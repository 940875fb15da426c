"""TimerService: messages due at any second. Source: TimerMessageStore, HookUtils, RocketMQ 5.5.0.

A message with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS in the future waits as a record of
rmq_sys_wheel_timer, queue 0, with TIMER_OUT_MS (its due second), REAL_TOPIC and REAL_QID. This module reads
that queue, puts a unit into the timer log and the wheel for each record, and delivers a second's units when
it is over: so no message is early, although TIMER_OUT_MS is truncated to a whole second.

1. A message due later than ROLL_SECONDS, or two thirds of fileReservedTime, goes round: its unit is in an
   earlier second, marked ROLL, in which a new record is written. So retention reaches no waiting record.
2. A recall is a message with TIMER_DEL_UNIQKEY for the same second; it and the message it names are dropped
   together. What arrived before the end of a second is read before that second is delivered, however much it
   is: so no acknowledged recall comes too late.
3. Progress is on disk once a second, after what it covers: files.py. A crash loses nothing, and redelivers
   that second.
4. After a crash wheel, log and queue offset are made to agree: recovery.py.
5. If a clock that ran ahead is set back, the next second goes back with it; slots delivered meanwhile are
   emptied, so that nothing is delivered twice.
6. Memory: the positions of one second's messages, 8 bytes each; everything else is in files.
Owner: the Broker; run() in its TaskGroup.
"""

import asyncio
import contextlib
import logging
import os

from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import add_property, get_property, remove_property
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import PROPERTIES_SIZE_MAX, Record
from pocketmq.remoting.clock import Clock
from pocketmq.store.delay import Deliver
from pocketmq.store.errors import RecordIllegal, StoreError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.side_tasks import SURVIVED
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.due import Due
from pocketmq.store.timer.files import TimerFiles
from pocketmq.store.timer.log import DELETE, TimerUnit, unit_of
from pocketmq.store.timer.pending import TimerPending, destination, waiting_record
from pocketmq.store.timer.properties import (
    DEL_KEY,
    OUT_MS,
    PASSED_ON_SIZE,
    PRECISION_MS,
    TimerIllegal,
    passed_on,
    recalls_of,
)
from pocketmq.store.timer.wheel import NONE, SLOTS, Slot

log = logging.getLogger(__name__)

ROLL_SECONDS = 172_800
# Records taken from the queue, seconds looked at and messages delivered in one turn of the event loop.
_STEP = 256
_SECONDS_STEP = 20_000
# Between two pieces of a count that no caller waits for.
_COUNT_PAUSE_MS = 5
_WAIT_MS_MAX = 1_000
_SYNC_INTERVAL_MS = 1_000
_RATE_INTERVAL_MS = 1_000
_CLEAN_INTERVAL_MS = 30_000
# Farther behind than this a new message could take the slot of a second that was not delivered yet.
_BEHIND_MS_MAX = (SLOTS - ROLL_SECONDS - 3600) * 1000
# How long after its time a master may deliver a message that was already due when stored.
MASTER_GRACE_MS = 3_000


class TimerFlow:
    """Messages that came and went. Attributes: in_rate, out_rate (a second, over the last second or so)."""

    def __init__(self, now_ms: int) -> None:
        """now_ms: monotonic."""
        self.taken_count = self.delivered_count = 0
        self.in_rate = self.out_rate = 0.0
        self._counted_ms = now_ms
        self._counted = (0, 0)

    def measure(self, now_ms: int) -> None:
        """Set the rates, once a second."""
        passed_ms = now_ms - self._counted_ms
        if passed_ms >= _RATE_INTERVAL_MS:
            taken, delivered = self._counted
            self.in_rate = (self.taken_count - taken) * 1000 / passed_ms
            self.out_rate = (self.delivered_count - delivered) * 1000 / passed_ms
            self._counted_ms, self._counted = now_ms, (self.taken_count, self.delivered_count)


class TimerService:
    """Watches the clock and the wheel. Attributes: check (the progress), pending, flow (figures), files."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        log_file_size: int = 100 << 20,
        deliver: Deliver | None = None,
    ) -> None:
        """deliver: stores due messages; default store.append."""
        self._store = store
        self._clock = clock
        self.deliver: Deliver = deliver or store.append
        root = store.config.store_path_root_dir
        self.files = files = TimerFiles(store, root, log_file_size)
        self.pending = TimerPending(
            store, files.wheel, files.log, os.path.join(root, "config", "timermetrics")
        )
        self.arrived = asyncio.Event()
        # Of the second that is being delivered: the records still to be delivered.
        self._due: Due | None = None
        # (topic, key) as its recall has them: a topic recalls its own messages only.
        self._recalled: set[tuple[bytes, bytes]] = set()
        # Up to this second all is taken in that may belong to it: the queue up to this offset (2).
        self._over_ms = 0
        self._over_offset = 0
        self._side_tasks = store.side_tasks
        self._next_sync_ms = self._next_clean_ms = clock.monotonic_ms()
        self.flow = TimerFlow(self._next_sync_ms)

    @property
    def check(self) -> TimerCheck:
        """Return the progress of now."""
        return self.files.check

    # ------------------------------------------------------------ start and end

    def load(self) -> None:
        """Open the files and correct them (4). Raises: StoreForeign, StoreUnreadable, OSError."""
        self.files.load(self._now_second())
        self.pending.load(self.files.check.read_ms)

    def load_anew(self) -> None:
        """Reload: the log was a master's until now, or was cut back. Raises: StoreError."""
        self._drop_second()
        self.files.revise()
        self.pending.count_anew(self.files.check.read_ms)

    def close(self) -> None:
        """Save what can be saved, and close the files; the next start rebuilds what is not saved."""
        with self._side_tasks.attempt("timer-sync"):
            self.files.sync()
            # While a second is being delivered the counts are not exact: the next start rebuilds them.
            if self._due is None:
                self.pending.save(self.files.check.read_ms)
        self.files.close()

    # ------------------------------------------------------------ in

    def schedule(self, topic: str, queue_id: int, properties: bytes, out_ms: int) -> bytes:
        """Return the properties for appending a message to TIMER_TOPIC, queue 0, instead.

        Raises: TimerIllegal.
        """
        properties = remove_property(remove_property(properties, b"REAL_TOPIC"), b"REAL_QID")
        properties = add_property(properties, OUT_MS, str(out_ms).encode())
        properties = add_property(properties, b"REAL_TOPIC", topic.encode())
        properties = add_property(properties, b"REAL_QID", str(queue_id).encode())
        if len(properties) > PROPERTIES_SIZE_MAX - PASSED_ON_SIZE:
            # It could never be delivered.
            raise TimerIllegal(
                f"{len(properties)} bytes of properties leave no room for the delivery times"
            )
        self.arrived.set()
        return properties

    def _enqueue(self, master: TimerCheck | None = None) -> bool:
        """Read records from the queue into log and wheel; False if no record is there.

        master: while this broker follows, read no further than its master has.
        """
        offset = self.files.check.queue_offset
        end = self._store.max_offset(TIMER_TOPIC, 0)
        if master is not None:
            end = min(end, master.queue_offset)
        if offset >= end:
            return False
        self.files.begin()
        entries = self._store.entries(TIMER_TOPIC, 0, offset, min(_STEP, end - offset))
        if not entries:
            self.files.check.queue_offset = max(offset + 1, self._store.min_offset(TIMER_TOPIC, 0))
            return True
        for position, size, _ in entries:
            record = waiting_record(self._store, position, size)
            if record is None:
                log.error(
                    "a timer message is no longer in the log and cannot be delivered position=%d",
                    position,
                )
            else:
                self._place(record, position, size, master)
            self.files.check.queue_offset += 1
        self.flow.taken_count += len(entries)
        return True

    def _place(
        self, record: Record, position: int, size: int, master: TimerCheck | None = None
    ) -> None:
        text = get_property(record.properties, OUT_MS)
        topic = get_property(record.properties, b"REAL_TOPIC")
        if text is None or topic is None or not text.isdigit():
            log.error(
                "dropped a timer message that does not say when it is due position=%d", position
            )
            return
        read_ms, write_ms, roll = self.files.check.read_ms, self._now_second(), self._roll_seconds()
        if master is not None:
            read_ms, write_ms = master.read_ms, record.store_ms // 1000 * 1000
            due_ms = max(unit_of(int(text), write_ms, roll)[0], write_ms)
            if due_ms + MASTER_GRACE_MS <= read_ms:
                # The master has delivered it, or let it go round.
                return
        # A message that is already due goes to the next second that is delivered.
        at_ms, magic = unit_of(max(int(text), read_ms), write_ms, roll)
        if get_property(record.properties, DEL_KEY) is not None:
            magic |= DELETE
        second = at_ms // 1000
        slot, name_hash = (
            self.files.wheel.get(second),
            string_hash(topic.decode("utf-8", "replace")),
        )
        unit = TimerUnit(slot.last, magic, write_ms, at_ms - write_ms, position, size, name_hash)
        at = self.files.log.append(unit)
        first = at if slot.first == NONE else slot.first
        step = -1 if magic & DELETE else 1
        try:
            self.files.wheel.put(Slot(second, first, at, slot.number + step))
        except StoreError:
            # It is appended when the wheel takes it.
            self.files.log.cut(at)
            raise
        if magic & DELETE:
            self.pending.recall(record, unit, write_ms)
        else:
            self.pending.add(record, 1, write_ms)

    def _roll_seconds(self) -> int:
        """Return how long a record may wait before it goes round (1)."""
        return max(2, min(ROLL_SECONDS, self._store.config.file_reserved_time * 2400))

    async def follow(self, master: TimerCheck) -> None:
        """Catch up with the master's timers, delivering nothing. Raises: StoreError, OSError."""
        self._drop_second()
        if 0 < master.read_ms < self.files.check.read_ms:
            # This clock ran ahead, or this log was cut: what is due from there on may still wait.
            self.files.save_back(master.read_ms)
        while self._enqueue(master):
            await asyncio.sleep(0)
        self.files.check.read_ms = master.read_ms or self.files.check.read_ms

    # ------------------------------------------------------------ out

    def step(self) -> int:
        """Read what has arrived, deliver what is due, some hundred messages at most.

        Returns: ms until there may be something to do; 0: at once.
        """
        try:
            more = self._work()
        except SURVIVED as error:
            self._side_tasks.failed("timer-delivery", error)
            return self._side_tasks.retry_ms
        self._side_tasks.went_well("timer-delivery")
        if more:
            return 0
        if self.pending.count_some(self._clock.now_ms()):
            return _COUNT_PAUSE_MS
        next_ms = self.files.check.read_ms + PRECISION_MS
        return min(max(next_ms - self._clock.now_ms(), 1), _WAIT_MS_MAX)

    def _work(self) -> bool:
        """Do one piece of the pending work; False if no work is pending."""
        if self._due is not None:
            self._deliver_some()
            return True
        now_ms = self._clock.now_ms()
        if self.files.check.read_ms > now_ms + PRECISION_MS:
            self._go_back(self._now_second())
        if self.files.check.read_ms > now_ms - PRECISION_MS:
            return self._enqueue()
        if self._over_ms < self.files.check.read_ms:
            self._over_ms = now_ms - PRECISION_MS
            self._over_offset = self._store.max_offset(TIMER_TOPIC, 0)
        near = now_ms - self.files.check.read_ms < _BEHIND_MS_MAX
        if near and self.files.check.queue_offset < self._over_offset and self._enqueue():
            return True
        self._dequeue()
        return True

    def _drop_second(self) -> None:
        """Forget the second that is being delivered: another broker delivers it, or has done so."""
        self._due = None
        self._over_ms = 0

    def _go_back(self, second_ms: int) -> None:
        """Handle a clock that was set back (5)."""
        self.files.save_back(second_ms)
        log.warning("the clock was set back ms=%d", self.files.check.read_ms - second_ms)
        delivered = range(second_ms // 1000, self.files.check.read_ms // 1000)
        self.files.wheel.empty(delivered)
        self.files.check.read_ms = second_ms
        self._over_ms = 0

    def _dequeue(self) -> None:
        """Advance to the next second with messages, at most to the last that is over."""
        for _ in range(_SECONDS_STEP):
            if self.files.check.read_ms > self._over_ms:
                break
            slot = self.files.wheel.get(self.files.check.read_ms // 1000)
            if slot.last != NONE:
                self._collect(slot)
                return
            self.files.check.read_ms += PRECISION_MS
        if self._over_ms - self.files.check.read_ms > SLOTS * 1000:
            # After a stop of weeks, empty seconds are skipped: one by one they take too long.
            self.files.check.read_ms = self.files.wheel.next(
                self.files.check.read_ms, self._over_ms
            )

    def _collect(self, slot: Slot) -> None:
        """Collect the positions of a second, and what is recalled in it."""
        self._recalled.clear()
        self._due = Due(self._store, self.files.log, slot, self._recall)

    def _recall(self, unit: TimerUnit) -> bool:
        """Note the recalled message; False if the record waits itself: its unit is marked by mistake."""
        record = waiting_record(self._store, unit.position)
        key = None if record is None else get_property(record.properties, DEL_KEY)
        if record is not None and key is not None:
            topic = get_property(record.properties, b"REAL_TOPIC") or b""
            self._recalled.add((topic, key))
            self.pending.recall_is_over(record, self.files.check.read_ms)
        return record is None or key is not None

    def _deliver_some(self) -> None:
        due = self._due
        assert due is not None
        for _ in range(min(_STEP, len(due))):
            self._deliver_one(*due.next())
            # Only now: a store that takes nothing leaves it where it is.
            due.pop()
        if not due:
            self._due = None
            self.files.done += 1
            self._recalled.clear()
            self.files.check.read_ms += PRECISION_MS

    def _deliver_one(self, position: int, record: Record | None, goes_round: bool) -> None:
        if record is None:
            log.error(
                "a timer message is no longer in the log and cannot be delivered position=%d",
                position,
            )
            return
        key = get_property(record.properties, b"UNIQ_KEY")
        topic = get_property(record.properties, b"REAL_TOPIC") or b""
        if goes_round or key is None or self._recalled.isdisjoint(recalls_of(topic, key)):
            self._append(record, goes_round=goes_round)
        else:
            log.info("not delivering a recalled message topic=%r key=%r", topic, key)
        # Not before: a store that takes nothing has raised, and it waits on.
        if get_property(record.properties, DEL_KEY) is not None:
            self.pending.recall_is_over(record, self.files.check.read_ms)
        else:
            self.pending.add(record, -1, self.files.check.read_ms)

    def _append(self, record: Record, *, goes_round: bool) -> None:
        """Store a waiting message in its own topic, or once more in the timers'."""
        place = destination(self._store, record)
        if place is None:
            return
        target, target_id = place
        properties = passed_on(
            record.properties, record.store_ms, self._clock.now_ms(), goes_round=goes_round
        )
        if goes_round:
            target, target_id = TIMER_TOPIC, 0
        try:
            with self._store.of_any_size():
                self.deliver(
                    target,
                    target_id,
                    record.body,
                    properties,
                    record.flag,
                    record.sys_flag & ~0x30,
                    record.born_ms,
                    record.born_host,
                    record.reconsume_times,
                    0,
                )
        except RecordIllegal as error:
            log.error(
                "a timer message cannot be delivered topic=%s offset=%d error=%s",
                target,
                record.queue_offset,
                error,
            )
            return
        self.flow.delivered_count += not goes_round

    # ------------------------------------------------------------ time

    async def run(self) -> None:
        """Deliver until cancelled; the files are synced once a second."""
        await self._side_tasks.repeat("timer", self._round)

    async def _round(self) -> None:
        self.arrived.clear()
        wait_ms = self.step()
        now = self._clock.monotonic_ms()
        if now >= self._next_sync_ms and self.files.is_behind:
            self._next_sync_ms = now + _SYNC_INTERVAL_MS
            with self._side_tasks.attempt("timer-sync"):
                await self.files.sync_in_pool()
        self.flow.measure(now)
        if now >= self._next_clean_ms:
            self._next_clean_ms = now + _CLEAN_INTERVAL_MS
            self.files.log.delete_before(self._store.commit_log_min_position)
        if wait_ms == 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self.arrived.wait()

    def _now_second(self) -> int:
        return self._clock.now_ms() // PRECISION_MS * PRECISION_MS

    @property
    def behind_ms(self) -> int:
        """Return how far delivery lags behind the clock."""
        return max(0, self._clock.now_ms() - self.files.check.read_ms - PRECISION_MS)

    @property
    def offset_behind(self) -> int:
        """Return the number of records of the timers' queue not read yet."""
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self.files.check.queue_offset)
