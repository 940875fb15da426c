"""`opentelemetry-instrument` gives spans to a program without any, and each message is one trace."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pocketmq.client import ConsumeFromWhere, Message
from pocketmq.client.sync import LitePullConsumer, Producer
from pocketmq.client.tracing import otel
from pocketmq.integrations.opentelemetry import PocketMQInstrumentor
from pocketmq.testing import InProcess

PROGRAM = """
import asyncio, sys, time
from pocketmq.client import *

names = {"name_server": sys.argv[1], "consume_from_where": ConsumeFromWhere.FIRST_OFFSET}

async def fail(messages, context):
    raise ValueError("never")

async def main():
    failing = PushConsumer("failing", listener=fail, max_reconsume_times=1, trace=True, **names)
    failing.subscribe("Orders")
    async with Producer("writers", name_server=sys.argv[1], trace=True) as producer, failing:
        await producer.send(
            Message("Orders", b"one"), deliver_at_ms=int(time.time() * 1000) + 1_500
        )
        dead = SimpleConsumer("gravediggers", **names)
        dead.subscribe("%DLQ%failing")
        lite = LitePullConsumer("lite", **names)
        lite.subscribe("Orders")
        async with dead, lite, PullConsumer("pull", name_server=sys.argv[1]) as pull:
            found = []
            while not found:
                try:
                    found = await dead.receive(1)
                except NoRoute:
                    await asyncio.sleep(0.05)
            await dead.renew(found[0], 0)
            [again] = await dead.receive(1)
            await dead.ack(again)
            while not await lite.poll():
                pass
            results = [await pull.pull(each, 0) for each in await pull.queues("Orders")]
            assert sum(len(each.messages) for each in results) == 1

asyncio.run(main())
"""


def printed(text: str) -> list[dict[str, Any]]:
    """Return the objects that stand in a text one after the other, with anything between them."""
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = text.find("{", end)
    return found


def test_one_trace_through_delay_retry_and_dead_letter(tmp_path: Path) -> None:
    with InProcess({"messageDelayLevel": "1s " * 18}) as server:
        server.create_topic("Orders", queues=1)
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable),
                *("-c", PROGRAM, server.namesrv),
            ],
            env={
                **os.environ,
                "OTEL_TRACES_EXPORTER": "console",
                "OTEL_METRICS_EXPORTER": "none",
                "OTEL_LOGS_EXPORTER": "none",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    spans = printed(done.stdout)
    # The records of RocketMQ's own trace, which both clients write, are not in it.
    assert Counter(each["name"] for each in spans) == {
        "create Orders": 1,
        "send Orders": 1,
        "process Orders": 2,
        "receive %DLQ%failing": 2,
        "nack %DLQ%failing": 1,
        "ack %DLQ%failing": 1,
        "receive Orders": 2,
    }
    assert len({each["context"]["trace_id"] for each in spans}) == 1
    [create] = [each for each in spans if each["name"] == "create Orders"]
    assert {each["parent_id"] for each in spans if each is not create} == {
        create["context"]["span_id"]
    }
    assert create["attributes"]["messaging.rocketmq.message.delivery_timestamp"] > 10**12
    # What a message is called stays the same, wherever it is stored.
    [ident] = {each["attributes"].get("messaging.message.id") for each in spans} - {None}
    assert ident


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Spans of an instrumentor that is on until the test ends."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = PocketMQInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()
    otel.use(None)


def test_the_switch_holds_for_clients_that_start_later(
    server: InProcess, spans: InMemorySpanExporter
) -> None:
    def send(option: bool | None) -> int:
        before = len(spans.get_finished_spans())
        with Producer("P", name_server=server.namesrv, otel=option) as producer:
            producer.send(Message("Switched", b"x"))
        return len(spans.get_finished_spans()) - before

    assert (send(None), send(False), send(True)) == (2, 0, 2)
    PocketMQInstrumentor().uninstrument()
    assert (send(None), send(False), send(True)) == (0, 0, 2)


def test_a_receive_within_a_span_links_to_the_senders(
    server: InProcess, spans: InMemorySpanExporter
) -> None:
    server.create_topic("Linked", queues=1)
    with Producer("P", name_server=server.namesrv) as producer:
        producer.send_batch([Message("Linked", b"1"), Message("Linked", b"2")])
    with Producer("P", name_server=server.namesrv, otel=False) as producer:
        producer.send(Message("Linked", b"without a context"))
    with LitePullConsumer(
        "lite", name_server=server.namesrv, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("Linked")
        around = trace.NonRecordingSpan(
            trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(1))
        )
        with trace.use_span(around):
            count = 0
            while count < 3:
                count += len(consumer.poll())
    received = [each for each in spans.get_finished_spans() if each.name == "receive Linked"]
    created = [each for each in spans.get_finished_spans() if each.name == "create Linked"]
    assert all(each.parent == around.get_span_context() for each in received)
    links = [link.context.span_id for each in received for link in each.links]
    assert links == [each.context.span_id for each in created if each.context]
    assert len(links) == 2
