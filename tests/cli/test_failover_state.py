"""kill -9 of a master under a controller: what is not yet in a consumer's hands goes over."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    PocketMQError,
    Producer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from tests.cli.servers import Server
from tests.kit.waiting import until_async as until

_DELAY_MS = 4_000


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[dict[str, str]]:
    words = ["--replicas", "2", "--controller", "--data", "set", "--no-console"]
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--broker-name", "b"]
    checks = ["--set", "transactionCheckInterval=500", "--set", "transactionTimeOut=500"]
    copied = ["--set", "slaveSyncInterval=200"]
    server = Server(tmp_path, "up", *words, *ports, *checks, *copied)
    try:
        yield server.ready()
    finally:
        server.kill()


async def read(namesrv: str, group: str, topic: str, count: int) -> list[bytes]:
    """That many bodies, in the order in which they come; what was consumed before is not among them."""
    consumer = LitePullConsumer(
        group, name_server=namesrv, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
    )
    consumer.subscribe(topic)
    found: list[bytes] = []
    async with consumer:
        while len(found) < count:
            found += [each.body for each in await consumer.poll()]
    return found


async def receive(consumer: SimpleConsumer) -> list[MessageExt]:
    try:
        return await consumer.receive(wait_ms=1_000)
    except PocketMQError:
        # No broker leads for a moment.
        return []


async def test_delays_halves_and_pops_survive_kill_9(ready: dict[str, str]) -> None:
    namesrv, master = ready["namesrv"], int(ready["pids"].split(",")[0])
    is_over = False

    def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT if is_over else TransactionState.UNKNOWN

    async with (
        Producer("p", name_server=namesrv) as producer,
        TransactionProducer("t", check=check, name_server=namesrv) as transactions,
        SimpleConsumer("pops", name_server=namesrv, invisible_ms=10_000) as pops,
    ):
        pops.subscribe("Popped")
        for number in range(10):
            await producer.send(Message("Read", b"%d" % number))
            await producer.send(Message("Popped", b"%d" % number))
        assert len(await read(namesrv, "readers", "Read", 10)) == 10
        due_ms = int(time.time() * 1000) + _DELAY_MS
        await producer.send(Message("Late", b"by timer"), deliver_at_ms=due_ms)
        await producer.send(Message("Late", b"by level"), delay_level=2)
        await transactions.send_in_transaction(
            Message("Half", b"half"), lambda _: TransactionState.UNKNOWN
        )
        held: dict[bytes, MessageExt] = {}
        while len(held) < 10:
            held |= {each.body: each for each in await receive(pops)}
        for body in sorted(held)[:5]:
            await pops.ack(held[body])
        # Tables go over every 200 ms.
        await producer.send(Message("Read", b"last"))
        await asyncio.sleep(1)
        os.kill(master, signal.SIGKILL)
        is_over = True
        assert (await read(namesrv, "readers", "Read", 1)) == [b"last"]
        assert (await read(namesrv, "halves", "Half", 1)) == [b"half"]
        assert set(await read(namesrv, "lates", "Late", 2)) == {b"by timer", b"by level"}
        again: set[bytes] = set()

        async def all_again() -> bool:
            for each in await receive(pops):
                again.add(each.body)
                await pops.ack(each)
            return len(again) >= 5

        await until(all_again, "what was not acknowledged comes again")
        assert again == set(sorted(held)[5:])
