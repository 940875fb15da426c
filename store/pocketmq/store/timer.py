"""TimerService: messages that are due at any second. Source: TimerMessageStore, HookUtils, RocketMQ 5.5.0.

A message with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS in the future waits as a record of
rmq_sys_wheel_timer, queue 0, with TIMER_OUT_MS (its due second), REAL_TOPIC and REAL_QID. This module reads
that queue, puts a unit into the timer log and the wheel for each record, and delivers a second's units when
it is over: then no message is early, although TIMER_OUT_MS is cut down to a whole second.

    config/timercheck, 56 bytes used of 4096, big-endian longs: next second to deliver (ms), position in the
    timer log up to which the wheel is known to be right, next offset of rmq_sys_wheel_timer, the master's,
    data version: state, time, counter

1. A message due later than ROLL_SECONDS goes round: its unit stands at a nearer second, marked ROLL, and
   then a new record is written for it. So no waiting record is older, and retention does not reach it.
2. A recall is a message with TIMER_DEL_UNIQKEY for the same second; it and the message that it names are
   dropped together when the second comes.
3. The wheel and the log are written before the offset in timercheck moves; a second's messages are
   delivered before the next second moves it. A crash may deliver a second again, it never loses one.
4. After a crash the end of the log tells where reading the queue goes on, and the wheel is made right from
   the log, since RocketMQ keeps the wheel in memory.
5. Memory: the positions of one second's messages, 8 bytes each; everything else is in files.
Owner: the Broker; run() in its TaskGroup.
"""

import asyncio
import logging
import os
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.java_hash import string_hash
from pocketmq.remoting.message_codec import (
    Record,
    add_property,
    get_property,
    read_record,
    remove_property,
)
from pocketmq.store.delay import Deliver
from pocketmq.store.errors import MessageIllegal, StoreNotWriteable
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer_log import DELETE, NORMAL, ROLL, TimerLog, Unit
from pocketmq.store.timer_wheel import NONE, Slot, TimerWheel

log = logging.getLogger(__name__)

TIMER_TOPIC = "rmq_sys_wheel_timer"
PRECISION_MS = 1_000
ROLL_SECONDS = 172_800
DELAY_SEC, DELAY_MS, DELIVER_MS = b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"
OUT_MS, DEL_KEY, ROLL_TIMES = b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY", b"TIMER_ROLL_TIMES"
ENQUEUE_MS, DEQUEUE_MS = b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS"
_CHECK = struct.Struct(">7q")
_CHECK_SIZE = 4096
# Records taken from the queue, seconds looked at and messages delivered in one turn of the event loop.
_STEP = 256
_SECONDS_STEP = 20_000
_RETRY_MS = 1_000
_WAIT_MS_MAX = 1_000
_SYNC_INTERVAL_MS = 1_000
_CLEAN_INTERVAL_MS = 30_000


class TimerIllegal(MessageIllegal):
    """A timer property that is no time, or one too far ahead."""


def has_timer(properties: bytes) -> bool:
    """Whether a message asks to be delivered at a time and is not waiting or delivered already."""
    return (
        b"TIMER_D" in properties
        and get_property(properties, OUT_MS) is None
        and any(get_property(properties, name) for name in (DELAY_SEC, DELAY_MS, DELIVER_MS))
    )


def without_timer(properties: bytes) -> bytes:
    """The properties without a wish for a time: a delay level wins over it."""
    for name in (DELAY_SEC, DELAY_MS, DELIVER_MS):
        properties = remove_property(properties, name)
    return properties


def due_ms(properties: bytes, now_ms: int, delay_ms_max: int) -> int | None:
    """TIMER_OUT_MS of a message; None when its time is over. Raises: TimerIllegal.

    >>> due_ms(b"TIMER_DELIVER_MS\\x015500\\x02", 1000, 10_000)
    5000
    >>> due_ms(b"TIMER_DELAY_SEC\\x014", 1000, 10_000)
    4000
    >>> due_ms(b"TIMER_DELIVER_MS\\x01900", 1000, 10_000)
    """
    for name, unit, start in (
        (DELAY_SEC, 1_000, now_ms),
        (DELAY_MS, 1, now_ms),
        (DELIVER_MS, 1, 0),
    ):
        text = get_property(properties, name)
        if text is None:
            continue
        try:
            deliver_ms = start + int(text) * unit
        except ValueError:
            raise TimerIllegal(f"{name.decode()} is no number: {text[:40]!r}") from None
        if deliver_ms <= now_ms:
            return None
        if deliver_ms - now_ms > delay_ms_max:
            raise TimerIllegal(
                f"{name.decode()} is {(deliver_ms - now_ms) // 1000} s ahead, more than timerMaxDelaySec "
                f"{delay_ms_max // 1000}"
            )
        # An exact second counts as the one before: a second is delivered when it is over.
        return (deliver_ms - 1) // PRECISION_MS * PRECISION_MS
    return None


