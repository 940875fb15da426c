"""What is cut short or fails unexpectedly: cancelled calls, callbacks that raise, what brokers ask at a bad
moment. A member still consumes all that is its own, or has left.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import (
    ConsumeContext,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
    SimpleConsumer,
    Unreachable,
)
from pocketmq.client.offset_store import LocalFileOffsetStore
from pocketmq.model.record import write_record
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.client.fake_cluster import Asked, Client, FakeCluster
from tests.client.timing import Listener, consumer, member, options
from tests.client.virtual_time import LoopClock, run_virtual, until

QUEUE = MessageQueue("T", "broker-a", 0)


# ------------------------------------------------------------ listeners


def test_a_cancelled_listener_has_failed_and_its_worker_lives() -> None:
    """S34: the consumer was not cancelled."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        got: list[bytes] = []

        async def awaiting(messages: list[MessageExt], context: ConsumeContext) -> None:
            got.append(messages[0].body)
            if len(got) <= 2:
                gone = asyncio.get_running_loop().create_future()
                gone.cancel()
                await gone

        for body in (b"0", b"1", b"2"):
            cluster.put("T", 0, body)
        made = PushConsumer("g", listener=awaiting, **options(cluster, concurrency=1))
        made.subscribe("T")
        async with made:
            await until(lambda: sorted(got) == [b"0", b"0", b"1", b"1", b"2"])
            await until(lambda: made.committed(QUEUE) == 3)

    run_virtual(main)


async def test_a_listener_that_exits_has_failed_and_its_thread_lives() -> None:
    cluster = FakeCluster(SystemClock(), T=1)
    got: list[bytes] = []

    def exiting(messages: list[MessageExt], context: ConsumeContext) -> None:
        got.append(messages[0].body)
        if len(got) == 1:
            raise SystemExit(3)

    for body in (b"0", b"1"):
        cluster.put("T", 0, body)
    made = PushConsumer("g", listener=exiting, **options(cluster, concurrency=1))
    made.subscribe("T")
    async with made, asyncio.timeout(20):
        while sorted(got) != [b"0", b"0", b"1"]:
            await asyncio.sleep(0.01)


async def test_a_thread_that_cannot_be_started_now_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster(SystemClock(), T=1)
    start, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def starting(thread: threading.Thread) -> None:
        if thread.name.startswith("PushMember") and failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)
    got: list[bytes] = []

    def note(messages: list[MessageExt], context: ConsumeContext) -> None:
        got.append(messages[0].body)

    cluster.put("T", 0, b"0")
    made = PushConsumer("g", listener=note, **options(cluster, concurrency=1))
    made.subscribe("T")
    async with made, asyncio.timeout(20):
        while failures:
            await asyncio.sleep(0.01)
        cluster.put("T", 0, b"1")
        while got != [b"0", b"1"]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
def test_queues_are_read_though_on_queues_changed_fails(
    kind: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=2)
        cluster.put("T", 1, b"x")
        listener = Listener()

        def raising(*_: object) -> None:
            raise RuntimeError("the callback's own bug")

        more = {"listener": listener} if kind is PushConsumer else {}
        made = kind("g", **options(cluster, on_queues_changed=raising, **more))
        made.subscribe("T")
        async with made:
            if kind is PushConsumer:
                await until(lambda: listener.bodies == [b"x"])
            else:
                assert [each.body for each in await made.poll(60_000)] == [b"x"]

    run_virtual(main)
    assert "the callback's own bug" in caplog.text


async def test_offsets_a_full_disk_refuses_do_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a member stay whose last offsets could not be written."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFileOffsetStore, "_write", full)
    cluster = FakeCluster(SystemClock(), T=1)
    own = options(cluster, instance_name="one")
    all_of_it: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "offset_folder": tmp_path,
    }
    spread = PushConsumer("spread", listener=Listener(), **all_of_it, **own)
    spread.subscribe("T")
    await spread.start()
    async with LitePullConsumer("g", **own) as other, asyncio.timeout(20):
        other.subscribe("T")
        cluster.put("T", 0, b"x")
        assert await other.poll()
        while spread.committed(QUEUE) is None:
            await asyncio.sleep(0.01)
        other._running().note_consumed()
        await other._running().instance.persist_all_offsets()
        assert cluster.brokers[0].offsets["g", "T", 0] == 1
    with pytest.raises(OSError, match="No space"):
        await spread.shutdown()
    assert cluster.asked(RC.UNREGISTER_CLIENT, consumerGroup="spread")


