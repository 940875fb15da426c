"""What happens to messages after they were pulled: listeners, results, giving back, offsets, order."""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from pocketmq.client.consume.concurrently import acked_count
from pocketmq.client.consume.consumer_stats import ConsumerStats
from pocketmq.client.consume.listener import Listener as AnyListener
from pocketmq.client.offset_store import (
    LocalFileOffsetStore,
    OffsetFileBroken,
    OffsetTable,
    ReadFrom,
)
from pocketmq.model.message import Property
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.test_consumer_timing import Listener, consumer, member, options
from tests.client.virtual_time import LoopClock, run_virtual, until

QUEUE = MessageQueue("T", "broker-a", 0)
SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER


# ------------------------------------------------------------ results


@pytest.mark.parametrize(
    ("result", "ack_index", "count", "acked"),
    [
        (SUCCESS, 2**31 - 1, 3, 3),
        (SUCCESS, 3, 3, 3),
        (SUCCESS, 2, 3, 3),
        (SUCCESS, 0, 3, 1),
        (SUCCESS, -1, 3, 0),
        (LATER, 2, 3, 0),
        (None, 2, 3, 0),
    ],
)
def test_the_ack_index_says_how_many_are_done(
    result: ConsumeResult | None, ack_index: int, count: int, acked: int
) -> None:
    """S59: Integer.MAX is clamped to size - 1, RECONSUME_LATER counts as -1, partial acks are the user's."""
    assert acked_count(result, ack_index, count) == acked


def test_a_failed_message_returns_and_its_queue_continues() -> None:
    """S34, S63: success and later; the queue's own offset advances after the send-back."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        listener = Listener(SUCCESS, LATER)
        for body in (b"good", b"bad"):
            cluster.put("T", 0, body)
        async with consumer(cluster, listener, concurrency=1) as one:
            await until(lambda: len(listener.messages) == 3)
            again = listener.messages[2]
            assert (again.body, again.topic, again.reconsume_times) == (b"bad", "T", 1)
            assert one.committed(QUEUE) == 2
            [back] = cluster.asked(RC.CONSUMER_SEND_MSG_BACK)
            assert (back.ext["group"], back.ext["delayLevel"], back.ext["originTopic"]) == (
                "g",
                "0",
                "T",
            )
            assert back.ext["maxReconsumeTimes"] == "16"

    run_virtual(main)


def test_an_exception_of_a_listener_means_later(caplog: pytest.LogCaptureFixture) -> None:
    """S34: logged with its trace, and the message comes again."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.put("T", 0, b"x")
        calls: list[bytes] = []

        async def raising(messages: list[MessageExt], context: ConsumeContext) -> None:
            calls.append(messages[0].body)
            if len(calls) == 1:
                raise RuntimeError("the listener's own bug")

        made = PushConsumer("g", listener=raising, **options(cluster))
        made.subscribe("T")
        async with made:
            await until(lambda: len(calls) == 2)

    run_virtual(main)
    assert "the listener's own bug" in caplog.text


def test_a_listener_may_ack_a_part_and_choose_the_delay() -> None:
    """S59: the messages behind ack_index go back with the level that the listener chose."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        batches: list[list[bytes]] = []

        async def partial(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            batches.append([message.body for message in messages])
            if len(batches) == 1:
                context.ack_index = 0
                context.delay_level = 5
            return SUCCESS

        for body in (b"0", b"1", b"2"):
            cluster.put("T", 0, body)
        made = PushConsumer("g", listener=partial, **options(cluster, consume_batch_size=8))
        made.subscribe("T")
        async with made:
            await until(lambda: sum(map(len, batches)) == 5)
            assert batches[0] == [b"0", b"1", b"2"]
            back = cluster.asked(RC.CONSUMER_SEND_MSG_BACK)
            assert [each.ext["delayLevel"] for each in back] == ["5", "5"]
            assert made.committed(QUEUE) == 3

    run_virtual(main)


@pytest.mark.parametrize("size", [1, 2])
def test_a_listener_may_take_its_messages_off_the_list(size: int) -> None:
    """S59: what it was given is what its result is for, whatever it leaves in the list."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        got: list[bytes] = []

        async def emptying(messages: list[MessageExt], context: ConsumeContext) -> None:
            failing = [message.body for message in messages] == [b"4"]
            while messages:
                got.append(messages.pop().body)
            if failing and got.count(b"4") == 1:
                raise ValueError("not now")

        for number in range(5):
            cluster.put("T", 0, b"%d" % number)
        made = PushConsumer("g", listener=emptying, **options(cluster, consume_batch_size=size))
        made.subscribe("T")
        async with made:
            await until(lambda: got.count(b"4") == 2)
            assert made.committed(QUEUE) == 5

    run_virtual(main)


