"""Producer: sends messages (S33).

    async with Producer("my_producers", name_server="127.0.0.1:9876") as producer:
        result = await producer.send(Message("TopicTest", b"hello", tags="tagA", keys="k1"))

`send` waits for the broker's answer; `submit` returns a future, so that one task can have many messages in
flight, at a third of the cost of a task for each. Source: DefaultMQProducer, RocketMQ 4.9.7.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pocketmq.client import request_reply
from pocketmq.client.argument_types import check_time_ms, check_type
from pocketmq.client.errors import IllegalMessage
from pocketmq.client.group_client import GroupClient
from pocketmq.client.network.namespace import check_send_topic, with_namespace
from pocketmq.client.options import ProducerOptions, takes
from pocketmq.client.send import batch
from pocketmq.client.send.engine import SendEngine
from pocketmq.client.send.result import SendResult
from pocketmq.client.tracing.switch import produce_spans
from pocketmq.client.tracing.trace_dispatcher import ProduceTrace, TraceDispatcher
from pocketmq.model.java_hash import string_hash
from pocketmq.model.message import Message, MessageExt, MessageQueue, Property
from pocketmq.model.recall_handle import RecallHandle
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.frames import FRAME_SIZE_MAX

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)

DELAY_LEVEL_MAX = 18

SelectQueue = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues."""


