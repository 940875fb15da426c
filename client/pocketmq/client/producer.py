"""Producer: sends messages (S33).

    async with Producer("my_producers", name_server="127.0.0.1:9876") as producer:
        result = await producer.send(Message("TopicTest", b"hello", tags="tagA", keys="k1"))

`send` waits for the broker's answer; `submit` gives a future, so that one task can have many messages under
way, at a third of the cost of a task for each. Source: DefaultMQProducer,
RocketMQ 4.9.7.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from pocketmq.client import batch, instances, request_reply
from pocketmq.client.config import ClientConfig, ClientOptions, own_instance_name
from pocketmq.client.errors import IllegalMessage, NotRunning
from pocketmq.client.namespace import (
    check_group,
    check_send_topic,
    with_namespace,
    without_namespace,
)
from pocketmq.client.outgoing import SendSettings
from pocketmq.client.send import SendEngine
from pocketmq.client.send_result import SendResult
from pocketmq.client.trace_dispatcher import ProduceTrace, TraceDispatcher
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.flags import Compression
from pocketmq.remoting.java_hash import string_hash
from pocketmq.remoting.message import Message, MessageExt, MessageQueue, Property
from pocketmq.remoting.names import AUTO_CREATE_TOPIC
from pocketmq.remoting.recall_handle import RecallHandle

if TYPE_CHECKING:
    from pocketmq.client.instance import MQClientInstance

log = logging.getLogger(__name__)

DELAY_LEVEL_MAX = 18

SelectQueue = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues."""


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of Producer, for classes that hand them on."""

    send_timeout_ms: int
    retry_times: int
    max_message_size: int
    compress_over: int
    compression: Compression
    latency_fault_tolerance: bool
    retry_when_not_stored_ok: bool
    wait_for_broker: bool
    in_flight_max: int
    in_flight_size_max: int
    create_topic_key: str
    default_topic_queue_nums: int
    trace: bool
    trace_topic: str | None


class Producer:
    """A producer of one group; start it by `async with`, or by start() and shutdown().

    Args: group names this kind of producer; transactions are checked with any member of it.
    send_timeout_ms: for all attempts of a send. retry_times: further attempts after the first.
    max_message_size, compress_over: bytes of a body; compression: how bodies of that size are packed.
    latency_fault_tolerance: leave slow brokers alone for a while. retry_when_not_stored_ok: try another
    broker when the first stored the message less safely than asked. wait_for_broker: while none can be
    reached (it restarts, say), try again until the time-out. in_flight_max, in_flight_size_max: how
    many messages with how many bytes may be under way; a send beyond that waits. trace: tell the trace
    topic of each message. name_server and further options: see ClientOptions.
    """

    def __init__(
        self,
        group: str,
        *,
        send_timeout_ms: int = 3_000,
        retry_times: int = 2,
        max_message_size: int = 4 * 1024 * 1024,
        compress_over: int = 4096,
        compression: Compression = Compression.ZLIB,
        latency_fault_tolerance: bool = False,
        retry_when_not_stored_ok: bool = False,
        wait_for_broker: bool = True,
        in_flight_max: int = 1_000,
        in_flight_size_max: int = 64 * 1024 * 1024,
        create_topic_key: str = AUTO_CREATE_TOPIC,
        default_topic_queue_nums: int = 4,
        trace: bool = False,
        trace_topic: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Raises: IllegalGroup, IllegalArgument."""
        self.config = ClientConfig.of(options)
        self.group = check_group(group)
        if in_flight_max < 1 or in_flight_size_max < 1:
            raise IllegalArgument("in_flight_max and in_flight_size_max must be at least 1")
        self._inner_group = with_namespace(self.config.namespace, group)
        self._settings = SendSettings(
            send_timeout_ms=send_timeout_ms,
            retry_times=retry_times,
            max_message_size=max_message_size,
            compress_over=compress_over,
            compression=compression,
            retry_when_not_stored_ok=retry_when_not_stored_ok,
            wait_for_broker=wait_for_broker,
            in_flight_max=in_flight_max,
            in_flight_size_max=in_flight_size_max,
            create_topic_key=create_topic_key,
            default_topic_queue_nums=default_topic_queue_nums,
        )
        self._latency_fault_tolerance = latency_fault_tolerance
        self._trace = trace
        self._trace_topic = trace_topic
        self._client_id = self.config.client_id(own_instance_name())
        self._instance: MQClientInstance | None = None
        self._engine: SendEngine | None = None
        self._tracer: TraceDispatcher | None = None
        self._requested: set[str] = set()

    @property
    def client_id(self) -> str:
        """Who this producer is at the brokers."""
        return self._client_id

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Join the client instance; connections are made when first needed.

        Raises: GroupInUse, InstanceConflict.
        """
        if self._instance is not None:
            raise NotRunning(f"producer {self.group!r} is started already")
        instance = await instances.acquire(self._client_id, self.config)
        try:
            engine = SendEngine(
                instance,
                self._inner_group,
                self._settings,
                namespace=self.config.namespace,
                latency_fault_tolerance=self._latency_fault_tolerance,
            )
            instance.register_producer(_Member(self, engine))
        except BaseException:
            await instances.release(instance)
            raise
        self._instance, self._engine = instance, engine
        # Whoever joins an instance that knows brokers is told to them now, not by the next timer.
        await instance.heartbeat_all()
        if self._trace:
            self._tracer = TraceDispatcher(
                self.group, "PRODUCE", self.config, trace_topic=self._trace_topic
            )
            await self._tracer.start()
            engine.hooks.append(ProduceTrace(self._tracer, self.group, self.config.clock))
        log.info("producer started group=%s client=%s", self.group, self._client_id)

    async def shutdown(self) -> None:
        """Wait for what is under way, unregister, close what nobody else uses. May be called twice."""
        instance, engine = self._instance, self._engine
        self._instance = self._engine = None
        if instance is None or engine is None:
            return
        await engine.room.empty()
        if self._tracer is not None:
            await self._tracer.shutdown()
            self._tracer = None
        await instance.unregister_producer(self._inner_group)
        await instances.release(instance)
        log.info("producer shut down group=%s client=%s", self.group, self._client_id)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def _running(self) -> "tuple[MQClientInstance, SendEngine]":
        if self._instance is None or self._engine is None:
            raise NotRunning(
                f"producer {self.group!r} is not started: use `async with Producer(...)`, or start()"
            )
        return self._instance, self._engine

    # ------------------------------------------------------------ sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: SelectQueue | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored the message.

        queue, select or sharding_key choose one queue, which is tried once: messages with the same key go
        to the same queue, as Java's SelectMessageQueueByHash has it. delay_level: 1 to 18 of the broker's
        table. deliver_at_ms: ms since 1970, brokers from 5.0 on.

        Raises: IllegalTopic, IllegalMessage, MessageTooLarge, NoRoute, TopicNotExist, NoPermission,
        Unauthorised, SendFailed (nothing stored), SendOutcomeUnknown (may be stored).
        """
        _, engine = self._running()
        check_send_topic(message.topic)
        if delay_level is not None or deliver_at_ms is not None:
            message = delayed(message, delay_level, deliver_at_ms)
        outgoing = engine.outgoing(message)
        if select is not None or sharding_key is not None:
            queue = self._choose(await self.queues(message.topic), select, sharding_key)
        result = await engine.send(outgoing, queue=queue, timeout_ms=timeout_ms)
        return self._shown(result)

    async def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Send without waiting for the answer: the future gets what send() returns or raises.

        It waits while in_flight_max messages are under way, which is all the flow control that a loop
        over `await producer.submit(...)` needs. Messages leave in the order of the calls and PocketMQ stores
        them so; an Apache broker may store what is under way together in another order, and one that is
        tried again comes behind later ones: where order matters, await each send().
        Raises: IllegalTopic, IllegalMessage, MessageTooLarge, NotRunning; all else is in the future.
        """
        _, engine = self._running()
        check_send_topic(message.topic)
        outgoing = engine.outgoing(message)
        if sharding_key is not None:
            queue = self._choose(await self.queues(message.topic), None, sharding_key)
        future = await engine.submit(outgoing, queue=queue)
        return self._shown_later(future) if self.config.namespace else future

    def _shown_later(self, future: "asyncio.Future[SendResult]") -> "asyncio.Future[SendResult]":
        """The future of the result without the namespace."""
        shown: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

        def settle(inner: "asyncio.Future[SendResult]") -> None:
            if shown.done() or inner.cancelled():
                return
            error = inner.exception()
            if error is not None:
                shown.set_exception(error)
            else:
                shown.set_result(self._shown(inner.result()))

        future.add_done_callback(settle)
        return shown

    @staticmethod
    def _choose(
        queues: list[MessageQueue], select: SelectQueue | None, sharding_key: str | None
    ) -> MessageQueue:
        if select is not None:
            return select(queues)
        return queues[queue_index(sharding_key or "", len(queues))]

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send without waiting for an answer: it may be lost without a word.

        Raises: what send() raises before anything leaves.
        """
        _, engine = self._running()
        check_send_topic(message.topic)
        outgoing = engine.outgoing(message)
        if sharding_key is not None:
            queue = self._choose(await self.queues(message.topic), None, sharding_key)
        await engine.send_oneway(outgoing, queue=queue)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their sizes allow, in order.

        Returns: one result a request; its msg_id holds the ids joined by commas. When a request fails, those
        before it are stored. Raises: as send().
        """
        _, engine = self._running()
        listed = list(messages)
        batch.check_batch(listed)
        check_send_topic(listed[0].topic)
        results = []
        for chunk in batch.split(listed, self._settings.max_message_size - _BATCH_ROOM):
            outgoing = engine.outgoing_batch(chunk)
            results.append(
                self._shown(await engine.send(outgoing, queue=queue, timeout_ms=timeout_ms))
            )
        return results

    async def request(self, message: Message, *, timeout_ms: int = 3_000) -> MessageExt:
        """Send a request and wait for the reply that a consumer sends (see `reply_to`).

        Raises: ReplyTimeout, and what send() raises.
        """
        instance, engine = self._running()
        check_send_topic(message.topic)
        topic = with_namespace(self.config.namespace, message.topic)
        if topic not in self._requested:
            # The reply comes by the connection that the brokers know this client by.
            await instance.update_route(topic)
            await instance.heartbeat_all()
            self._requested.add(topic)
        return await request_reply.exchange(
            instance.processor.replies, engine, message, self._client_id, timeout_ms
        )

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a message back before the time of its `deliver_at_ms` (brokers from 5.3 on). Returns: its id.

        recall_handle: of the SendResult. Raises: IllegalMessage for what is no handle; BrokerRefused when the
        time is over or the broker does not allow it.
        """
        instance, _ = self._running()
        inner = with_namespace(self.config.namespace, topic)
        try:
            broker_name = RecallHandle.decode(recall_handle).broker
        except IllegalArgument as error:
            raise IllegalMessage(str(error)) from None
        address = await instance.master_address(inner, broker_name)
        return await instance.api.recall(address, inner, self._inner_group, recall_handle)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to. Raises: NoRoute."""
        _, engine = self._running()
        found = await engine.publish_queues(topic)
        return [replace_topic(queue, topic) for queue in found]

    def _shown(self, result: SendResult) -> SendResult:
        namespace = self.config.namespace
        if not namespace:
            return result
        queue = result.message_queue
        topic = without_namespace(namespace, queue.topic)
        return replace(result, message_queue=replace_topic(queue, topic))

    def _start_check(self, address: str, message: MessageExt, fields: dict[str, str]) -> None:
        log.warning(
            "the broker asks about a transaction, but this is no TransactionProducer group=%s",
            self.group,
        )


# What a batch's frame needs besides its messages stays below this.
_BATCH_ROOM = 4096


class _Member:
    """The producer as its instance sees it."""

    def __init__(self, producer: Producer, engine: SendEngine) -> None:
        self.group = engine.group
        self._producer = producer
        self._engine = engine

    def publish_topics(self) -> Iterable[str]:
        return self._engine.topics

    def start_check(self, address: str, message: MessageExt, fields: dict[str, str]) -> None:
        self._producer._start_check(  # pyright: ignore[reportPrivateUsage]
            address, message, fields
        )


def delayed(message: Message, delay_level: int | None, deliver_at_ms: int | None) -> Message:
    """A copy of the message that is delivered later. Raises: IllegalMessage."""
    properties = dict(message.properties)
    if delay_level is not None:
        if deliver_at_ms is not None:
            raise IllegalMessage("give delay_level or deliver_at_ms, not both")
        if not 1 <= delay_level <= DELAY_LEVEL_MAX:
            raise IllegalMessage(
                f"delay_level must be from 1 to {DELAY_LEVEL_MAX}, not {delay_level}"
            )
        properties[Property.DELAY.value] = str(delay_level)
    elif deliver_at_ms is not None:
        properties[Property.TIMER_DELIVER_MS.value] = str(deliver_at_ms)
    return replace(message, properties=properties)


def queue_index(sharding_key: str, count: int) -> int:
    """Where Java's SelectMessageQueueByHash puts a key: its hash's remainder, made positive.

    >>> queue_index("order-1", 4), queue_index("polygenelubricants", 7)
    (2, 2)
    """
    value = string_hash(sharding_key)
    # Java's % keeps the sign of the dividend.
    return abs(value) % count


def replace_topic(queue: MessageQueue, topic: str) -> MessageQueue:
    return queue if queue.topic == topic else queue._replace(topic=topic)


async def send_all(
    producer: Producer, messages: Iterable[Message], *, window: int = 1_000
) -> list[SendResult]:
    """Send many messages with at most `window` of them under way; results in the order given.

    Raises: an ExceptionGroup of the failures; messages behind the first are not sent.
    """
    results: list[SendResult | None] = []
    failures: list[Exception] = []
    room = asyncio.Semaphore(window)

    def settle(place: int, future: "asyncio.Future[SendResult]") -> None:
        room.release()
        error = future.exception()
        if error is None:
            results[place] = future.result()
        elif isinstance(error, Exception):
            failures.append(error)

    for place, message in enumerate(messages):
        await room.acquire()
        if failures:
            room.release()
            break
        results.append(None)
        try:
            future = await producer.submit(message)
        except PocketMQError as error:
            room.release()
            failures.append(error)
            break
        future.add_done_callback(partial(settle, place))
    for _ in range(window):
        await room.acquire()
    if failures:
        raise ExceptionGroup(f"{len(failures)} messages were not sent", failures)
    return [result for result in results if result is not None]
