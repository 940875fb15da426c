"""The articles' experiments with our client as the members: E2a, E2b, E3, E3b, E3c and E4.

What tests/interop/test_group_experiments.py shows with the official client holds with ours: same
allocation, same lost messages, same offsets and tracks, at our broker and at the real one. The members
are named so that A sorts before B, and the last subscriber is made sure of before anything is sent.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pocketmq.client import ConsumeFromWhere, Message, MessageQueue, Producer, PushConsumer
from pocketmq.client.consume.push_member import PushMember
from tests.interop.asking import offsets_of, subscriptions_of
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Sent
from tests.interop.processes import Process
from tests.interop.test_client_send_and_consume import Got
from tests.interop.test_group_experiments import tracks
from tests.kit.waiting import until, until_async

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000


class Group:
    """One group with two members of ours."""

    def __init__(self, broker: RunningBroker, name: str, stack: AsyncExitStack) -> None:
        self.broker, self.name, self._stack = broker, name, stack

    async def join(
        self, who: str, topic: str, tags: str, *, post: bool = False
    ) -> tuple[PushConsumer, Got]:
        got = Got()
        consumer = PushConsumer(
            self.name,
            listener=got,
            name_server=self.broker.namesrv,
            instance_name=f"{self.name}-{who}",
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            # Heartbeats come by start, by change and by the test alone.
            heartbeat_interval_ms=HOUR_MS,
            persist_offset_interval_ms=500,
            post_subscription_when_pull=post,
        )
        consumer.subscribe(topic, tags)
        await self._stack.enter_async_context(consumer)
        # The heartbeat one second after the start would undo what a test forces.
        await asyncio.sleep(1.2)
        return consumer, got

    def shown(self) -> dict[str, set[str]]:
        found = subscriptions_of(self.broker.address, self.name)
        return {topic: data.tags_set for topic, data in found.items()}

    async def wait_until_shown(self, expected: dict[str, set[str]]) -> None:
        await until_async(
            lambda: self.shown() == expected, f"{self.name} subscribes {expected}", 60
        )

    async def make_last(self, consumer: PushConsumer, topic: str, tags: str) -> None:
        async with asyncio.timeout(60):
            while await asyncio.to_thread(self.shown) != {topic: set() if tags == "*" else {tags}}:
                consumer.subscribe(topic, tags)
                await asyncio.sleep(0.2)


def member(consumer: PushConsumer) -> PushMember:
    assert consumer._member is not None
    return consumer._member


async def wait_until_shared(*halves: tuple[PushConsumer, set[int]]) -> None:
    def state() -> bool:
        return all(
            {queue.queue_id for queue in each.assignment() if queue.topic[0] != "%"} == expected
            for each, expected in halves
        )

    await until_async(state, "each member has its queues", 60)


@pytest.fixture
async def both(broker: RunningBroker, group: str) -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        yield Group(broker, group, stack)


@pytest.fixture
async def producer(broker: RunningBroker, group: str) -> AsyncIterator[Producer]:
    async with Producer(f"{group}_producer", name_server=broker.namesrv) as made:
        yield made


async def send(
    producer: Producer, broker: RunningBroker, topic: str, tags: str | None, bodies: list[str]
) -> list[Sent]:
    """The n-th to queue n % 4."""
    found = []
    for number, body in enumerate(bodies):
        queue = MessageQueue(topic, broker.broker_name, number % 4)
        result = await producer.send(Message(topic, body.encode(), tags=tags), queue=queue)
        found.append(Sent(msg_id=result.msg_id, offset_msg_id=result.offset_msg_id))
    return found


def eight(prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in range(8)]


async def test_two_topics_in_one_group_stop_one_member_and_halve_the_other(
    broker: RunningBroker, make_topic: MakeTopic, both: Group, producer: Producer, topic: str
) -> None:
    """E2a: C1 gets nothing, C2 the 4 of 8 in its queues 2 and 3; a heartbeat of C1 turns the roles."""
    first_topic, second_topic = f"{topic}_TopicTest", f"{topic}_mytest"
    for name in (first_topic, second_topic):
        await asyncio.to_thread(make_topic, broker, name)
    first, first_got = await both.join("1", first_topic, "*")
    second, second_got = await both.join("2", second_topic, "*")
    await wait_until_shared((first, {0, 1}), (second, {2, 3}))
    await member(second).instance.heartbeat_all()
    await both.wait_until_shown({second_topic: set()})
    await send(producer, broker, first_topic, None, eight("T"))
    await send(producer, broker, second_topic, None, eight("m"))
    await second_got.wait(4)
    assert sorted(second_got.texts) == ["m2", "m3", "m6", "m7"]
    assert first_got.texts == []
    await member(first).instance.heartbeat_all()
    await both.wait_until_shown({first_topic: set()})
    await first_got.wait(4)
    await send(producer, broker, second_topic, None, eight("later"))
    await send(producer, broker, first_topic, None, eight("U"))
    await first_got.wait(8)
    assert sorted(first_got.texts) == ["T0", "T1", "T4", "T5", "U0", "U1", "U4", "U5"]
    assert sorted(second_got.texts) == ["m2", "m3", "m6", "m7"]


@pytest.mark.parametrize("post", [False, True], ids=["group-filters", "pull-filters"])
async def test_two_tags_in_one_group_lose_messages_unless_each_pull_brings_its_own(
    broker: RunningBroker,
    make_topic: MakeTopic,
    both: Group,
    producer: Producer,
    topic: str,
    post: bool,
) -> None:
    """E2b, S44, S45: B2 B3 B6 B7 for C2 and nothing for C1; with the expression in the pull C1 has its A."""
    await asyncio.to_thread(make_topic, broker, topic)
    first, first_got = await both.join("1", topic, "A", post=post)
    second, second_got = await both.join("2", topic, "B")
    await wait_until_shared((first, {0, 1}), (second, {2, 3}))
    await both.make_last(second, topic, "B")
    await send(producer, broker, topic, "A", eight("A"))
    await send(producer, broker, topic, "B", eight("B"))
    await second_got.wait(4)
    if post:
        await first_got.wait(4)
    await until_async(
        lambda: offsets_of(broker.address, both.name, topic) == dict.fromkeys(range(4), (4, 4)),
        "every queue read to its end",
        60,
    )
    assert sorted(second_got.texts) == ["B2", "B3", "B6", "B7"]
    assert sorted(first_got.texts) == (["A0", "A1", "A4", "A5"] if post else [])


async def test_the_last_tag_of_a_group_decides_and_every_offset_says_consumed(
    broker: RunningBroker,
    shared: Shared,
    make_topic: MakeTopic,
    both: Group,
    producer: Producer,
    topic: str,
) -> None:
    """E3, E3b, E3c, S52, S53: offsets 2 everywhere, tracks CONSUMED, then filtered, not yet, not online."""
    await asyncio.to_thread(make_topic, broker, topic)
    tool = shared.mqadmin("4.9.7")

    async def tracked(sent: list[Sent], expected: str) -> None:
        def state() -> bool:
            assert tracks(tool, broker, both.name, sent) == [expected] * len(sent)
            return True

        await asyncio.to_thread(until, state, f"tracks are {expected}", 60)

    first, first_got = await both.join("A", topic, "tagA")
    await both.wait_until_shown({topic: {"tagA"}})
    second, second_got = await both.join("B", topic, "tagB")
    await wait_until_shared((first, {0, 1}), (second, {2, 3}))
    await both.make_last(second, topic, "tagB")

    sent = await send(producer, broker, topic, "tagB", eight("B"))
    await second_got.wait(4)
    # The first member's queues move on when its next pull returns empty: after 15 s of long polling.
    await until_async(
        lambda: offsets_of(broker.address, both.name, topic) == dict.fromkeys(range(4), (2, 2)),
        "every queue: broker offset 2, group offset 2",
        90,
    )
    assert sorted(second_got.texts) == ["B2", "B3", "B6", "B7"]
    assert first_got.texts == []
    await tracked(sent, "CONSUMED")

    # E3b: B leaves; A's queues change, so it tells the broker its subscription with a new version.
    await second.shutdown()
    await both.wait_until_shown({topic: {"tagA"}})
    await tracked(sent, "CONSUMED_BUT_FILTERED")

    # E3c: what the group has not reached, and a group that is not online.
    await wait_until_shared((first, {0, 1, 2, 3}))
    first.suspend()
    later = await send(producer, broker, topic, "tagA", ["A0"])
    await first.persist_offsets()
    held = [queue for queue in first.assignment() if queue.topic == topic and queue.queue_id == 0]
    assert held
    # The pull that was held before brings the message: its listener runs, so look at a second one.
    await first_got.wait(1)
    later = await send(producer, broker, topic, "tagA", ["A1"])
    await tracked(later, "NOT_CONSUME_YET")
    await first.shutdown()
    await tracked([*sent, *later], "NOT_ONLINE")


async def test_a_killed_consumer_goes_on_at_the_message_that_was_not_done(
    broker: RunningBroker,
    make_topic: MakeTopic,
    producer: Producer,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """E4: 7 never ends, 8 is done, kill -9: the next member begins at 7."""
    await asyncio.to_thread(make_topic, broker, topic, queues=1)
    for number in range(9):
        await producer.send(Message(topic, str(number).encode()))
    command = [sys.executable, "-m", "tests.interop.client_peer", broker.namesrv, group, topic]
    victim = Process([*command, "--stuck", "7"], tmp_path / "victim.log", cwd=ROOT)
    try:
        await until_async(lambda: victim.printed().count('"body"') == 8, "all but the seventh")
        await until_async(
            lambda: offsets_of(broker.address, group, topic)[0] == (9, 7), "the offset stays at 7"
        )
    finally:
        victim.kill()
    assert '"body": "8"' in victim.printed()
    got = Got()
    second = PushConsumer(
        group,
        listener=got,
        name_server=broker.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    second.subscribe(topic)
    async with second:
        await got.wait(2)
        assert got.texts == ["7", "8"]
