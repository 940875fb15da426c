"""Consumer send-back: schedule a redelivery of a message, or dead-letter it.

Source: SendMessageProcessor.asyncConsumerSendMsgBack, RocketMQ 4.9.7.

1. The copy goes to %RETRY%group by way of the delay level (3 + times consumed, unless the client names
   one); after the group's maximum, or with a negative level, to %DLQ%group at once. Where the client names
   no level and the group has a retry policy of its own, that policy's pause holds (with timerWheelEnable).
   Ours: RocketMQ 5.5.0 follows it for gRPC clients only.
2. It keeps body (as stored), flag, properties and birth; reconsumeTimes is one more.
3. RETRY_TOPIC names the first topic, ORIGIN_MESSAGE_ID the first message; both stay through all retries.
4. The response waits until the copy is safe (durability.py), since the client then commits past the message.
   (RocketMQ answers at once.)
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.books.rows import EventKind
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.model.names import (
    DLQ_PREFIX,
    FAQ,
    RETRY_PREFIX,
    TOPIC_LENGTH_MAX,
    dlq_topic,
    retry_topic,
)
from pocketmq.model.record import Record, read_record
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import StoreError
from pocketmq.store.timer.properties import waits_anew

log = logging.getLogger(__name__)

_UNIT_SUB = 2


@dataclass(frozen=True, slots=True)
class SentBack:
    """The message at `position`, sent back by a member of the group.

    delay_level: 0 lets the broker choose, a negative one dead-letters the message; times_max: the member's
    maximum, which overrides the group's.
    """

    group: str
    position: int
    delay_level: int = 0
    times_max: int | None = None
    unit_mode: bool = False


class SendBackActs:
    """See the head of the file."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = node.config
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = messages.store
        self._stats = messages.stats
        self._put = messages.put
        self._durability = messages.durability
        self._deliveries = messages.deliveries
        self._random_below = random_below

    def send_back(self, sent: SentBack, peer: Peer) -> None:
        """Raises: Refused."""
        group = self._groups.find(sent.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {sent.group} {FAQ}",
            )
        if not self._config.broker_permission & Perm.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queues <= 0:
            return
        topic = self._retry_topic(sent, group)
        name = topic.topic
        # Ours: when the group gets more retry queues the topic keeps its number, and no client reads others.
        queue_id = self._random_below(max(1, min(group.retry_queues, topic.read_queues)))
        stored = self._store.message_at(sent.position)
        if stored is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {sent.position}"
            )
        record = read_record(stored)
        properties, first_topic = _marked(record)
        times_max = group.retry_max_times if sent.times_max is None else sent.times_max
        if record.reconsume_times >= times_max or sent.delay_level < 0:
            name, queue_id = dlq_topic(sent.group), 0
            self._topics.create_internal(name, 1)
            properties, pause = _with(properties, b"DELAY", b"0"), ""
        else:
            properties, pause = self._paused(sent, group, record.reconsume_times, properties)
        try:
            self._put.put_again(record, name, queue_id, properties, again=True)
        except StoreError as error:
            log.error("cannot send a message back group=%s reason=%s", sent.group, error)
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._note(sent, record, name, pause, peer)
        self._stats.count_sent_back(sent.group, first_topic.decode("utf-8", "replace"))

    @property
    def waits(self) -> bool:
        """Return True if the response must wait for `kept`."""
        return self._durability.waits

    async def kept(self) -> None:
        """Wait until the copy is safe (invariant 4). Raises: Refused."""
        code = await self._durability.kept(self._store.commit_log_max_position)
        if code is not ResponseCode.SUCCESS:
            log.error("a message that was sent back is not yet flushed or replicated code=%d", code)
            raise Refused(
                code, "the message was sent back and stored, but is not yet flushed or replicated"
            )

    def _retry_topic(self, sent: SentBack, group: GroupConfig) -> TopicConfig:
        """Return the group's retry topic, creating it if absent. Raises: Refused."""
        name = retry_topic(sent.group)
        if len(name) > TOPIC_LENGTH_MAX:
            # It could be stored, in a layout that members of 4.9 cannot read.
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the retry topic's name has {len(name)} bytes, but at most {TOPIC_LENGTH_MAX} are "
                "possible: use a shorter group name",
            )
        unit = _UNIT_SUB if sent.unit_mode else 0
        topic = self._topics.create_internal(name, group.retry_queues, sys_flag=unit)
        if not topic.writable:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        return topic

    def _paused(
        self, sent: SentBack, group: GroupConfig, times: int, properties: bytes
    ) -> tuple[bytes, str]:
        """Return the properties of the copy that waits, and for what, in words (invariant 1)."""
        policy = None
        stored = group.extra.get("groupRetryPolicy")
        if stored and sent.delay_level == 0 and self._config.timer_wheel_enable:
            from pocketmq.model.retry_policy import own_policy  # few groups have one

            try:
                policy = own_policy(stored)
            except (AttributeError, TypeError, ValueError):
                log.warning("cannot read the retry policy of a group group=%s", sent.group)
        if policy is None:
            level = sent.delay_level or 3 + times
            return _with(properties, b"DELAY", str(level).encode()), f"by delay level {level}"
        pause_ms = min(policy.pause_ms(times), self._config.timer_max_delay_sec * 1000)
        properties = waits_anew(remove_property(properties, b"DELAY"), pause_ms)
        return properties, f"{pause_ms} ms later, by the group's retry policy"

    def _note(self, sent: SentBack, record: Record, name: str, pause: str, peer: Peer) -> None:
        """Record in the message's track where it went, and why. Ours."""
        times = record.reconsume_times
        kind = EventKind.RETRY if pause else EventKind.DEAD
        if pause:
            why = f"to {name} {pause}, time {times + 1}"
        elif sent.delay_level < 0:
            why = f"to {name}: the consumer gave up (delay level -1)"
        else:
            why = f"to {name}: it failed {times + 1} time{'s' if times else ''}, which is the limit"
        key = (sent.group, record.topic, record.queue_id)
        offset = record.queue_offset
        self._deliveries.event(kind, key, offset, offset, f"{why}, sent back by {peer.address}")


def _marked(record: Record) -> tuple[bytes, bytes]:
    """Return the properties of the copy (invariant 3), and the original topic."""
    properties = remove_property(record.properties, b"POP_CK")
    if not record.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        # Ours: here the sender set them, perhaps by forwarding a message that was retried once. RocketMQ
        # believes them, and its clients then see another topic.
        properties = remove_property(properties, b"RETRY_TOPIC")
        properties = remove_property(properties, b"ORIGIN_MESSAGE_ID")
    first_topic = get_property(properties, b"RETRY_TOPIC")
    if first_topic is None:
        first_topic = record.topic.encode()
        properties = add_property(properties, b"RETRY_TOPIC", first_topic)
    properties = _with(properties, b"WAIT", b"false")
    if get_property(properties, b"ORIGIN_MESSAGE_ID") is None:
        msg_id = offset_msg_id(record.store_host, record.position)
        properties = add_property(properties, b"ORIGIN_MESSAGE_ID", msg_id.encode())
    return properties, first_topic


def _with(properties: bytes, name: bytes, value: bytes) -> bytes:
    return add_property(remove_property(properties, name), name, value)
