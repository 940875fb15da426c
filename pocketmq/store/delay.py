"""DelayService: delay levels. Source: ScheduleMessageService, RocketMQ 4.9.7; disk.md 10.

A message with DELAY = n waits in SCHEDULE_TOPIC_XXXX, queue n - 1, as a record with REAL_TOPIC and REAL_QID.
Its queue entry holds the time when it is due. Then a copy goes to the real topic: same body, properties, born
time and host. config/delayOffset.json keeps per level the offset of the next record to deliver.

1. Within one level all messages wait equally long, so the queue is in the order of due times: only its head
   has to be watched.
2. The offset moves after the copy is stored. It is saved every flushDelayOffsetInterval and at a stop: a
   crash may redeliver what was delivered since, but loses nothing.
3. A due time beyond now + the level's delay (the clock was set back) is taken as due now, as in RocketMQ.
4. With enableConsumeQueueExt the entry holds the address of a unit that has the due time.
5. PocketMQ only: messages in a level that messageDelayLevel no longer has are delivered when due, too.
6. Disk errors are retried; delivering and saving the offsets do not wait for each other.
Owner: the Broker; run() in its TaskGroup.
"""

import asyncio
import contextlib
import logging
import os
from concurrent.futures import Executor
from typing import Protocol

from pocketmq.files.layout import EXT_ADDRESS_MAX
from pocketmq.model.message_codec import add_property, get_property, remove_property
from pocketmq.model.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from pocketmq.model.record import read_record, store_ms_of
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.store.appends import Appended
from pocketmq.store.config_file import ConfigFile
from pocketmq.store.errors import RecordIllegal
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.tags_code import LONGEST_DELAY_MS
from pocketmq.store.side_tasks import SURVIVED, in_thread

log = logging.getLogger(__name__)

_STEP = 256
# The clock may be set forward while we wait: look at it again after this time.
_WAIT_MS_MAX = 1_000


class Deliver(Protocol):
    """MessageStore.append, or a wrapper of it."""

    def __call__(
        self,
        topic: str,
        queue_id: int,
        body: memoryview,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        /,
    ) -> Appended: ...


