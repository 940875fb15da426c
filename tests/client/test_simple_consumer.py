"""SimpleConsumer at a broker: popping, acknowledging, renewing, and what comes again."""

import asyncio

import pytest

from pocketmq.client import (
    BrokerRefused,
    ConsumeFromWhere,
    Message,
    MessageExt,
    NoRoute,
    Producer,
    SimpleConsumer,
)
from pocketmq.client.sync import SimpleConsumer as BlockingSimpleConsumer
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.testing import InProcess
from tests.kit.waiting import until


def consumer(server: InProcess, group: str, **options: object) -> SimpleConsumer:
    return SimpleConsumer(
        group,
        name_server=server.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        clock=server.clock,
        **options,  # type: ignore[arg-type]
    )


def pass_time(server: InProcess, seconds: int) -> None:
    """What is invisible runs by the clock that no operator sets."""
    server.clock.advance(seconds, silent=True)


async def all_of(consumer: SimpleConsumer, count: int) -> list[MessageExt]:
    found: list[MessageExt] = []
    while len(found) < count:
        got = await consumer.receive()
        assert got, found
        found += got
    return found


async def test_what_is_acknowledged_is_done_and_the_rest_comes_again(server: InProcess) -> None:
    """More members than queues share one queue; each message goes to one of them."""
    await asyncio.to_thread(server.call, server.aio.admin.topics.create("One", queues=1))
    for number in range(4):
        await asyncio.to_thread(server.send, "One", str(number))
    async with consumer(server, "ones") as first, consumer(server, "ones") as second:
        for member in (first, second):
            member.subscribe("One")
        [a] = await first.receive(1)
        [b] = await second.receive(1)
        rest = await all_of(first, 2)
        assert [each.body for each in (a, b, *rest)] == [b"0", b"1", b"2", b"3"]
        assert await second.receive(wait_ms=0) == []
        # A receipt is enough, from any client.
        for each in (a, *rest):
            await second.ack(each)
        await asyncio.to_thread(pass_time, server, 61)
        [again] = await second.receive(wait_ms=60_000)
        assert (again.body, again.reconsume_times) == (b"1", 1)
        await second.ack(again)
        await asyncio.to_thread(pass_time, server, 61)
        assert await first.receive(wait_ms=0) == []


async def test_a_renewed_message_stays_invisible_until_told(
    server: InProcess,
) -> None:
    await asyncio.to_thread(server.send, "Slow", "x")
    async with consumer(server, "slow", invisible_ms=30_000) as member:
        member.subscribe("Slow")
        [message] = await member.receive()
        receipt = message.properties["POP_CK"]
        await member.renew(message, 300_000)
        assert message.properties["POP_CK"] != receipt
        await asyncio.to_thread(pass_time, server, 100)
        assert await member.receive(wait_ms=0) == []
        await member.renew(message, 1)
        await asyncio.to_thread(pass_time, server, 10)
        [again] = await member.receive(wait_ms=60_000)
        assert (again.body, again.reconsume_times) == (b"x", 1)


async def test_a_receive_waits_at_all_topics_and_keeps_late_answers(
    server: InProcess,
) -> None:
    for topic in ("Left", "Right"):
        await asyncio.to_thread(server.send, topic, "0", tags="no")
    async with consumer(server, "both") as member:
        member.subscribe("Left", "yes")
        member.subscribe("Right", "yes || perhaps")
        waiting = asyncio.ensure_future(member.receive(wait_ms=60_000))  # noqa: TID251
        await asyncio.to_thread(server.send, "Right", "1", tags="perhaps")
        [right] = await waiting
        await asyncio.to_thread(server.send, "Left", "2", tags="yes")
        [left] = await member.receive(wait_ms=60_000)
        assert (right.body, left.body) == (b"1", b"2")


async def test_a_receive_that_was_cut_short_shortens_no_later_one(server: InProcess) -> None:
    """Its pop still waits, and ends before the later call's time is over."""
    await asyncio.to_thread(server.create_topic, "Cut")
    async with consumer(server, "cut") as member:
        member.subscribe("Cut")
        # A consumer that has joined knows where the topic is.
        assert await member.receive(wait_ms=0) == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await member.receive(wait_ms=300)
        async with Producer("P", name_server=server.namesrv) as producer:
            due = server.clock.now_ms() + 2_000
            await producer.send(Message("Cut", b"later"), deliver_at_ms=due)
        [found] = await member.receive(wait_ms=60_000)
        await member.ack(found)


