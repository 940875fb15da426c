"""Order within a queue, and the offsets that are committed and kept."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    MessageExt,
    MessageModel,
    MessageQueue,
    PushConsumer,
)
from pocketmq.client.offset_store import (
    LocalFileOffsetStore,
    OffsetFileBroken,
    OffsetTable,
    ReadFrom,
)
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from tests.client.fake_cluster import FakeCluster
from tests.client.timing import Listener, consumer, member, options
from tests.client.virtual_time import LoopClock, run_virtual, until

QUEUE = MessageQueue("T", "broker-a", 0)


SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER


def test_a_suspended_queue_repeats_its_message_first() -> None:
    """S22: order holds while a message fails; other queues continue meanwhile."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2)
        for number in range(3):
            cluster.put("T", 0, b"a%d" % number)
            cluster.put("T", 1, b"b%d" % number)
        got: list[tuple[bytes, int, int]] = []

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            [message] = messages
            got.append((message.body, message.reconsume_times, LoopClock().monotonic_ms()))
            if message.body == b"a1" and message.reconsume_times < 2:
                return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
            return SUCCESS

        made = PushConsumer("g", listener=listener, **options(cluster, orderly=True))
        made.subscribe("T")
        async with made:
            await until(lambda: len(got) == 8)
            mine = [(body, times) for body, times, _ in got if body.startswith(b"a")]
            assert mine == [(b"a0", 0), (b"a1", 0), (b"a1", 1), (b"a1", 2), (b"a2", 0)]
            tried = [at for body, _, at in got if body == b"a1"]
            assert tried[1] - tried[0] >= 1_000
            assert max(at for body, _, at in got if body.startswith(b"b")) <= tried[0] + 100
            await until(lambda: made.committed(QUEUE) == 3)

    run_virtual(main)


def test_an_orderly_message_without_retries_left_is_sent_back() -> None:
    """S22: after max_reconsume_times the broker makes it a dead letter; the queue continues."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for body in (b"bad", b"good"):
            cluster.put("T", 0, body)
        got: list[bytes] = []

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            got.append(messages[0].body)
            context.suspend_ms = 10
            # No dead-letter queue is played here: what was handed over comes by the retry topic.
            return LATER if messages[0].body == b"bad" and context.queue.topic == "T" else SUCCESS

        made = PushConsumer(
            "g", listener=listener, **options(cluster, orderly=True, max_reconsume_times=2)
        )
        made.subscribe("T")
        async with made:
            await until(lambda: b"good" in got)
            assert got[:4] == [b"bad", b"bad", b"bad", b"good"]
            [sent] = cluster.asked(RC.SEND_MESSAGE_V2)
            assert (sent.ext["b"], sent.ext["j"], sent.ext["l"]) == ("%RETRY%g", "2", "2")

    run_virtual(main)


def test_a_queue_is_not_given_away_while_its_message_is_consumed() -> None:
    """S22: the lock is kept until the listener has ended, so two members never have one queue."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2)
        cluster.put("T", 1, b"x")
        leave = asyncio.Event()
        entered = asyncio.Event()
        second = Listener()

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
            entered.set()
            await leave.wait()

        one = PushConsumer(
            "g", listener=slow, **options(cluster, orderly=True, instance_name="one")
        )
        one.subscribe("T")
        other_queue = MessageQueue("T", "broker-a", 1)
        async with one:
            await entered.wait()
            async with consumer(cluster, second, orderly=True, instance_name="two") as two:
                await asyncio.sleep(50)
                assert cluster.brokers[0].locks["g", other_queue] == one.client_id
                assert second.messages == []
                leave.set()
                await until(lambda: other_queue in two.assignment())
                # The first member was dropped while it consumed: the message comes again (at least once).
                await until(lambda: second.bodies == [b"x"])

    run_virtual(main)


@settings(deadline=None)
@given(st.permutations(list(range(1, 30))))
def test_increase_only_never_lowers_an_offset(order: list[int]) -> None:
    """S54: compareAndIncreaseOnly, whatever the order in which workers finish."""
    table = OffsetTable()
    highest = 0
    for offset in order:
        highest = max(highest, offset)
        table.update(QUEUE, offset, increase_only=True)
        assert table.get(QUEUE) == highest
    table.update(QUEUE, 3, increase_only=False)
    assert table.get(QUEUE) == 3