class Producer(GroupClient[ProducerOptions, "ProducerMember"]):
    """A producer of one group; start it by `async with`, or by start() and shutdown().

    group names this kind of producer; transactions may be checked with any member of it. Options: see
    ProducerOptions.
    """

    _noun = "producer"

    @takes(ProducerOptions)
    def __init__(self, options: ProducerOptions) -> None:
        """Create it without connecting. Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)

    def _set_up(self, options: ProducerOptions, instance_name: str | None = None) -> None:
        super()._set_up(options, instance_name)
        self._tracer: TraceDispatcher | None = None
        self._requested: set[str] = set()

    # ------------------------------------------------------------ life

    async def _join(self, instance: "MQClientInstance") -> "ProducerMember":
        options = self.config
        spans = produce_spans(options.otel, self.group)
        engine = SendEngine(
            instance,
            options.inner_group,
            options,
            namespace=options.namespace,
            carry=None if spans is None else spans.carry,
        )
        if spans is not None:
            engine.hooks.append(spans)
        member = ProducerMember(instance, engine, self._start_check)
        instance.register_producer(member)
        return member

    async def _joined(self, member: "ProducerMember") -> None:
        # A member that joins an instance with known brokers is announced to them now, not by the next timer.
        await member.instance.heartbeat_all()
        options = self.config
        if options.trace:
            self._tracer = TraceDispatcher(
                Producer, self.group, "PRODUCE", options, trace_topic=options.trace_topic
            )
            await self._tracer.start()
            member.engine.hooks.append(ProduceTrace(self._tracer, self.group, options.clock))

    async def _leave(self, member: "ProducerMember") -> None:
        try:
            await member.engine.room.empty()
            tracer, self._tracer = self._tracer, None
            if tracer is not None:
                await tracer.shutdown()
        finally:
            await member.instance.unregister_producer(member.group)

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
        to the same queue, as in Java's SelectMessageQueueByHash. delay_level: 1 to 18 of the broker's
        table. deliver_at_ms: ms since 1970, brokers from 5.0 on.

        Raises: IllegalTopic, IllegalMessage, MessageTooLarge, NoRoute, TopicNotExist, NoPermission,
        Unauthorised, SendFailed (nothing stored), SendOutcomeUnknown (may be stored).
        """
        engine = (self._member or self._running()).engine
        check_send_topic(message.topic)
        if delay_level is not None or deliver_at_ms is not None:
            message = delayed(message, delay_level, deliver_at_ms)
        outgoing = engine.packer.pack(message)
        if select is not None or sharding_key is not None:
            queue, timeout_ms = await self._chosen(message.topic, select, sharding_key, timeout_ms)
        result = await engine.send(outgoing, queue=queue, timeout_ms=timeout_ms)
        return self._result(result) if self.config.namespace else result

    async def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Send without waiting for the answer: the future gets what send() returns or raises.

        It waits while in_flight_max messages are in flight, which is all the flow control that a loop over
        `await producer.submit(...)` needs. Messages are sent in the order of the calls and PocketMQ stores
        them so; an Apache broker may store concurrent ones in another order, and a retried message comes
        behind later ones: where order matters, await each send().
        Raises: IllegalTopic, IllegalMessage, MessageTooLarge, NotRunning; other errors are in the future.
        """
        engine = self._running().engine
        check_send_topic(message.topic)
        outgoing = engine.outgoing(message)
        left_ms: int | None = None
        if sharding_key is not None:
            queue, left_ms = await self._chosen(message.topic, None, sharding_key)
        future = await engine.submit(outgoing, queue=queue, timeout_ms=left_ms)
        return self._shown_later(future) if self.config.namespace else future

    def _shown_later(self, future: "asyncio.Future[SendResult]") -> "asyncio.Future[SendResult]":
        """Return a future of the result without the namespace."""
        shown: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

        def settle(inner: "asyncio.Future[SendResult]") -> None:
            if shown.done() or inner.cancelled():
                return
            error = inner.exception()
            if error is not None:
                shown.set_exception(error)
            else:
                shown.set_result(self._result(inner.result()))

        future.add_done_callback(settle)
        return shown

    async def _chosen(
        self,
        topic: str,
        select: SelectQueue | None,
        sharding_key: str | None,
        timeout_ms: int | None = None,
    ) -> tuple[MessageQueue, int | None]:
        """Return the queue that a send chooses, and what the look-up left of its time (None: all)."""
        check_type("sharding_key", sharding_key, str, type(None))
        began_ms = self.config.clock.monotonic_ms()
        queues = await self._queues(topic, timeout_ms)
        index = 0 if select is not None else queue_index(sharding_key or "", len(queues))
        queue = queues[index] if select is None else select(queues)
        return queue, self._rest_ms(began_ms, timeout_ms)

    def _rest_ms(self, began_ms: int, timeout_ms: int | None) -> int | None:
        """Return the rest of a time-out, which is the option's if it is None; None if all of that is left."""
        waited_ms = self.config.clock.monotonic_ms() - began_ms
        if not waited_ms:
            return timeout_ms
        whole_ms = self.config.send_timeout_ms if timeout_ms is None else timeout_ms
        return max(1, whole_ms - waited_ms)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send without an answer: the message may be lost silently.

        Raises: what send() raises before anything is sent.
        """
        engine = self._running().engine
        check_send_topic(message.topic)
        outgoing = engine.outgoing(message)
        left_ms: int | None = None
        if sharding_key is not None:
            queue, left_ms = await self._chosen(message.topic, None, sharding_key)
        await engine.send_oneway(outgoing, queue=queue, timeout_ms=left_ms)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their sizes allow, in order.

        Returns: one result per request; its msg_id holds the ids joined by commas. If a request fails, those
        before it are stored. Raises: as send().
        """
        engine = self._running().engine
        listed = list(messages)
        batch.check_batch(listed)
        check_send_topic(listed[0].topic)
        results = []
        for chunk in batch.split(
            listed, min(self.config.max_message_size, FRAME_SIZE_MAX) - _BATCH_ROOM
        ):
            outgoing = engine.outgoing_batch(chunk)
            results.append(
                self._result(await engine.send(outgoing, queue=queue, timeout_ms=timeout_ms))
            )
        return results

    async def request(self, message: Message, *, timeout_ms: int = 3_000) -> MessageExt:
        """Send a request and wait for the reply that a consumer sends (see `reply_to`).

        Raises: ReplyTimeout, and what send() raises.
        """
        check_type("timeout_ms", timeout_ms, int, float)
        member = self._running()
        instance = member.instance
        check_send_topic(message.topic)
        topic = with_namespace(self.config.namespace, message.topic)
        began_ms = self.config.clock.monotonic_ms()
        if topic not in self._requested:
            # The reply comes by the connection that the brokers know this client by: also by the one that
            # is about to create the topic.
            await member.engine.publish_queues(message.topic, timeout_ms)
            await instance.heartbeat_all()
            self._requested.add(topic)
        return await request_reply.exchange(
            instance.processor.replies,
            member.engine,
            message,
            self._client_id,
            self._rest_ms(began_ms, timeout_ms) or timeout_ms,
        )

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Cancel a message before its `deliver_at_ms` (brokers from 5.3 on). Returns: its id.

        recall_handle: of the SendResult. Raises: IllegalMessage for a malformed handle; BrokerRefused if it
        is too late or the broker does not allow it.
        """
        instance = self._running().instance
        inner = with_namespace(self.config.namespace, topic)
        try:
            broker_name = RecallHandle.decode(recall_handle).broker
        except IllegalArgument as error:
            raise IllegalMessage(
                f"{error}: {recall_handle[:80]!r}. Give the recall_handle of the SendResult of a message "
                "with a delivery time; `pocketmq delay show` prints those of all that wait"
            ) from None
        address = await instance.master_address(inner, broker_name)
        return await instance.api.recall(address, inner, self.config.inner_group, recall_handle)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic. Raises: NoRoute, NoAnswer."""
        return await self._queues(topic)

    async def _queues(self, topic: str, timeout_ms: int | None = None) -> list[MessageQueue]:
        engine = self._running().engine
        found = await engine.publish_queues(topic, timeout_ms)
        return [queue._replace(topic=topic) for queue in found]

    def _result(self, result: SendResult) -> SendResult:
        """Return the result with the caller's topic names."""
        if not self.config.namespace:
            return result
        return result._replace(message_queue=self._shown(result.message_queue))

    def _start_check(self, address: str, message: MessageExt, fields: dict[str, str]) -> None:
        log.warning(
            "the broker asks about a transaction, but this is not a TransactionProducer group=%s",
            self.group,
        )


