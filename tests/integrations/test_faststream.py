"""FastStream's broker against a real one, and its test broker."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from faststream import AckPolicy
from faststream.exceptions import NackMessage, SetupError
from faststream.security import SASLPlaintext
from faststream.specification import AsyncAPI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from pocketmq.client import Message, Producer
from pocketmq.integrations.faststream import (
    PocketBroker,
    PocketMessage,
    PocketResponse,
    PocketRouter,
    TestPocketBroker,
)
from pocketmq.integrations.faststream.fastapi import PocketAPIRouter
from pocketmq.integrations.faststream.opentelemetry import PocketTelemetryMiddleware
from pocketmq.integrations.faststream.prometheus import PocketPrometheusMiddleware
from pocketmq.testing import InProcess
from tests.kit.waiting import until_async

PATIENCE_S = 60


class Seen(list[Any]):
    """What functions got."""

    async def wait(self, count: int = 1) -> list[Any]:
        await until_async(lambda: len(self) >= count, f"{count} calls, not {self}")
        return list(self)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.mark.parametrize(
    ("body", "wanted"),
    [({"a": [1]}, {"a": [1]}), ("text", "text"), (b"\xff", b"\xff"), ("", ""), (None, b"")],
)
async def test_bodies_of_each_kind_arrive(
    server: InProcess, seen: Seen, body: Any, wanted: Any
) -> None:
    broker = PocketBroker(server.namesrv, group=f"kinds-{type(body).__name__}-{bool(body)}")

    @broker.subscriber(f"kinds.{type(body).__name__}.{bool(body)}")
    async def function(message: Any) -> None:
        seen.append(message)

    async with broker:
        await broker.start()
        await broker.publish(body, f"kinds.{type(body).__name__}.{bool(body)}")
        assert await seen.wait() == [wanted]


async def test_a_result_is_published_with_its_options(server: InProcess, seen: Seen) -> None:
    broker = PocketBroker(server.namesrv, group="chain")
    router = PocketRouter(prefix="shop.")

    @router.subscriber("orders", tags="paid")
    @router.publisher("invoices", headers={"from": "orders"}, keys="default")
    async def bill(order: int) -> PocketResponse:
        return PocketResponse(order + 1, tags="new", keys=f"order-{order}")

    @router.subscriber("invoices")
    async def filed(invoice: int, message: PocketMessage) -> None:
        raw = message.raw_message
        seen.append((invoice, raw.tags, raw.keys, message.headers["from"], message.correlation_id))

    broker.include_router(router)
    async with broker:
        await broker.start()
        await broker.publish(1, "shop.orders", tags="open")
        await broker.publish(41, "shop.orders", tags="paid", correlation_id="c")
        assert await seen.wait() == [(42, "new", "order-41", "orders", "c")]


async def test_ack_policies(server: InProcess, seen: Seen) -> None:
    broker = PocketBroker(server.namesrv, group="policies")

    @broker.subscriber("again", ack_policy=AckPolicy.NACK_ON_ERROR)
    async def again(message: PocketMessage) -> None:
        seen.append(message.raw_message.reconsume_times)
        if len(seen) == 1:
            raise ValueError("once")

    @broker.subscriber("dead")
    async def dead(body: str) -> None:
        raise ValueError(body)

    @broker.subscriber("by-hand", ack_policy=AckPolicy.MANUAL)
    async def by_hand(message: PocketMessage) -> None:
        seen.append(message.raw_message.reconsume_times)
        if message.raw_message.reconsume_times:
            await message.ack()
        else:
            raise NackMessage(delay_ms=10)

    async with broker:
        await broker.start()
        await broker.publish("x", "again")
        assert await seen.wait(2) == [0, 1]
        await broker.publish("bad", "dead")
        [letter] = await asyncio.to_thread(server.wait_for_messages, "%DLQ%policies_dead", 1)
        assert letter.body == b"bad"
        for topic in ("again", "dead"):
            await until_async(lambda: server.lag(f"policies_{topic}") == 0)  # noqa: B023


async def test_batches(server: InProcess, seen: Seen) -> None:
    broker = PocketBroker(server.namesrv, group="batches")

    @broker.subscriber("many", batch=True, max_records=3, ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.publisher("each", batch=True)
    async def double(numbers: list[int]) -> list[int]:
        seen.append(list(numbers))
        return [each * 2 for each in numbers]

    results = broker.subscriber("each")
    async with broker:
        await broker.start()
        await broker.publish_batch(*range(7), topic="many")
        doubled = set()
        async with asyncio.timeout(PATIENCE_S):
            async for message in results:
                doubled.add(await message.decode())
                await message.ack()
                if len(doubled) == 7:
                    break
    assert doubled == {0, 2, 4, 6, 8, 10, 12}
    assert sorted(each for batch in seen for each in batch) == list(range(7))
    assert max(map(len, seen)) <= 3


async def test_workers_run_at_once(server: InProcess) -> None:
    broker = PocketBroker(server.namesrv, group="workers")
    together = asyncio.Barrier(3)

    @broker.subscriber("parallel", max_workers=3)
    async def function(body: int) -> None:
        await together.wait()

    async with broker:
        await broker.start()
        for number in range(6):
            await broker.publish(number, "parallel")
        await until_async(lambda: server.lag("workers_parallel") == 0)


async def test_requests_of_each_kind_are_answered(server: InProcess, seen: Seen) -> None:
    broker = PocketBroker(server.namesrv, group="requests")

    @broker.subscriber("questions")
    async def answer(question: str) -> str:
        return question.upper()

    @broker.subscriber("answers")
    async def answered(text: str) -> None:
        seen.append(text)

    async with broker, Producer("java", name_server=server.namesrv) as producer:
        await broker.start()
        reply = await broker.request("a", "questions", correlation_id="c", timeout=PATIENCE_S)
        assert (await reply.decode(), reply.correlation_id) == ("A", "c")
        native = await producer.request(Message("questions", b'"b"'), timeout_ms=PATIENCE_S * 1000)
        assert native.body == b"B"
        await broker.publish("d", "questions", reply_to="answers")
        assert await seen.wait() == ["D"]
        with pytest.raises(TimeoutError):
            await broker.request("e", "unread", timeout=0.01)


async def test_a_delay_waits_in_the_broker(server: InProcess) -> None:
    broker = PocketBroker(server.namesrv, group="later")
    subscriber = broker.subscriber("later")
    async with broker:
        await broker.start()
        await broker.publish(1, "later", delay_s=1)
        assert await subscriber.get_one(timeout=0.05) is None
        message = await subscriber.get_one(timeout=PATIENCE_S)
        assert message is not None
        await message.ack()
        raw = message.raw_message
        assert raw.store_timestamp >= raw.born_timestamp + 500


async def test_groups_share_or_get_all(server: InProcess, seen: Seen) -> None:
    brokers = [PocketBroker(server.namesrv, group=group) for group in ("a", "a", "b")]

    def subscribe(broker: PocketBroker, group: str) -> None:
        @broker.subscriber("shared")
        async def function(body: int) -> None:
            seen.append(group)

    for broker, group in zip(brokers, "aab", strict=True):
        subscribe(broker, group)
    for broker in brokers:
        await broker.start()
    for number in range(4):
        await brokers[0].publish(number, "shared")
    assert sorted(await seen.wait(8)) == ["a"] * 4 + ["b"] * 4
    for broker in brokers:
        await broker.stop()


async def test_what_a_stopped_worker_had_comes_again(server: InProcess, seen: Seen) -> None:
    def made() -> PocketBroker:
        broker = PocketBroker(server.namesrv, group="stopped", graceful_timeout=0.01)

        @broker.subscriber("work", invisible_ms=1_000)
        async def function(body: str) -> None:
            seen.append(body)
            if len(seen) == 1:
                await asyncio.Event().wait()

        return broker

    first, second = made(), made()
    async with first:
        await first.start()
        await first.publish("x", "work")
        await seen.wait()
    async with second:
        await second.start()
        assert await seen.wait(2) == ["x", "x"]


async def test_the_test_broker_calls_each_group_once(seen: Seen) -> None:
    broker = PocketBroker("never.invalid:9876")

    @broker.subscriber("orders")
    @broker.publisher("invoices")
    async def one(body: int) -> int:
        seen.append("one")
        return body + 1

    @broker.subscriber("orders")
    async def same_group(body: int) -> None:
        seen.append("same group")

    @broker.subscriber("orders", group="audit", batch=True)
    async def audit(bodies: list[int]) -> None:
        seen.append(bodies)

    @broker.subscriber("asked")
    async def asked(body: int) -> int:
        return body + 1

    async with TestPocketBroker(broker) as test:
        await test.publish(1, "orders")
        await test.publish_batch(2, 3, topic="orders")
        assert await (await test.request(4, "asked")).decode() == 5
    assert [each for each in seen if isinstance(each, list)] == [[1], [2, 3]]
    assert len(seen) == 2 + 3


def test_names_and_options_are_checked() -> None:
    with pytest.raises(TypeError, match=r"'graceful_timeuot' .did you mean 'graceful_timeout'"):
        PocketBroker(graceful_timeuot=1)
    with pytest.raises(SetupError, match="max_records must be from 1 to 32"):
        PocketBroker().subscriber("x", batch=True, max_records=33)
    with pytest.raises(TypeError, match="PocketRouter can be included"):
        PocketBroker().include_router("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'delay'"):
        PocketResponse(1, delay=1).as_publish_command()  # type: ignore[call-arg]
    secured = PocketBroker(security=SASLPlaintext("name", "secret", use_ssl=True))
    options = secured.config.client_options
    assert options["tls"] is True
    assert options["credentials"].access_key == "name"


async def test_a_header_must_not_be_a_property_of_rocketmq() -> None:
    broker = PocketBroker()
    async with TestPocketBroker(broker) as test:
        with pytest.raises(SetupError, match="'TAGS' is a property with a meaning to RocketMQ"):
            await test.publish(1, "orders", headers={"TAGS": "x"})


@pytest.mark.parametrize("version", ["2.6.0", "3.0.0"])
def test_asyncapi_names_topics_and_bodies(version: str) -> None:
    broker = PocketBroker("host:9876", description="of orders")

    @broker.subscriber("orders")
    @broker.publisher("invoices")
    async def bill(order: int) -> str:
        return ""

    document = AsyncAPI(broker, schema_version=version).to_specification().to_jsonable()
    assert list(document["channels"]) == ["orders:Bill", "invoices:Publisher"]
    server = document["servers"]["development"]
    assert server["protocol"] == "rocketmq"
    assert "host:9876" in server.values()
    assert document["components"]["schemas"]["Bill:Message:Payload"]["type"] == "integer"


async def test_fastapi_starts_and_stops_it(server: InProcess) -> None:
    router = PocketAPIRouter(server.namesrv, group="api")

    @router.subscriber("api.orders")
    @router.publisher("api.invoices")
    async def bill(order: int) -> int:
        return order + 1

    @router.get("/orders/{number}")
    async def order(number: int) -> int:
        answer = await router.broker.request(number, "api.orders", timeout=PATIENCE_S)
        return int(await answer.decode())

    app = FastAPI()
    app.include_router(router)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    async with app.router.lifespan_context(app), client:
        assert (await client.get("/orders/41")).json() == 42
        assert router.broker.running
    assert not router.broker.running
    [invoice] = await asyncio.to_thread(server.messages, "api%2Einvoices")
    assert invoice.body == b"42"


async def test_middlewares_trace_and_count(server: InProcess, seen: Seen) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    registry = CollectorRegistry()
    middlewares = [
        PocketTelemetryMiddleware(tracer_provider=provider),
        PocketPrometheusMiddleware(registry=registry),
    ]
    broker = PocketBroker(server.namesrv, group="watched", middlewares=middlewares)

    @broker.subscriber("watched", batch=True)
    async def function(bodies: list[int]) -> None:
        seen.extend(bodies)

    async with broker:
        await broker.start()
        await broker.publish_batch(1, 2, topic="watched")
        await seen.wait(2)
    labels = {"broker": "rocketmq", "handler": "watched", "app_name": "faststream"}
    received = registry.get_sample_value("faststream_received_messages_total", labels)
    assert received == 2
    names = {each.name for each in exporter.get_finished_spans()}
    assert names >= {"watched publish", "watched process"}