def test_a_message_no_broker_takes_back_is_retried_locally() -> None:
    """S61: send-back and the send to the retry topic fail: reconsume times + 1, local retry after 5 s."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.CONSUMER_SEND_MSG_BACK, lambda asked: asked.reply(1, "no"))
        cluster.on(
            RC.SEND_MESSAGE_V2, lambda asked: asked.reply(ResponseCode.MESSAGE_ILLEGAL, "no")
        )
        listener = Listener(LATER, LATER)
        cluster.put("T", 0, b"x")
        async with consumer(cluster, listener) as one:
            await until(lambda: len(listener.messages) == 1)
            assert one.committed(QUEUE) is None
            await until(lambda: len(listener.messages) == 3)
            first, second, third = listener.at_ms
            assert second - first >= 5_000
            assert third - second >= 5_000
            assert listener.messages[-1].reconsume_times == 2
            await until(lambda: one.committed(QUEUE) == 1)

    run_virtual(main)


def test_a_failed_send_back_becomes_a_send_to_the_retry_topic() -> None:
    """S61: the fallback of the Java client, with its properties and header fields."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.CONSUMER_SEND_MSG_BACK, lambda asked: asked.reply(1, "no"))
        listener = Listener(LATER)
        cluster.put("T", 0, b"x", properties="TAGS\x01t\x02TRAN_MSG\x01true\x02")
        async with consumer(cluster, listener, max_reconsume_times=7):
            await until(lambda: len(listener.messages) == 2)
        [sent] = cluster.asked(RC.SEND_MESSAGE_V2)
        assert (sent.ext["b"], sent.ext["j"], sent.ext["l"]) == ("%RETRY%g", "1", "7")
        again = listener.messages[1]
        assert (again.topic, again.tags, again.reconsume_times) == ("T", "t", 1)
        assert again.properties[Property.DELAY.value] == "3"
        assert Property.TRAN_MSG.value not in again.properties

    run_virtual(main)


def test_a_dropped_queue_commits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """S31: the queue is taken away while its message is consumed."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.put("T", 0, b"x")
        entered, leave = asyncio.Event(), asyncio.Event()

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
            entered.set()
            await leave.wait()

        made = PushConsumer("g", listener=slow, **options(cluster))
        made.subscribe("T")
        async with made:
            await entered.wait()
            made.suspend()  # else the next round would take the queue anew
            table = member(made).rebalance.table
            table[QUEUE].dropped = True
            leave.set()
            await asyncio.sleep(1)
            assert made.committed(QUEUE) is None

    run_virtual(main)
    assert "no offset is committed" in caplog.text


def test_a_killed_consumer_resumes_at_the_unfinished_message() -> None:
    """E4, S55: 7 and 8 on two workers, 8 ends first, the process dies: the restart begins at 7."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for number in range(9):
            cluster.put("T", 0, b"%d" % number)
        cluster.brokers[0].offsets["g", "T", 0] = 7
        never = asyncio.Event()
        done: list[bytes] = []

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
            if messages[0].body == b"7":
                await never.wait()
            done.append(messages[0].body)

        made = PushConsumer("g", listener=listener, **options(cluster, drain_timeout_ms=1_000))
        made.subscribe("T")
        await made.start()
        await until(lambda: done == [b"8"])
        assert made.committed(QUEUE) == 7
        await asyncio.sleep(30)
        assert cluster.brokers[0].offsets["g", "T", 0] == 7
        await made.shutdown()
        second = Listener()
        async with consumer(cluster, second):
            await until(lambda: len(second.messages) == 2)
            assert second.bodies == [b"7", b"8"]

    run_virtual(main)


