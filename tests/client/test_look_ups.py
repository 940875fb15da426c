"""Looking a topic up while the name server does not answer: one look-up for all, within each one's time."""

import asyncio
import logging
from typing import Any

import pytest

from pocketmq.client import (
    Message,
    MessageQueue,
    NoRoute,
    OutcomeUnknown,
    Producer,
    PushConsumer,
    TransientError,
)
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ConnectFailed
from tests.client.fake_cluster import NAME_SERVER, Asked, FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual


class DeafCluster(FakeCluster):
    """Its name server takes requests and does not answer while `deaf`."""

    deaf = True

    async def carry(self, client: Any, address: str, *rest: Any, **how: Any) -> Any:
        if address == NAME_SERVER and self.deaf:
            self.asks += 1
            await asyncio.Event().wait()
        return await super().carry(client, address, *rest, **how)

    asks = 0


async def outcome(producer: Producer, **how: Any) -> tuple[str, int]:
    """The error's class, and after how many ms it came."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await producer.send(Message("New", b"x"), **how)
        kind = "sent"
    except TransientError as error:
        kind = type(error).__name__
    return kind, round((loop.time() - began) * 1000)


def test_each_of_many_sends_ends_within_its_own_time() -> None:
    async def main() -> None:
        cluster = DeafCluster(LoopClock(), New=1)
        async with Producer("p", **options(cluster)) as producer:
            async with asyncio.TaskGroup() as tasks:
                sends = [tasks.create_task(outcome(producer)) for _ in range(5)]
                short = tasks.create_task(outcome(producer, timeout_ms=500))
                keyed = tasks.create_task(outcome(producer, sharding_key="k", timeout_ms=700))
            assert short.result() == ("NoAnswer", 500)
            assert keyed.result() == ("NoAnswer", 700)
            for each in sends:
                kind, took_ms = each.result()
                assert kind == "NoAnswer"
                assert took_ms <= 3_000
            cluster.deaf = False
            assert await outcome(producer) == ("sent", 0)

    run_virtual(main)


def test_a_shared_look_up_outlives_a_cancelled_caller() -> None:
    async def main() -> None:
        cluster = DeafCluster(LoopClock(), New=1)
        async with Producer("p", request_timeout_ms=60_000, **options(cluster)) as producer:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(20):
                    tasks.create_task(outcome(producer))
            # The template of new topics is looked up from time to time by the client itself.
            assert cluster.asks <= 2

    run_virtual(main)


def test_a_missing_route_of_a_shared_look_up_is_asked_again() -> None:
    """The topic was made while another caller's look-up was under way."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock())
        cluster.auto_create = False
        cluster.latency_s = 1.0

        def appears(asked: Asked) -> RemotingCommand | None:
            if asked.ext["topic"] == "New" and "New" not in cluster.topics:
                cluster.topics["New"] = 1
                return asked.reply(17, "No topic route info")
            return None

        async with Producer("p", **options(cluster)) as producer:
            cluster.on(RC.GET_ROUTEINFO_BY_TOPIC, appears)

            async def late() -> None:
                await asyncio.sleep(0.5)
                await producer.send(Message("New", b"x"))

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(late())
                with pytest.raises(NoRoute):
                    await producer.queues("New")

    run_virtual(main)


def test_a_topic_that_does_not_exist_yet_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """In one line, however often it is looked for, and without a link to the FAQ of RocketMQ."""

    async def main() -> None:
        cluster = FakeCluster(LoopClock())
        consumer = PushConsumer("g", listener=lambda *_: None, **options(cluster))
        consumer.subscribe("Later")
        async with consumer:
            await asyncio.sleep(300)
        lines = [each.getMessage() for each in caplog.records]
        [said] = [line for line in lines if line.startswith("no new route")]
        assert "pocketmq topic create Later" in said
        assert "faq" not in said
        assert "\n" not in said

    run_virtual(main)


def test_name_servers_out_of_reach_are_said_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line at the start, which ends with the next step, and one more a minute while it lasts."""

    class Unplugged(FakeCluster):
        async def carry(self, client: Any, address: str, command: Any, **how: Any) -> Any:
            raise ConnectFailed(address, "Connection refused")

    async def main() -> None:
        consumer = PushConsumer("g", listener=lambda *_: None, **options(Unplugged(LoopClock())))
        consumer.subscribe("T")
        async with consumer:
            await asyncio.sleep(10)
            [said] = [e.getMessage() for e in caplog.records if e.levelno >= logging.WARNING]
            assert said.rstrip("'\"").endswith("pocketmq up")
            await asyncio.sleep(55)
        assert len([e for e in caplog.records if e.levelno >= logging.WARNING]) == 2

    run_virtual(main)


class SlowCluster(FakeCluster):
    """Its name server takes two seconds for each answer; its brokers take requests and never answer."""

    async def carry(self, client: Any, address: str, command: Any, **how: Any) -> Any:
        if address == NAME_SERVER:
            await asyncio.sleep(2)
        elif command.code in (RC.SEND_MESSAGE, RC.SEND_MESSAGE_V2):
            await asyncio.Event().wait()
        return await super().carry(client, address, command, **how)


async def _plain(producer: Producer) -> None:
    await producer.send(Message("New", b"x"))


async def _timed(producer: Producer) -> None:
    await producer.send(Message("New", b"x"), timeout_ms=3_000)


async def _keyed(producer: Producer) -> None:
    await producer.send(Message("New", b"x"), sharding_key="k")


async def _keyed_timed(producer: Producer) -> None:
    await producer.send(Message("New", b"x"), sharding_key="k", timeout_ms=3_000)


async def _selected(producer: Producer) -> None:
    await producer.send(Message("New", b"x"), select=lambda queues: queues[0])


async def _submitted(producer: Producer) -> None:
    await (await producer.submit(Message("New", b"x"), sharding_key="k"))


async def _requested(producer: Producer) -> None:
    await producer.request(Message("New", b"x"), timeout_ms=3_000)


async def _to_queue(producer: Producer) -> None:
    await producer.send(Message("New", b"x"), queue=MessageQueue("New", "broker-a", 0))


@pytest.mark.parametrize(
    "sends",
    [_plain, _timed, _keyed, _keyed_timed, _selected, _submitted, _requested, _to_queue],
)
def test_the_look_up_and_the_send_share_one_time(sends: Any) -> None:
    """The name server answers after two seconds of the three, and the broker does not."""

    async def main() -> None:
        cluster = SlowCluster(LoopClock(), New=1)
        async with Producer("p", retry_times=0, **options(cluster)) as producer:
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises((TransientError, OutcomeUnknown)):
                await sends(producer)
            assert cluster.clock.monotonic_ms() - began_ms <= 3_001

    run_virtual(main)


@pytest.mark.parametrize("how", [{}, {"sharding_key": "k"}])
def test_a_one_way_send_looks_for_no_longer_than_its_time(how: dict[str, Any]) -> None:
    """Two look-ups, the topic's and a broker's, share it."""

    async def main() -> None:
        cluster = DeafCluster(LoopClock(), New=1)
        async with Producer("p", **options(cluster)) as producer:
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises(TransientError):
                await producer.send_oneway(Message("New", b"x"), **how)
            assert cluster.clock.monotonic_ms() - began_ms <= 3_001

    run_virtual(main)
