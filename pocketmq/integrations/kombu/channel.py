"""Channel: kombu's channel on a link: queues are topics, exchanges are looked up in the bindings.

A message is delivered by the thread that consumes (Transport.drain_events, or the event loop); publishing
waits until the broker has stored it.
"""

import logging
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any, Protocol

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from pocketmq.integrations.kombu import envelope, firing
from pocketmq.integrations.kombu.bell import Bell
from pocketmq.integrations.kombu.bindings import Binding
from pocketmq.integrations.kombu.intake import Intake, Received
from pocketmq.integrations.kombu.link import Link
from pocketmq.integrations.kombu.qos import QoS
from pocketmq.integrations.kombu.transient import TRANSIENT_TOPIC
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)


class Connected(Protocol):
    """What a channel needs of its transport."""

    bell: Bell
    waits: envelope.EtaWaits

    def running_link(self) -> Link:
        """Return the link. Raises: NotRunning, ForkedClient."""
        ...

    def _deliver(self, message: dict[str, Any], queue: str) -> None: ...


class Channel(virtual.Channel):
    """Owner: Transport. intake: what it takes from the broker."""

    QoS = QoS
    supports_fanout = True
    # Payloads travel as they are.
    body_encoding = None
    connection: Connected

    def __init__(self, connection: Connected, **options: Any) -> None:
        self.link = connection.running_link()
        self.intake = Intake(self.link, connection.bell.ring)
        self._no_ack: set[str] = set()
        self._auto_delete: set[str] = set()
        self._ttl_ms: dict[str, int] = {}
        super().__init__(connection, **options)

    # ------------------------------------------------------------ exchanges and queues

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        kind = type or "direct"
        exchange = exchange or f"amq.{kind}"
        if passive:
            if self.link.call(self.link.bindings.type_of(exchange)) is None:
                raise _not_found(f"exchange {exchange!r}", "Channel.exchange_declare")
            return
        super().exchange_declare(exchange, kind, durable, auto_delete, arguments, nowait)
        self.link.call(self.link.bindings.declare(exchange, kind))

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        if if_unused and self.get_table(exchange):
            return
        self.state.exchanges.pop(exchange, None)
        self.link.call(self.link.bindings.delete_exchange(exchange))

    def typeof(self, exchange: str, default: str = "direct") -> Any:
        known = self.state.exchanges.get(exchange)
        if known is None:
            kind = self.link.call(self.link.bindings.type_of(exchange)) or default
        else:
            kind = known["type"]
        return self.exchange_types[kind]

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        return _rows(self.link.call(self.link.bindings.table(exchange)))

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        if exchange:
            kind = self.typeof(exchange)
            found = kind.lookup(self.get_table(exchange), exchange, routing_key, None)
            if not found or kind.type == "fanout":
                # A queue may have been bound a moment ago.
                self.link.call(self.link.bindings.table(exchange, fresh=True))
        return super()._lookup(exchange, routing_key, default)

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        return dict(to_rabbitmq_queue_arguments(arguments or {}, **options))

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        queue = queue or f"amq.gen-{uuid()}"
        if passive:
            if not self._has_queue(queue):
                raise _not_found(f"queue {queue!r}", "Channel.queue_declare")
            return queue_declare_ok_t(queue, self._size(queue), 0)
        arguments = arguments or {}
        if auto_delete or exclusive:
            self._auto_delete.add(queue)
        if arguments.get("x-message-ttl") is not None:
            self._ttl_ms[queue] = int(arguments["x-message-ttl"])
        priority_max = arguments.get("x-max-priority")
        expires = exclusive or (auto_delete and "x-expires" in arguments)
        self.link.call(
            self.link.declare(
                queue,
                # Queues of replies, events and remote control, which expire: other queues may be consumed by
                # several processes, and only topics have priorities.
                transient=expires and priority_max is None,
                priorities=0 if priority_max is None else int(priority_max) + 1,
            )
        )
        return queue_declare_ok_t(queue, 0, 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        if exchange not in self.state.exchanges:
            self.exchange_declare(exchange)
        binding = self._binding(queue, exchange, routing_key, arguments)
        self.state.binding_declare(queue, exchange, routing_key, arguments)
        leased = self.link.is_transient(queue)
        self.link.call(self.link.bindings.bind(exchange, binding, leased=leased))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        binding = self._binding(queue, exchange, routing_key, arguments)
        self.link.call(self.link.bindings.unbind(exchange, binding))

    def _binding(
        self, queue: str, exchange: str, routing_key: str, arguments: dict[str, Any] | None
    ) -> Binding:
        kind = self.typeof(exchange)
        key, pattern, _ = kind.prepare_bind(queue, exchange, routing_key, arguments)
        return Binding(queue, key or "", pattern)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any
    ) -> None:
        if if_unused and queue in self._active_queues:
            return
        if if_empty and self._size(queue):
            return
        self.state.queue_bindings_delete(queue)
        self._auto_delete.discard(queue)
        self.link.call(self.link.delete(queue))

    def _has_queue(self, queue: str, **options: Any) -> bool:
        return self.link.call(self.link.exists(queue))

    def _size(self, queue: str) -> int:
        return self.link.call(self.link.size(queue))

    def _purge(self, queue: str) -> int:
        return self.link.call(self.link.purge(queue))

    # ------------------------------------------------------------ publishing

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        self.link.call(self._store(queue, message))

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **options: Any
    ) -> None:
        async def store() -> None:
            table = await self.link.bindings.table(exchange, fresh=True)
            for queue in sorted({each.queue for each in table}):
                await self._store(queue, message)

        self.link.call(store())

    async def _store(self, queue: str, payload: dict[str, Any]) -> None:
        kind = await self.link.kind(queue)
        due = envelope.delivery(payload, self.link.clock.now_ms(), self.connection.waits)
        if kind.is_transient:
            due = due._replace(at_ms=None)
            message = envelope.pack(TRANSIENT_TOPIC, payload, due, priority=None, tags=kind.topic)
        else:
            priority = (
                min(self._get_message_priority(payload), kind.priorities - 1)
                if kind.priorities
                else None
            )
            message = envelope.pack(kind.topic, payload, due, priority=priority)
        await self.link.send(message, due.at_ms)

    def _get_message_priority(self, message: dict[str, Any], reverse: bool = False) -> int:
        """Return the priority that was asked for; RabbitMQ's go up to 255, not kombu's 9."""
        try:
            return max(0, int(message["properties"]["priority"]))
        except (TypeError, ValueError, KeyError):
            return 0

    # ------------------------------------------------------------ consuming

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.link.post(lambda: self.intake.set_prefetch(prefetch_count))
        # A larger one may let through what is here already.
        self.connection.bell.ring()

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], Any],
        consumer_tag: str,
        **options: Any,
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        if no_ack:
            self._no_ack.add(queue)
        self.link.call(self.intake.consume(queue))

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues or self.link.is_inherited:
            return
        self._no_ack.discard(queue)
        try:
            self.link.call(self.intake.cancel(queue))
            self._delete_unused(queue)
        except PocketMQError as error:
            log.warning("cancelling was cut short queue=%s reason=%r", queue, str(error))

    def _delete_unused(self, queue: str) -> None:
        if queue in self._auto_delete and self.link.call(self.link.delete_unused(queue)):
            self._auto_delete.discard(queue)
            self.state.queue_bindings_delete(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:
        while True:
            received = self.link.call(self.intake.take_one(queue))
            if received is None:
                return None
            payload = self._opened(received)
            if payload is None:
                continue
            message = self.Message(payload, channel=self)
            if no_ack:
                self._done(message.delivery_tag)
            else:
                self.qos.append(message, message.delivery_tag)
            return message

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        raise Empty

    def deliver(self) -> bool:
        """Call the callbacks of what was taken together; False if nothing is here."""
        delivered = False
        ready = self.intake.ready
        while ready and not self.closed and self.qos.can_consume():
            received = ready.popleft()
            payload = self._opened(received)
            if payload is not None:
                if received.queue in self._no_ack:
                    self._done(payload["properties"]["delivery_tag"])
                self.connection._deliver(payload, received.queue)
                delivered = True
            if received.is_last and delivered:
                break
        return delivered

    def _done(self, tag: str) -> None:
        received = self.qos.drop(tag)
        if received is not None:
            self.intake.done(received)

    def _opened(self, received: Received) -> dict[str, Any] | None:
        """Return kombu's message, noted as received; None if it has expired or waits once more."""
        message, now_ms = received.message, self.link.clock.now_ms()
        try:
            payload = envelope.unpack(message)
            firing.fill_in(payload, message)
        except ValueError:
            payload = envelope.foreign(message)
        if envelope.is_expired(payload, message, self._ttl_ms.get(received.queue), now_ms):
            self.intake.done(received)
            return None
        if received.consumer is not None and envelope.is_to_wait(payload, now_ms):
            self.link.call(self._store(received.queue, payload))
            self.intake.done(received)
            return None
        properties = payload["properties"]
        properties["delivery_tag"] = tag = uuid()
        properties.setdefault("delivery_info", {})["redelivered"] = (
            message.reconsume_times > 0 or envelope.PUT_BACK in message.properties
        )
        self.qos.note(tag, received)
        return payload

    def put_back(self, received: Iterable[Received]) -> None:
        """Give messages back to their queues; those that cannot be given back come again after a while."""
        if self.link.is_inherited:
            return

        async def all_of_them() -> None:
            for each in received:
                await self.intake.put_back(each)

        try:
            self.link.call(all_of_them())
        except PocketMQError as error:
            log.warning("messages come again when they are visible again reason=%r", str(error))

    def after_reply_message_received(self, queue: str) -> None:
        """Keep the queue: it is this process's, and is deleted with the last consumer."""

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self.link.is_inherited:
            return
        try:
            self.link.call(self.intake.close())
            for queue in list(self._auto_delete):
                self._delete_unused(queue)
        except PocketMQError as error:
            log.warning("closing a channel was cut short reason=%r", str(error))


def _rows(table: list[Binding]) -> list[tuple[str, str | None, str]]:
    return [(each.routing_key, each.pattern, each.queue) for each in table]


def _not_found(what: str, method: str) -> ChannelError:
    return ChannelError(f"NOT_FOUND - no {what}", (50, 10), method, "404")