# What a batch's frame needs besides its messages stays below this.
_BATCH_ROOM = 4096


class ProducerMember:
    """The producer as its instance sees it; start_check: called when a broker checks a transaction."""

    def __init__(
        self,
        instance: "MQClientInstance",
        engine: SendEngine,
        start_check: Callable[[str, MessageExt, dict[str, str]], None],
    ) -> None:
        self.instance = instance
        self.engine = engine
        self.group = engine.group
        self.start_check = start_check

    def publish_topics(self) -> Iterable[str]:
        return self.engine.topics


def delayed(message: Message, delay_level: int | None, deliver_at_ms: int | None) -> Message:
    """Return a copy of the message that is delivered later. Raises: IllegalMessage."""
    properties = dict(message.properties)
    if delay_level is not None:
        if deliver_at_ms is not None:
            raise IllegalMessage("give delay_level or deliver_at_ms, not both")
        check_type("delay_level", delay_level, int)
        if not 1 <= delay_level <= DELAY_LEVEL_MAX:
            raise IllegalMessage(
                f"delay_level must be from 1 to {DELAY_LEVEL_MAX}, not {delay_level}"
            )
        properties[Property.DELAY.value] = str(delay_level)
    elif deliver_at_ms is not None:
        check_time_ms("deliver_at_ms", deliver_at_ms)
        properties[Property.TIMER_DELIVER_MS.value] = str(deliver_at_ms)
    return replace(message, properties=properties)


def queue_index(sharding_key: str, count: int) -> int:
    """Return the index that Java's SelectMessageQueueByHash gives a key: its hash's remainder, made positive.

    >>> queue_index("order-1", 4), queue_index("polygenelubricants", 7)
    (2, 2)
    """
    value = string_hash(sharding_key)
    # Java's % keeps the sign of the dividend.
    return abs(value) % count


async def send_all(
    producer: Producer, messages: Iterable[Message], *, window: int = 1_000
) -> list[SendResult]:
    """Send many messages with at most `window` in flight; return results in the given order.

    Raises: an ExceptionGroup of the failures; messages behind the first one are not sent.
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