def delete_keys(topic: bytes, unique_key: bytes) -> tuple[bytes, bytes]:
    """What a recall may call a message: 5.3 writes topic+key, 5.5 the key alone."""
    return topic + b"+" + unique_key, unique_key


@dataclass(slots=True)
class TimerCheck:
    """config/timercheck. read_ms: the next second to deliver; the rest see the head of the file."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_ms: int = 0
    version_counter: int = 0

    def pack(self) -> bytes:
        """The 56 bytes, also what GET_TIMER_CHECK_POINT answers."""
        return _CHECK.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.version_ms,
            self.version_counter,
        )


class TimerService:
    """Watches the clock and the wheel."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        log_file_size: int = 100 << 20,
        deliver: Deliver | None = None,
    ) -> None:
        """deliver: what stores the messages that are due; store.append when not given."""
        self._store = store
        self._clock = clock
        self._deliver: Deliver = deliver or store.append
        root = store.config.store_path_root_dir
        self._wheel = TimerWheel(os.path.join(root, "timerwheel"))
        self._log = TimerLog(os.path.join(root, "timerlog"), log_file_size)
        self._check_path = os.path.join(root, "config", "timercheck")
        self._check_file = -1
        self.check = TimerCheck()
        self._arrived = asyncio.Event()
        # Of the second that is being delivered: positions of records still to be delivered, last first.
        self._due: array[int] | None = None
        self._recalled: set[bytes] = set()
        self._synced_at = 0
        self.delivered_count = 0

    # ------------------------------------------------------------ start and end

    def load(self) -> None:
        """Open the files and make them right (4). Raises: StoreForeign, StoreUnreadable."""
        try:
            with open(self._check_path, "rb") as file:
                data = file.read(_CHECK.size)
        except FileNotFoundError:
            data = b""
        if len(data) == _CHECK.size:
            self.check = TimerCheck(*_CHECK.unpack(data))
        self._wheel.load()
        back = max(0, self.check.log_position - self._log.file_size)
        self._log.load(back)
        self._revise()
        if not self.check.read_ms:
            self.check.read_ms = self._now_second()

    def _revise(self) -> None:
        """Make wheel and queue offset agree with the log behind the position that was on the disk."""
        begin = self.check.log_position - self._log.file_size
        begin = max(begin // self._log.file_size * self._log.file_size, self._log.begin)
        last: Unit | None = None
        for position, unit in self._log.walk(begin):
            last = unit
            second = (unit.write_ms + unit.delay_ms) // 1000
            slot = self._wheel.get(second)
            if slot.last == NONE:
                self._wheel.put(Slot(second, position, position, 1))
            elif slot.last < position:
                step = -1 if unit.magic & DELETE else 1
                self._wheel.put(Slot(second, slot.first, position, slot.number + step))
        if last is not None:
            data = self._store.record_at(last.position)
            if data is not None:
                record = read_record(data, check_crc=False)
                if record.topic == TIMER_TOPIC:
                    self.check.queue_offset = max(self.check.queue_offset, record.queue_offset + 1)
        low = self._store.min_offset(TIMER_TOPIC, 0)
        high = self._store.max_offset(TIMER_TOPIC, 0)
        self.check.queue_offset = min(max(self.check.queue_offset, low), high)

    def close(self) -> None:
        """Save, and let go of the files."""
        self.sync()
        self._wheel.close()
        self._log.close()
        if self._check_file >= 0:
            os.close(self._check_file)
            self._check_file = -1

    def _save(self) -> None:
        """timercheck as it is now: in the page cache, which a kill of the process does not touch."""
        if not self._log.end and not self.check.queue_offset:
            return
        if self._check_file < 0:
            os.makedirs(os.path.dirname(self._check_path), exist_ok=True)
            how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._check_file = os.open(self._check_path, how, 0o644)
            os.ftruncate(self._check_file, _CHECK_SIZE)
        os.pwrite(self._check_file, self.check.pack(), 0)

    def sync(self) -> None:
        """Everything on the disk, then the position that says so. Blocks. Raises: OSError."""
        end = self._log.end
        if end == self._synced_at:
            self._save()
            return
        self._log.sync()
        self._wheel.sync()
        self._synced_at = end
        self.check.log_position = end
        self._save()
        if self._check_file >= 0:
            os.fdatasync(self._check_file)

    # ------------------------------------------------------------ in

    def schedule(self, topic: str, queue_id: int, properties: bytes, out_ms: int) -> bytes:
        """The properties with which a message is appended to TIMER_TOPIC, queue 0, instead."""
        for name in (b"REAL_TOPIC", b"REAL_QID"):
            properties = remove_property(properties, name)
        properties = add_property(properties, OUT_MS, str(out_ms).encode())
        properties = add_property(properties, b"REAL_TOPIC", topic.encode())
        properties = add_property(properties, b"REAL_QID", str(queue_id).encode())
        self._arrived.set()
        return properties

    def _enqueue(self) -> bool:
        """Take records from the queue into log and wheel; False when there is none."""
        offset = self.check.queue_offset
        if offset >= self._store.max_offset(TIMER_TOPIC, 0):
            return False
        entries = self._store.entries(TIMER_TOPIC, 0, offset, _STEP)
        if not entries:
            self.check.queue_offset = max(offset + 1, self._store.min_offset(TIMER_TOPIC, 0))
            return True
        for position, size, _ in entries:
            data = self._store.record_at(position)
            if data is None:
                log.error("a timer message is gone and cannot be delivered position=%d", position)
            else:
                self._place(read_record(data, check_crc=False), position, size)
            self.check.queue_offset += 1
        self._save()
        return True

    def _place(self, record: Record, position: int, size: int) -> None:
        text = get_property(record.properties, OUT_MS)
        topic = get_property(record.properties, b"REAL_TOPIC")
        if text is None or topic is None or not text.isdigit():
            log.error("a timer message without its time is dropped position=%d", position)
            return
        write_ms = self._now_second()
        # What is due already goes to the next second that is delivered.
        at_ms = max(int(text), self.check.read_ms, write_ms - PRECISION_MS)
        magic = NORMAL
        ahead = (at_ms - write_ms) // 1000
        if ahead >= ROLL_SECONDS:
            magic |= ROLL
            short = ahead - ROLL_SECONDS < ROLL_SECONDS // 3
            at_ms = write_ms + (ROLL_SECONDS // 2 if short else ROLL_SECONDS) * 1000
        if get_property(record.properties, DEL_KEY) is not None:
            magic |= DELETE
        second = at_ms // 1000
        slot = self._wheel.get(second)
        name_hash = string_hash(topic.decode("utf-8", "replace"))
        unit = Unit(slot.last, magic, write_ms, at_ms - write_ms, position, size, name_hash)
        at = self._log.append(unit)
        first = at if slot.first == NONE else slot.first
        step = -1 if magic & DELETE else 1
        self._wheel.put(Slot(second, first, at, slot.number + step))

    # ------------------------------------------------------------ out

    def step(self) -> int:
        """Take what has come, deliver what is due, some hundred messages at most.

        Returns: ms until there may be something to do; 0: at once.
        """
        try:
            # A late message could take the slot of a second that was not delivered yet: that goes first.
            if self._dequeue():
                return 0
            if self._enqueue():
                return 0
        except StoreNotWriteable as error:
            log.warning("timer messages wait, the store takes none error=%s", error)
            return _RETRY_MS
        next_ms = self.check.read_ms + PRECISION_MS
        return min(max(next_ms - self._clock.now_ms(), 1), _WAIT_MS_MAX)

    def _dequeue(self) -> bool:
        """Deliver of the seconds that are over; False when none is left."""
        if self._due is not None:
            self._deliver_some()
            return True
        end_ms = self._clock.now_ms() - PRECISION_MS
        for _ in range(_SECONDS_STEP):
            if self.check.read_ms > end_ms:
                return False
            slot = self._wheel.get(self.check.read_ms // 1000)
            if slot.last != NONE:
                self._collect(slot)
                return True
            self.check.read_ms += PRECISION_MS
        self._save()
        return True

    def _collect(self, slot: Slot) -> None:
        """Gather the positions of a second, and what is recalled in it."""
        due = array("q")
        self._recalled.clear()
        at = slot.last
        while at != NONE:
            unit = self._log.read(at)
            if unit is None:
                log.error("a unit of the timer log is gone second=%d position=%d", slot.second, at)
                break
            if unit.magic & DELETE and not unit.magic & ROLL:
                self._recall(unit)
            else:
                # The lowest bit, which positions do not need twice over, tells what goes round again.
                due.append(unit.position << 1 | (1 if unit.magic & ROLL else 0))
            at = unit.previous
        self._due = due

    def _recall(self, unit: Unit) -> None:
        data = self._store.record_at(unit.position)
        if data is not None:
            key = get_property(read_record(data, check_crc=False).properties, DEL_KEY)
            if key is not None:
                self._recalled.add(key)

    def _deliver_some(self) -> None:
        due = self._due
        assert due is not None
        for _ in range(min(_STEP, len(due))):
            code = due[-1]
            self._deliver_one(code >> 1, goes_round=bool(code & 1))
            # Only now: a store that takes nothing leaves it where it is.
            due.pop()
        if not due:
            self._due = None
            self._recalled.clear()
            self.check.read_ms += PRECISION_MS
            self._save()

    def _deliver_one(self, position: int, *, goes_round: bool) -> None:
        data = self._store.record_at(position)
        if data is None:
            log.error("a timer message is gone and cannot be delivered position=%d", position)
            return
        record = read_record(data, check_crc=False)
        topic = get_property(record.properties, b"REAL_TOPIC")
        queue_id = get_property(record.properties, b"REAL_QID")
        if topic is None or queue_id is None or not queue_id.isdigit():
            log.error("a timer message without a real topic is dropped position=%d", position)
            return
        key = get_property(record.properties, b"UNIQ_KEY")
        if not goes_round and key is not None and self._is_recalled(topic, key):
            log.info("a recalled message is not delivered topic=%r key=%r", topic, key)
            return
        now = str(self._clock.now_ms()).encode()
        properties = record.properties
        for name in (ENQUEUE_MS, DEQUEUE_MS):
            properties = remove_property(properties, name)
        properties = add_property(properties, ENQUEUE_MS, str(record.store_ms).encode())
        properties = add_property(properties, DEQUEUE_MS, now)
        target, target_id = topic.decode("utf-8", "replace"), int(queue_id)
        if goes_round:
            times = get_property(properties, ROLL_TIMES) or b"0"
            properties = remove_property(properties, ROLL_TIMES)
            count = int(times) + 1 if times.isdigit() else 1
            properties = add_property(properties, ROLL_TIMES, str(count).encode())
            target, target_id = TIMER_TOPIC, 0
        try:
            self._deliver(
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
        except MessageIllegal as error:
            log.error("a timer message cannot be delivered position=%d error=%s", position, error)
            return
        self.delivered_count += not goes_round

    def _is_recalled(self, topic: bytes, key: bytes) -> bool:
        return bool(self._recalled) and any(
            each in self._recalled for each in delete_keys(topic, key)
        )

    # ------------------------------------------------------------ time

    async def run(self) -> None:
        """Deliver until cancelled; the files are brought to the disk once a second."""
        loop = asyncio.get_running_loop()
        next_sync = next_clean = self._clock.monotonic_ms()
        try:
            while True:
                self._arrived.clear()
                wait_ms = self.step()
                now = self._clock.monotonic_ms()
                if now >= next_sync and self._log.end != self._synced_at:
                    next_sync = now + _SYNC_INTERVAL_MS
                    await self._sync_in_pool(loop)
                if now >= next_clean:
                    next_clean = now + _CLEAN_INTERVAL_MS
                    self._log.delete_before(self._store.commit_log_min_position)
                if wait_ms == 0:
                    await asyncio.sleep(0)
                    continue
                try:
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._arrived.wait()
                except TimeoutError:
                    pass
        finally:
            self._save()

    async def _sync_in_pool(self, loop: asyncio.AbstractEventLoop) -> None:
        end = self._log.end

        def work() -> None:
            self._log.sync()
            self._wheel.sync()

        call: Callable[[], None] = work
        await loop.run_in_executor(None, call)
        self._synced_at = end
        self.check.log_position = end
        self._save()

    def _now_second(self) -> int:
        return self._clock.now_ms() // PRECISION_MS * PRECISION_MS

    @property
    def behind_ms(self) -> int:
        """How far delivery is behind the clock."""
        return max(0, self._clock.now_ms() - self.check.read_ms - PRECISION_MS)
