"""What code inside a listener sees and may do: context variables of its own, and a shutdown that returns."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
    sync,
)
from pocketmq.client.consume.call_context import base_of, within
from pocketmq.testing import InProcess
from tests.kit.waiting import until, until_async

_PATIENCE_S = 60
bound: ContextVar[str] = ContextVar("bound", default="")
FIRST = ConsumeFromWhere.FIRST_OFFSET


async def send(server: InProcess, topic: str, count: int) -> None:
    async with Producer("p", name_server=server.namesrv) as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


# ------------------------------------------------------------ context variables


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("waits", [False, True], ids=["threads", "coroutines"])
async def test_no_call_sees_what_another_or_the_starter_has_bound(
    server: InProcess, waits: bool, orderly: bool
) -> None:
    topic = f"Bound{int(waits)}{int(orderly)}"
    seen: list[str] = []
    later: list[str] = []

    def note(messages: list[MessageExt]) -> None:
        seen.append(bound.get())
        bound.set(messages[0].body.decode())

    def function(messages: list[MessageExt], context: ConsumeContext) -> None:
        note(messages)

    async def coroutine(messages: list[MessageExt], context: ConsumeContext) -> None:
        note(messages)
        await asyncio.sleep(0)
        # Its own binding lasts as long as the call, in its tasks as well.
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(asyncio.sleep(0, bound.get()))
        later.append(f"{bound.get()} {task.result()} {messages[0].body.decode()}")

    await send(server, topic, 12)
    consumer = PushConsumer(
        f"g{topic}",
        listener=coroutine if waits else function,
        name_server=server.namesrv,
        consume_from_where=FIRST,
        concurrency=2,
        orderly=orderly,
    )
    consumer.subscribe(topic)
    bound.set("the request that started it")
    async with consumer:
        await until_async(lambda: len(seen) == 12)
    assert set(seen) == {""}
    assert all(len(set(line.split())) == 1 for line in later)


async def test_within_passes_on_values_errors_and_cancellations() -> None:
    events: list[str] = []

    async def work() -> str:
        bound.set("inside")
        try:
            await asyncio.sleep(0)
            raise LookupError
        except LookupError:
            events.append(bound.get())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        return "never"

    async def value() -> str:
        await asyncio.sleep(0)
        return "value"

    bound.set("outside")
    context = base_of(object())
    assert await within(context, value()) == "value"
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_awaited(within(context, work())))
        await until_async(lambda: events == ["inside"])
        task.cancel()
    assert events == ["inside", "cancelled"]
    assert (bound.get(), context.run(bound.get)) == ("outside", "inside")


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


# ------------------------------------------------------------ shutdown


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_shutdown_inside_a_coroutine_listener_commits(
    server: InProcess, orderly: bool
) -> None:
    topic = f"Stop{int(orderly)}"
    await send(server, topic, 1)
    told = asyncio.Event()

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            # From a task of the listener's as well.
            await asyncio.gather(consumer.shutdown(), consumer.shutdown())
        told.set()

    consumer = PushConsumer(
        f"g{topic}",
        listener=listen,
        name_server=server.namesrv,
        consume_from_where=FIRST,
        orderly=orderly,
        drain_timeout_ms=600_000,
    )
    consumer.subscribe(topic)
    async with consumer:
        async with asyncio.timeout(_PATIENCE_S):
            await told.wait()
    # Left: the shutdown from outside has waited for the one from inside.
    queue = next(each for each, _ in _backlog(server, f"g{topic}", topic) if each)
    assert queue
    assert [left for _, left in _backlog(server, f"g{topic}", topic) if left] == []


@pytest.mark.parametrize("orderly", [False, True])
def test_a_shutdown_inside_a_blocking_listener_commits(server: InProcess, orderly: bool) -> None:
    topic = f"Halt{int(orderly)}"
    with sync.Producer("p", name_server=server.namesrv) as producer:
        producer.send(Message(topic, b"stop"))
    told = threading.Event()

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        consumer.shutdown()
        consumer.shutdown()
        told.set()

    consumer = sync.PushConsumer(
        f"g{topic}",
        listener=listen,
        name_server=server.namesrv,
        consume_from_where=FIRST,
        orderly=orderly,
        drain_timeout_ms=600_000,
    )
    consumer.subscribe(topic)
    with consumer:
        assert told.wait(_PATIENCE_S)
    assert [left for _, left in _backlog(server, f"g{topic}", topic) if left] == []
    until(
        lambda: not any(each.name == "pocketmq-loop" for each in threading.enumerate()),
        "the last client ends the loop's thread",
    )


def _backlog(server: InProcess, group: str, topic: str) -> list[tuple[MessageQueue, int]]:
    """How much each queue of the topic has that the group has not committed."""

    async def asked() -> list[tuple[MessageQueue, int]]:
        from pocketmq.client import PullConsumer

        async with PullConsumer(group, name_server=server.namesrv) as reader:
            found = []
            for queue in await reader.queues(topic):
                end = await reader.max_offset(queue)
                found.append((queue, end - (await reader.committed(queue) or 0)))
            return found

    found: list[tuple[MessageQueue, int]] = []
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(asked())))
    thread.start()
    thread.join(_PATIENCE_S)
    return found


# ------------------------------------------------------------ on_queues_changed


async def test_on_queues_changed_may_seek_and_pause(
    server: InProcess,
) -> None:
    await asyncio.to_thread(server.create_topic, "Sought", queues=4)
    await send(server, "Sought", 40)
    errors: list[Exception] = []

    def changed(topic: str, all_queues: list[MessageQueue], own: list[MessageQueue]) -> None:
        try:
            for queue in own:
                consumer.seek(queue, 7)
            consumer.pause(own[:1])
            paused.extend(own[:1])
        except Exception as error:  # noqa: BLE001 - the test tells it
            errors.append(error)

    paused: list[MessageQueue] = []
    consumer = LitePullConsumer(
        "seekers",
        name_server=server.namesrv,
        consume_from_where=FIRST,
        on_queues_changed=changed,
    )
    consumer.subscribe("Sought")
    async with consumer:
        found: list[MessageExt] = []
        while len({each.message_queue for each in found}) < 3:
            found += await consumer.poll(_PATIENCE_S * 1000)
        assert errors == []
        assert {each.queue_offset for each in found} == {7, 8, 9}
        assert paused[0] not in {each.message_queue for each in found}
        consumer.resume(paused)
        assert [each.queue_offset for each in await consumer.poll(60_000)] == [7, 8, 9]


@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING])
def test_so_may_that_of_a_blocking_consumer(
    server: InProcess, model: MessageModel, tmp_path: Any
) -> None:
    with sync.Producer("p", name_server=server.namesrv) as producer:
        for number in range(9):
            producer.send(Message(f"Also{model.value}", b"%d" % number), sharding_key="one")
    errors: list[Exception] = []

    def changed(topic: str, all_queues: list[MessageQueue], own: list[MessageQueue]) -> None:
        try:
            for queue in own:
                consumer.seek(queue, 7)
        except Exception as error:  # noqa: BLE001 - the test tells it
            errors.append(error)

    consumer = sync.LitePullConsumer(
        f"also{model.value}",
        name_server=server.namesrv,
        consume_from_where=FIRST,
        message_model=model,
        offset_folder=tmp_path,
        on_queues_changed=changed,
    )
    consumer.subscribe(f"Also{model.value}")
    with consumer:
        assert [each.queue_offset for each in consumer.poll(60_000)] == [7, 8]
        assert errors == []


@pytest.mark.parametrize("blocking", [False, True], ids=["coroutine", "thread"])
async def test_a_check_may_shut_its_producer_down_and_is_answered_for(blocking: bool) -> None:
    ended: list[str] = []
    with InProcess({"transactionTimeOut": 100, "transactionCheckInterval": 100}) as server:
        own: TransactionProducer | sync.TransactionProducer

        def undecided(_: Message) -> TransactionState:
            return TransactionState.UNKNOWN

        async def check(_: Message) -> TransactionState:
            await own.shutdown()  # type: ignore[misc]
            ended.append("coroutine")
            return TransactionState.COMMIT

        def check_in_thread(_: Message) -> TransactionState:
            own.shutdown()
            ended.append("thread")
            return TransactionState.COMMIT

        if blocking:
            own = sync.TransactionProducer("t", name_server=server.namesrv, check=check_in_thread)
            await asyncio.to_thread(own.start)
            await asyncio.to_thread(own.send_in_transaction, Message("T", b"1"), undecided)
        else:
            own = TransactionProducer("t", name_server=server.namesrv, check=check)
            await own.start()
            await own.send_in_transaction(Message("T", b"1"), undecided)
        (message,) = await asyncio.to_thread(server.wait_for_messages, "T", 1, within_s=_PATIENCE_S)
        assert (message.body, len(ended)) == (b"1", 1)
