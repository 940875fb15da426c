"""What a consumer answers to its brokers, and what it logs and counts."""

import asyncio
import logging
from typing import Any

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    MessageExt,
    MessageQueue,
    PushConsumer,
)
from pocketmq.client.consume.consumer_stats import ConsumerStats
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from tests.client.fake_cluster import Asked, FakeCluster
from tests.client.timing import Listener, consumer, options
from tests.client.virtual_time import LoopClock, run_virtual, until

QUEUE = MessageQueue("T", "broker-a", 0)


SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER


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