def test_a_listener_deaf_to_cancellation_cannot_block_a_stop() -> None:
    """S62: what outlives drain_timeout_ms is cancelled until it has ended."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.put("T", 0, b"stuck")
        began = asyncio.Event()

        async def stubborn(messages: list[MessageExt], context: ConsumeContext) -> None:
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        made = PushConsumer("g", listener=stubborn, **options(cluster, drain_timeout_ms=1_000))
        made.subscribe("T")
        await made.start()
        await began.wait()
        async with asyncio.timeout(60):
            await made.shutdown()

    run_virtual(main)


def test_a_slow_listener_loses_its_message_to_the_retry_topic() -> None:
    """S30: after the consume time-out (15 min) the message is given back with level 3."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.put("T", 0, b"stuck")
        seen: list[int] = []
        leave = asyncio.Event()

        async def stuck(messages: list[MessageExt], context: ConsumeContext) -> None:
            seen.append(messages[0].reconsume_times)
            if len(seen) == 1:
                await leave.wait()

        made = PushConsumer("g", listener=stuck, **options(cluster))
        made.subscribe("T")
        async with made:
            await until(lambda: seen == [0])
            await asyncio.sleep(14 * 60)
            assert cluster.asked(RC.CONSUMER_SEND_MSG_BACK) == []
            await asyncio.sleep(17 * 60)
            [back] = cluster.asked(RC.CONSUMER_SEND_MSG_BACK)
            assert back.ext["delayLevel"] == "3"
            await until(lambda: seen == [0, 1])
            assert made.committed(QUEUE) == 1
            leave.set()

    run_virtual(main)


def test_listeners_that_wait_run_side_by_side_up_to_the_limit() -> None:
    """`concurrency` coroutines at a time, however many messages one pull brings."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for number in range(30):
            cluster.put("T", 0, b"%d" % number)
        under_way = most = done = 0
        gate = asyncio.Event()

        async def waits(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal under_way, most, done
            under_way += 1
            most = max(most, under_way)
            await gate.wait()
            under_way -= 1
            done += 1

        made = PushConsumer("g", listener=waits, **options(cluster, concurrency=7))
        made.subscribe("T")
        async with made:
            await until(lambda: under_way == 7)
            await asyncio.sleep(1)
            assert under_way == 7
            gate.set()
            await until(lambda: done == 30)
            # And again, with workers that have rested.
            gate.clear()
            for number in range(9):
                cluster.put("T", 0, b"more %d" % number)
            await until(lambda: under_way == 7)
            gate.set()
            await until(lambda: done == 39)
        assert most == 7

    run_virtual(main)


def test_shutdown_lets_running_listeners_end_and_commits_them() -> None:
    """Stop pulling, finish, commit, unregister; what had not begun is left for others."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for number in range(5):
            cluster.put("T", 0, b"%d" % number)
        begun: list[bytes] = []

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
            begun.append(messages[0].body)
            await asyncio.sleep(2)

        made = PushConsumer("g", listener=slow, **options(cluster, concurrency=2))
        made.subscribe("T")
        async with made:
            await until(lambda: len(begun) == 2)
        assert begun == [b"0", b"1"]
        assert cluster.brokers[0].offsets["g", "T", 0] == 2
        assert cluster.asked(RC.UNREGISTER_CLIENT, consumerGroup="g")
        last = [each.code for each in cluster.log][-2:]
        assert last[-1] == RC.UNREGISTER_CLIENT

    run_virtual(main)


def test_running_info_counts_what_was_consumed() -> None:
    """S62: incConsumeOKTPS and incConsumeFailedTPS show in GET_CONSUMER_RUNNING_INFO."""
    stats = ConsumerStats()
    stats.sample(0)
    for _ in range(5):
        stats.consumed("T", 10, 2, 7)
    stats.pulled("T", 32, 5)
    stats.sample(10_000)
    status = stats.status("T", 10_000)
    assert (status.consume_ok_tps, status.consume_failed_tps) == (5.0, 1.0)
    assert (status.consume_rt, status.pull_rt, status.pull_tps) == (7.0, 5.0, 3.2)
    assert status.consume_failed_msgs == 10
    assert stats.status("T", 10_000).to_json()["consumeOKTPS"] == 5.0
    for at in range(20_000, 4_000_000, 10_000):
        stats.sample(at)
    assert stats.status("T", 4_000_000).consume_ok_tps == 0.0
    assert stats.status("T", 4_000_000).consume_failed_msgs == 0
    assert stats.totals("T") == (50, 10)


# ------------------------------------------------------------ threads


