"""A lite pull consumer's program stops in the middle: no message is committed that it was not given."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from pocketmq.client import ConsumeFromWhere, Message, MessageExt
from pocketmq.client import LitePullConsumer as AsyncConsumer
from pocketmq.client.consume.portion import Portion
from pocketmq.client.sync import LitePullConsumer, Producer
from pocketmq.testing import InProcess

COUNT = 40
TOPIC = "Numbers"


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with InProcess() as server:
        server.create_topic(TOPIC, queues=1)
        with Producer("numbers", name_server=server.namesrv) as producer:
            for number in range(COUNT):
                producer.send(Message(TOPIC, b"%d" % number))
        yield server.namesrv


def reader(name_server: str, group: str) -> LitePullConsumer:
    consumer = LitePullConsumer(
        group, name_server=name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    consumer.subscribe(TOPIC)
    return consumer


def rest_of(consumer: LitePullConsumer, first: int) -> list[int]:
    """Read to the last message; an empty list if `first` is behind it."""
    found = []
    for message in consumer.messages(timeout_ms=30_000) if first < COUNT else ():
        found.append(int(message.body))
        if found[-1] == COUNT - 1:
            break
    return found


_held: list[Iterator[MessageExt]] = []


def by_break(messages: Iterator[MessageExt]) -> list[int]:
    found = []
    for message in messages:
        found.append(int(message.body))
        if len(found) == 5:
            break
    return found


def by_islice(messages: Iterator[MessageExt]) -> list[int]:
    return [int(message.body) for message in islice(messages, 5)]


def by_holding(messages: Iterator[MessageExt]) -> list[int]:
    """The iterator is not closed: the program may continue it."""
    _held.append(messages)
    return [int(next(messages).body) for _ in range(5)]


def by_error(messages: Iterator[MessageExt]) -> list[int]:
    found = []
    try:
        for message in messages:
            found.append(int(message.body))
            if len(found) == 5:
                raise ValueError
    except ValueError:
        pass
    return found


@pytest.mark.parametrize("stop", [by_break, by_islice, by_holding, by_error])
def test_a_group_continues_after_the_last_message_of_a_loop(
    name_server: str, stop: Callable[[Iterator[MessageExt]], list[int]]
) -> None:
    group = stop.__name__
    with reader(name_server, group) as first:
        assert stop(first.messages(timeout_ms=30_000)) == [0, 1, 2, 3, 4]
    with reader(name_server, group) as second:
        assert rest_of(second, 5) == list(range(5, COUNT))


def test_a_second_loop_begins_where_the_first_ended(
    name_server: str,
) -> None:
    with reader(name_server, "two_loops") as consumer:
        assert by_break(consumer.messages(timeout_ms=30_000)) == [0, 1, 2, 3, 4]
        assert next(int(each.body) for each in consumer.poll(30_000)) == 5
        consumer.seek(consumer.assignment()[0], 7)
        assert rest_of(consumer, 7) == list(range(7, COUNT))


def test_a_seek_in_the_loop_applies_to_the_next_message(name_server: str) -> None:
    found = []
    with reader(name_server, "seeks") as consumer:
        for message in consumer.messages(timeout_ms=30_000):
            found.append(int(message.body))
            if found[-1] == 2 and len(found) == 3:
                consumer.seek(message.message_queue, 20)
            if found[-1] == 22:
                break
    assert found == [0, 1, 2, 20, 21, 22]


def test_a_commit_within_the_loop_is_of_what_the_loop_was_given(name_server: str) -> None:
    with reader(name_server, "commits") as consumer:
        for message in consumer.messages(timeout_ms=30_000):
            if int(message.body) == 3:
                consumer.commit()
                break
        assert consumer.committed(message.message_queue) == 4


async def test_what_comes_for_an_interrupted_wait_is_for_the_next_one(name_server: str) -> None:
    """The blocking poll was left by Ctrl-C while its messages were under way to its thread."""
    consumer = AsyncConsumer(
        "interrupted", name_server=name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        portion = Portion()
        await consumer._fill(portion, 30_000)
        assert portion.messages
        await asyncio.to_thread(portion.close)
        again = await consumer.poll(30_000)
        assert again[0].queue_offset == 0
