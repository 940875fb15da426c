"""TransactionProducer: a message that becomes visible when the local transaction commits (wire.md 3.8).

    def execute(message: Message) -> TransactionState: ...    # the local transaction
    def check(message: MessageExt) -> TransactionState: ...   # asked later if that was UNKNOWN

    async with TransactionProducer("group", check=check, name_server="127.0.0.1:9876") as producer:
        sent = await producer.send_in_transaction(Message("TopicTest", b"order 7"), execute)

1. The half message is stored first; if that fails, the local transaction is not run.
2. END_TRANSACTION is one-way: if it gets lost, or the state was UNKNOWN, the broker asks `check` of any
   member of the group.
Plain functions run in a thread, coroutine functions on the event loop. Source: TransactionMQProducer,
DefaultMQProducerImpl.sendMessageInTransaction, RocketMQ 4.9.7.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, TypeVar

from pocketmq.client.consume.call_context import base_of, calling_pool, within
from pocketmq.client.network.namespace import check_send_topic, without_namespace
from pocketmq.client.network.runner import Runner
from pocketmq.client.options import ProducerOptions, takes
from pocketmq.client.producer import Producer, ProducerMember
from pocketmq.client.send.result import SendResult, SendStatus
from pocketmq.client.tracing import trace
from pocketmq.model.message import Message, MessageExt, Property
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.flags import MessageSysFlag

log = logging.getLogger(__name__)

_CHECKS_END_S = 30
"""How long a shutdown that a check has called waits for checks, as a consumer's for its listeners."""


class TransactionState(Enum):
    """How a local transaction ended; the value is the flag that travels."""

    COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)
    UNKNOWN = 0


_JAVA_NAME = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}

