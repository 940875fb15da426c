"""Functions by topic and tag, and bodies as values, at a broker."""

import asyncio
import inspect
import json
import re
from dataclasses import dataclass

import pydantic
import pytest

from pocketmq.client import (
    JSON,
    MSGPACK,
    TEXT,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    MessageExt,
    MessageQueue,
    Model,
    PushConsumer,
    sync,
)
from pocketmq.client.consume.router import Router
from pocketmq.model.names import dlq_topic
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.testing import InProcess
from tests.kit.waiting import until, until_async

FIRST = ConsumeFromWhere.FIRST_OFFSET


class Order(pydantic.BaseModel):
    number: int
    name: str = ""


@dataclass
class Body:
    """What a router sees of a message."""

    topic: str
    body: bytes
    tags: str | None = None


@pytest.mark.parametrize(
    ("codec", "value"),
    [(JSON, {"a": [1, "ü"]}), (MSGPACK, {"a": [1, b"\0"]}), (TEXT, "ü"), (Model(Order), Order(number=3))],
)  # fmt: skip
def test_a_value_is_what_it_was_written_from(codec: object, value: object) -> None:
    assert codec.decode(codec.encode(value)) == value  # type: ignore[attr-defined]


@pytest.mark.parametrize("codec", [JSON, MSGPACK, TEXT, Model(Order)])
def test_other_bytes_are_a_value_error(codec: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each codec says it in its own words
        codec.decode(b"\xc1\xff")  # type: ignore[attr-defined]


async def test_messages_go_to_the_function_of_their_tag(server: InProcess) -> None:
    """Coroutines and plain functions in one consumer; the rest goes to the one for all."""
    got: list[object] = []
    consumer = PushConsumer("routed", name_server=server.namesrv, consume_from_where=FIRST)

    @consumer.on("Orders", "paid || late", codec=Model(Order))
    async def paid(order: Order, message: MessageExt) -> None:
        got.append(("paid", order.number, message.tags))

    @consumer.on("Orders", codec=JSON)
    def other(order: dict[str, object]) -> None:
        got.append(("other", order["number"]))

    @consumer.on("Texts")
    async def text(message: MessageExt) -> None:
        got.append(message.body)

    described = consumer.describe().to_json()["subscriptions"]
    assert described == {"Orders": "*", "Texts": "*"}
    for tags in ("paid", "late", "new"):
        body = json.dumps({"number": 1})
        await asyncio.to_thread(server.send, "Orders", body, tags=tags)
    await asyncio.to_thread(server.send, "Texts", "x")
    async with consumer:
        await until_async(lambda: len(got) == 4, "all four")
        with pytest.raises(IllegalArgument, match="before the consumer starts"):
            consumer.on("More")
    assert sorted(got, key=str) == [
        ("other", 1),
        ("paid", 1, "late"),
        ("paid", 1, "paid"),
        b"x",
    ]


def test_a_body_that_cannot_be_read_is_a_dead_letter_at_once(
    server: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """And plain functions run in threads, without an event loop."""
    got: list[int] = []
    consumer = sync.PushConsumer("readers", name_server=server.namesrv, consume_from_where=FIRST)

    @consumer.on("Numbers", codec=Model(Order))
    def number(order: Order) -> None:
        got.append(order.number)

    server.send("Numbers", "no json")
    server.send("Numbers", '{"number": 7}')
    with consumer:
        until(lambda: got == [7], "the one that can be read")
        server.wait_for_messages(dlq_topic("readers"), 1)
    assert "the messages will become dead letters" in caplog.text


def routed(**handlers: object) -> Router:
    router = Router()
    for tag, handler in handlers.items():
        router.add("T", tag, "TAG", handler, None)  # type: ignore[arg-type]
    return router


async def test_a_batch_returns_from_its_first_failure_on() -> None:
    def fails(message: MessageExt) -> None:
        raise OSError

    def later(message: MessageExt) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    async def well(message: MessageExt) -> None:
        pass

    for bad in (fails, later):
        for good in (well, lambda message: None):
            listener = routed(bad=bad, good=good).listener()
            batch = [Body("T", b"", tag) for tag in ("good", "good", "bad", "good")]
            context = ConsumeContext(MessageQueue("T", "b", 0))
            called = listener(batch, context)  # type: ignore[arg-type]
            result = await called if inspect.isawaitable(called) else called
            assert (result, context.ack_index) == (ConsumeResult.SUCCESS, 1)


def test_what_cannot_be_routed_is_said() -> None:
    router = routed(a=lambda message: None)
    for expression, kind in (("a || b", "TAG"), ("x > 1", "SQL92")):
        with pytest.raises(IllegalArgument, match="already"):
            router.add("T", expression, kind, lambda message: None, None)
    with pytest.raises(LookupError, match="no function"):
        router.listener()([Body("T", b"", "z")], ConsumeContext(MessageQueue("T", "b", 0)))  # type: ignore[list-item]
    with pytest.raises(IllegalArgument, match=r"@consumer\.on"):
        Router().listener()

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None: ...

    consumer = PushConsumer("g", listener=listener, name_server="a:1")
    with pytest.raises(IllegalArgument, match="without a listener"):
        consumer.on("T")


def test_a_function_of_other_arguments_is_refused_at_once() -> None:
    """Not at the first message, which it would fail again and again."""

    def one(messages: list[MessageExt]) -> None: ...

    wanted = re.escape("Write: def one(messages, context)")
    with pytest.raises(IllegalArgument, match=wanted):
        PushConsumer("g", listener=one, name_server="a:1")  # type: ignore[arg-type]

    def two(messages: list[MessageExt], context: ConsumeContext) -> None: ...

    PushConsumer("g", listener=two, name_server="a:1")
    PushConsumer("g", listener=lambda *arguments: None, name_server="a:1")
    with pytest.raises(IllegalArgument, match=re.escape("Write: def two(message)")):
        PushConsumer("g", name_server="a:1").on("T")(two)
    PushConsumer("g", name_server="a:1").on("T", codec=JSON)(two)
