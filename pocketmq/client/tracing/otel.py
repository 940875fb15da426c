"""Spans and trace context by OpenTelemetry: the option `otel` of producers and consumers (extra `otel`).

    create Orders (PRODUCER)      a message is packed; its context travels in the message's properties
      send Orders (CLIENT)        an attempt to send it
      process Orders (CONSUMER)   a call of the listener, where this span is the current one
      receive Orders (CLIENT)     messages that a consumer without a listener got
      ack, nack, reject Orders (CLIENT)   what a simple consumer answers to one

The context is W3C's in the properties `traceparent` and `tracestate`, or what the program's propagator uses;
retries and dead letters keep it. A call with several messages belongs to none of their traces and links to
all. A consumer's spans of kind CLIENT are of the trace that is current there, if there is one, and link to
the messages'. Without a listener, `processing` spans the work. Attribute names: semantic conventions of
messaging, RocketMQ.
"""

import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode

from pocketmq.client.consume.listener import ConsumeResult, ListenerCall, Outcome
from pocketmq.model.message import Message, MessageExt, MessageQueue, Property
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.send.encode import OutgoingMessage
    from pocketmq.client.send.result import SendResult

R = TypeVar("R")

_SCOPE = "pocketmq.client"
_DELAYS = {
    Property.DELAY.value: "messaging.rocketmq.message.delay_time_level",
    Property.TIMER_DELIVER_MS.value: "messaging.rocketmq.message.delivery_timestamp",
}
_tracer = trace.get_tracer(_SCOPE)


def use(provider: trace.TracerProvider | None) -> None:
    """Send the spans of all clients of this process to a provider; None: OpenTelemetry's global one."""
    global _tracer
    _tracer = trace.get_tracer(_SCOPE, tracer_provider=provider)


def _attributes(operation: str, kind: str, message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": message.topic,
        "messaging.message.body.size": len(message.body),
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys.split()
    if isinstance(message, MessageExt):
        found["messaging.message.id"] = message.msg_id
    return found


class ProduceSpans:
    """A SendHook; `carry` is called for each message that is packed."""

    def __init__(self, group: str) -> None:
        self._group = group

    def carry(self, message: Message, properties: MutableMapping[str, str]) -> None:
        """Start the span of a message, and put its context into the properties."""
        attributes = _attributes("create", "create", message)
        attributes["messaging.rocketmq.client_group"] = self._group
        for name in _DELAYS.keys() & properties.keys():
            attributes[_DELAYS[name]] = int(properties[name])
        span = _tracer.start_span(
            f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        propagate.inject(properties, trace.set_span_in_context(span))
        span.end()

    def before(self, outgoing: "OutgoingMessage", queue: MessageQueue, address: str) -> Span:
        attributes = _attributes("send", "send", outgoing.message)
        attributes["server.address"], _, port = address.rpartition(":")
        attributes["server.port"] = int(port)
        attributes["messaging.destination.partition.id"] = str(queue.queue_id)
        return _tracer.start_span(
            f"send {outgoing.message.topic}",
            context=_context_of(properties_to_dict(outgoing.properties)),
            kind=SpanKind.CLIENT,
            attributes=attributes,
        )

    def after(
        self, token: object, result: "SendResult | None", error: PocketMQError | None
    ) -> None:
        assert isinstance(token, Span)
        if result is not None:
            token.set_attribute("messaging.message.id", result.msg_id)
        _end(token, error)


class ConsumeSpans:
    """Around the calls of a listener."""

    def __init__(self, group: str) -> None:
        self._group = group

    def before(self, call: ListenerCall) -> object:
        span = _process_span(call.messages, self._group)
        return span, context.attach(trace.set_span_in_context(span))

    def after(self, call: ListenerCall, token: Any, outcome: Outcome) -> None:
        span, attached = token
        context.detach(attached)
        failed = outcome.error is None and outcome.result is not ConsumeResult.SUCCESS
        _end(span, outcome.error, str(outcome.result) if failed else None)


class ReceiveSpans:
    """Around the calls of a consumer without a listener."""

    def __init__(self, group: str) -> None:
        self._group = group

    async def receiving(
        self, work: Awaitable[R], messages_of: Callable[[R], list[MessageExt]]
    ) -> R:
        """Await what brings messages; a span from its begin, if it brought some."""
        began_ns = time.time_ns()
        found = await work
        if messages := messages_of(found):
            kind = SpanKind.CLIENT
            _message_span("receive", "receive", kind, messages, self._group, began_ns).end()
        return found

    async def settling(self, name: str, message: MessageExt, work: Awaitable[None]) -> None:
        """Await the answer to a message within a span. name: ack, nack (again at once) or reject."""
        span = _message_span(name, "settle", SpanKind.CLIENT, [message], self._group)
        try:
            await work
        except BaseException as error:
            _end(span, error)
            raise
        _end(span, None)


@contextmanager
def processing(messages: MessageExt | list[MessageExt], group: str) -> Generator[Span, None, None]:
    """Span the work on messages received without a listener: `with processing(message, "workers"): ...`"""
    listed = messages if isinstance(messages, list) else [messages]
    with trace.use_span(_process_span(listed, group), end_on_exit=True) as span:
        yield span


def _process_span(messages: list[MessageExt], group: str) -> Span:
    return _message_span("process", "process", SpanKind.CONSUMER, messages, group)


def _message_span(
    operation: str,
    operation_type: str,
    kind: SpanKind,
    messages: list[MessageExt],
    group: str,
    began_ns: int | None = None,
) -> Span:
    """Start a span of messages; began_ns: since 1970, by default now."""
    first = messages[0]
    attributes = _attributes(operation, operation_type, first)
    attributes["messaging.consumer.group.name"] = group
    single = len(messages) == 1
    if not single:
        attributes["messaging.batch.message_count"] = len(messages)
        for name in ("messaging.message.id", "messaging.message.body.size"):
            attributes.pop(name, None)
    around = kind is SpanKind.CLIENT and trace.get_current_span().get_span_context().is_valid
    return _tracer.start_span(
        f"{operation} {first.topic}",
        context=_context_of(first.properties) if single and not around else None,
        kind=kind,
        attributes=attributes,
        links=_links(messages) if around or not single else (),
        start_time=began_ns,
    )


def _context_of(properties: Mapping[str, str]) -> context.Context:
    return propagate.extract(properties)


def _links(messages: Iterable[MessageExt]) -> list[Link]:
    # A message without a context has none, whatever is current here.
    contexts = (propagate.extract(each.properties, context.Context()) for each in messages)
    found = [trace.get_current_span(each).get_span_context() for each in contexts]
    return [Link(each) for each in found if each.is_valid]


def _end(span: Span, error: BaseException | None, failure: str | None = None) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(StatusCode.ERROR, str(error))
    elif failure is not None:
        span.set_status(StatusCode.ERROR, failure)
    span.end()
