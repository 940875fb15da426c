"""QueueConsumer: the messages of a queue for one consumer thread of a Dramatiq worker.

1. At most `prefetch` messages are taken and not settled; they stay invisible to others until they are.
2. A message that comes before its ETA, since brokers deliver to the second, is held until then.
3. A message is settled through any consumer of its queue: a worker makes a new one after a lost connection,
   while its threads still run what the former one took.
"""

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from dramatiq import Consumer, Message, MessageProxy
from dramatiq.common import current_millis
from dramatiq.errors import ConnectionClosed, DecodeError

from pocketmq.client import BrokerRefused, MessageExt
from pocketmq.client.errors import TransientError
from pocketmq.integrations.dramatiq.clients import DramatiqClients, Letter
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

# Clocks of two machines may differ by as much: what is due later waits in the broker once more.
_SLACK_MS = 60_000


class Lends(Protocol):
    """What a consumer needs of its broker."""

    def clients(self) -> DramatiqClients:
        """Return the clients of this process. Raises: PocketMQError."""
        ...


class TakenTask(MessageProxy):
    """A message, and what settles it. taken_by: the consumer whose prefetch it counts for."""

    def __init__(self, message: Any, stored: MessageExt, taken_by: "QueueConsumer") -> None:
        super().__init__(message)
        self.stored = stored
        self.taken_by = taken_by


class QueueConsumer(Consumer):
    """Owner: a consumer thread. `ack` and `nack` are called by any thread."""

    def __init__(self, broker: Lends, queue: str, prefetch: int, timeout_ms: int) -> None:
        self._broker = broker
        self.queue = queue
        self._prefetch = prefetch
        self._timeout_s = timeout_ms / 1000
        self._ready: deque[TakenTask] = deque()
        self._held: list[tuple[int, int, TakenTask]] = []
        self._unsettled: set[int] = set()
        self._settled = threading.Condition()

    @property
    def unsettled(self) -> int:
        """How many messages were taken and are neither done nor given back."""
        return len(self._unsettled)

    # ------------------------------------------------------------ taking

    def __next__(self) -> MessageProxy | None:
        found = self._due()
        if found is None:
            try:
                self._fetch()
            except PocketMQError as error:
                raise ConnectionClosed(error) from error
            found = self._due()
        return found

    def _due(self) -> TakenTask | None:
        if self._held and self._held[0][0] <= current_millis():
            return heapq.heappop(self._held)[2]
        return self._ready.popleft() if self._ready else None

    def _wait_s(self) -> float:
        if not self._held:
            return self._timeout_s
        return min(self._timeout_s, max(0, self._held[0][0] - int(current_millis())) / 1000)

    def _fetch(self) -> None:
        room, wait_s = self._prefetch - self.unsettled, self._wait_s()
        if room <= 0:
            with self._settled:
                self._settled.wait_for(lambda: self.unsettled < self._prefetch, wait_s)
            return
        clients = self._broker.clients()
        began = time.monotonic()
        try:
            found = clients.call(clients.receive(self.queue, room, int(wait_s * 1000)))
        except PocketMQError:
            clients.forget(self.queue)
            raise
        for stored in found:
            self._take(clients, stored)
        if not found and self._held:
            # The broker answers to the millisecond, before the time or after.
            time.sleep(max(0.0, wait_s - (time.monotonic() - began)))

    def _take(self, clients: DramatiqClients, stored: MessageExt) -> None:
        try:
            message = _decoded(stored.body)
        except DecodeError:
            log.exception("a message cannot be decoded, now a dead letter queue=%s", self.queue)
            clients.call(clients.dead_letter(self.queue, stored))
            return
        received = TakenTask(message, stored, self)
        self._unsettled.add(id(received))
        eta = message.options.get("eta")
        if not isinstance(eta, int | float):
            self._ready.append(received)
        elif eta > current_millis() + _SLACK_MS:
            self._give_back([received])
        else:
            # Dramatiq's worker would send it once more, to the queue of the same name.
            del message.options["eta"]
            heapq.heappush(self._held, (int(eta), id(received), received))

    # ------------------------------------------------------------ settling

    def ack(self, message: MessageProxy) -> None:
        if isinstance(message, TakenTask):
            self._settle(message, failed=False)

    def nack(self, message: MessageProxy) -> None:
        if isinstance(message, TakenTask):
            self._settle(message, failed=True)

    def _settle(self, message: TakenTask, *, failed: bool) -> None:
        """Raises: ConnectionClosed, after which Dramatiq tries again."""
        try:
            clients = self._broker.clients()
            act = clients.dead_letter if failed else clients.ack
            clients.call(act(self.queue, message.stored))
        except PocketMQError as error:
            if isinstance(error, TransientError) or not isinstance(error, BrokerRefused):
                raise ConnectionClosed(error) from error
            log.warning(
                "a message will come again, the broker refuses its receipt queue=%s reason=%r",
                self.queue,
                str(error),
            )
        message.taken_by.release(message)

    def release(self, message: TakenTask) -> None:
        """Make room for another message."""
        with self._settled:
            self._unsettled.discard(id(message))
            self._settled.notify_all()

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        self._give_back([each for each in messages if isinstance(each, TakenTask)])

    def _give_back(self, messages: Iterable[TakenTask]) -> None:
        """Raises: ConnectionClosed."""
        listed = list(messages)
        if not listed:
            return
        pairs = [(letter_of(each, self.queue), each.stored) for each in listed]
        try:
            clients = self._broker.clients()
            clients.call(clients.put_back(self.queue, pairs))
        except PocketMQError as error:
            raise ConnectionClosed(error) from error
        for each in listed:
            each.taken_by.release(each)

    def close(self) -> None:
        held, self._held = self._held, []
        for eta, _, each in held:
            each.options["eta"] = eta
        left, self._ready = [*self._ready, *(each for _, _, each in held)], deque()
        try:
            self._give_back(left)
        except ConnectionClosed as error:
            log.warning(
                "messages come again when they are visible again queue=%s reason=%r",
                self.queue,
                str(error),
            )


def _decoded(body: bytes) -> Any:
    """Return the message, whose fields are of the types that we read. Raises: DecodeError.

    Dramatiq checks none of them, and its older versions let a missing field through.
    """
    try:
        message = Message.decode(body)
        options = message.options
        eta = options.get("eta")
        if isinstance(eta, int | float):
            int(eta)
        int(options.get("broker_priority") or 0)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DecodeError("the message has no valid options", body, error) from error
    if not (isinstance(message.message_id, str) and isinstance(message.actor_name, str)):
        raise DecodeError("the message has no valid id and actor", body, None)
    return message


def letter_of(message: Any, queue: str) -> Letter:
    """Return what is to be stored of a message."""
    eta = message.options.get("eta")
    return Letter(
        queue,
        message.encode(),
        message.message_id,
        message.actor_name,
        int(message.options.get("broker_priority") or 0),
        int(eta) if isinstance(eta, int | float) else None,
    )