# ------------------------------------------------------------ what brokers ask


def reset(client: Client, broker: str, offset: int) -> Any:
    table = b'{"offsetTable":{{"brokerName":"%s","queueId":0,"topic":"T"}:%d}}'
    return client.push(
        RemotingCommand(
            int(RC.RESET_CONSUMER_CLIENT_OFFSET),
            {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"},
            table % (broker.encode(), offset),
            flag=2,
        )
    )


@pytest.mark.parametrize("orderly", [False, True])
def test_resets_by_two_brokers_during_a_rebalance_hold(orderly: bool) -> None:
    """mqadmin resets a topic at all its brokers at once."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        for number in range(6):
            cluster.put("T", 0, b"%d" % (number // 2), broker=number % 2)
        listener = Listener()
        async with consumer(cluster, listener, orderly=orderly) as one:
            await until(lambda: len(listener.messages) == 6)
            cluster.latency_s = 0.2
            [client] = cluster.clients
            member(one).instance.rebalance_now()
            await asyncio.sleep(0.1)
            before = len(listener.messages)
            await asyncio.gather(reset(client, "broker-a", 1), reset(client, "broker-b", 2))
            await until(lambda: len(listener.messages) >= before + 3)
            assert sorted(listener.bodies[before:]) == [b"1", b"2", b"2"]
            cluster.put("T", 0, b"new")
            await until(lambda: listener.bodies[-1] == b"new")

    run_virtual(main)


# ------------------------------------------------------------ calls that are cut short


KINDS: list[Callable[..., Any]] = [PushConsumer, LitePullConsumer, SimpleConsumer]


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_whose_shutdown_is_cut_short_has_left(kind: Callable[..., Any]) -> None:
    """Its queues are the others' then: a member that is told of and does nothing would keep them."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        began, never = asyncio.Event(), asyncio.Event()

        async def stuck(messages: list[MessageExt], context: ConsumeContext) -> None:
            began.set()
            await never.wait()

        more = {"listener": stuck} if kind is PushConsumer else {}
        made = kind("g", **options(cluster, **more))
        made.subscribe("T")
        await made.start()
        cluster.put("T", 0, b"x")
        if kind is PushConsumer:
            await began.wait()
        await asyncio.sleep(5)
        cluster.latency_s = 0.5
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await made.shutdown()
        cluster.latency_s = 0.0
        assert cluster.asked(RC.UNREGISTER_CLIENT, consumerGroup="g")
        cluster.log.clear()
        await asyncio.sleep(60)
        assert not cluster.log

    run_virtual(main)


def producer(cluster: FakeCluster, group: str) -> Producer:
    return Producer(
        group,
        name_server="10.0.0.1:9876",
        clock=cluster.clock,
        transport=cluster.transport,
        client_ip="10.9.9.9",
        instance_name="one",
    )


@pytest.mark.parametrize("kind", [*KINDS, Producer])
def test_a_client_whose_start_is_cut_short_was_not_started(kind: Callable[..., Any]) -> None:
    """Whatever it waits for, nothing of it stays, and it can be started again; its neighbour continues."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        got: list[bytes] = []

        async def note(messages: list[MessageExt], context: ConsumeContext) -> None:
            got.append(messages[0].body)

        async with producer(cluster, "neighbour") as neighbour:
            await neighbour.send(Message("T", b"known"))
            if kind is Producer:
                made = producer(cluster, "g")
            else:
                more = {"listener": note} if kind is PushConsumer else {}
                made = kind("g", **options(cluster, instance_name="one", **more))
                made.subscribe("T")
            cluster.latency_s = 0.2
            for tenths in range(1, 12):
                try:
                    async with asyncio.timeout(tenths / 10 + 0.05):
                        await made.start()
                except TimeoutError:
                    member_of = neighbour._running().instance
                    assert "g" not in {*member_of.consumers, *member_of.producers}
                else:
                    await made.shutdown()
            await asyncio.sleep(60)
            assert not got
            assert not any(each.members.get("g") for each in cluster.brokers)

    run_virtual(main)


def test_a_lite_pull_goes_on_after_a_route_that_is_none() -> None:
    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        answers = iter([b'{"brokerDatas":[7],"queueDatas":[]}'] * 3)
        async with LitePullConsumer("g", **options(cluster)) as made:
            made.subscribe("T")
            await until(lambda: made.assignment())
            instance = made._running().instance

            def route(asked: Asked) -> RemotingCommand | None:
                body = next(answers, None)
                return None if body is None else asked.reply(body=body)

            cluster.on(RC.GET_ROUTEINFO_BY_TOPIC, route)
            instance.addresses.forget_except(set())
            cluster.put("T", 0, b"x")
            assert [each.body for each in await made.poll(60_000)] == [b"x"]
            cluster.put("T", 0, b"y")
            assert [each.body for each in await made.poll(60_000)] == [b"y"]

    run_virtual(main)


def test_a_new_expression_holds_though_the_clock_went_back() -> None:
    """A broker keeps the subscription with the highest version: by the old one it would drop messages."""

    async def main() -> None:
        clock = LoopClock()
        cluster = FakeCluster(clock, T=1)
        listener = Listener()
        async with consumer(cluster, listener, expression="a") as one:
            await until(lambda: cluster.asked(RC.PULL_MESSAGE, topic="T"))
            clock.wall_jump_ms = -60_000
            one.subscribe("T", "b")
            # The pull that waits has the old one.
            await asyncio.sleep(20)
            cluster.put("T", 0, b"x", properties="TAGS\x01b\x02")
            await until(lambda: listener.bodies == [b"x"])

    run_virtual(main)


def nothing(asked: Asked) -> RemotingCommand:
    return asked.reply(ResponseCode.PULL_NOT_FOUND, "nothing")


def test_a_receive_is_no_more_cancelled_than_its_caller() -> None:
    """A consumer that is shut down meanwhile ends it, without messages."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.on(RC.POP_MESSAGE, nothing)
        made = SimpleConsumer("g", **options(cluster))
        made.subscribe("T")
        async with made, asyncio.TaskGroup() as tasks:
            cluster.latency_s = 2.0
            receiving = tasks.create_task(made.receive(wait_ms=0))
            await until(lambda: cluster.asked(RC.POP_MESSAGE))
            cluster.latency_s = 0.0
            await made.shutdown()
        assert not receiving.cancelled()
        assert receiving.result() == []

    run_virtual(main)


def test_messages_of_a_cancelled_receive_come_with_the_next() -> None:
    """No other member gets it before its invisible time is over."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        cluster.put("T", 0, b"x")
        [(record, _)] = cluster.brokers[0].queue("T", 0)

        def pop(asked: Asked) -> RemotingCommand:
            if len(cluster.asked(RC.POP_MESSAGE)) > 1:
                return nothing(asked)
            ext = {"popTime": "1", "invisibleTime": "60000", "reviveQid": "0", "restNum": "0"}
            return asked.reply(ext={**ext, "startOffsetInfo": "0 0 0"}, body=write_record(record))

        cluster.on(RC.POP_MESSAGE, pop)
        made = SimpleConsumer("g", **options(cluster))
        made.subscribe("T")
        async with made:
            cluster.latency_s = 0.2
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await made.receive(wait_ms=0)
            await asyncio.sleep(1)
            assert [each.body for each in await made.receive(wait_ms=0)] == [b"x"]

    run_virtual(main)


def test_receive_works_while_another_broker_is_down() -> None:
    async def main() -> None:
        cluster = FakeCluster(LoopClock(), brokers=2, T=1)
        cluster.on(RC.POP_MESSAGE, nothing)
        made = SimpleConsumer("g", **options(cluster))
        made.subscribe("T")
        async with made:
            cluster.latency_s = 0.1
            cluster.brokers[0].down = True
            for _ in range(4):
                cluster.log.clear()
                with pytest.raises(Unreachable):
                    await made.receive(wait_ms=500)
                popped = {each.address for each in cluster.asked(RC.POP_MESSAGE)}
                assert popped == {cluster.brokers[1].address}
            cluster.brokers[0].down = False

    run_virtual(main)
