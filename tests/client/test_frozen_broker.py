"""One of two brokers stands still: it takes what is written to it and answers nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.client import Message, OutcomeUnknown, Producer, SendResult
from pocketmq.remoting.codes import RequestCode as RC
from pocketmq.remoting.errors import ConnectFailed
from tests.client.fake_cluster import FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual


class Standing(FakeCluster):
    """frozen: this broker answers nothing. slow_s: nothing but heartbeats, until so late. lost: no client
    gets a connection to it, nor a refusal.
    """

    frozen = ""
    lost = ""
    slow_s = 0.0

    def reachable(self, address: str) -> bool:
        return not any(each.name == self.lost for each in self.brokers if each.address == address)

    async def carry(self, client: Any, address: str, command: Any, **how: Any) -> Any:
        broker = next((each for each in self.brokers if each.address == address), None)
        name = "" if broker is None else broker.name
        while name and name == self.frozen:
            await asyncio.sleep(0.1)
        if name and name == self.lost:
            await asyncio.sleep(3)
            raise ConnectFailed(address, "no connection within 3000 ms")
        if self.slow_s and command.code == RC.SEND_MESSAGE_V2:
            await asyncio.sleep(self.slow_s)
        return await super().carry(client, address, command, **how)


@asynccontextmanager
async def two_brokers(**how: Any) -> AsyncIterator[tuple[Standing, Producer]]:
    cluster = Standing(LoopClock(), brokers=2, T=2)
    async with Producer("p", **options(cluster, **how)) as producer:
        for _ in range(8):
            await producer.send(Message("T", b"warm"))
        cluster.log.clear()
        yield cluster, producer
        cluster.frozen = ""


def brokers_of(results: list[SendResult]) -> Counter[str]:
    return Counter(result.message_queue.broker_name for result in results)


def test_sends_move_to_the_other_broker_in_time_and_stay() -> None:
    async def main() -> None:
        async with two_brokers() as (cluster, producer):
            cluster.frozen = "broker-a"
            loop = asyncio.get_running_loop()
            results, slow = [], 0
            for _ in range(12):
                began = loop.time()
                results.append(await producer.send(Message("T", b"x")))
                slow += loop.time() - began > 0.1
            assert brokers_of(results) == {"broker-b": 12}
            assert slow == 1, "one send has found out for all"
            futures = [await producer.submit(Message("T", b"x")) for _ in range(6)]
            assert brokers_of([await each for each in futures]) == {"broker-b": 6}
            cluster.frozen = ""
            await asyncio.sleep(30)
            results = [await producer.send(Message("T", b"x")) for _ in range(8)]
            assert brokers_of(results) == {"broker-a": 4, "broker-b": 4}

    run_virtual(main)


def test_a_slow_live_broker_is_awaited_without_a_second_send() -> None:
    """It answers a heartbeat, so the answer to the send may come, too."""

    async def main() -> None:
        async with two_brokers() as (cluster, producer):
            cluster.slow_s = 2.9
            results = [await producer.send(Message("T", b"x")) for _ in range(4)]
            assert brokers_of(results) == {"broker-a": 2, "broker-b": 2}
            assert len(cluster.asked(RC.SEND_MESSAGE_V2)) == 4

    run_virtual(main)


def test_without_retries_nothing_is_sent_twice() -> None:
    async def main() -> None:
        async with two_brokers(retry_times=0) as (cluster, producer):
            cluster.frozen = "broker-a"
            results = []
            failed = 0
            for _ in range(12):
                try:
                    results.append(await producer.send(Message("T", b"x")))
                except OutcomeUnknown:
                    failed += 1
            assert failed == 1
            assert brokers_of(results) == {"broker-b": 11}

    run_virtual(main)


def test_an_unreachable_broker_takes_a_third_of_the_time() -> None:
    async def main() -> None:
        async with two_brokers(retry_times=0) as (cluster, producer):
            cluster.lost = "broker-a"
            cluster.clients[0].connections.clear()
            loop = asyncio.get_running_loop()
            began = loop.time()
            results = [await producer.send(Message("T", b"x")) for _ in range(6)]
            assert brokers_of(results) == {"broker-b": 6}
            assert loop.time() - began == pytest.approx(1.0, abs=0.1)

    run_virtual(main)
