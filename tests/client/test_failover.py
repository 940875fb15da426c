"""A broker's name gets another master: the route is asked at once, not at the next poll 30 s later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    NoRoute,
    Producer,
    SendFailed,
)
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ConnectFailed
from tests.client.fake_cluster import Asked, FakeBroker, FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual


class Mortal(FakeCluster):
    """lost: a broker that has died, and is in no route."""

    lost: FakeBroker | None = None

    def reachable(self, address: str) -> bool:
        return self.lost is None or address != self.lost.address

    async def carry(self, client: Any, address: str, command: Any, **how: Any) -> Any:
        if not self.reachable(address):
            raise ConnectFailed(address, "down")
        return await super().carry(client, address, command, **how)


@asynccontextmanager
async def a_pair() -> AsyncIterator[tuple[Mortal, Producer]]:
    """A master and its slave of one name, and a producer that has sent."""
    cluster = Mortal(LoopClock(), brokers=2, T=2)
    cluster.brokers[1].name, cluster.brokers[1].broker_id = "broker-a", 1
    async with Producer("p", **options(cluster)) as producer:
        for _ in range(4):
            await producer.send(Message("T", b"warm"))
        await asyncio.sleep(5)
        cluster.log.clear()
        yield cluster, producer


def die(cluster: Mortal) -> FakeBroker:
    """End the master; the name server drops it. Returns: the slave."""
    master, slave = cluster.brokers
    cluster.clients[0].connections.clear()
    cluster.brokers.remove(master)
    cluster.lost = master
    return slave


async def elected(slave: FakeBroker, after_s: float) -> None:
    await asyncio.sleep(after_s)
    slave.broker_id = 0


@pytest.mark.parametrize("after_s", [0.0, 0.2, 1.5])
def test_a_send_waits_until_the_other_broker_leads(after_s: float) -> None:
    async def main() -> None:
        async with a_pair() as (cluster, producer), asyncio.TaskGroup() as tasks:
            slave = die(cluster)
            loop = asyncio.get_running_loop()
            began = loop.time()
            tasks.create_task(elected(slave, after_s))
            first = tasks.create_task(producer.send(Message("T", b"1")))
            second = tasks.create_task(producer.send(Message("T", b"2")))
            for each in (first, second):
                assert (await each).message_queue.broker_name == "broker-a"
            assert loop.time() - began < after_s + 1.1
            assert len(slave.queue("T", 0)) + len(slave.queue("T", 1)) == 2
            asked = cluster.asked(RC.GET_ROUTEINFO_BY_TOPIC, topic="T")
            assert len(asked) <= 6, "pauses grow, and all sends share the look-ups"

    run_virtual(main)


def test_a_send_a_slave_refuses_goes_to_the_new_master() -> None:
    async def main() -> None:
        async with a_pair() as (cluster, producer), asyncio.TaskGroup() as tasks:
            old, new = cluster.brokers

            def refuse(asked: Asked) -> RemotingCommand | None:
                if asked.address == old.address:
                    return asked.reply(
                        ResponseCode.SERVICE_NOT_AVAILABLE,
                        "service not available now: this broker is a slave, send to its master",
                    )
                return None

            cluster.on(RC.SEND_MESSAGE_V2, refuse)

            async def change() -> None:
                await asyncio.sleep(0.5)
                old.broker_id, new.broker_id = 1, 0

            tasks.create_task(change())
            loop = asyncio.get_running_loop()
            began = loop.time()
            await producer.send(Message("T", b"x"))
            assert loop.time() - began < 1.6
            assert len(new.queue("T", 0)) + len(new.queue("T", 1)) == 1

    run_virtual(main)


def test_a_topic_that_the_new_master_lacks_is_made_by_a_send() -> None:
    """A slave of RocketMQ copies topics each ten seconds; one that is elected before has none of them."""

    async def main() -> None:
        async with a_pair() as (cluster, producer), asyncio.TaskGroup() as tasks:
            slave = die(cluster)
            del cluster.topics["T"]
            cluster.auto_create = True
            tasks.create_task(elected(slave, 0.2))
            await producer.send(Message("T", b"x"))
            assert sum(len(slave.queue("T", each)) for each in range(4)) == 1

    run_virtual(main)


def test_without_another_master_a_send_ends_with_its_time() -> None:
    async def main() -> None:
        async with a_pair() as (cluster, producer):
            die(cluster)
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises((SendFailed, NoRoute)):
                await producer.send(Message("T", b"x"))
            assert loop.time() - began == pytest.approx(3, abs=0.6)
            await asyncio.sleep(10)
            asked = cluster.asked(RC.GET_ROUTEINFO_BY_TOPIC, topic="T")
            assert len(asked) <= 12
            assert asked[-1].at_ms - asked[0].at_ms < 9_000, "no send fails any more"

    run_virtual(main)


def test_a_reader_goes_on_at_the_other_broker() -> None:
    async def main() -> None:
        async with a_pair() as (cluster, producer):
            reader = LitePullConsumer(
                "g",
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                **options(cluster),
            )
            reader.subscribe("T")
            async with reader:
                for _ in range(10):
                    await reader.poll()
                await asyncio.sleep(35)
                slave = die(cluster)
                assert cluster.lost is not None
                slave.queues = cluster.lost.queues
                slave.broker_id = 0
                await producer.send(Message("T", b"new"))
                loop = asyncio.get_running_loop()
                began = loop.time()
                while not await reader.poll(timeout_ms=500):
                    assert loop.time() - began < 8

    run_virtual(main)