@pytest.mark.parametrize("kind", ["plain function", "coroutine function", "callable object"])
async def test_any_kind_of_listener_is_called(kind: str) -> None:
    """Threads for blocking listeners, the event loop for coroutines."""
    cluster = FakeCluster(SystemClock(), T=4)
    for number in range(200):
        cluster.put("T", number % 4, b"%d" % number)
    got: list[bytes] = []
    threads: set[str] = set()

    def plain(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        got.extend(message.body for message in messages)
        threads.add(threading.current_thread().name)
        return SUCCESS

    async def coroutine(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        return plain(messages, context)

    listener: AnyListener
    if kind == "plain function":
        listener = plain
    elif kind == "coroutine function":
        listener = coroutine
    else:
        listener = Listener()
        got = []
    made = PushConsumer("g", listener=listener, **options(cluster))
    made.subscribe("T")
    async with made:
        async with asyncio.timeout(20):
            if isinstance(listener, Listener):
                while len(listener.messages) < 200:
                    await asyncio.sleep(0.01)
                got = listener.bodies
            while len(got) < 200:
                await asyncio.sleep(0.01)
    assert sorted(got) == sorted(b"%d" % number for number in range(200))
    main_thread = threading.main_thread().name
    if kind == "plain function":
        assert main_thread not in threads
    elif kind == "coroutine function":
        assert threads == {main_thread}
    assert not [t for t in threading.enumerate() if t.name.startswith("PushConsumer g")]


async def test_blocking_listeners_run_side_by_side() -> None:
    """As many calls at a time as `concurrency`, and no more."""
    cluster = FakeCluster(SystemClock(), T=1)
    for number in range(8):
        cluster.put("T", 0, b"%d" % number)
    barrier = threading.Barrier(4)
    inside = [0, 0]
    lock = threading.Lock()

    def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        with lock:
            inside[0] += 1
            inside[1] = max(inside)
        barrier.wait(20)  # only passes when four are inside at the same time
        with lock:
            inside[0] -= 1

    made = PushConsumer("g", listener=listener, **options(cluster, concurrency=4))
    made.subscribe("T")
    async with made:
        async with asyncio.timeout(30):
            while made.committed(QUEUE) != 8:
                await asyncio.sleep(0.01)
    assert inside == [0, 4]


async def test_a_blocking_listener_is_waited_for_on_shutdown() -> None:
    """Its message is committed, and no thread stays."""
    cluster = FakeCluster(SystemClock(), T=1)
    cluster.put("T", 0, b"x")
    entered = threading.Event()
    leave = threading.Event()

    def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        entered.set()
        leave.wait(20)

    made = PushConsumer("g", listener=listener, **options(cluster))
    made.subscribe("T")
    await made.start()
    await asyncio.to_thread(entered.wait, 20)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.shutdown())
        await asyncio.sleep(0)
        leave.set()
    assert cluster.brokers[0].offsets["g", "T", 0] == 1
    deadline = time.monotonic() + 10
    while [t for t in threading.enumerate() if t.name.startswith("PushConsumer g")]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# ------------------------------------------------------------ orderly


def test_an_orderly_queue_is_locked_while_it_is_consumed() -> None:
    """S22: skipped while another client holds the lock; renewed every 20 s; unlocked on shutdown."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.put("T", 0, b"x")
        locks = cluster.brokers[0].locks
        locks["g", QUEUE] = "another"
        listener = Listener()
        async with consumer(cluster, listener, orderly=True) as one:
            await asyncio.sleep(30)
            assert listener.messages == []
            assert QUEUE not in one.assignment()
            del locks["g", QUEUE]
            await until(lambda: listener.bodies == [b"x"])
            assert locks["g", QUEUE] == one.client_id
            cluster.log.clear()
            await asyncio.sleep(61)
            renewals = [e.at_ms for e in cluster.asked(RC.LOCK_BATCH_MQ)]
            assert {b - a for a, b in pairwise(renewals)} == {20_000}
        assert ("g", QUEUE) not in locks

    run_virtual(main)


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


# ------------------------------------------------------------ offsets


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


# ------------------------------------------------------------ asked by the broker


async def test_a_push_consumer_answers_what_brokers_ask() -> None:
    """Running info, consumer status, consume directly, reset offset."""
    cluster = FakeCluster(SystemClock(), T=1)
    for number in range(3):
        cluster.put("T", 0, b"%d" % number)
    listener = Listener()
    async with consumer(cluster, listener) as one:
        async with asyncio.timeout(20):
            while one.committed(QUEUE) != 3:
                await asyncio.sleep(0.01)
        [client] = cluster.clients

        async def ask(code: int, ext: dict[str, str], body: bytes = b"") -> Asked:
            from pocketmq.remoting.command import RemotingCommand

            answer = await client.push(RemotingCommand(code, ext, body))
            assert answer is not None
            return Asked(0, "", client, answer, False)

        info = await ask(
            RC.GET_CONSUMER_RUNNING_INFO,
            {"consumerGroup": "g", "clientId": one.client_id, "jstackEnable": "true"},
        )
        data = info.json
        assert data["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert data["properties"]["PROP_CLIENT_VERSION"] == "V4_9_7"
        key = next(key for key in data["mqTable"] if key.get("topic") == "T")
        assert data["mqTable"][key]["commitOffset"] == 3
        assert data["mqTable"][key]["droped"] is False
        assert set(data["statusTable"]) == {"T", "%RETRY%g"}
        assert "TID" in data["jstack"]

        status = await ask(RC.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"})
        assert list(status.json["messageQueueTable"].values()) == [3]

        from pocketmq.model.record import write_record

        record = write_record(cluster.brokers[0].queue("T", 0)[1][0])
        direct = await ask(
            RC.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g", "brokerName": "broker-a"}, record
        )
        assert direct.json["consumeResult"] == "CR_SUCCESS"
        assert listener.messages[-1].body == b"1"
        unknown = await ask(RC.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "other"}, record)
        assert unknown.command.code == ResponseCode.SYSTEM_ERROR

        before = len(listener.messages)
        table = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:1}}'
        from pocketmq.remoting.command import RemotingCommand

        await client.push(
            RemotingCommand(
                int(RC.RESET_CONSUMER_CLIENT_OFFSET),
                {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"},
                table,
                flag=2,
            )
        )
        async with asyncio.timeout(20):
            while len(listener.messages) < before + 2:
                await asyncio.sleep(0.01)
        assert listener.bodies[before:] == [b"1", b"2"]


def test_the_list_form_of_an_offset_reset_is_read_too() -> None:
    """wire.md 2.4: what brokers send to C++ clients."""
    from pocketmq.client.network.client_processor import offset_table

    listed = b'{"offsetTable":[{"brokerName":"b","queueId":1,"topic":"T","offset":9}]}'
    assert offset_table(listed) == {MessageQueue("T", "b", 1): 9}


def test_logs_of_a_consumer_say_who_and_what(caplog: pytest.LogCaptureFixture) -> None:
    """Style 6: key=value, on the package's own logger, which no program configures."""
    caplog.set_level(logging.INFO, "pocketmq.client")

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        async with consumer(cluster, Listener()):
            await asyncio.sleep(1)

    run_virtual(main)
    assert "consumer started group=g client=10.9.9.9@" in caplog.text
    assert "pulling begins" in caplog.text
    assert not logging.getLogger("pocketmq").handlers


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("wrong", [{"ack_index": None}, {"ack_index": "0"}, {"delay_level": None}])
async def test_a_listener_whose_context_holds_no_number_has_failed(
    kind: str, wrong: dict[str, Any]
) -> None:
    """Its message stood still for ever, and the offset of its queue with it."""
    cluster = FakeCluster(SystemClock(), T=1)
    for body in (b"bad", b"good"):
        cluster.put("T", 0, body)
    got: list[bytes] = []

    def plain(messages: list[MessageExt], context: ConsumeContext) -> None:
        got.append(messages[0].body)
        if got.count(b"bad") == 1 and messages[0].body == b"bad":
            for name, value in wrong.items():
                setattr(context, name, value)
            if "delay_level" in wrong:
                raise RuntimeError("the listener's own bug")

    async def coroutine(messages: list[MessageExt], context: ConsumeContext) -> None:
        plain(messages, context)

    listener = plain if kind == "function" else coroutine
    made = PushConsumer("g", listener=listener, **options(cluster, concurrency=1))
    made.subscribe("T")
    async with made:
        async with asyncio.timeout(20):
            while got.count(b"bad") < 2 or made.committed(QUEUE) != 2:
                await asyncio.sleep(0.01)


def test_an_orderly_queue_continues_after_an_invalid_pause() -> None:
    """The turn ended with it, and no other began."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        for body in (b"bad", b"good"):
            cluster.put("T", 0, body)
        got: list[bytes] = []

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            got.append(messages[0].body)
            context.suspend_ms = "soon"  # type: ignore[assignment]
            return LATER if len(got) == 1 else SUCCESS

        made = PushConsumer("g", listener=listener, **options(cluster, orderly=True))
        made.subscribe("T")
        async with made:
            await until(lambda: got == [b"bad", b"bad", b"good"])
            await until(lambda: made.committed(QUEUE) == 2)

    run_virtual(main)