class _Off(SystemClock):
    """The clock of a machine that was set wrong."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


@pytest.mark.parametrize("hours", [-24 * 365, -1, 1])
async def test_a_wrong_clock_of_the_client_keeps_nothing_from_it(
    server: InProcess, hours: int
) -> None:
    topic = f"Clock{hours}"
    await asyncio.to_thread(server.call, server.aio.admin.topics.create(topic, queues=1))
    member = SimpleConsumer(
        "clocks",
        name_server=server.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        clock=_Off(hours * 3_600_000),
    )
    async with member:
        member.subscribe(topic)
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(member.receive(wait_ms=60_000))
            await asyncio.to_thread(server.send, topic, "x")
        [message] = receiving.result()
        await member.renew(message, 60_000)
        await member.ack(message)


async def test_a_namespace_is_seen_by_the_wire_only(server: InProcess) -> None:
    await asyncio.to_thread(server.send, "n%Inside", "x")
    async with consumer(server, "g", namespace="n") as member:
        member.subscribe("Inside")
        [message] = await member.receive()
        assert message.topic == "Inside"
        await member.ack(message)


async def test_what_is_wrong_is_said(server: InProcess) -> None:
    async with consumer(server, "wrong") as member:
        with pytest.raises(IllegalArgument, match="not subscribed to any topic"):
            await member.receive()
        with pytest.raises(IllegalArgument, match="1 to 32"):
            await member.receive(33)
        member.subscribe("Nowhere")
        with pytest.raises(NoRoute):
            await member.receive()
        foreign = MessageExt("T", b"")
        with pytest.raises(IllegalArgument, match="no receipt"):
            await member.ack(foreign)
        await asyncio.to_thread(server.send, "T", "x")
        foreign.properties["POP_CK"] = "0 1 1 0 0 pocketmq 0 99"
        with pytest.raises(BrokerRefused):
            await member.ack(foreign)


def test_without_an_event_loop(server: InProcess) -> None:
    server.send("Plain", "x")
    member = BlockingSimpleConsumer(
        "plain",
        name_server=server.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        clock=server.clock,
    )
    member.subscribe("Plain")
    with member:
        [message] = member.receive()
        member.renew(message, 60_000)
        member.ack(message)


async def test_a_dead_letter_has_retries_left_and_comes_no_more(server: InProcess) -> None:
    await asyncio.to_thread(server.send, "Dead", "x")
    async with consumer(server, "undertakers", renews=True, invisible_ms=30_000) as member:
        member.subscribe("Dead")
        [message] = await member.receive()
        await member.dead_letter(message)
        # Its topic is made with it, and name servers hear of it later.
        await asyncio.to_thread(until, lambda: server.messages("%DLQ%undertakers"), "a dead letter")
        pass_time(server, 60)
        assert await member.receive(wait_ms=0) == []


async def test_what_is_available_is_known_without_taking_it(server: InProcess) -> None:
    """Two members hear of a message; the one that asks first gets it, and both wait for the next."""
    await asyncio.to_thread(server.call, server.aio.admin.topics.create("Look", queues=2))
    async with consumer(server, "lookers") as member:
        member.subscribe("Look")
        assert not await member.available(wait_ms=0)
        waiting = asyncio.get_running_loop().create_task(member.available(wait_ms=60_000))
        await asyncio.to_thread(server.send, "Look", "here")
        assert await waiting
        assert await member.available(wait_ms=0)
        [message] = await member.receive(8, wait_ms=0)
        assert message.body == b"here"
        assert not await member.available(wait_ms=0)
        await member.ack(message)


async def test_a_renewing_consumer_keeps_messages_until_it_settles(
    server: InProcess,
) -> None:
    """Rounds renew by the clock; an acknowledged message and one that was given up are renewed no more."""
    await asyncio.to_thread(server.call, server.aio.admin.topics.create("Keep", queues=1))
    for body in ("kept", "left"):
        await asyncio.to_thread(server.send, "Keep", body)
    async with consumer(server, "keepers", renews=True, invisible_ms=30_000) as keeper:
        keeper.subscribe("Keep")
        kept, left = await keeper.receive(8)
        await keeper.give_up(left)
        receipt = kept.properties["POP_CK"]
        for _ in range(3):
            pass_time(server, 12)
            await keeper._running().renewals.round()
        assert kept.properties["POP_CK"] != receipt
        [again] = await keeper.receive(8)
        assert again.body == b"left"
        assert again.reconsume_times == 1
        await keeper.ack(again)
        await keeper.ack(kept)
        pass_time(server, 35)
        assert await keeper.receive(8, wait_ms=100) == []
