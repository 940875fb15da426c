"""Flight: a first attempt to send, used when route, address and open connection are known.

The frame is written at once and the answer resolves the caller's future, without a task or a timer of its
own. The engine handles failures.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from pocketmq.client.errors import ConnectionBroken
from pocketmq.client.network.instance import MQClientInstance
from pocketmq.client.options import SendOptions
from pocketmq.client.send.encode import OutgoingMessage
from pocketmq.client.send.fault_strategy import FaultStrategy
from pocketmq.client.send.limits import OpenConnection, SendLimits
from pocketmq.client.send.result import SendResult, send_result
from pocketmq.client.send.retries import NotStoredSafely
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import request_name
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError, RemotingError, RequestTimeout


class Engine(Protocol):
    """What a flight needs of the engine that launched it: send.SendEngine."""

    group: str
    options: SendOptions
    strategy: FaultStrategy
    room: SendLimits
    instance: MQClientInstance
    clock: Clock

    def tell_hooks(
        self, tokens: Sequence[object], result: SendResult | None, error: PocketMQError | None
    ) -> None: ...

    def stored_too_loosely(self, result: SendResult) -> bool: ...

    def elsewhere(self, flight: "Flight") -> bool: ...

    async def after_flight(
        self,
        flight: "Flight",
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        error: PocketMQError,
    ) -> SendResult: ...


class _CommonAnswer(NamedTuple):
    """What answers share that differ in a few values, and at which place of these each is."""

    result: SendResult
    at_queue_id: int
    at_queue_offset: int
    at_msg_id: int
    at_transaction_id: int | None


# A named tuple without the cost of its own __new__, for every message.
_new_tuple = tuple.__new__


class Flight:
    """One first attempt: waits at its connection for the answer, as a future would.

    `future` gets the outcome. A submitted flight (size is set) returns its room and retries by itself after
    a failure; otherwise its caller does both.
    """

    __slots__ = (
        "address",
        "began_ms",
        "chosen",
        "connection",
        "deadline_ms",
        "engine",
        "future",
        "opaque",
        "outgoing",
        "queue",
        "result",
        "settled",
        "size",
        "tokens",
    )

    def __init__(
        self,
        engine: Engine,
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        address: str,
        connection: OpenConnection,
        opaque: int,
        future: "asyncio.Future[SendResult]",
        size: int | None,
    ) -> None:
        self.engine = engine
        self.outgoing: OutgoingMessage | None = outgoing
        self.queue = queue
        self.address = address
        self.connection = connection
        self.opaque = opaque
        self.future = future
        self.size = size
        self.began_ms = engine.clock.monotonic_ms()
        self.deadline_ms = self.began_ms + engine.options.send_timeout_ms
        self.settled = False
        self.chosen = False
        self.tokens: Sequence[object] = ()
        self.result: SendResult | None = None

    # What a connection asks of a waiter for an answer.

    def done(self) -> bool:
        return self.settled

    def set_result(self, answer: RemotingCommand) -> None:
        outgoing, engine = self.outgoing, self.engine
        if outgoing is None:
            return
        result = engine.instance.api.send_result(
            answer, outgoing.unique_key, self.queue, engine.group, self.address
        )
        if isinstance(result, SendResult):
            self._stored(result)
        else:
            self._failed(result)

    # What an answer is that differs from earlier ones in these fields only: see remoting's CutWaiter.
    cut_names: ClassVar[Sequence[str]] = ("queueId", "queueOffset", "msgId", "transactionId")

    def common(self, answer: RemotingCommand, names: Sequence[str]) -> "_CommonAnswer | None":
        """Return what all such answers share."""
        if answer.code or answer.body or "recallHandle" in (answer.ext or ()):
            return None
        result = send_result(answer, "", self.queue)
        at = {name: place for place, name in enumerate(names)}
        if result is None or not {"queueId", "queueOffset", "msgId"} <= at.keys():
            return None
        return _CommonAnswer(
            result, at["queueId"], at["queueOffset"], at["msgId"], at.get("transactionId")
        )

    def set_cut(self, common: "_CommonAnswer", values: Sequence[bytes]) -> bool:
        """See `set_result`. Returns: False if the answer has to be parsed."""
        outgoing, queue = self.outgoing, self.queue
        alike, at_queue, at_offset, at_id, at_transaction = common
        id_digits, offset_digits = values[at_queue], values[at_offset]
        if outgoing is None or not id_digits.isdigit() or not offset_digits.isdigit():
            return False
        status, _, _, _, _, transaction_id, _, region_id, trace_on = alike
        try:
            queue_id, queue_offset = int(id_digits), int(offset_digits)
            msg_id = values[at_id].decode()
            if at_transaction is not None:
                transaction_id = values[at_transaction].decode()
        except ValueError:  # more digits than Python reads, or no UTF-8
            return False
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        self._stored(
            _new_tuple(
                SendResult,
                (
                    status,
                    outgoing.unique_key,
                    queue,
                    queue_offset,
                    msg_id,
                    transaction_id,
                    None,
                    region_id,
                    trace_on,
                ),
            )
        )
        return True

    def _stored(self, result: SendResult) -> None:
        engine = self.engine
        if self.tokens:
            engine.tell_hooks(self.tokens, result, None)
        if engine.stored_too_loosely(result):
            self.result = result
            self.tokens = ()
            self._failed(NotStoredSafely(result.status))
            return
        self.settled = True
        self.outgoing = None
        if engine.strategy.enabled:
            cost_ms = engine.clock.monotonic_ms() - self.began_ms
            engine.strategy.update(self.queue.broker_name, cost_ms, isolate=False)
        if self.size is not None:
            engine.room.give(self.size)
        if not self.future.done():
            self.future.set_result(result)

    def set_exception(self, error: RemotingError) -> None:
        if self.outgoing is not None:
            engine = self.engine
            self._failed(
                engine.instance.api.send_failure(error, self.address, self.queue, engine.group)
            )

    def expire(self, waited_ms: int | None = None) -> None:
        """Handle the deadline, or an end before it."""
        outgoing = self.outgoing
        if outgoing is not None:
            what = request_name(outgoing.code)
            timeout_ms = self.engine.options.send_timeout_ms if waited_ms is None else waited_ms
            self.set_exception(RequestTimeout(self.address, what, timeout_ms))

    def look(self, waited_ms: int) -> None:
        """Give up a broker that gives no sign of life, if another may store the message (SendAttempts, 3)."""
        engine = self.engine
        if (
            self.chosen
            or self.connection.last_read_ms > self.began_ms
            or not engine.elsewhere(self)
        ):
            return
        if waited_ms * 3 < engine.options.send_timeout_ms * 2:
            engine.instance.presence.probe(self.address)
        else:
            self.connection.unanswered(self.opaque, waited_ms)
            self.expire(waited_ms)

    def _failed(self, error: PocketMQError) -> None:
        engine, outgoing, future = self.engine, self.outgoing, self.future
        assert outgoing is not None
        self.settled = True
        self.outgoing = None
        if self.tokens:
            engine.tell_hooks(self.tokens, None, error)
        if self.size is None:
            if not future.done():
                future.set_exception(error)
            return
        if future.done():
            engine.room.give(self.size)
            return
        task = engine.instance.runner.spawn(self._go_on(outgoing, error), name="send again")
        if task is None:
            self._give_up()
        else:
            task.add_done_callback(lambda _: self._give_up())

    async def _go_on(self, outgoing: OutgoingMessage, error: PocketMQError) -> None:
        """Make further attempts for a submitted message."""
        chosen = self.queue if self.chosen else None
        try:
            result = await self.engine.after_flight(self, outgoing, chosen, error)
        except PocketMQError as final:
            if not self.future.done():
                self.future.set_exception(final)
        else:
            if not self.future.done():
                self.future.set_result(result)

    def _give_up(self) -> None:
        """Settle the future if further attempts ended without a result, e.g. by a shutdown."""
        assert self.size is not None
        self.engine.room.give(self.size)
        if not self.future.done():
            self.future.set_exception(
                ConnectionBroken(
                    f"sending to topic {self.queue.topic!r} by group {self.engine.group!r}: the "
                    f"producer was shut down before the broker had answered; the message may "
                    f"still have been stored"
                )
            )
