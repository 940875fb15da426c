"""SendEngine: chooses a queue, sends, and tries another broker if that may help.

Two paths, one rule (`SendAttempts`). A `Flight` is a first attempt when everything is known. Otherwise
`_attempts` queries the route, connects, and tries other brokers; a failed flight counts as its first attempt.

A send in flight takes room (`in_flight.Room`), which is returned when the outcome is known.
Source: DefaultMQProducerImpl, RocketMQ 4.9.7.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pocketmq.client.argument_types import check_type
from pocketmq.client.errors import (
    NoAnswer,
    NoRoute,
    all_attempts_failed,
)
from pocketmq.client.network.namespace import with_namespace
from pocketmq.client.network.route import (
    BrokerUnknown,
    NoQueueToSendTo,
    TopicPublishInfo,
    TopicRoute,
)
from pocketmq.client.options import SendOptions
from pocketmq.client.send.encode import Carry, OutgoingMessage, Packer
from pocketmq.client.send.fault_strategy import FaultStrategy
from pocketmq.client.send.first_attempt import Flight
from pocketmq.client.send.frozen import unless_frozen
from pocketmq.client.send.limits import Deadlines, SendLimits
from pocketmq.client.send.result import SendResult, SendStatus
from pocketmq.client.send.retries import NotStoredSafely, SendAttempts
from pocketmq.client.send.retry_log import RetryLog
from pocketmq.model.message import Message, MessageQueue
from pocketmq.remoting.errors import (
    ConnectionLost,
    PocketMQError,
    TooManyRequests,
)

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance


T = TypeVar("T")

_LOOK_MS = 50


class SendHook(Protocol):
    """Called around each attempt, e.g. to trace a producer."""

    def before(self, outgoing: OutgoingMessage, queue: MessageQueue, address: str) -> object: ...

    def after(
        self, token: object, result: SendResult | None, error: PocketMQError | None
    ) -> None: ...


class SendEngine:
    """Sends for one producer group. Owner: a producer, or a consumer for what it sends back."""

    def __init__(
        self,
        instance: "MQClientInstance",
        group: str,
        options: SendOptions,
        *,
        namespace: str | None = None,
        carry: Carry | None = None,
    ) -> None:
        """carry: see Packer."""
        self.group = group
        self.options = options
        self.hooks: list[SendHook] = []
        self.strategy = FaultStrategy(
            instance.clock, instance.random_index, enabled=options.latency_fault_tolerance
        )
        self.room = SendLimits(options.in_flight_max, options.in_flight_size_max)
        self.packer = Packer(
            group,
            options,
            instance.clock,
            instance.config.client_ip,
            namespace=namespace,
            carry=carry,
        )
        self.instance = instance
        self.clock = instance.clock
        self._namespace = namespace
        self._deadlines = Deadlines(instance.clock.monotonic_ms, instance.runner.call_later)
        self._infos: dict[str, tuple[TopicRoute, TopicPublishInfo]] = {}
        self._retry_log = RetryLog()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def topics(self) -> list[str]:
        """Return the topics whose routes are kept fresh: those that were sent to, and the template of new
        ones.

        The template's route keeps its brokers known, and so informed of this producer, when no other route
        does: before the first send, and after one that created its topic.
        """
        return [self.options.create_topic_key, *self._infos]

    def outgoing(self, message: Message, sys_flag: int = 0) -> OutgoingMessage:
        """Check and pack one message. Raises: IllegalMessage, MessageTooLarge."""
        return self.packer.pack(message, sys_flag)

    def outgoing_batch(self, messages: Sequence[Message]) -> OutgoingMessage:
        """Check and pack a batch that fits. Raises: IllegalMessage, MessageTooLarge."""
        return self.packer.pack_batch(messages)

    # ------------------------------------------------------------ sending

    async def send(
        self,
        outgoing: OutgoingMessage,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        retry_times: int | None = None,
    ) -> SendResult:
        """Send, trying other brokers if that may help; a chosen queue is tried once.

        Waits while too much is in flight. Raises: NoRoute, BrokerRefused, SendFailed, SendOutcomeUnknown.
        """
        size = len(outgoing.body)
        if not self.room.take(size):
            await self.room.wait(size)
        try:
            if timeout_ms is not None or retry_times is not None:
                return await self._attempts(outgoing, queue, timeout_ms, retry_times)
            future = self._future()
            flight = self._launch(outgoing, queue, future, None)
            if not isinstance(flight, Flight):
                return await self._attempts(outgoing, queue, first=flight)
            try:
                return await future
            except PocketMQError as error:
                return await self.after_flight(flight, outgoing, queue, error)
        finally:
            self.room.give(size)

    async def submit(
        self,
        outgoing: OutgoingMessage,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Send without waiting for the answer; the future gets what `send` returns or raises.

        timeout_ms: what is left of the option's time; then the answer is waited for all the same.

        Waits while too much is in flight, and for the route and the connection of a first message, so that
        messages are sent in the order of the calls.
        """
        size = len(outgoing.body)
        if not self.room.take(size):
            await self.room.wait(size)
        future = self._future()
        flight = None if timeout_ms else self._launch(outgoing, queue, future, size)
        if not isinstance(flight, Flight):
            try:
                sending = self._attempts(outgoing, queue, timeout_ms, first=flight)
                future.set_result(await sending)
            except PocketMQError as error:
                future.set_exception(error)
            finally:
                self.room.give(size)
        return future

    def _future(self) -> "asyncio.Future[SendResult]":
        # Before Python 3.12 to ask for the running loop is a system call.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.create_future()

    def _launch(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        future: "asyncio.Future[SendResult]",
        size: int | None,
    ) -> Flight | MessageQueue | None:
        """Begin the first attempt if nothing must be looked up before.

        Returns: else the queue whose turn it is, so that no turn is skipped; None if none is known.
        size: the room that the flight returns itself; it then also retries by itself after a failure.
        """
        instance = self.instance
        if queue is None:
            topic = outgoing.topic
            known = self._infos.get(topic)
            if known is None or known[0] is not instance.routes.get(topic) or not known[1].ok:
                return None
            target = self.strategy.choose(known[1], None)
        else:
            target = MessageQueue(outgoing.topic, queue.broker_name, queue.queue_id)
        address = instance.addresses.master(target.broker_name)
        connection = None if address is None else instance.api.requests.open_connection(address)
        if address is None or connection is None:
            return target
        try:
            opaque = connection.take_opaque()
        except (TooManyRequests, ConnectionLost):
            return target
        flight = Flight(self, outgoing, target, address, connection, opaque, future, size)
        flight.chosen = queue is not None
        if self.hooks:
            flight.tokens = [hook.before(outgoing, target, address) for hook in self.hooks]
        frame = (
            self.packer.frame(outgoing, target, opaque)
            if instance.api.requests.plain_frames
            else None
        )
        if frame is None:
            frame = instance.api.frame(
                outgoing.code, self.packer.ext(outgoing, target), outgoing.body, opaque
            )
        connection.post(opaque, frame, flight)
        self._deadlines.add(flight)
        return flight

    def elsewhere(self, flight: Flight) -> bool:
        """Return True if a flight without an answer may be followed by an attempt at another broker."""
        known = self._infos.get(flight.queue.topic)
        return (
            self.options.retry_times > 0
            and known is not None
            and flight.queue.broker_name not in known[1].once
            and self.strategy.has_other_than(known[1], flight.queue.broker_name)
        )

    async def after_flight(
        self,
        flight: Flight,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        error: PocketMQError,
    ) -> SendResult:
        """Handle a failed flight: make further attempts, or raise the error."""
        if queue is not None:
            if flight.result is not None:
                return flight.result
            raise error
        self.instance.broker_failed(outgoing.topic, error)
        left_ms = max(1, flight.deadline_ms - self.clock.monotonic_ms())
        info, _ = await self._publish_info(outgoing.topic, left_ms)
        if not info.ok and self.options.wait_for_broker:
            info = await self._wait_for_master(outgoing.topic, info, flight.deadline_ms)
        plan = SendAttempts(
            info,
            self.strategy,
            self.clock,
            attempts_max=1 + self.options.retry_times,
            timeout_ms=self.options.send_timeout_ms,
            began_ms=flight.began_ms,
            waits=self.options.wait_for_broker,
        )
        plan.went_to(flight.queue)
        if not plan.failed(error):
            if flight.result is not None:
                return flight.result
            raise error
        self._note_retry(plan, outgoing.topic, flight.queue, error)
        return await self._follow(plan, outgoing)

    async def _attempts(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        timeout_ms: int | None = None,
        retry_times: int | None = None,
        *,
        first: MessageQueue | None = None,
    ) -> SendResult:
        timeout = self.options.send_timeout_ms
        if timeout_ms is not None:
            check_type("timeout_ms", timeout_ms, int, float)
            timeout = timeout_ms
        if queue is not None:
            queue = MessageQueue(outgoing.topic, queue.broker_name, queue.queue_id)
            return await self._send_to(outgoing, queue, timeout)
        began_ms = self.clock.monotonic_ms()
        info, guessed = await self._publish_info(outgoing.topic, timeout)
        if not info.ok and self.options.wait_for_broker:
            info = await self._wait_for_master(outgoing.topic, info, began_ms + timeout)
        retries = self.options.retry_times if retry_times is None else retry_times
        plan = SendAttempts(
            info,
            self.strategy,
            self.clock,
            attempts_max=1 + retries,
            timeout_ms=timeout,
            began_ms=began_ms,
            first=first,
            waits=self.options.wait_for_broker,
        )
        result = await self._follow(plan, outgoing)
        if guessed:
            # The broker has created the topic and registered it: the next send asks for the route.
            self._infos.pop(outgoing.topic, None)
        return result

    async def _follow(self, plan: SendAttempts, outgoing: OutgoingMessage) -> SendResult:
        """Make attempts until one succeeds or the plan ends."""
        while True:
            target = self._next(plan, outgoing.topic)
            try:
                result = await self._send_to(outgoing, target, max(1, plan.left_ms), plan)
                if self.stored_too_loosely(result) and plan.failed(NotStoredSafely(result.status)):
                    continue
            except PocketMQError as error:
                self.instance.broker_failed(outgoing.topic, error)
                if plan.failed(error):
                    self._note_retry(plan, outgoing.topic, target, error)
                    continue
                pause_ms = plan.pause_ms(error)
                if pause_ms:
                    await asyncio.sleep(pause_ms / 1000)
                    continue
                if len(plan.attempts) == 1:
                    raise
                raise all_attempts_failed(outgoing.topic, self.group, plan.attempts) from error
            plan.succeeded()
            return result

    def _note_retry(
        self, plan: SendAttempts, topic: str, queue: MessageQueue, error: PocketMQError
    ) -> None:
        self._retry_log.note(plan, topic, queue, error, self.clock.monotonic_ms())

    def stored_too_loosely(self, result: SendResult) -> bool:
        """Return True if another broker should be tried although this one stored the message."""
        return result.status is not SendStatus.SEND_OK and self.options.retry_when_not_stored_ok

    def _next(self, plan: SendAttempts, topic: str) -> MessageQueue:
        try:
            return plan.next_queue()
        except NoQueueToSendTo as error:
            raise NoRoute(topic, self.instance.api.requests.name_servers, closed=True) from error

    async def _send_to(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        timeout_ms: int,
        plan: SendAttempts | None = None,
    ) -> SendResult:
        instance = self.instance
        address = instance.addresses.master(queue.broker_name)
        if address is None:
            began_ms = self.clock.monotonic_ms()
            looking = instance.master_address(queue.topic, queue.broker_name)
            address = await _within(timeout_ms, queue.topic, looking)
            timeout_ms = max(1, timeout_ms - (self.clock.monotonic_ms() - began_ms))
        tokens = [hook.before(outgoing, queue, address) for hook in self.hooks]
        try:
            sending = instance.api.send(
                address,
                outgoing.code,
                self.packer.ext(outgoing, queue),
                outgoing.body,
                unique_key=outgoing.unique_key,
                queue=queue,
                timeout_ms=timeout_ms,
            )
            if plan is not None and plan.elsewhere():
                sending = unless_frozen(instance, address, timeout_ms, plan, sending)
            result = await sending
        except PocketMQError as error:
            self.tell_hooks(tokens, None, error)
            raise
        self.tell_hooks(tokens, result, None)
        return result

    def tell_hooks(
        self, tokens: Sequence[object], result: SendResult | None, error: PocketMQError | None
    ) -> None:
        for hook, token in zip(self.hooks, tokens, strict=False):
            hook.after(token, result, error)

    async def send_oneway(
        self,
        outgoing: OutgoingMessage,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send without an answer. Raises: NoRoute, Unreachable; a refusal stays unknown."""
        whole_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        until_ms = self.clock.monotonic_ms() + whole_ms
        if queue is None:
            info, _ = await self._publish_info(outgoing.topic, whole_ms)
            plan = SendAttempts(info, self.strategy, self.clock, attempts_max=1, timeout_ms=0)
            queue = self._next(plan, outgoing.topic)
        looking = self.instance.master_address(outgoing.topic, queue.broker_name)
        left_ms = max(1, until_ms - self.clock.monotonic_ms())
        address = await _within(left_ms, outgoing.topic, looking)
        ext = self.packer.ext(outgoing, queue)
        await self.instance.api.send_oneway(address, outgoing.code, ext, outgoing.body)

    # ------------------------------------------------------------ where

    async def publish_queues(self, topic: str, timeout_ms: int | None = None) -> list[MessageQueue]:
        """Return the writable queues. Raises: NoRoute, NoAnswer."""
        inner = with_namespace(self._namespace, topic)
        info, _ = await self._publish_info(inner, timeout_ms or self.options.send_timeout_ms)
        if not info.ok:
            raise NoRoute(topic, self.instance.api.requests.name_servers, closed=True)
        return list(info.queues)

    async def _publish_info(self, topic: str, timeout_ms: int) -> tuple[TopicPublishInfo, bool]:
        """Return the queues of a topic, and whether they are a guess for a topic yet to be created.

        Raises: NoRoute; NoAnswer if no name server answers in time.
        """
        instance = self.instance
        route = instance.routes.get(topic)
        if route is not None:
            known = self._infos.get(topic)
            if known is not None and known[0] is route:
                return known[1], False
        return await _within(timeout_ms, topic, self._look_up(topic))

    async def _wait_for_master(
        self, topic: str, info: TopicPublishInfo, until_ms: int
    ) -> TopicPublishInfo:
        """Return the queues of a topic once a broker of its route is a master, or when the time is over."""
        instance = self.instance
        while not info.ok and (route := instance.routes.get(topic)) and route.lacks_masters:
            left_ms = until_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                break
            instance.broker_failed(topic, BrokerUnknown(f"no broker of {topic!r} is a master"))
            await asyncio.sleep(min(left_ms, _LOOK_MS) / 1000)
            info, _ = await self._publish_info(topic, max(1, left_ms))
        return info

    async def _look_up(self, topic: str) -> tuple[TopicPublishInfo, bool]:
        instance = self.instance
        try:
            route = await instance.route(topic)
        except NoRoute:
            return await self._guess(topic), True
        info = TopicPublishInfo.of(topic, route, instance.random_index())
        self._infos[topic] = (route, info)
        return info, False

    async def _guess(self, topic: str) -> TopicPublishInfo:
        """Return the queues of brokers that create topics automatically. Raises: NoRoute of the topic."""
        instance = self.instance
        try:
            template = await instance.fetch_route(self.options.create_topic_key)
        except NoRoute as error:
            raise NoRoute(topic, instance.api.requests.name_servers) from error
        limited = template.limited_to(self.options.default_topic_queue_nums)
        return TopicPublishInfo.of(topic, limited, instance.random_index())


async def _within(timeout_ms: int, topic: str, looking: Coroutine[Any, Any, T]) -> T:
    """Return what a look-up of routes finds within a send's own time. Raises: NoAnswer."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await looking
    except TimeoutError:
        raise NoAnswer(
            f"looking up where to send messages of topic {topic!r}: no name server answered within "
            f"{timeout_ms} ms. Nothing was sent: try again, or increase the timeout"
        ) from None
