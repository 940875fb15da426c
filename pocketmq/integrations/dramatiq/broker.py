"""PocketmqBroker: Dramatiq's Broker. Connections are made when they are first needed, in each process."""

import threading
import time
from typing import Any
from weakref import WeakSet

from dramatiq import Broker, Message, Middleware, QueueJoinTimeout
from dramatiq.common import current_millis, q_name
from dramatiq.errors import ConnectionClosed, ConnectionFailed

from pocketmq.integrations.dramatiq.clients import Counts, DramatiqClients, QueueSetting
from pocketmq.integrations.dramatiq.consumer import QueueConsumer, letter_of
from pocketmq.remoting.errors import CallerError, PocketMQError

_EMPTY_TIMES = 2
_INTERVAL_S = 0.05


class PocketmqBroker(Broker):
    """Tasks in topics, one a queue. Options: those of pocketmq.client, such as credentials and tls."""

    def __init__(
        self,
        name_server: str | None = None,
        *,
        middleware: list[Middleware] | None = None,
        prefix: str = "dramatiq_",
        priorities: int = 0,
        queues: int = 1,
        invisible_ms: int = 60_000,
        **options: Any,
    ) -> None:
        """prefix: of the topics' names. priorities, queues: of topics that are created here; with priorities,
        the option `broker_priority` of a message counts, 0 to priorities - 1, the highest first.
        invisible_ms: how soon a task comes again whose worker died. Raises: nothing, it does not connect.
        """
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self._setting = QueueSetting(
            prefix, priorities, queues, invisible_ms, {"name_server": name_server, **options}
        )
        self._lock = threading.Lock()
        self._clients: DramatiqClients | None = None
        self._consumers: WeakSet[QueueConsumer] = WeakSet()
        if priorities:
            self.actor_options.add("broker_priority")

    def clients(self) -> DramatiqClients:
        """Return the clients of this process. Raises: PocketMQError."""
        clients = self._clients
        if clients is not None and not clients.is_inherited:
            return clients
        if clients is not None:
            # Another thread of the parent may have held it.
            self._lock, self._clients = threading.Lock(), None
        with self._lock:
            if self._clients is None:
                self._clients = DramatiqClients(self._setting)
            return self._clients

    def close(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()

    # ------------------------------------------------------------ queues

    def declare_queue(self, queue_name: str) -> None:
        if queue_name in self.queues:
            return
        self.emit_before("declare_queue", queue_name)
        self.queues.add(queue_name)
        # No queue of its own for what is delayed: that waits in the broker.
        self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Return how many messages are ready, wait for their time, and are dead letters.

        Raises: ConnectionFailed.
        """
        counts = self._counts(queue_name)
        return counts.ready, counts.waiting, counts.dead

    def _counts(self, queue_name: str) -> Counts:
        try:
            clients = self.clients()
            return clients.call(clients.counts(queue_name))
        except PocketMQError as error:
            raise ConnectionFailed(error) from error

    def flush(self, queue_name: str) -> None:
        try:
            clients = self.clients()
            clients.call(clients.flush(queue_name))
        except PocketMQError as error:
            raise ConnectionFailed(error) from error

    def flush_all(self) -> None:
        for queue_name in self.get_declared_queues():
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until nothing is ready, delayed or with a consumer of this process; for tests.

        Raises: QueueJoinTimeout after `timeout` ms, ConnectionFailed.
        """
        ends = None if timeout is None else time.monotonic() + timeout / 1000
        times = 0
        while times < _EMPTY_TIMES:
            if ends is not None and time.monotonic() >= ends:
                raise QueueJoinTimeout(queue_name)
            times = times + 1 if self._is_empty(queue_name) else 0
            if times < _EMPTY_TIMES:
                time.sleep(_INTERVAL_S)

    def _is_empty(self, queue_name: str) -> bool:
        counts = self._counts(queue_name)
        taken = sum(each.unsettled for each in list(self._consumers) if each.queue == queue_name)
        return counts.settled and not counts.ready and not counts.waiting and not taken

    # ------------------------------------------------------------ messages

    def enqueue(self, message: Any, *, delay: int | None = None) -> "Message[Any]":
        """Store a message, to be delivered after `delay` ms. Raises: ConnectionClosed; CallerError for what
        trying again cannot mend, such as a body beyond the broker's limit.
        """
        queue_name = q_name(message.queue_name)
        self.declare_queue(queue_name)
        if delay is not None:
            message = message.copy(queue_name=queue_name, options={"eta": current_millis() + delay})
        self.emit_before("enqueue", message, delay)
        try:
            clients = self.clients()
            clients.call(clients.send(letter_of(message, queue_name)))
        except CallerError:
            raise
        except PocketMQError as error:
            raise ConnectionClosed(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5_000) -> QueueConsumer:
        """Return an iterator over the messages of a queue. Raises: ConnectionClosed."""
        self.declare_queue(queue_name)
        try:
            clients = self.clients()
            clients.call(clients.consumer(queue_name))
        except PocketMQError as error:
            raise ConnectionClosed(error) from error
        consumer = QueueConsumer(self, queue_name, prefetch, timeout)
        self._consumers.add(consumer)
        return consumer