class DelayService:
    """Watches the heads of the level queues."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        deliver: Deliver | None = None,
        pool: Executor | None = None,
    ) -> None:
        """deliver: stores the copies; default store.append. pool: saves the offsets."""
        self._store = store
        self._clock = clock
        self._deliver: Deliver = deliver or store.append
        self._pool = pool
        self._file = ConfigFile(
            os.path.join(store.config.store_path_root_dir, "config", "delayOffset.json")
        )
        self._levels = store.delay_levels
        # With those that the setting does not have any more (5).
        self._level_count = len(self._levels)
        self._side_tasks = store.side_tasks
        self._save_interval_ms = store.config.flush_delay_offset_interval
        # Level -> offset of the next record to deliver.
        self.offsets: dict[int, int] = {}
        self._saved: bytes = b""
        self._scheduled = asyncio.Event()
        self._next_save_ms = 0

    @property
    def level_max(self) -> int:
        return len(self._levels)

    def load(self) -> None:
        """Read the offsets; those outside their queue are moved into it. Raises: StoreUnreadable."""
        value = self._file.load() or {}
        table = value.get("offsetTable") or {}
        for name, offset in table.items():
            try:
                self.offsets[int(name)] = int(offset)
            except ValueError:
                continue
        self.load_anew()

    def load_anew(self) -> None:
        """Look at the queues again: the log was a master's until now, or was cut back. An offset beyond the
        end of its queue would skip what comes next.
        """
        store = self._store
        for level, offset in self.offsets.items():
            low = store.min_offset(SCHEDULE_TOPIC, level - 1)
            high = store.max_offset(SCHEDULE_TOPIC, level - 1)
            self.offsets[level] = min(max(offset, low), high)
        ids = [queue_id for _, queue_id in store.queues(SCHEDULE_TOPIC)]
        self._level_count = max(self.level_max, *(queue_id + 1 for queue_id in ids), 0)

    def schedule(
        self, topic: str, queue_id: int, properties: bytes, level: int
    ) -> tuple[str, int, bytes, int | None]:
        """Redirect a message with DELAY = level >= 1.

        Returns: topic, queue id, properties, tags code (None: the store computes it from the store time).
        """
        if level > self.level_max:
            level = self.level_max
            properties = add_property(
                remove_property(properties, b"DELAY"), b"DELAY", str(level).encode()
            )
        if get_property(properties, b"REAL_TOPIC") is not None:
            properties = remove_property(properties, b"REAL_TOPIC")
            properties = remove_property(properties, b"REAL_QID")
        properties = add_property(properties, b"REAL_TOPIC", topic.encode())
        properties = add_property(properties, b"REAL_QID", str(queue_id).encode())
        # The loop may sleep until a later time than this message is due.
        self._scheduled.set()
        return SCHEDULE_TOPIC, level - 1, properties, None

    async def run(self) -> None:
        """Deliver until cancelled; the offsets are saved periodically and at the end."""
        self._next_save_ms = self._clock.monotonic_ms() + self._save_interval_ms
        try:
            await self._side_tasks.repeat("delay", self._round)
        finally:
            with self._side_tasks.attempt("delay-offsets"):
                if self._dirty():
                    # As in _save_in_pool; the power may go during the stop, too.
                    self._store.flush_now()
                self.save()

    async def _round(self) -> None:
        self._scheduled.clear()
        wait_ms = self.step()
        if self._clock.monotonic_ms() >= self._next_save_ms:
            self._next_save_ms = self._clock.monotonic_ms() + self._save_interval_ms
            with self._side_tasks.attempt("delay-offsets"):
                await self._save_in_pool()
        if wait_ms == 0:
            await asyncio.sleep(0)
            return
        if wait_ms is None and self._dirty():
            wait_ms = self._save_interval_ms
        with contextlib.suppress(TimeoutError):
            seconds = None if wait_ms is None else min(wait_ms, _WAIT_MS_MAX) / 1000
            async with asyncio.timeout(seconds):
                await self._scheduled.wait()

    def step(self) -> int | None:
        """Deliver what is due, at most some hundred records.

        Returns: ms until there is something to do again; 0: at once; None: nothing is waiting.
        """
        now_ms = self._clock.now_ms()
        wait_ms: int | None = None
        for level in range(1, self._level_count + 1):
            try:
                level_wait = self._step_level(level, now_ms)
            except SURVIVED as error:
                self._side_tasks.failed("delay-delivery", error)
                return self._side_tasks.retry_ms
            if level_wait is not None:
                wait_ms = level_wait if wait_ms is None else min(wait_ms, level_wait)
        self._side_tasks.went_well("delay-delivery")
        return wait_ms

    def _step_level(self, level: int, now_ms: int) -> int | None:
        queue_id = level - 1
        high = self._store.max_offset(SCHEDULE_TOPIC, queue_id)
        offset = max(self.offsets.get(level, 0), self._store.min_offset(SCHEDULE_TOPIC, queue_id))
        if offset >= high:
            return None
        latest_ms = now_ms + self._delay_ms(level)
        for position, size, code in self._store.entries(SCHEDULE_TOPIC, queue_id, offset, _STEP):
            due_ms = code if code > EXT_ADDRESS_MAX else self._due_ms(queue_id, position, code)
            if now_ms < due_ms <= latest_ms:
                return due_ms - now_ms
            self._deliver_one(position, size)
            offset += 1
            self.offsets[level] = offset
        return 0

    def _due_ms(self, queue_id: int, position: int, address: int) -> int:
        """Return the due time (invariant 4); if its unit is lost, the one that the record gives."""
        unit = self._store.ext_unit(SCHEDULE_TOPIC, queue_id, address)
        if unit is not None:
            return unit.tags_code
        data = self._store.record_at(position)
        return 0 if data is None else store_ms_of(data) + self._delay_ms(queue_id + 1)

    def _delay_ms(self, level: int) -> int:
        """Return how long messages wait in a level; the longest possible delay for a removed level (5)."""
        return self._levels[level - 1] if level <= self.level_max else LONGEST_DELAY_MS

    def _deliver_one(self, position: int, size: int) -> None:
        data = self._store.record_at(position, size)
        if data is None:
            log.error(
                "a delayed message is no longer in the log and cannot be delivered position=%d",
                position,
            )
            return
        try:
            record = read_record(data, check_crc=False)
        except MessageCodecError as error:
            log.error("cannot read a delayed message position=%d reason=%s", position, error)
            return
        topic = get_property(record.properties, b"REAL_TOPIC")
        queue_id = get_property(record.properties, b"REAL_QID")
        if topic is None or queue_id is None or topic == TRANS_HALF_TOPIC.encode():
            log.error(
                "dropped a delayed message that does not name its topic position=%d", position
            )
            return
        name = topic.decode("utf-8", "replace")
        if self._store.deleted.has_waiting(name, position):
            log.info("dropped a delayed message of a deleted topic topic=%s", name)
            return
        try:
            with self._store.of_any_size():
                self._deliver(
                    name,
                    int(queue_id),
                    record.body,
                    record.properties,
                    record.flag,
                    record.sys_flag & ~0x30,
                    record.born_ms,
                    record.born_host,
                    record.reconsume_times,
                    0,
                )
        except (RecordIllegal, ValueError) as error:
            log.error("a delayed message cannot be delivered position=%d error=%s", position, error)

    # ------------------------------------------------------------ offsets

    def _encoded(self) -> bytes:
        return ConfigFile.encode({"offsetTable": dict(sorted(self.offsets.items()))})

    def _dirty(self) -> bool:
        return bool(self.offsets) and self._encoded() != self._saved

    def save(self) -> None:
        """Write the offsets if they changed. Blocks."""
        data = self._encoded()
        if self.offsets and data != self._saved:
            self._file.write((data,))
            self._saved = data

    async def _save_in_pool(self) -> None:
        data = self._encoded()
        if not self.offsets or data == self._saved:
            return
        # Offsets on the disk ahead of the log would lose delivered messages in a power cut.
        await self._store.on_disk()
        await in_thread(lambda: self._file.write((data,)), self._pool)
        self._saved = data