def test_offsets_of_threads_never_go_back() -> None:
    """S54: the results of twenty threads are processed on the loop, so no update is lost."""

    async def main() -> None:
        cluster = FakeCluster(SystemClock(), T=1)
        for number in range(400):
            cluster.put("T", 0, b"%d" % number)
        seen: list[int] = []

        def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
            pass

        made = PushConsumer("g", listener=listener, **options(cluster))
        made.subscribe("T")
        async with made:
            table = member(made).offsets.table
            update = table.update

            def noting(queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
                update(queue, offset, increase_only=increase_only)
                seen.append(table.get(queue) or 0)

            table.update = noting  # type: ignore[method-assign]
            async with asyncio.timeout(20):
                while made.committed(QUEUE) != 400:
                    await asyncio.sleep(0.01)
        assert seen == sorted(seen)

    asyncio.run(main())


async def test_offsets_written_twice_at_once_are_both_in_the_file(tmp_path: Path) -> None:
    """S58: the timer's write and the last one of a shutdown may meet."""
    store = LocalFileOffsetStore("10.0.0.1@DEFAULT", "g", tmp_path)
    queues = [MessageQueue("T", "a", queue_id) for queue_id in range(4)]
    for queue in queues:
        store.table.update(queue, 7, increase_only=True)
    await asyncio.gather(*(store.persist([queue]) for queue in queues))
    again = LocalFileOffsetStore("10.0.0.1@DEFAULT", "g", tmp_path)
    assert [await again.read(queue, ReadFrom.STORE) for queue in queues] == [7, 7, 7, 7]


async def test_offsets_of_a_broadcasting_consumer_are_in_javas_file(tmp_path: Path) -> None:
    """S58: the layout of Java's LocalFileOffsetStore; the file before is kept as .bak."""
    store = LocalFileOffsetStore("10.0.0.1@DEFAULT", "g", tmp_path)
    await store.load()
    store.table.update(QUEUE, 5, increase_only=True)
    await store.persist([QUEUE])
    path = tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    assert (
        path.read_bytes()
        == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'
    )
    store.table.update(QUEUE, 6, increase_only=True)
    await store.persist([QUEUE])
    assert b":5}}" in path.with_name("offsets.json.bak").read_bytes()
    again = LocalFileOffsetStore("10.0.0.1@DEFAULT", "g", tmp_path)
    await again.load()
    assert again.table.get(QUEUE) == 6
    path.write_text("{broken")
    third = LocalFileOffsetStore("10.0.0.1@DEFAULT", "g", tmp_path)
    await third.load()
    assert third.table.get(QUEUE) == 5
    path.with_name("offsets.json.bak").write_text("{broken too")
    with pytest.raises(OffsetFileBroken, match="Repair or delete"):
        await LocalFileOffsetStore("10.0.0.1@DEFAULT", "g", tmp_path).load()


async def test_javas_pretty_printed_offset_file_is_read(tmp_path: Path) -> None:
    """S58: fastjson's pretty form, as a Java client of the same id leaves it."""
    path = tmp_path / "c" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":3,\n\t\t\t"topic":"T"\n\t\t}:42\n\t}\n}'
    )
    store = LocalFileOffsetStore("c", "g", tmp_path)
    await store.load()
    queue = MessageQueue("T", "b", 3)
    assert store.table.get(queue) == 42
    assert await store.read(queue, ReadFrom.STORE) == 42
    assert await store.read(MessageQueue("T", "b", 4), ReadFrom.MEMORY_FIRST) is None


async def test_broadcasting_gives_all_to_each_and_drops_failures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S10, S58, S60: nothing on the broker, files for each member, and "drop it" for what failed."""
    cluster = FakeCluster(SystemClock(), T=2)
    for number in range(6):
        cluster.put("T", number % 2, b"%d" % number)
    listeners = [Listener(LATER), Listener(), Listener()]

    def make(number: int, listener: Listener) -> PushConsumer:
        return consumer(
            cluster,
            listener,
            message_model=MessageModel.BROADCASTING,
            instance_name=f"i{number}",
            offset_folder=tmp_path,
        )

    async def received(listener: Listener, count: int) -> None:
        async with asyncio.timeout(20):
            while len(listener.messages) < count:
                await asyncio.sleep(0.01)

    members = [make(number, listener) for number, listener in enumerate(listeners)]
    async with members[0], members[1], members[2]:
        for listener in listeners:
            await received(listener, 6)
        assert all(len(each.assignment()) == 2 for each in members)
    for listener in listeners:
        assert sorted(listener.bodies) == [b"%d" % number for number in range(6)]
    assert "BROADCASTING, the message consume failed, drop it" in caplog.text
    assert cluster.brokers[0].offsets == {}
    assert cluster.asked(RC.UPDATE_CONSUMER_OFFSET) == []
    assert cluster.asked(RC.GET_CONSUMER_LIST_BY_GROUP) == []
    file = fastjson.loads((tmp_path / "10.9.9.9@i0" / "g" / "offsets.json").read_bytes())
    assert sorted(file["offsetTable"].values()) == [3, 3]

    cluster.put("T", 0, b"new")
    back = Listener()
    async with make(0, back):
        await received(back, 1)
    assert back.bodies == [b"new"]
