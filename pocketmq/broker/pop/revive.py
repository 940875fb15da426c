"""PopRevive: redelivers popped messages that were not acknowledged in time, from a retry topic.

1. The copy goes to %RETRY%GROUP_TOPIC (one queue) with reconsumeTimes + 1 (unchanged if, by the check point,
   no client tried to consume it), ORIGIN_GROUP and 1ST_POP_TIME; a message popped from there and not
   acknowledged returns to it.
2. Then the check point is acknowledged in the revive log, so that a restart does not copy once more; a log
   that refuses is asked again in each round. A kill between the two duplicates a message; nothing loses one.
3. Ours (popDeadLetterEnable): after retryMaxTimes failed attempts a message goes to %DLQ%GROUP, as with pull
   consumers. RocketMQ leaves that to its proxy, and redelivers to classic pop clients for ever.
4. Ours: what a connected consumer holds (auto-renew of 5.x SDKs) is not redelivered for three hours.
5. A message that cannot be copied stays in flight and is retried with growing pauses; it blocks no other.
Source: PopReviveService, RocketMQ 5.3.3 and 5.5.0.
"""

import logging

from pocketmq.books.rows import EventKind, origin_text
from pocketmq.broker.internal_append import InternallyStored
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.pop.check_point import CheckPoint, CheckPointName
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.revive_log import ReviveLog
from pocketmq.model.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.model.names import RETRY_PREFIX, dlq_topic
from pocketmq.model.pop_receipt import normal_topic, pop_retry_topic
from pocketmq.model.record import Record, read_record
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.transport.peer import TURN_MS
from pocketmq.store import StoreError
from pocketmq.store.errors import RecordIllegal
from pocketmq.store.queue.consume_queue_table import TOPIC_SIZE_MAX
from pocketmq.store.timer.properties import without_timer

log = logging.getLogger(__name__)

_TRY_AGAIN_MS = 1_000
# The longest pause between two tries: while nothing can be stored, and for a message that cannot be.
_PAUSE_MS_MAX = 60_000
_ILLEGAL_PAUSE_MS_MAX = 3_600_000
_STEP_MAX = 256
# How often a round looks whether the holder of a check point's messages is still connected.
_HELD_LOOK_MS = 5_000


