"""Sending: SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE. Source: SendMessageProcessor,
AbstractSendMessageProcessor, RocketMQ 4.9.7; wire.md 3.2.

1. A plain message to a known topic takes the short way (`_send`): no header object, no dictionary of
   properties, an answer made from a template. Anything else takes `_send_checked`, in RocketMQ's order.
2. What is refused says so with RocketMQ's code and remark; MSG_REGION and TRACE_ON are in every answer.
3. With SYNC_FLUSH an answer waits until the log is on the disk; all that wait for one flush share one
   callback. A flush that fails or takes too long is answered with FLUSH_DISK_TIMEOUT, never with SUCCESS.
4. 4.9 does not store WAIT of a plain message, and adds CLUSTER to each.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial

from pocketmq.broker.message_put import HOST_V6_FLAGS
from pocketmq.broker.parts import Messages, Node, Tables
from pocketmq.broker.stats import PutCounter
from pocketmq.broker.topic_config import TopicConfig
from pocketmq.broker.wire.send_answer import SendAnswers
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.connection import Connection, Handler, Reply
from pocketmq.remoting.flags import MessageSysFlag, Perm
from pocketmq.remoting.headers import SendMessageHeader, SendMessageV2Header
from pocketmq.remoting.message_codec import add_property, get_property, remove_property
from pocketmq.remoting.names import (
    FAQ,
    RETRY_PREFIX,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    dlq_topic,
    is_broker_only,
    topic_fault,
)
from pocketmq.remoting.recall_handle import RecallHandle
from pocketmq.remoting.record import read_record
from pocketmq.store import (
    Appended,
    MessageIllegal,
    MessageStore,
    MessageTooLarge,
    StoreError,
    StoreNotWriteable,
)
from pocketmq.store.timer_properties import OUT_MS

log = logging.getLogger(__name__)

AnySendHeader = SendMessageHeader | SendMessageV2Header
_TRANSACTION_MASK = 0xC
_UNIT, _UNIT_SUB = 1, 2
_INT_MIN = -0x8000_0000
_BATCH_PROPERTIES_MAX = 256


class _Target:
    """A topic as the short way needs it: how many queues, and one counter for each."""

    __slots__ = ("counters", "queue_count")

    def __init__(self, queue_count: int) -> None:
        self.queue_count = queue_count
        self.counters: list[PutCounter | None] = [None] * queue_count


class SendRefused(Exception):
    """A send that is answered with `code` and `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class SendMessageProcessor:
    """Handlers of the three codes; also what replies and send-backs use to check and to answer."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config = node.config
        self._now_ms = node.clock.now_ms
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = store = messages.store
        self._append = store.append
        self._stats = messages.stats
        self._put = messages.put
        self._random_below = random_below
        self._sync = store.config.flush_disk_type == "SYNC_FLUSH"
        self._host = node.store_host.hex().upper()
        self._targets: dict[str, _Target] = {}
        # Properties of a batch as they came -> as they are stored, and whether it waits for the disk.
        self._batch_properties: dict[str, tuple[bytes, bool]] = {}
        self._cluster = b"\x02CLUSTER\x01" + config.broker_cluster_name.encode()
        self.forget_targets()
        self._flush_waits: set[asyncio.Future[None]] = set()
        self._parked: list[tuple[Connection, bytes]] = []
        self._parked_at: asyncio.Future[None] | None = None

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send_v1,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

    def forget_targets(self, changed: object = None) -> None:
        """Topics or settings have changed: the short way looks them up again."""
        self._targets.clear()
        trace = str(self._config.trace_on).lower()
        region = self._config.region_id
        self.answer_ext = {"MSG_REGION": region, "TRACE_ON": trace}
        self._answers = SendAnswers(self._host, self.answer_ext)

    # ------------------------------------------------------------ the short way

    def send_v2(self, request: RemotingCommand, connection: Connection) -> Reply:
        """SEND_MESSAGE_V2, the code of the official Java client."""
        ext = request.ext
        try:
            topic = ext["b"]  # type: ignore[index]
            target = self._targets[topic]
            queue_id = int(ext["e"])  # type: ignore[index]
            born_ms = int(ext["g"])  # type: ignore[index]
            text = ext["i"]  # type: ignore[index]
            # Most messages have neither flag: a comparison is cheaper than a conversion.
            word = ext["f"]  # type: ignore[index]
            sys_flag = 0 if word == "0" else int(word) & ~HOST_V6_FLAGS
            word = ext["h"]  # type: ignore[index]
            flag = 0 if word == "0" else int(word)
        except (KeyError, TypeError, ValueError):
            return self._send_checked(request, connection)
        if ext.get("m") == "true" or ext.get("j", "0") != "0":  # type: ignore[union-attr]
            return self._send_checked(request, connection)
        return self._send(
            request, connection, target, topic, queue_id, sys_flag, born_ms, flag, text
        )

    def send_v1(self, request: RemotingCommand, connection: Connection) -> Reply:
        """SEND_MESSAGE, the code of the Go client."""
        ext = request.ext
        try:
            topic = ext["topic"]  # type: ignore[index]
            target = self._targets[topic]
            queue_id = int(ext["queueId"])  # type: ignore[index]
            sys_flag = int(ext["sysFlag"]) & ~HOST_V6_FLAGS  # type: ignore[index]
            born_ms = int(ext["bornTimestamp"])  # type: ignore[index]
            flag = int(ext["flag"])  # type: ignore[index]
            text = ext["properties"]  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            return self._send_checked(request, connection)
        if ext.get("batch") == "true" or ext.get("reconsumeTimes", "0") != "0":  # type: ignore[union-attr]
            return self._send_checked(request, connection)
        return self._send(
            request, connection, target, topic, queue_id, sys_flag, born_ms, flag, text
        )

    def _send(
        self,
        request: RemotingCommand,
        connection: Connection,
        target: _Target,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        flag: int,
        text: str,
    ) -> Reply:
        """Append and answer a message whose properties ask for nothing special."""
        if (
            "DELAY\x01" in text
            or "TRAN_MSG\x01" in text
            or "CLUSTER\x01" in text
            or "POP_CK\x01" in text
            or "TIMER_D" in text
            or not 0 <= queue_id < target.queue_count
        ):
            return self._send_checked(request, connection)
        wait = True
        # Where the official client puts WAIT=true, most of the time.
        text = text.replace("\x02WAIT\x01true\x02", "\x02", 1)
        if "WAIT\x01" in text:
            text, wait = _without_wait(text)
        if not text:
            return self._send_checked(request, connection)
        properties = text.encode()
        properties += self._cluster if properties[-1] != 2 else self._cluster[1:]
        try:
            position, queue_offset, _, size = self._append(
                topic,
                queue_id,
                request.body,
                properties,
                flag,
                sys_flag,
                born_ms,
                connection.peer_host,
            )
        except StoreError as error:
            return self._refuse(request, connection, _store_refusal(error, self._store))
        counter = target.counters[queue_id]
        if counter is None:
            counter = target.counters[queue_id] = self._stats.put_counter(topic, queue_id)
        counter.nums += 1
        counter.size += size
        reply = self._answers.one(request, position, queue_id, queue_offset)
        if self._sync and wait:
            return self._when_flushed(request, connection, position + size, reply)
        return reply

    def send_batch(self, request: RemotingCommand, connection: Connection) -> Reply:
        """SEND_BATCH_MESSAGE: many messages in one body, for one queue."""
        ext = request.ext
        try:
            topic = ext["b"]  # type: ignore[index]
            target = self._targets[topic]
            queue_id = int(ext["e"])  # type: ignore[index]
            sys_flag = int(ext["f"]) & ~HOST_V6_FLAGS  # type: ignore[index]
            born_ms = int(ext["g"])  # type: ignore[index]
            text = ext.get("i") or ""  # type: ignore[union-attr]
        except (KeyError, TypeError, ValueError):
            return self._send_checked(request, connection)
        if ext.get("j", "0") != "0" or not 0 <= queue_id < target.queue_count:  # type: ignore[union-attr]
            return self._send_checked(request, connection)
        counter = target.counters[queue_id]
        if counter is None:
            counter = target.counters[queue_id] = self._stats.put_counter(topic, queue_id)
        try:
            return self._append_batch(
                request, connection, topic, queue_id, sys_flag, born_ms, text, counter
            )
        except StoreError as error:
            return self._refuse(request, connection, _store_refusal(error, self._store))

    def _append_batch(
        self,
        request: RemotingCommand,
        connection: Connection,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        text: str,
        counter: PutCounter,
    ) -> Reply:
        """Append and answer a batch; `text`: the properties that all its messages get. Raises: StoreError."""
        outer = self._batch_properties.get(text)
        if outer is None:
            if len(self._batch_properties) >= _BATCH_PROPERTIES_MAX:
                self._batch_properties.clear()
            outer = self._batch_properties[text] = self._outer_properties(text.encode())
        properties, wait = outer
        store = self._store
        end_before = store.commit_log_max_position
        batch = store.append_batch(
            topic, queue_id, request.body, properties, sys_flag, born_ms, connection.peer_host
        )
        end = store.commit_log_max_position
        counter.nums += batch.count
        counter.batched += batch.count - 1
        counter.size += end - end_before
        reply = self._answers.batch(request, batch.positions, queue_id, batch.queue_offset)
        if self._sync and wait:
            return self._when_flushed(request, connection, end, reply)
        return reply

    def _outer_properties(self, properties: bytes) -> tuple[bytes, bool]:
        """With CLUSTER, and whether a send waits for the disk."""
        wait = get_property(properties, b"WAIT") in (None, b"true")
        cleared = remove_property(remove_property(properties, b"POP_CK"), b"CLUSTER")
        return add_property(cleared, b"CLUSTER", self._cluster[9:]), wait

    # ------------------------------------------------------------ RocketMQ's order

    def _send_checked(self, request: RemotingCommand, connection: Connection) -> Reply:
        """Any send, checked step by step (wire.md 3.2)."""
        code = request.code
        header: AnySendHeader
        if code == RequestCode.SEND_MESSAGE:
            header = SendMessageHeader.parse(request.ext)
        else:
            header = SendMessageV2Header.parse(request.ext)
        try:
            topic = self.check(header, connection)
            stored = self._topics.stored(topic.topic_name)
            if stored is not None:
                stored.add_done_callback(partial(self._send_again, request, connection))
                return None
            if code == RequestCode.SEND_BATCH_MESSAGE or header.batch:
                return self._send_batch(request, connection, header, topic)
            return self._send_one(request, connection, header, topic)
        except SendRefused as refused:
            return self._refuse(request, connection, refused)
        except StoreError as error:
            return self._refuse(request, connection, _store_refusal(error, self._store))

    def _send_again(
        self, request: RemotingCommand, connection: Connection, stored: "asyncio.Future[None]"
    ) -> None:
        """A message whose topic is saved now, or could not be: a crash would have forgotten it."""
        reply: Reply
        error = stored.exception()
        if error is None:
            try:
                reply = self._send_checked(request, connection)
            except Exception as bug:
                log.exception("request failed code=%s peer=%s", request.code, connection.peer)
                reply = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(bug).__name__}: {bug}")
        else:
            refused = SendRefused(
                ResponseCode.SYSTEM_ERROR, f"the topic could not be saved: {error}"
            )
            reply = self._refuse(request, connection, refused)
        if reply is not None and not request.is_oneway:
            connection.send(reply)

    def check(self, header: AnySendHeader, connection: Connection) -> TopicConfig:
        """The topic of a send, made when it may be (steps 2 to 7). Raises: SendRefused."""
        config = self._config
        if self._now_ms() < config.start_accept_send_request_time_stamp:
            until = _human_time(config.start_accept_send_request_time_stamp)
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {until}")
        name = header.topic
        if not config.broker_permission & Perm.WRITE and self._topics.is_order(name):
            raise SendRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden",
            )
        fault = topic_fault(name)
        if fault is not None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, fault)
        if is_broker_only(name):
            raise SendRefused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        topic = self._topics.get(name)
        if topic is None:
            topic = self._create(header, connection)
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        queue_id = header.queue_id
        if (
            queue_id >= count
            or queue_id < _INT_MIN
            or (queue_id < 0 and not topic.write_queue_nums)
        ):
            remark = (
                f"request queueId[{header.queue_id}] is illegal, {topic} "
                f"Producer: {connection.peer}"
            )
            log.warning("%s", remark)
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._remember(topic, count)
        return topic

    def _create(self, header: AnySendHeader, connection: Connection) -> TopicConfig:
        name = header.topic
        is_retry = name.startswith(RETRY_PREFIX)
        log.info("the topic %s not exist, producer: %s", name, connection.peer)
        unit = (_UNIT_SUB if is_retry else _UNIT) if header.unit_mode else 0
        topic = self._topics.create_in_send(
            name, header.default_topic, connection.peer, header.default_topic_queue_nums, unit
        )
        if topic is None and is_retry:
            topic = self._topics.create_internal(name, 1, sys_flag=unit)
        if topic is None:
            raise SendRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please!{FAQ}",
            )
        return topic

    def _remember(self, topic: TopicConfig, count: int) -> None:
        """Let the next plain message to this topic take the short way."""
        if (
            topic.order
            or topic.topic_filter_type != "SINGLE_TAG"
            or topic.topic_name.startswith(RETRY_PREFIX)
            or topic.topic_name in self._targets
            or self._topics.stored(topic.topic_name) is not None
        ):
            return
        self._targets[topic.topic_name] = _Target(count)

    def _send_one(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: AnySendHeader,
        topic: TopicConfig,
    ) -> Reply:
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random_below(topic.write_queue_nums)
        # A popped message that is sent on: its receipt is that of the message it was.
        properties = remove_property((header.properties or "").encode(), b"POP_CK")
        name = topic.topic_name
        store_queue_id = queue_id
        dead = self._dead_letter(request, header)
        if dead is not None:
            name, store_queue_id, topic = dead.topic_name, 0, dead
            properties = add_property(remove_property(properties, b"DELAY"), b"DELAY", b"0")
        sys_flag = header.sys_flag & ~HOST_V6_FLAGS
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= MessageSysFlag.MULTI_TAGS
        wait = get_property(properties, b"WAIT") in (None, b"true")
        properties = add_property(
            remove_property(properties, b"CLUSTER"), b"CLUSTER", self._cluster[9:]
        )
        if (get_property(properties, b"TRAN_MSG") or b"").lower() == b"true":
            name, store_queue_id, properties = self._half(name, store_queue_id, properties)
            sys_flag &= ~_TRANSACTION_MASK
            # A half message is never delayed: the client has removed DELAY, and so do we.
            properties = remove_property(properties, b"DELAY")
        elif b"DELAY\x01" not in properties:
            properties = remove_property(properties, b"WAIT")
        stored = self._put.put(
            name,
            store_queue_id,
            request.body,
            # As 4.9.7 stores them, and as the short way does: without the last separator.
            properties.removesuffix(b"\x02"),
            born_host=connection.peer_host,
            flag=header.flag,
            sys_flag=sys_flag,
            born_ms=header.born_timestamp,
            reconsume_times=header.reconsume_times or 0,
        )
        put = stored.appended
        reply = self._answers.one(request, put.position, queue_id, put.queue_offset)
        if stored.topic == TIMER_TOPIC:
            reply = self._recallable(reply, name, stored.appended)
        if self._sync and wait:
            return self._when_flushed(request, connection, put.position + put.size, reply)
        return reply

    def _recallable(self, reply: bytes, topic: str, put: Appended) -> bytes:
        """The answer with the handle by which the producer may cancel the message (5.x)."""
        data = self._store.record_at(put.position)
        if data is None:
            return reply
        properties = read_record(data, check_crc=False).properties
        key, out_ms = get_property(properties, b"UNIQ_KEY"), get_property(properties, OUT_MS)
        if key is None or out_ms is None:
            return reply
        handle = RecallHandle(topic, self._config.broker_name, int(out_ms) + 1, key.decode())
        answer = decode(reply[4:])
        answer.ext = {**(answer.ext or {}), "recallHandle": handle.encode()}
        return encode(answer)

    def _half(self, topic: str, queue_id: int, properties: bytes) -> tuple[str, int, bytes]:
        """Where a prepared message is kept until it is committed (wire.md 3.8)."""
        if self._config.reject_transaction_message:
            raise SendRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden",
            )
        properties = remove_property(remove_property(properties, b"REAL_TOPIC"), b"REAL_QID")
        properties = add_property(properties, b"REAL_TOPIC", topic.encode())
        properties = add_property(properties, b"REAL_QID", str(queue_id).encode())
        return TRANS_HALF_TOPIC, 0, properties

    def _dead_letter(self, request: RemotingCommand, header: AnySendHeader) -> TopicConfig | None:
        """The dead-letter topic when a send to a retry topic comes once too often (step 8)."""
        if not header.topic.startswith(RETRY_PREFIX):
            return None
        group_name = header.topic[len(RETRY_PREFIX) :]
        group = self._groups.find(group_name)
        if group is None:
            raise SendRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name} {FAQ}",
            )
        times_max = group.retry_max_times
        if request.version >= Version.V3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if (header.reconsume_times or 0) < times_max:
            return None
        return self._topics.create_internal(dlq_topic(group_name), 1)

    def _send_batch(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: AnySendHeader,
        topic: TopicConfig,
    ) -> Reply:
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random_below(topic.write_queue_nums)
        sys_flag = header.sys_flag & ~HOST_V6_FLAGS
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= MessageSysFlag.MULTI_TAGS
        name = topic.topic_name
        return self._append_batch(
            request,
            connection,
            name,
            queue_id,
            sys_flag,
            header.born_timestamp,
            header.properties or "",
            self._stats.put_counter(name, queue_id),
        )

    # ------------------------------------------------------------ answers

    def _refuse(
        self, request: RemotingCommand, connection: Connection, refused: SendRefused
    ) -> RemotingCommand:
        log.warning(
            "send refused code=%d peer=%s remark=%r", refused.code, connection.peer, refused.remark
        )
        return request.answer(refused.code, refused.remark, dict(self.answer_ext))

    def _when_flushed(
        self, request: RemotingCommand, connection: Connection, end: int, reply: bytes
    ) -> Reply:
        """The answer now, or parked until the log is on the disk up to `end` (invariant 3)."""
        future = self._store.flushed(end)
        if future is None:
            return reply
        if request.flag & 2:
            return None
        if future is not self._parked_at:
            self._parked_at = future
            self._parked = []
            self._flush_waits.add(future)
            wait = _FlushWait(self._parked, self._store.config.sync_flush_timeout)
            future.add_done_callback(wait.done)
            future.add_done_callback(self._flush_waits.discard)
        self._parked.append((connection, reply))
        return None

    async def drain(self) -> None:
        """Wait for the flushes that answers are parked for; used when the broker stops."""
        if self._flush_waits:
            timeout_ms = self._store.config.sync_flush_timeout
            await asyncio.wait(list(self._flush_waits), timeout=timeout_ms / 1000)


class _FlushWait:
    """The answers that wait for one flush, and how long they may."""

    __slots__ = ("_parked", "_timeout_ms", "_timer")

    def __init__(self, parked: list[tuple[Connection, bytes]], timeout_ms: int) -> None:
        self._parked = parked
        self._timeout_ms = timeout_ms
        self._start_timer()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_ms / 1000, self._expired)

    def done(self, future: "asyncio.Future[None]") -> None:
        """The flush has ended, well or not."""
        self._timer.cancel()
        self._answer(failed=future.cancelled() or future.exception() is not None)

    def _expired(self) -> None:
        log.error("a flush to disk takes too long; sends are answered with FLUSH_DISK_TIMEOUT")
        self._answer(failed=True)
        # More may be parked for the same flush before it ends.
        self._start_timer()

    def _answer(self, *, failed: bool) -> None:
        parked = self._parked.copy()
        self._parked.clear()
        for connection, reply in parked:
            connection.send(_late(reply) if failed else reply)


def _late(reply: bytes) -> bytes:
    """FLUSH_DISK_TIMEOUT instead of SUCCESS, with the same header: it may well be stored."""
    answer = decode(reply[4:])
    answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
    return encode(answer)


def _without_wait(text: str) -> tuple[str, bool]:
    """The properties without WAIT, and whether it was absent or true.

    >>> _without_wait("KEYS\\x01k\\x02WAIT\\x01true")
    ('KEYS\\x01k', True)
    >>> _without_wait("WAIT\\x01false\\x02KEYS\\x01k\\x02")
    ('KEYS\\x01k\\x02', False)
    >>> _without_wait("XWAIT\\x01true")
    ('XWAIT\\x01true', True)
    """
    if text.endswith("\x02WAIT\x01true"):
        return text[:-10], True
    properties = text.encode()
    wait = get_property(properties, b"WAIT")
    if wait is None:
        return text, True
    return remove_property(properties, b"WAIT").decode(), wait == b"true"


def _store_refusal(error: StoreError, store: MessageStore) -> SendRefused:
    """RocketMQ's code and remark for what the store raises (step 11)."""
    if isinstance(error, MessageTooLarge):
        return SendRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body "
            f"length limit {store.config.max_message_size}B, msg properties length limit 32KB.",
        )
    if isinstance(error, MessageIllegal):
        return SendRefused(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if isinstance(error, StoreNotWriteable):
        return SendRefused(ResponseCode.SERVICE_NOT_AVAILABLE, _not_available(str(error)))
    return SendRefused(ResponseCode.SYSTEM_ERROR, str(error))


def _not_available(why: str) -> str:
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's "
        "disk is full, messages are put to the slave, message store has been shut down, etc. "
        f"Here: {why}"
    )


def _human_time(ms: int) -> str:
    """`2026-11-21 12:30:00,000`, as RocketMQ's remarks show a time."""
    text = datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{text},{ms % 1000:03d}"