Execute = Callable[[Message], TransactionState | Awaitable[TransactionState]]
Check = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The stored half message and how the local transaction ended."""

    send_result: SendResult
    state: TransactionState


@dataclass(frozen=True, kw_only=True, eq=False)
class TransactionOptions(ProducerOptions):
    """Options of a TransactionProducer."""

    check: Annotated[Check, "called when the broker asks for a transaction's missing outcome"]


class TransactionProducer(Producer):
    """A producer that can send messages in transactions. Options: see TransactionOptions."""

    @takes(TransactionOptions)
    def __init__(self, options: TransactionOptions) -> None:
        """Create it without connecting. Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)
        self._check = options.check
        self._runner = Runner(f"TransactionProducer {options.group}")
        self._known = False
        self._checks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Like Producer.start; the brokers learn of the group at once, so they can check transactions."""
        await self._runner.start()
        try:
            await super().start()
        except BaseException:
            await self._runner.stop()
            raise

    def _is_inside(self) -> bool:
        """Return True if this code runs inside a check of this producer's."""
        return calling_pool() is self

    async def _leave(self, member: ProducerMember) -> None:
        try:
            checks = set(self._checks) if self._is_inside() else None
            if checks:
                # The one that has called shutdown() is to be answered, and returns at once.
                await asyncio.wait(checks, timeout=_CHECKS_END_S)
            await self._runner.stop()
        finally:
            await super()._leave(member)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store the half message, run the local transaction, report its outcome to the broker.

        An exception of `execute` counts as UNKNOWN and is logged: `check` decides later. A half message that
        was stored less safely than required is rolled back without running it.
        Raises: what send() raises; then nothing was run.
        """
        engine = self._running().engine
        check_send_topic(message.topic)
        properties = {
            name: value
            for name, value in message.properties.items()
            if name != Property.DELAY.value
        }
        properties[Property.TRAN_MSG.value] = "true"
        properties[Property.PGROUP.value] = self.config.inner_group
        half = replace(message, properties=properties)
        outgoing = engine.outgoing(half, int(MessageSysFlag.TRANSACTION_PREPARED))
        sent = await engine.send(outgoing, timeout_ms=timeout_ms)
        # The check may come by any broker connection of the group: they must know us.
        await self._make_known()
        half.properties[Property.UNIQ_KEY.value] = sent.msg_id
        half.transaction_id = sent.transaction_id or sent.msg_id
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            state = await self._ask(execute, half)
        try:
            await self._end(sent, state)
        except PocketMQError as error:
            log.warning(
                "could not report the end of a transaction, the broker will ask message=%s state=%s %s",
                sent.msg_id,
                state.name,
                error,
            )
        self._trace_end(half, sent.msg_id, sent.offset_msg_id, state, from_check=False)
        return TransactionResult(self._result(sent), state)

    async def _make_known(self) -> None:
        instance = self._running().instance
        if not self._known:
            await instance.heartbeat_all()
            self._known = True

    async def _ask(self, function: Callable[[M], Any], message: M) -> TransactionState:
        """Return the local transaction's state; an exception is UNKNOWN."""
        try:
            if inspect.iscoroutinefunction(function):
                state = await function(message)
            else:
                state = await asyncio.to_thread(function, message)
                if inspect.isawaitable(state):
                    state = await state
        except Exception:
            log.exception("the local transaction failed, its state is unknown group=%s", self.group)
            return TransactionState.UNKNOWN
        if not isinstance(state, TransactionState):
            log.error(
                "the local transaction returned %r instead of a TransactionState group=%s",
                state,
                self.group,
            )
            return TransactionState.UNKNOWN
        return state

    async def _end(self, sent: SendResult, state: TransactionState) -> None:
        from pocketmq.remoting.headers import EndTransactionHeader

        instance = self._running().instance
        _, position = parse_offset_msg_id(sent.offset_msg_id)
        queue = sent.message_queue
        address = await instance.master_address(queue.topic, queue.broker_name)
        await instance.api.end_transaction(
            address,
            EndTransactionHeader(
                producer_group=self.config.inner_group,
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=position,
                commit_or_rollback=state.value,
                msg_id=sent.msg_id,
                from_transaction_check=False,
                transaction_id=sent.transaction_id,
                topic=queue.topic,
                bname=queue.broker_name,
            ),
        )

    # ------------------------------------------------------------ asked by a broker

    def _start_check(self, address: str, message: MessageExt, fields: dict[str, str]) -> None:
        answering = self._answer(address, message, fields)
        task = self._runner.spawn(answering, name="check transaction")
        if task is not None:
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _answer(self, address: str, message: MessageExt, fields: dict[str, str]) -> None:
        from pocketmq.remoting.headers import CheckTransactionStateHeader, EndTransactionHeader

        # The check may shut this producer down.
        instance = self._running().instance
        asked = CheckTransactionStateHeader.parse(fields)
        message.topic = without_namespace(self.config.namespace, message.topic)
        message.transaction_id = asked.transaction_id or message.msg_id
        # As for a listener's call: nothing of the code that started the producer.
        state = await within(base_of(self), self._ask(self._check, message))
        header: EndTransactionHeader = EndTransactionHeader(
            producer_group=self.config.inner_group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=state.value,
            msg_id=message.properties.get(Property.UNIQ_KEY.value) or message.msg_id,
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
            topic=asked.topic,
            bname=asked.bname,
        )
        await instance.api.end_transaction(address, header)
        self._trace_end(message, message.msg_id, message.offset_msg_id, state, from_check=True)

    def _trace_end(
        self,
        message: Message,
        msg_id: str,
        offset_msg_id: str,
        state: TransactionState,
        *,
        from_check: bool,
    ) -> None:
        if self._tracer is None:
            return
        host = ""
        if offset_msg_id:
            host, _ = parse_offset_msg_id(offset_msg_id)
        self._tracer.append(
            [
                trace.end_transaction(
                    time_ms=self.config.clock.now_ms(),
                    region="DefaultRegion",
                    group=self.group,
                    topic=message.topic,
                    msg_id=msg_id,
                    tags=message.tags,
                    keys=message.keys,
                    store_host=host,
                    message_type=trace.TracedMessageType.TRANSACTION_COMMIT,
                    transaction_id=message.transaction_id,
                    state=_JAVA_NAME[state],
                    from_check=from_check,
                )
            ]
        )
