"""TraceDispatcher: collects trace records and sends them to the trace topic (wire.md 4.9).

Records are accepted from any thread without waiting; beyond RECORDS_MAX they are dropped and counted, since a
trace must never delay what it traces. A separate producer sends them every FLUSH_INTERVAL_MS.
Source: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl, RocketMQ 4.9.7.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pocketmq.client.consume.listener import ConsumeResult, ListenerCall, Outcome
from pocketmq.client.network.namespace import without_namespace
from pocketmq.client.network.runner import Runner
from pocketmq.client.options import ClientOptions
from pocketmq.client.tracing import trace
from pocketmq.model.message import Message, MessageExt, MessageQueue, Property
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.send.encode import OutgoingMessage
    from pocketmq.client.send.result import SendResult

log = logging.getLogger(__name__)

RECORDS_MAX = 2_048
FLUSH_INTERVAL_MS = 500
MESSAGE_SIZE_MAX = 128_000
_numbers = itertools.count(1)


class TraceProducer(Protocol):
    """What sends the records: producer.Producer."""

    async def start(self) -> None: ...

    async def send(self, message: Message) -> object: ...

    async def shutdown(self) -> None: ...


class TraceDispatcher:
    """Owner: the traced producer or consumer."""

    def __init__(
        self,
        make: Callable[..., TraceProducer],
        group: str,
        kind: str,
        config: ClientOptions,
        *,
        trace_topic: str | None = None,
    ) -> None:
        """make: Producer, handed in since it uses this module. kind: PRODUCE or CONSUME."""
        self.topic = trace_topic or TRACE_TOPIC
        self.dropped = 0
        self._group = f"_INNER_TRACE_PRODUCER-{group}-{kind}-{next(_numbers)}"
        self._config = config
        self._records: deque[trace.TraceRecord] = deque()
        self._runner = Runner(self._group)
        self._make = make
        self._producer: TraceProducer | None = None

    async def start(self) -> None:
        config = self._config
        name_server = config.name_server_url or ";".join(config.name_servers)
        make = partial(
            self._make,
            self._group,
            name_server=name_server,
            instance_name=f"PID_CLIENT_INNER_TRACE_PRODUCER_{name_server}",
            client_ip=config.client_ip,
            tls=config.tls,
            header_encoding=config.header_encoding,
            clock=config.clock,
            send_timeout_ms=5_000,
            max_message_size=MESSAGE_SIZE_MAX * 2,
            credentials=config.credentials,
            transport=config.transport,
            # What records traces is no part of them.
            otel=False,
        )
        # Where the name servers are asked for by HTTP the constructor waits: in a thread, then.
        waits = config.name_server_url is not None
        self._producer = await asyncio.to_thread(make) if waits else make()
        await self._producer.start()
        await self._runner.start()
        self._runner.every(
            FLUSH_INTERVAL_MS, self.flush, first_ms=FLUSH_INTERVAL_MS, name="flush traces"
        )

    def append(self, records: Iterable[trace.TraceRecord]) -> None:
        """Add records; from any thread."""
        for record in records:
            if len(self._records) >= RECORDS_MAX:
                self.dropped += 1
                if self.dropped % 1_000 == 1:
                    log.warning(
                        "dropped trace records, because too many are waiting dropped=%s",
                        self.dropped,
                    )
                continue
            self._records.append(record)

    async def flush(self) -> None:
        """Send the collected records; a failure is logged and the records are lost."""
        producer = self._producer
        if producer is None:
            return
        while self._records:
            taken = [self._records.popleft() for _ in range(min(len(self._records), 100))]
            for packed in trace.pack(taken, MESSAGE_SIZE_MAX):
                try:
                    await producer.send(Message(self.topic, packed.body, keys=packed.keys or None))
                except PocketMQError as error:
                    log.warning("could not send traces, they are lost reason=%r", str(error))

    async def shutdown(self) -> None:
        """Send what is left and stop."""
        try:
            await self._runner.stop()
            await self.flush()
        finally:
            if self._producer is not None:
                await self._producer.shutdown()


@dataclass(slots=True)
class _Sending:
    outgoing: "OutgoingMessage"
    address: str
    began_ms: int
    began_mono_ms: int


class ProduceTrace:
    """A SendHook: a Pub record for each attempt."""

    def __init__(self, dispatcher: TraceDispatcher, group: str, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._group = group
        self._clock = clock

    def before(self, outgoing: "OutgoingMessage", queue: MessageQueue, address: str) -> object:
        return _Sending(outgoing, address, self._clock.now_ms(), self._clock.monotonic_ms())

    def after(
        self, token: object, result: "SendResult | None", error: PocketMQError | None
    ) -> None:
        assert isinstance(token, _Sending)
        if result is not None and not result.trace_on:
            return
        outgoing = token.outgoing
        message = outgoing.message
        self._dispatcher.append(
            [
                trace.pub(
                    time_ms=token.began_ms,
                    region=result.region_id if result else "DefaultRegion",
                    group=self._group,
                    topic=message.topic,
                    msg_id=outgoing.unique_key,
                    tags=message.tags,
                    keys=message.keys,
                    store_host=token.address,
                    body_size=outgoing.body_size,
                    cost_ms=self._clock.monotonic_ms() - token.began_mono_ms,
                    message_type=trace.TracedMessageType(outgoing.message_type),
                    offset_msg_id=result.offset_msg_id if result else "",
                    success=result is not None,
                )
            ]
        )


class ConsumeTrace:
    """SubBefore and SubAfter records around a listener call."""

    def __init__(
        self, dispatcher: TraceDispatcher, group: str, namespace: str | None, clock: Clock
    ) -> None:
        self._dispatcher = dispatcher
        self._group = group
        self._namespace = namespace
        self._clock = clock

    def before(self, call: ListenerCall) -> tuple[str, list[MessageExt]]:
        traced = [
            message
            for message in call.messages
            if message.properties.get(Property.TRACE_ON.value) != "false"
        ]
        request = trace.request_id()
        now = self._clock.now_ms()
        self._dispatcher.append(
            trace.sub_before(
                time_ms=now,
                region=_region(message),
                group=self._group,
                request=request,
                msg_id=message.msg_id,
                retry_times=message.reconsume_times,
                keys=message.keys,
                topic=without_namespace(self._namespace, message.topic),
            )
            for message in traced
        )
        return request, traced

    def after(self, call: ListenerCall, token: Any, outcome: Outcome) -> None:
        request, traced = token
        if not traced:
            return
        success = outcome.result is ConsumeResult.SUCCESS
        code = trace.ContextCode.SUCCESS
        if outcome.error is not None:
            code = trace.ContextCode.EXCEPTION
        elif not success:
            code = trace.ContextCode.FAILED
        now = self._clock.now_ms()
        self._dispatcher.append(
            trace.sub_after(
                request=request,
                msg_id=message.msg_id,
                cost_ms=outcome.cost_ms // len(traced),
                success=success,
                keys=message.keys,
                context_code=code,
                time_ms=now,
                group=self._group,
                topic=without_namespace(self._namespace, message.topic),
                region=_region(message),
            )
            for message in traced
        )


def _region(message: MessageExt) -> str:
    return message.properties.get(Property.MSG_REGION.value, "DefaultRegion")
