"""Our client with the official Java clients, at our broker and at the real ones."""

import asyncio
from pathlib import Path

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from pocketmq.client import sync as blocking
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Session, message
from tests.interop.our_clients import FROM_FIRST, push
from tests.kit.waiting import until, until_async

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(
    scope="session",
    params=[
        "pocketmq",
        pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
        pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference),
    ],
)
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """Our broker, and with --reference both real ones: the client is to work with each."""
    return shared.broker(request.param)


class Got:
    """A listener that notes what it gets."""

    def __init__(self, *results: ConsumeResult) -> None:
        self.messages: list[MessageExt] = []
        self._results = list(results)

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        self.messages += messages
        return self._results.pop(0) if self._results else ConsumeResult.SUCCESS

    @property
    def texts(self) -> list[str]:
        return [each.body.decode() for each in self.messages]

    async def wait(self, count: int, within_s: float = 40) -> list[MessageExt]:
        await until_async(lambda: len(self.messages) >= count, f"{count} messages", within_s)
        return self.messages


@pytest.mark.parametrize("java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True)
async def test_java_consumes_what_we_send_in_every_way(
    broker: RunningBroker,
    java_client: Session,
    make_topic: MakeTopic,
    producer: Producer,
    topic: str,
    group: str,
) -> None:
    """S33: Python producer to Java consumer: plain, packed, batch, one-way, chosen queue, delayed."""
    await asyncio.to_thread(make_topic, broker, topic)
    big = "compressible " * 1_000
    sent = await producer.send(
        Message(topic, "plain 中文".encode(), tags="t", keys="k1 k2", flag=7, properties={"a": "ü"})
    )
    await producer.send(Message(topic, big.encode()))
    await producer.send_batch([Message(topic, b"batch%d" % n, tags="b") for n in range(3)])
    await producer.send_oneway(Message(topic, b"oneway"))
    queue = (await producer.queues(topic))[2]
    await producer.send(Message(topic, b"chosen"), queue=queue)
    await producer.send(Message(topic, b"delayed"), delay_level=1)

    def consume() -> dict[str, object]:
        consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
        return {each.text: each for each in consumer.wait(8)}

    got = await asyncio.to_thread(consume)
    assert set(got) == {
        "plain 中文",
        big,
        "batch0",
        "batch1",
        "batch2",
        "oneway",
        "chosen",
        "delayed",
    }
    plain: object = got["plain 中文"]
    assert plain.msg_id == sent.msg_id  # type: ignore[attr-defined]
    assert plain.offset_msg_id == sent.offset_msg_id  # type: ignore[attr-defined]
    assert (plain.tags, plain.keys, plain.flag) == ("t", "k1 k2", 7)  # type: ignore[attr-defined]
    assert plain.properties["a"] == "ü"  # type: ignore[attr-defined]
    assert got["chosen"].queue == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("java_client", ["5.5.0-ROCKETMQ"], indirect=True)
async def test_we_consume_what_java_sends(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S32, S80: Java producer to Python consumer, filtered by tag on both sides (Aa and BB collide)."""
    await asyncio.to_thread(make_topic, broker, topic)
    big = "compressible " * 1_000

    def send() -> list[str]:
        made = java_client.producer(broker.namesrv, group + "-java")
        sent = made.send(
            message(topic, "plain", tags="Aa", keys="k", flag=9, properties={"a": "ü"}),
            message(topic, "collides", tags="BB"),
            message(topic, "untagged"),
            message(topic, big, tags="C"),
        )
        made.send_batch(*(message(topic, f"batch{n}", tags="C") for n in range(3)))
        return [each.msg_id for each in sent]

    ids = await asyncio.to_thread(send)
    got = Got()
    consumer = push(broker, group, got)
    consumer.subscribe(topic, "Aa || C")
    async with consumer:
        await got.wait(5)
        assert sorted(got.texts) == sorted(["plain", big, "batch0", "batch1", "batch2"])
        plain = next(each for each in got.messages if each.body == b"plain")
        assert (plain.msg_id, plain.tags, plain.keys, plain.flag) == (ids[0], "Aa", "k", 9)
        assert plain.properties["a"] == "ü"
        # What was filtered out counts as consumed, too (S53).
        queues = [queue for queue in consumer.assignment() if queue.topic == topic]
        ends = await max_offsets(broker, queues)
        await until_async(
            lambda: all((consumer.committed(queue) or 0) == ends[queue] for queue in queues),
            "offsets behind what was filtered",
        )


async def max_offsets(broker: RunningBroker, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
    async with PullConsumer("offset_reader", name_server=broker.namesrv) as reader:
        return {queue: await reader.max_offset(queue) for queue in queues}


async def test_a_failed_message_comes_again_and_ends_as_a_dead_letter(
    broker: RunningBroker, make_topic: MakeTopic, producer: Producer, topic: str, group: str
) -> None:
    """S34, S61, S63: RECONSUME_LATER until max_reconsume_times, then %DLQ%."""
    await asyncio.to_thread(make_topic, broker, topic, queues=1)
    later = ConsumeResult.RECONSUME_LATER
    got = Got(later, later, later)
    consumer = push(broker, group, got, max_reconsume_times=2)
    consumer.subscribe(topic)
    async with consumer:
        sent = await producer.send(Message(topic, b"never", tags="t"))
        await got.wait(3, 60)
        assert [each.reconsume_times for each in got.messages] == [0, 1, 2]
        assert {each.topic for each in got.messages} == {topic}
        assert {each.msg_id for each in got.messages} == {sent.msg_id}
    async with PullConsumer(f"{group}-dlq", name_server=broker.namesrv) as reader:

        async def dead() -> list[MessageExt]:
            [queue] = await reader.queues(f"%DLQ%{group}")
            return (await reader.pull(queue, 0)).messages

        async with asyncio.timeout(40):
            while True:
                try:
                    if found := await dead():
                        break
                except (LookupError, ValueError, Exception):  # noqa: BLE001 - not there yet
                    pass
                await asyncio.sleep(0.2)
        assert [each.body for each in found] == [b"never"]
        assert found[0].properties["RETRY_TOPIC"] == topic


async def test_a_group_goes_on_where_it_stopped(
    broker: RunningBroker, make_topic: MakeTopic, producer: Producer, topic: str, group: str
) -> None:
    """S55, S57: what was committed on shutdown is not consumed again, by Python or by Java."""
    await asyncio.to_thread(make_topic, broker, topic)
    for number in range(20):
        await producer.send(Message(topic, b"old%d" % number))
    first = Got()
    consumer = push(broker, group, first)
    consumer.subscribe(topic)
    async with consumer:
        await first.wait(20)
    for number in range(8):
        await producer.send(Message(topic, b"new%d" % number))
    second = Got()
    again = push(broker, group, second)
    again.subscribe(topic)
    async with again:
        await second.wait(8)
    assert sorted(second.texts) == [f"new{number}" for number in range(8)]


async def test_sql_is_checked_at_the_start_and_filters_at_the_broker(
    broker: RunningBroker, make_topic: MakeTopic, producer: Producer, topic: str, group: str
) -> None:
    """S78: SQL92; a bad text makes start() fail with what the broker says."""
    from pocketmq.client import SubscriptionIllegal

    await asyncio.to_thread(make_topic, broker, topic)
    got = Got()
    consumer = push(broker, group, got)
    consumer.subscribe(topic, "price > 10 AND kind = 'book'", "SQL92")
    async with consumer:
        for price, kind in ((5, "book"), (15, "book"), (15, "cup"), (25, "book")):
            properties = {"price": str(price), "kind": kind}
            await producer.send(Message(topic, f"{kind}{price}".encode(), properties=properties))
        await got.wait(2)
        assert sorted(got.texts) == ["book15", "book25"]
    bad = push(broker, f"{group}-bad", Got())
    bad.subscribe(topic, "price >", "SQL92")
    with pytest.raises(SubscriptionIllegal, match="SUBSCRIPTION_PARSE_FAILED"):
        await bad.start()


async def test_an_orderly_consumer_keeps_the_order_of_each_queue(
    broker: RunningBroker, make_topic: MakeTopic, producer: Producer, topic: str, group: str
) -> None:
    """S22: also when a message fails in between; plain functions as listeners."""
    await asyncio.to_thread(make_topic, broker, topic, queues=2)
    for number in range(40):
        await producer.send(Message(topic, b"%d" % number), sharding_key=str(number % 2))
    seen: dict[int, list[int]] = {}
    failed: set[int] = set()

    def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        number = int(messages[0].body)
        if number in (5, 6) and number not in failed:
            failed.add(number)
            context.suspend_ms = 50
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
        seen.setdefault(context.queue.queue_id, []).append(number)
        return ConsumeResult.SUCCESS

    consumer = push(broker, group, listener, orderly=True)
    consumer.subscribe(topic)
    async with consumer:
        await until_async(lambda: sum(map(len, seen.values())) >= 40, "40 messages in order")
    assert failed == {5, 6}
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sorted(n for numbers in seen.values() for n in numbers) == list(range(40))


async def test_broadcasting_keeps_offsets_in_files_of_the_members(
    broker: RunningBroker,
    make_topic: MakeTopic,
    producer: Producer,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """S10, S58: offsets are in a file of each member, found again after a restart."""
    await asyncio.to_thread(make_topic, broker, topic)
    for number in range(10):
        await producer.send(Message(topic, b"%d" % number))

    def make(number: int, got: Got) -> PushConsumer:
        made = push(
            broker,
            group,
            got,
            message_model=MessageModel.BROADCASTING,
            instance_name=f"{group}-{number}",
            offset_folder=tmp_path,
        )
        made.subscribe(topic)
        return made

    one, two = Got(), Got()
    async with make(1, one), make(2, two):
        await one.wait(10)
        await two.wait(10)
    await producer.send(Message(topic, b"missed"))
    again = Got()
    async with make(1, again):
        await again.wait(1)
    assert again.texts == ["missed"]
    async with PullConsumer(group, name_server=broker.namesrv) as reader:
        # 4.9 gives 0 for a young queue without an offset (wire.md 3.5): nothing was ever committed.
        assert {await reader.committed(queue) or 0 for queue in await reader.queues(topic)} == {0}


async def test_lite_pull_shares_a_topic_and_pull_by_hand_goes_anywhere(
    broker: RunningBroker, make_topic: MakeTopic, producer: Producer, topic: str, group: str
) -> None:
    """Two lite consumers share; offsets are committed; seek; pull by hand with a tag."""
    await asyncio.to_thread(make_topic, broker, topic)
    for number in range(40):
        await producer.send(Message(topic, b"%d" % number, tags="AB"[number // 4 % 2]))
    options = {"name_server": broker.namesrv, "consume_from_where": FROM_FIRST}
    found: list[bytes] = []
    one = LitePullConsumer(group, **options)  # type: ignore[arg-type]
    two = LitePullConsumer(group, **options)  # type: ignore[arg-type]
    one.subscribe(topic)
    two.subscribe(topic)
    async with one, two:

        def shared() -> bool:
            # Until the first has learnt of the second, it holds the second's queues, too.
            mine, theirs = set(one.assignment()), set(two.assignment())
            return len(mine) == len(theirs) == 2 and not mine & theirs

        async with asyncio.timeout(60):
            more = True
            while more or len(set(found)) < 40 or not shared():
                polled = await one.poll(200) + await two.poll(200)
                found += [each.body for each in polled]
                more = bool(polled)
        await one.commit()
        await two.commit()
    async with PullConsumer(group, name_server=broker.namesrv) as reader:
        queues = await reader.queues(topic)
        total = 0
        for queue in queues:
            committed = await reader.committed(queue)
            assert committed == await reader.max_offset(queue)
            total += committed
            result = await reader.pull(queue, 0, "A")
            assert result.status is PullStatus.FOUND
            assert {each.tags for each in result.messages} == {"A"}
        assert total == 40


async def test_a_transaction_is_seen_only_when_it_is_committed(
    broker: RunningBroker, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Commit, rollback, unknown and checked back by the broker."""
    await asyncio.to_thread(make_topic, broker, topic)
    states = {
        "COMMIT": TransactionState.COMMIT,
        "ROLLBACK": TransactionState.ROLLBACK,
        "UNKNOWN": TransactionState.UNKNOWN,
    }
    checked: list[str] = []

    def execute(half: Message) -> TransactionState:
        return states[half.properties["local"]]

    async def check(half: MessageExt) -> TransactionState:
        checked.append(half.body.decode())
        return states[half.properties["check"]]

    got = Got()
    consumer = push(broker, group, got)
    consumer.subscribe(topic)
    async with (
        consumer,
        TransactionProducer(f"{group}-tx", check=check, name_server=broker.namesrv) as producer,
    ):
        for text, local, later in (
            ("committed", "COMMIT", ""),
            ("rolled back", "ROLLBACK", ""),
            ("checked", "UNKNOWN", "COMMIT"),
            ("checked away", "UNKNOWN", "ROLLBACK"),
        ):
            properties = {"local": local, "check": later or "UNKNOWN"}
            half = Message(topic, text.encode(), tags="t", properties=properties)
            await producer.send_in_transaction(half, execute)
        await got.wait(2, 90)
        await until_async(lambda: set(checked) >= {"checked", "checked away"}, "both checks", 90)
        assert sorted(got.texts) == ["checked", "committed"]
        assert all(each.transaction_id for each in got.messages)


async def test_a_message_trace_is_shown_by_mqadmin(
    broker: RunningBroker,
    shared: Shared,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """Traces of producer and consumer in Java's format, found by queryMsgTraceById."""
    await asyncio.to_thread(make_topic, broker, topic, queues=1)
    got = Got()
    consumer = push(broker, group, got, trace=True)
    consumer.subscribe(topic)
    async with (
        consumer,
        Producer(f"{group}-p", name_server=broker.namesrv, trace=True) as producer,
    ):
        sent = await producer.send(Message(topic, b"traced", tags="t", keys="k"))
        await got.wait(1)
    tool = shared.mqadmin("4.9.7").at(broker.namesrv)

    def shown() -> str:
        return tool("queryMsgTraceById", "-i", sent.msg_id).out

    def complete() -> bool:
        text = shown()
        return "Pub" in text and "Sub" in text and group in text

    await until_async(complete, "the trace in mqadmin")
    text = await asyncio.to_thread(shown)
    assert f"{group}-p" in text
    assert "success" in text


# ------------------------------------------------------------ the blocking twin


def test_the_blocking_client_sends_and_consumes(
    broker: RunningBroker, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """The same without an event loop: send, futures, batch, push, lite pull, pull by hand."""
    import threading

    make_topic(broker, topic)
    got: list[str] = []
    threads: set[str] = set()

    def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        threads.add(threading.current_thread().name)
        got.extend(each.body.decode() for each in messages)

    with blocking.Producer(f"{group}-p", name_server=broker.namesrv) as producer:
        assert producer.send(Message(topic, b"one")).msg_id
        assert producer.begin_send(Message(topic, b"two")).result(20).msg_id
        producer.send_batch([Message(topic, b"three"), Message(topic, b"four")])
        consumer = blocking.PushConsumer(
            group, listener=listener, name_server=broker.namesrv, consume_from_where=FROM_FIRST
        )
        consumer.subscribe(topic)
        with consumer:
            until(lambda: len(got) >= 4, "four messages")
            assert len([queue for queue in consumer.assignment() if queue.topic == topic]) == 4
    assert sorted(got) == ["four", "one", "three", "two"]
    assert threading.current_thread().name not in threads
    lite = blocking.LitePullConsumer(
        f"{group}-lite", name_server=broker.namesrv, consume_from_where=FROM_FIRST
    )
    lite.subscribe(topic)
    with lite:
        polled: list[bytes] = []

        def poll() -> bool:
            polled.extend(each.body for each in lite.poll(200))
            return len(polled) >= 4

        until(poll, "four polled")
    with blocking.PullConsumer(group, name_server=broker.namesrv) as reader:
        assert sum(reader.committed(queue) or 0 for queue in reader.queues(topic)) == 4
    assert not [t for t in threading.enumerate() if t.name == "pocketmq-loop"]
