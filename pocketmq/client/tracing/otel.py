"""Spans and trace context by OpenTelemetry: the option `otel` of producers and push consumers (extra `otel`).

    create Orders (PRODUCER)      a message is packed; its context travels in the message's properties
      send Orders (CLIENT)        an attempt to send it
      process Orders (CONSUMER)   a call of the listener, where this span is the current one

The context is W3C's in the properties `traceparent` and `tracestate`, or what the program's propagator uses.
A listener call with several messages belongs to none of their traces and links to all. Code that receives
messages without a listener uses `processing`. Attribute names: semantic conventions of messaging, RocketMQ.
"""

from collections.abc import Generator, Iterable, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode

from pocketmq.client.consume.listener import ConsumeResult, ListenerCall, Outcome
from pocketmq.model.message import Message, MessageExt, MessageQueue
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.send.encode import OutgoingMessage
    from pocketmq.client.send.result import SendResult

_tracer = trace.get_tracer("pocketmq.client")


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


@contextmanager
def processing(messages: MessageExt | list[MessageExt], group: str) -> Generator[Span, None, None]:
    """Span the work on messages received without a listener: `with processing(message, "workers"): ...`"""
    listed = messages if isinstance(messages, list) else [messages]
    with trace.use_span(_process_span(listed, group), end_on_exit=True) as span:
        yield span


def _process_span(messages: list[MessageExt], group: str) -> Span:
    first = messages[0]
    attributes = _attributes("process", "process", first)
    attributes["messaging.consumer.group.name"] = group
    contexts = [_context_of(message.properties) for message in messages]
    if len(messages) > 1:
        attributes["messaging.batch.message_count"] = len(messages)
        for name in ("messaging.message.id", "messaging.message.body.size"):
            attributes.pop(name, None)
    return _tracer.start_span(
        f"process {first.topic}",
        context=contexts[0] if len(contexts) == 1 else None,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=_links(contexts) if len(contexts) > 1 else (),
    )


def _context_of(properties: Mapping[str, str]) -> context.Context:
    return propagate.extract(properties)


def _links(contexts: Iterable[context.Context]) -> list[Link]:
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
