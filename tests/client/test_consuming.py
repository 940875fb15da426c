"""What happens to messages after they were pulled: listeners, results, giving back, offsets, order."""

import asyncio
import threading
import time
from contextlib import suppress
from itertools import pairwise

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    MessageExt,
    MessageQueue,
    PushConsumer,
)
from pocketmq.client.consume.concurrently import acked_count
from pocketmq.client.consume.listener import Listener as AnyListener
from pocketmq.model.message import Property
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from tests.client.fake_cluster import FakeCluster
from tests.client.timing import Listener, consumer, member, options
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
