"""Sending: one message, or many in one batch. Source: SendMessageProcessor, RocketMQ 4.9.7.

1. `check` comes first and may create the topic; while that is not on disk (`unsaved`), the send waits
   for it. Then `send` or `send_batch`.
2. A refusal carries RocketMQ's code and remark.
3. 4.9 does not store WAIT of a plain message, and adds CLUSTER to each.
4. SentMessage.end: the sender is answered once the log is safe up to there, `messages.durability.kept(end)`.
5. A plain message may be stored without a check, as wire/sends/send.py or `send_plain` do: `plain_topic` says
   to which topics, and tests hold all ways to the same record.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pocketmq.broker.acts.plain_topic import PlainTopic
from pocketmq.broker.acts.send_properties import (
    AddedProperties,
    check_delay,
    flags_of,
    human_time,
    queue_of_priority,
    waits_by,
    with_transaction_id,
)
from pocketmq.broker.figures.stats import PutCounter
from pocketmq.broker.internal_append import FIRST_STORED
from pocketmq.broker.node import Node
from pocketmq.broker.once.send_once import FirstCopy
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused, store_refusal
from pocketmq.model.message_codec import add_property, get_property, remove_property
from pocketmq.model.names import (
    FAQ,
    RETRY_PREFIX,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    dlq_topic,
    is_broker_only,
    topic_fault,
)
from pocketmq.model.pop_receipt import group_of_retry
from pocketmq.model.recall_handle import RecallHandle
from pocketmq.model.record import read_record
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.headers import SendMessageHeader, SendMessageV2Header
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import Appended, StoreError
from pocketmq.store.timer.properties import OUT_MS

log = logging.getLogger(__name__)

# What a message is sent with, beside its body, in either form.
SendAsk = SendMessageHeader | SendMessageV2Header
# The broker's own notes on a half message.
_OF_HALF = (
    b"REAL_TOPIC",
    b"REAL_QID",
    b"TRANSACTION_CHECK_TIMES",
    b"TRAN_PREPARED_QUEUE_OFFSET",
    FIRST_STORED,
)
Buffer = bytes | bytearray | memoryview
_TRANSACTION_MASK = 0xC
_UNIT, _UNIT_SUB = 1, 2
_INT_MIN = -0x8000_0000


class SentMessage(NamedTuple):
    """Where a message was stored; queue_id is the one reported to the sender. end: see invariant 4,
    None if the sender does not wait. recall_handle: for cancelling a timed message. transaction_id: of a
    half message that a client of 5.x sent.
    """

    position: int
    queue_id: int
    queue_offset: int
    end: int | None
    recall_handle: str | None = None
    transaction_id: str | None = None


class SentBatch(NamedTuple):
    """Where the messages of a batch were stored; queue_offset is that of the first."""

    positions: Sequence[int]
    queue_id: int
    queue_offset: int
    end: int | None


class SendActs:
    """Check, send, send a batch. added: what the broker adds to properties."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = node.config
        self._now_ms = node.clock.now_ms
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = messages.store
        self._stats = messages.stats
        self._put = messages.put
        self._deliveries = messages.deliveries
        self._random_below = random_below
        self._durability = messages.durability
        self._once = messages.once
        self._lite = messages.lite
        self.added = AddedProperties(node.config)
        self._cluster = self.added.cluster
        self._plain_end = b"CLUSTER\x01" + self._cluster

    # ------------------------------------------------------------ before it

    def check(self, ask: SendAsk, peer: Peer) -> TopicConfig:
        """Return the topic of a send, creating it where allowed. Raises: Refused."""
        config = self._config
        if self._now_ms() < config.start_accept_send_request_time_stamp:
            until = human_time(config.start_accept_send_request_time_stamp)
            raise Refused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {until}")
        name = ask.topic
        if not config.broker_permission & Perm.WRITE and self._topics.is_order(name):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden",
            )
        if self._durability.replicas.too_few and _waits(ask):
            raise Refused(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        fault = topic_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, fault)
        if is_broker_only(name):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        topic = self._topics.get(name)
        if topic is None:
            topic = self._create(ask, peer)
        count = max(topic.read_queues, topic.write_queues)
        queue_id = ask.queue_id
        if queue_id >= count or queue_id < _INT_MIN or (queue_id < 0 and not topic.write_queues):
            remark = f"request queueId[{ask.queue_id}] is illegal, {topic} Producer: {peer.address}"
            log.warning("%s", remark)
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return topic

    def _create(self, ask: SendAsk, peer: Peer) -> TopicConfig:
        name = ask.topic
        is_retry = name.startswith(RETRY_PREFIX)
        log.debug("a send to a topic that does not exist topic=%s producer=%s", name, peer.address)
        unit = (_UNIT_SUB if is_retry else _UNIT) if ask.unit_mode else 0
        if self._topics.is_full:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] does not exist, and no more are created by a first send: there are "
                f"{len(self._topics.topics)} (autoCreateTopicMax). Delete topics that are not needed, or "
                "create this one by hand",
            )
        topic = self._topics.create_in_send(
            name, ask.default_topic, peer.address, ask.default_topic_queue_nums, unit
        )
        if topic is None and is_retry:
            topic = self._topics.create_internal(name, 1, sys_flag=unit)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please!{FAQ}",
            )
        return topic

    def unsaved(self, topic: TopicConfig) -> "asyncio.Future[None] | None":
        """Return the pending save of a new topic that a send must wait for (invariant 1), if any."""
        return self._topics.stored(topic.topic)

    def plain_topic(self, name: str) -> PlainTopic | None:
        """Return a topic whose plain messages need no check (invariant 5); None if they do."""
        topic = self._topics.get(name)
        if (
            topic is None
            or topic.order
            or topic.filter_type != "SINGLE_TAG"
            or topic.by_priority
            or topic.is_lite
            or name.startswith(RETRY_PREFIX)
            or self._topics.stored(name) is not None
            or self._durability.replicas.may_refuse
        ):
            return None
        count = max(topic.read_queues, topic.write_queues)
        return PlainTopic(name, count, self._stats, self._once.of_topic(topic))

    # ------------------------------------------------------------ one message

    def send_plain(
        self,
        plain: PlainTopic,
        queue_id: int,
        body: Buffer,
        text: str,
        *,
        sys_flag: int,
        born_ms: int,
        peer: Peer,
    ) -> Appended | None:
        """Store a message that is not delayed, half or sent back; None if there is no such queue.

        text: its properties, each with both separators; none of WAIT, CLUSTER, POP_CK. Raises: StoreError.
        """
        number = b"%d" % queue_id
        found = plain.queues.get(number) or plain.open(number)
        if found is None:
            return None
        put = self._store.appends.append(
            plain.name,
            queue_id,
            body,
            text.encode() + self._plain_end,
            0,
            sys_flag,
            born_ms,
            peer.host,
        )
        counter, size = found[1], put.size
        counter.nums += 1
        counter.size += size
        counter.sizes[(size - 1).bit_length()] += 1
        return put

    def send(
        self,
        ask: SendAsk,
        topic: TopicConfig,
        body: Buffer,
        peer: Peer,
        *,
        times_max: int | None = None,
        as_five: bool = False,
    ) -> SentMessage:
        """Store one message of a topic that `check` returned.

        times_max: maximum of redeliveries of a retry message, overriding its group's.
        as_five: with the region and the trace switch, as brokers of 5.x store it.
        Raises: Refused.
        """
        # A popped message that is sent on: its receipt is that of the message it was.
        properties = remove_property((ask.properties or "").encode(), b"POP_CK")
        queue_id = ask.queue_id
        if queue_id < 0:
            queue_id = self._random_below(topic.write_queues)
        if topic.by_priority:
            queue_id = queue_of_priority(properties, topic, queue_id)
        if self._once.applies(topic):
            first = self._once.first(topic.topic, properties, body)
            if first is not None:
                return self._repeated(first, topic.topic, properties, as_five=as_five)
        sent = self._send_new(ask, topic, body, peer, (properties, queue_id, times_max), as_five)
        if self._once.applies(topic):
            self._once.note(topic.topic, properties, body, sent.position)
        return sent

    def _repeated(
        self, first: FirstCopy, topic: str, properties: bytes, *, as_five: bool
    ) -> SentMessage:
        """Answer a send as its first one was."""
        end = first.end if waits_by(properties) and self._durability.waits else None
        is_half = (get_property(properties, b"TRAN_MSG") or b"").lower() == b"true"
        transaction = with_transaction_id(properties)[1] if is_half and as_five else None
        handle = self._recall_handle(topic, first.position)
        return SentMessage(
            first.position, first.queue_id, first.queue_offset, end, handle, transaction
        )

    def _send_new(
        self,
        ask: SendAsk,
        topic: TopicConfig,
        body: Buffer,
        peer: Peer,
        what: tuple[bytes, int, int | None],
        as_five: bool,
    ) -> SentMessage:
        """Store one message. what: its properties, queue id, and times_max of `send`. Raises: Refused."""
        properties, queue_id, times_max = what
        name = topic.topic
        store_queue_id = queue_id
        dead = self._dead_letter(ask, times_max)
        if dead is not None:
            self._deliveries.dead(ask.topic, dead.topic, properties)
            name, store_queue_id, topic = dead.topic, 0, dead
            properties = add_property(remove_property(properties, b"DELAY"), b"DELAY", b"0")
        sys_flag, wait = flags_of(ask.sys_flag, topic), _waits(ask)
        transaction = lite = None
        properties = add_property(
            remove_property(self._lite.cleared(topic, properties), b"CLUSTER"),
            b"CLUSTER",
            self._cluster,
        )
        if as_five:
            properties = self.added.with_trace(properties)
        if (get_property(properties, b"TRAN_MSG") or b"").lower() == b"true":
            if as_five:
                properties, transaction = with_transaction_id(properties)
            name, store_queue_id, properties = self._half(name, store_queue_id, properties)
            sys_flag &= ~_TRANSACTION_MASK
            # A half message is never delayed: the client has removed DELAY, and so do we. RocketMQ 4.9.7 and
            # 5.5.0 accept one that has it, and discard it when it is due (ScheduleMessageService: "[BUG]").
            properties = remove_property(properties, b"DELAY")
        elif (lite := self._lite.mark(topic, properties)) is not None:
            properties = remove_property(lite.properties, b"WAIT")
        elif properties.find(b"DELAY\x01") < 0:
            properties = remove_property(properties, b"WAIT")
        else:
            check_delay(properties)
        try:
            stored = self._put.put(
                name,
                store_queue_id,
                body,
                # As 4.9.7 stores them, and as the short way does: without the last separator.
                properties.removesuffix(b"\x02"),
                born_host=peer.host,
                flag=ask.flag,
                sys_flag=sys_flag,
                born_ms=ask.born_timestamp,
                reconsume_times=ask.reconsume_times or 0,
            )
        except StoreError as error:
            raise store_refusal(error, self._store) from error
        put = stored.appended
        if lite is not None:
            self._lite.stored(lite, put.position, put.store_ms)
        handle = self._recall_handle(name, put.position) if stored.topic == TIMER_TOPIC else None
        end = put.position + put.size if wait and self._durability.waits else None
        return SentMessage(put.position, queue_id, put.queue_offset, end, handle, transaction)

    def _recall_handle(self, topic: str, position: int) -> str | None:
        """Return the handle for cancelling the message (5.x); None if it is not timed."""
        data = self._store.record_at(position)
        if data is None:
            return None
        properties = read_record(data, check_crc=False).properties
        key, out_ms = get_property(properties, b"UNIQ_KEY"), get_property(properties, OUT_MS)
        if key is None or out_ms is None:
            return None
        broker_name = self._config.broker_name
        return RecallHandle(topic, broker_name, int(out_ms) + 1, key.decode()).encode()

    def _half(self, topic: str, queue_id: int, properties: bytes) -> tuple[str, int, bytes]:
        """Return topic, queue and properties of a half message, which is kept there until it is committed.

        Raises: Refused, as for a delivery time that would be refused when it is committed.
        """
        if self._config.reject_transaction_message:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden",
            )
        try:
            self._put.check_time(properties)
        except StoreError as error:
            raise store_refusal(error, self._store) from error
        for name in _OF_HALF:
            # A consumer that sends a transaction's message on brings those of the message it was.
            properties = remove_property(properties, name)
        properties = add_property(properties, b"REAL_TOPIC", topic.encode())
        return TRANS_HALF_TOPIC, 0, add_property(properties, b"REAL_QID", b"%d" % queue_id)

    def _dead_letter(self, ask: SendAsk, times_max: int | None) -> TopicConfig | None:
        """Return the dead-letter topic if a send to a retry topic exceeds the maximum of attempts."""
        if not ask.topic.startswith(RETRY_PREFIX):
            return None
        group_name = ask.topic[len(RETRY_PREFIX) :]
        # The retries of a group that pops are kept by topic.
        first = get_property((ask.properties or "").encode(), b"RETRY_TOPIC") or b""
        popping = group_of_retry(ask.topic, first.decode("utf-8", "replace"))
        if self._groups.get(group_name) is None and self._groups.get(popping) is not None:
            group_name = popping
        group = self._groups.find(group_name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name} {FAQ}",
            )
        if times_max is None:
            times_max = group.retry_max_times
        if (ask.reconsume_times or 0) < times_max:
            return None
        return self._topics.create_internal(dlq_topic(group_name), 1)

    # ------------------------------------------------------------ a batch

    def _repeated_batch(self, ask: SendAsk, topic: TopicConfig, body: Buffer) -> SentBatch | None:
        """Return the answer to a batch that was stored before; None if it is new."""
        found = self._once.first_batch(topic, body)
        if not found:
            return None
        end = max(each.end for each in found) if _waits(ask) and self._durability.waits else None
        positions = [each.position for each in found]
        return SentBatch(positions, found[0].queue_id, found[0].queue_offset, end)

    def send_batch(
        self, ask: SendAsk, topic: TopicConfig, body: Buffer, peer: Peer, *, as_five: bool = False
    ) -> SentBatch:
        """Store a batch of a topic that `check` returned. as_five: see `send`. Raises: Refused."""
        self._lite.refuse_batch(topic)
        repeated = self._repeated_batch(ask, topic, body)
        if repeated is not None:
            return repeated
        queue_id = ask.queue_id
        if queue_id < 0:
            queue_id = self._random_below(topic.write_queues)
        name = topic.topic
        sys_flag, text = flags_of(ask.sys_flag, topic), ask.properties or ""
        place = BatchPlace(name, queue_id, sys_flag, ask.born_timestamp, text, as_five)
        batch = self.append_batch(place, body, peer.host, self._stats.put_counter(name, queue_id))
        self._once.note_batch(topic, body, batch.positions)
        return batch

    def append_batch(
        self, place: "BatchPlace", body: Buffer, host: bytes, counter: PutCounter
    ) -> SentBatch:
        """Store a batch that needs no check. Raises: Refused."""
        topic, queue_id, sys_flag, born_ms, text, as_five = place
        properties, wait = self.added.of_batch(text, as_five)
        store = self._store
        end_before = store.commit_log_max_position
        try:
            batch = store.append_batch(topic, queue_id, body, properties, sys_flag, born_ms, host)
        except StoreError as error:
            raise store_refusal(error, store) from error
        end = store.commit_log_max_position
        counter.nums += batch.count
        counter.batched += batch.count - 1
        counter.size += end - end_before
        # Those of a batch are taken to be alike.
        counter.sizes[((end - end_before) // batch.count - 1).bit_length()] += batch.count
        waits = end if wait and self._durability.waits else None
        return _new_tuple(SentBatch, (batch.positions, queue_id, batch.queue_offset, waits))


class BatchPlace(NamedTuple):
    """Where a batch goes; text: the properties that all its messages get; as_five: see SendActs.send."""

    topic: str
    queue_id: int
    sys_flag: int
    born_ms: int
    text: str
    as_five: bool


# A named tuple without the cost of its own __new__, for every batch.
_new_tuple = tuple.__new__


def _waits(ask: SendAsk) -> bool:
    """Return True if the sender wants to wait until the message is safe."""
    return waits_by((ask.properties or "").encode())
