"""Spans of OpenTelemetry from a producer through the broker to a listener, read back by its own SDK."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from pocketmq.client.tracing import otel
from pocketmq.testing import InProcess
from tests.kit.waiting import until_async


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What ends; the provider is not the process's, which cannot be taken back."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "_tracer", provider.get_tracer("test"))
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in spans.get_finished_spans() if each.name == name]


async def test_a_trace_goes_from_the_sender_to_the_listener(
    server: InProcess, spans: InMemorySpanExporter
) -> None:
    inside: list[int] = []

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        inside.append(trace.get_current_span().get_span_context().span_id)
        if messages[0].tags == "bad" and not messages[0].reconsume_times:
            raise ValueError("not yet")
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        "spanned",
        listener=listener,
        name_server=server.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        otel=True,
    )
    consumer.subscribe("Orders")
    with_spans = Producer("P", name_server=server.namesrv, otel=True)
    async with with_spans as producer, consumer:
        message = Message("Orders", b"12", tags="bad", keys="one two")
        sent = await producer.send(message)
        assert "traceparent" not in message.properties
        await until_async(lambda: named(spans, "process Orders"), "the listener was called")
        await producer.send_batch([Message("Orders", b"a"), Message("Orders", b"b")])
        await until_async(lambda: len(named(spans, "process Orders")) >= 3, "all of them")
    create, *_ = named(spans, "create Orders")
    send, *_ = named(spans, "send Orders")
    [process] = [
        each
        for each in named(spans, "process Orders")
        if each.attributes and each.attributes["messaging.message.id"] == sent.msg_id
    ][:1]
    assert create.context is not None
    for each in (send, process):
        assert each.context is not None
        assert each.parent is not None
        assert each.parent.span_id == create.context.span_id
        assert each.context.trace_id == create.context.trace_id
    assert process.context is not None
    assert process.context.span_id in inside
    assert not process.status.is_ok
    assert process.attributes is not None
    assert process.attributes["error.type"] == "ValueError"
    assert process.attributes["messaging.consumer.group.name"] == "spanned"
    assert process.attributes["messaging.rocketmq.message.keys"] == ("one", "two")
    assert send.attributes is not None
    assert send.attributes["messaging.message.id"] == sent.msg_id
    traces = {each.context.trace_id for each in named(spans, "create Orders") if each.context}
    assert len(traces) == 3
    assert {
        each.context.trace_id for each in named(spans, "process Orders") if each.context
    } == traces


async def test_messages_taken_by_hand_have_spans_and_links(
    server: InProcess, spans: InMemorySpanExporter
) -> None:
    async with Producer("P", name_server=server.namesrv, otel=True) as producer:
        for body in (b"1", b"2"):
            await producer.send(Message("Pulled", body))
    messages = await asyncio.to_thread(server.messages, "Pulled")
    with otel.processing(messages, "hands") as span:
        assert trace.get_current_span() is span
    [process] = named(spans, "process Pulled")
    created = {each.context.span_id for each in named(spans, "create Pulled") if each.context}
    assert process.parent is None
    assert {link.context.span_id for link in process.links} == created


@pytest.mark.parametrize("batch", [1, 8])
async def test_process_spans_are_no_children_of_the_starting_span(
    server: InProcess, spans: InMemorySpanExporter, batch: int
) -> None:
    """A batch belongs to no trace, and a message without a context begins one."""
    topic = f"Roots{batch}"
    async with Producer("P", name_server=server.namesrv) as producer:
        for _ in range(8):
            await producer.send(Message(topic, b"x"))

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        await asyncio.sleep(0)

    consumer = PushConsumer(
        f"roots{batch}",
        listener=listener,
        name_server=server.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        consume_batch_size=batch,
        otel=True,
    )
    consumer.subscribe(topic)
    with otel._tracer.start_as_current_span("a request"):
        await consumer.start()
    try:
        await until_async(lambda: named(spans, f"process {topic}"))
    finally:
        await consumer.shutdown()
    assert {each.parent for each in named(spans, f"process {topic}")} == {None}