class PopRevive:
    """See the head of the file."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        revive_log: ReviveLog,
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._events = node.events
        self._store = messages.store
        self._put = messages.put
        self._deliveries = messages.deliveries
        self._topics = tables.topics
        self._groups = tables.groups
        self._log = revive_log

    def fault(self, topic: str, group: str) -> str | None:
        """Return why a pop of the topic by the group could not be redelivered; None if it can."""
        size_max = self._store.topic_size_max
        size = len(pop_retry_topic(topic, group))
        if size <= size_max or topic.startswith(RETRY_PREFIX):
            return None
        advice = "use shorter names"
        if size_max < size <= TOPIC_SIZE_MAX:
            advice += ", or start the broker with autoMessageVersionOnTopicLen=true"
        return (
            "cannot pop: messages that the group does not acknowledge could not be delivered again, since "
            f"their retry topic's name would have {size} bytes, of {size_max} possible; {advice}"
        )

    def step(self) -> bool:
        """Process due check points, for one turn of the loop. Returns: whether there are more."""
        try:
            more = self._log.write_late(_STEP_MAX)
        except StoreError:
            # Said when it could not be stored first; the next round tries again.
            more = False
        began_ms = now_ms = self._clock.monotonic_ms()
        for _ in range(_STEP_MAX):
            # Each may have as many messages as one pop brings.
            due = self._log.state.due(now_ms, 1) if now_ms - began_ms < TURN_MS else None
            if not due:
                return more or due is None
            (point,) = due
            if point.is_held(self._clock.now_ms()):
                self._log.state.postpone(point, now_ms + _HELD_LOOK_MS)
            else:
                self._revive(point)
            now_ms = self._clock.monotonic_ms()
        return True

    def _revive(self, point: CheckPoint) -> None:
        name = point.name
        topic = normal_topic(name.topic, name.group)
        done: list[int] = []
        failure: OSError | StoreError | None = None
        pause_ms_max = _ILLEGAL_PAUSE_MS_MAX
        try:
            # Made again if a kill came before it was saved: when a group is deleted its check points go, too.
            group = self._groups.find(name.group)
            if self._topics.get(topic) is None or group is None:
                log.warning(
                    "dropped popped messages, because the topic or group no longer exists %s", name
                )
                done = point.unacked
            else:
                self._note(name, point.unacked)
                for offset in point.unacked:
                    try:
                        self._copy(point, offset, topic, group)
                    except RecordIllegal as error:
                        failure = error
                    else:
                        done.append(offset)
            self._log.ack(name, done, point.revive_queue)
        except (OSError, StoreError) as error:
            # OSError: the retry topic could not be saved.
            failure, pause_ms_max = error, _PAUSE_MS_MAX
            if done:
                log.error(
                    "cannot note yet that messages were copied; they come twice if the broker is killed now "
                    "offsets=%s of=%s reason=%s",
                    done,
                    name,
                    error,
                )
            self._log.ack_unwritten(name, done, point.revive_queue)
        if failure is not None and not point.is_acked:
            self._try_later(point, failure, pause_ms_max)
        if done:
            self._events.poppable(topic, name.group)

    def _note(self, name: CheckPointName, offsets: list[int]) -> None:
        """Record that messages were not acknowledged, before they are copied."""
        queue = GroupQueue(name.group, name.topic, name.queue_id)
        for offset in offsets:
            text = "its invisible time passed without an acknowledgement"
            self._deliveries.event(EventKind.RETRY, queue, offset, offset, text)
        self._deliveries.flush()

    def _try_later(
        self, point: CheckPoint, failure: OSError | StoreError, pause_ms_max: int
    ) -> None:
        """Apply invariant 5."""
        pause_ms = min(_TRY_AGAIN_MS << min(point.tries, 20), pause_ms_max)
        point.tries += 1
        self._log.state.postpone(point, self._clock.monotonic_ms() + pause_ms)
        log.error(
            "cannot revive popped messages, next try follows offsets=%s of=%s in_ms=%d reason=%s",
            point.unacked,
            point.name,
            pause_ms,
            failure,
        )

    def _copy(self, point: CheckPoint, offset: int, topic: str, group: GroupConfig) -> None:
        name = point.name
        record = self._record(name.topic, name.queue_id, offset)
        if record is None:
            log.warning("a popped message is no longer in the store offset=%d %s", offset, name)
            queue = GroupQueue(name.group, name.topic, name.queue_id)
            self._deliveries.event(EventKind.EXPIRED, queue, offset, offset + 1, "")
            return
        properties = remove_property(without_timer(record.properties), b"DELAY")
        if get_property(properties, b"ORIGIN_GROUP") is None:
            properties = add_property(properties, b"ORIGIN_GROUP", name.group.encode())
        if record.reconsume_times == 0 or get_property(properties, b"1ST_POP_TIME") is None:
            properties = remove_property(properties, b"1ST_POP_TIME")
            properties = add_property(properties, b"1ST_POP_TIME", b"%d" % name.pop_ms)
        in_vain = record.reconsume_times >= group.retry_max_times and not point.suspend
        if self._config.pop_dead_letter_enable and in_vain:
            self._bury(record, topic, name.group, properties)
            queue = GroupQueue(name.group, name.topic, name.queue_id)
            text = f"popped {record.reconsume_times + 1} times without an acknowledgement"
            self._deliveries.event(EventKind.DEAD, queue, offset, offset, text)
            return
        retry = name.topic
        if not retry.startswith(RETRY_PREFIX):
            retry = pop_retry_topic(topic, name.group, v2=self._config.enable_retry_topic_v2)
        self._topics.create_internal(retry, 1)
        copied = self._put_copy(record, retry, properties, again=not point.suspend)
        at = copied.appended.queue_offset
        text = origin_text(name.topic, name.queue_id, offset)
        self._deliveries.event(EventKind.COPY, (name.group, retry, 0), at, at + 1, text)

    def _bury(self, record: Record, topic: str, group: str, properties: bytes) -> None:
        """Apply invariant 3; the properties are those of a pull consumer's dead letter (send_back.py)."""
        if get_property(properties, b"RETRY_TOPIC") is None:
            properties = add_property(properties, b"RETRY_TOPIC", topic.encode())
        if get_property(properties, b"ORIGIN_MESSAGE_ID") is None:
            msg_id = offset_msg_id(record.store_host, record.position)
            properties = add_property(properties, b"ORIGIN_MESSAGE_ID", msg_id.encode())
        dead = dlq_topic(group)
        self._topics.create_internal(dead, 1)
        self._put_copy(record, dead, properties)
        log.warning(
            "a message was popped too often without an acknowledgement and is now a dead letter group=%s "
            "topic=%s times=%d",
            group,
            topic,
            record.reconsume_times,
        )

    def _put_copy(
        self, record: Record, topic: str, properties: bytes, *, again: bool = True
    ) -> InternallyStored:
        """Store a copy. again: count one more consumption."""
        try:
            return self._put.put_again(record, topic, 0, properties, again=again)
        except RecordIllegal:
            # No room for what we add to its properties: better without than not at all.
            own = remove_property(without_timer(record.properties), b"DELAY")
            return self._put.put_again(record, topic, 0, own, again=again)

    def _record(self, topic: str, queue_id: int, offset: int) -> Record | None:
        found = self._store.entries(topic, queue_id, offset, 1)
        stored = self._store.record_at(*found[0][:2]) if found else None
        try:
            return None if stored is None else read_record(stored)
        except MessageCodecError as error:
            log.error("cannot read a popped message topic=%s reason=%s", topic, error)
            return None
