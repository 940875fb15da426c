"""InternalAppend: appends everything that is not a producer's plain message.

1. A message with DELAY > 0 goes through the delay service's topic, unless it is a half or rolled-back
   transactional one (CommitLog.putMessage, RocketMQ 4.9.7).
2. A message with a delivery time (TIMER_DELIVER_MS ...) goes through the timer service's topic; a delay
   level takes precedence (HookUtils.handleScheduleMessage, RocketMQ 5.3.3).
3. A message is counted under the topic that it was stored in.
"""

from collections.abc import Callable
from typing import NamedTuple

from pocketmq.broker.figures.stats import BrokerStats
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import TIMER_TOPIC, TRANS_HALF_TOPIC
from pocketmq.model.record import WRAPPED_BATCH, Record
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.java_number import INT_MAX, property_number
from pocketmq.store import Appended, MessageStore
from pocketmq.store.delay import DelayService
from pocketmq.store.timer.properties import due_ms, has_timer, without_timer
from pocketmq.store.timer.service import TimerService

Buffer = bytes | bytearray | memoryview

HOST_V6_FLAGS = 0x30
FIRST_STORED = b"__HALF_STORED_MS"
"""Property of a half message that was replaced: when it was first stored, ms."""
BROKERS_FLAGS = HOST_V6_FLAGS | WRAPPED_BATCH
"""Bits that no sender sets: how hosts are stored, and that a body is an inner batch. Consumers stop at one
that they cannot unwrap."""
_TIMES_MAX = (1 << 31) - 1
_NEVER_DELAYED = 0x4  # prepared, rolled back


class InternallyStored(NamedTuple):
    """Where a message was stored, with its topic and queue."""

    appended: Appended
    topic: str
    queue_id: int


class TimerAppend(NamedTuple):
    """The path of messages with a delivery time.

    delay_ms_max(): how far ahead that may be; make_topic(): called before one is stored there.
    """

    timer: TimerService
    delay_ms_max: Callable[[], int]
    make_topic: Callable[[], object]


class InternalAppend:
    """Appends, applying the delay rules and counting."""

    def __init__(
        self,
        store: MessageStore,
        delay: DelayService,
        stats: BrokerStats,
        clock: Clock,
        timer: TimerAppend | None = None,
        queue_now: Callable[[str, int], int] = lambda topic, queue_id: queue_id,
    ) -> None:
        """timer: None if delivery times are off (timerWheelEnable). queue_now: see TopicConfigManager."""
        self.queue_now = queue_now
        self._timer = timer
        self._store = store
        self._delay = delay
        self._stats = stats
        self._clock = clock

    def put(
        self,
        topic: str,
        queue_id: int,
        body: Buffer,
        properties: bytes,
        *,
        born_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        born_ms: int | None = None,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> InternallyStored:
        """Store one message (1, 2). Raises: StoreNotWriteable, RecordIllegal, TimerIllegal."""
        tags_code: int | None = None
        # `in` takes the name for a number first, which costs ten times as much.
        if properties.find(b"TIMER_D") >= 0 and not sys_flag & _NEVER_DELAYED:
            topic, queue_id, properties = self._at_a_time(topic, queue_id, properties)
        if not sys_flag & _NEVER_DELAYED and properties.find(b"DELAY\x01") >= 0:
            level = delay_level(properties)
            if level > 0:
                topic, queue_id, properties, tags_code = self._delay.schedule(
                    topic, queue_id, properties, level
                )
        appended = self._store.append(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag & ~HOST_V6_FLAGS,
            self._clock.now_ms() if born_ms is None else born_ms,
            born_host,
            reconsume_times,
            prepared_offset,
            tags_code,
        )
        counter = self._stats.put_counter(topic, queue_id)
        counter.nums += 1
        counter.size += appended.size
        counter.sizes[(appended.size - 1).bit_length()] += 1
        return InternallyStored(appended, topic, queue_id)

    def _at_a_time(self, topic: str, queue_id: int, properties: bytes) -> tuple[str, int, bytes]:
        """Return topic, queue and properties of a message with a delivery time (invariant 2)."""
        way = self._timer
        if way is None or topic in (TIMER_TOPIC, TRANS_HALF_TOPIC) or not has_timer(properties):
            return topic, queue_id, properties
        if delay_level(properties) > 0:
            return topic, queue_id, without_timer(properties)
        out_ms = due_ms(properties, self._clock.now_ms(), way.delay_ms_max())
        if out_ms is None:
            return topic, queue_id, properties
        way.make_topic()
        return TIMER_TOPIC, 0, way.timer.schedule(topic, queue_id, properties, out_ms)

    def check_time(self, properties: bytes) -> None:
        """Check the delivery time that a message will have later. Raises: TimerIllegal."""
        way = self._timer
        if way is not None and has_timer(properties):
            due_ms(properties, self._clock.now_ms(), way.delay_ms_max())

    def put_again(
        self, record: Record, topic: str, queue_id: int, properties: bytes, *, again: bool = False
    ) -> InternallyStored:
        """Store a copy of a stored message elsewhere; `again`: count one more consumption.

        It may have any size (`of_any_size`). Raises: as `put`.
        """
        with self._store.of_any_size():
            return self.put(
                topic,
                queue_id,
                record.body,
                properties,
                born_host=record.born_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_ms=record.born_ms,
                # The count is its sender's; a copy that has no room for one more would never be stored.
                reconsume_times=min(record.reconsume_times + (1 if again else 0), _TIMES_MAX),
            )


def delay_level(properties: bytes) -> int:
    """Return the value of DELAY; 0 if it is absent or not a number.

    >>> delay_level(b"KEYS\\x01k\\x02DELAY\\x013\\x02"), delay_level(b"XDELAY\\x013")
    (3, 0)
    """
    level = property_number(get_property(properties, b"DELAY"))
    return level if level is not None and -INT_MAX <= level <= INT_MAX else 0
