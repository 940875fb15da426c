"""Producers and three kinds of consumers while the broker is killed and the network fails; then a checker.

`--history-seconds N` for longer runs (10 by default: each fault once). A run prints its seed; `POCKETMQ_SEED`
repeats it.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from pocketmq.client import (
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
)
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import PocketMQError
from tests.faults.histories import History, Sent
from tests.interop.brokers import PocketBroker
from tests.kit.rough_proxy import RoughProxy
from tests.kit.waiting import until_async

log = logging.getLogger(__name__)

_TOPIC = "History"
_KEYS = [f"key{number}" for number in range(6)]
_HOURS_MS = 3_600_000
# Producers rest so long between two sends of a key.
_REST_S = 0.02
_FAULT_S = (0.5, 2.5)
_ORDERLY = "orderly"


class Wrong(SystemClock):
    """A machine's clock that is off; what is measured is not."""

    def __init__(self, off_ms: int) -> None:
        self._off_ms = off_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._off_ms


class Forgetful(RoughProxy):
    """On another loopback address than its target, with the same port: brokers say where clients connect.

    It can forget its connections as a firewall does: what comes over them vanishes, and neither end is told.
    """

    host = "127.0.0.2"

    def __init__(self, target: int, chance: random.Random) -> None:
        super().__init__(target, chance)
        self._forgotten: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "Forgetful":
        self._server = await asyncio.start_server(self._accept, self.host, self.target)
        self.port = self.target
        return self

    def forget(self) -> None:
        """Let the bytes of all connections that there are vanish."""
        self._forgotten |= self._writers

    async def forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: set[asyncio.StreamWriter],
    ) -> None:
        try:
            await super().forward(reader, cast(Any, _Way(writer, self._forgotten)), both)
        finally:
            self._forgotten.discard(writer)


class _Way:
    """One direction of a connection; nothing arrives once it is forgotten."""

    def __init__(self, writer: asyncio.StreamWriter, forgotten: set[asyncio.StreamWriter]) -> None:
        self._writer = writer
        self._forgotten = forgotten

    def write(self, data: bytes) -> None:
        if self._writer not in self._forgotten:
            self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()


class Run:
    """The clients of one history."""

    def __init__(self, name_server: str, history: History) -> None:
        self._name_server = name_server
        self.history = history

    def _options(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "name_server": self._name_server,
            "instance_name": name,
            "heartbeat_interval_ms": 1_000,
            "poll_name_server_interval_ms": 1_000,
            "request_timeout_ms": 2_000,
            **more,
        }

    async def produce(self, key: str, clock: SystemClock) -> None:
        """Send the messages of one key, each when the one before it is answered, until cancelled."""
        options = self._options(f"p-{key}", clock=clock, send_timeout_ms=2_000, retry_times=0)
        async with Producer("history_p", **options) as producer:
            queues = await until_async(lambda: self._queues(producer), "the topic's route")
            queue = queues[_KEYS.index(key) % len(queues)]
            number = 0
            while True:
                sent = key, number
                self.history.begun.add(sent)
                try:
                    await producer.send(Message(_TOPIC, _body(sent), keys=key), queue=queue)
                except PocketMQError:
                    # It may be stored or not.
                    pass
                else:
                    self.history.acknowledged.add(sent)
                number += 1
                await asyncio.sleep(_REST_S)

    async def _queues(self, producer: Producer) -> list[Any]:
        with suppress(PocketMQError):
            return sorted(await producer.queues(_TOPIC))
        return []

    def is_done(self, group: str) -> bool:
        return not self.history.missing(group)

    async def push(self, stack: AsyncExitStack, group: str, name: str, **more: Any) -> None:
        async def listener(messages: list[MessageExt], context: Any) -> ConsumeResult:
            self.history.seen[group] += [_sent(each) for each in messages]
            return ConsumeResult.SUCCESS

        options = self._options(name, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, **more)
        member = PushConsumer(group, listener=listener, **options)
        member.subscribe(_TOPIC)
        await stack.enter_async_context(member)

    async def pop(self, group: str, name: str) -> None:
        """Receive and acknowledge until cancelled."""
        async with SimpleConsumer(group, **self._options(name, invisible_ms=3_000)) as consumer:
            consumer.subscribe(_TOPIC)
            while True:
                try:
                    for message in await consumer.receive(wait_ms=1_000):
                        self.history.seen[group].append(_sent(message))
                        await consumer.ack(message)
                except PocketMQError:
                    await asyncio.sleep(10 * _REST_S)

    async def read_log(self) -> None:
        """Note what the queues have, in their order, as one more group."""
        async with PullConsumer("history_log", **self._options("log")) as reader:
            for queue in await reader.queues(_TOPIC):
                offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
                while offset < end:
                    found = await reader.pull(queue, offset)
                    self.history.seen["log"] += [_sent(each) for each in found.messages]
                    offset = found.next_begin_offset


def _body(sent: Sent) -> bytes:
    return f"{sent[0]}/{sent[1]}".encode()


def _sent(message: MessageExt) -> Sent:
    key, _, number = message.body.decode().partition("/")
    return key, int(number)


class Faults:
    """What is done to the broker and to the network between it and its clients."""

    def __init__(self, broker: PocketBroker, network: Forgetful, chance: random.Random) -> None:
        self._broker = broker
        self._network = network
        self._chance = chance

    async def each(self) -> None:
        """All of them once, in an order of chance, with a rest behind each."""
        faults: list[Callable[[], Awaitable[None]]] = [
            self._kill,
            self._stop,
            self._cut,
            self._stall,
            self._vanish,
        ]
        self._chance.shuffle(faults)
        for fault in faults:
            log.info("fault %s", fault.__name__)
            await fault()
            await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.uniform(*_FAULT_S))

    async def _kill(self) -> None:
        await asyncio.to_thread(self._broker.kill)
        await asyncio.to_thread(self._broker.start)

    async def _stop(self) -> None:
        await asyncio.to_thread(self._broker.stop)
        await asyncio.to_thread(self._broker.start)

    async def _cut(self) -> None:
        self._network.cut()

    async def _stall(self) -> None:
        self._network.stalled = True
        await self._rest()
        self._network.heal()

    async def _vanish(self) -> None:
        """No bytes pass on connections that are open now, and neither end learns of it."""
        self._network.forget()
        await self._rest()


async def test_nothing_is_lost_invented_or_out_of_order_under_faults(
    tmp_path: Path, pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once for three kinds of consumers, in the order of each key where that is promised."""
    seed = int(os.environ.get("POCKETMQ_SEED") or random.randrange(1 << 32))
    log.warning("seed=%d", seed)
    # What fails is known: thousands of lines.
    caplog.set_level(logging.ERROR, "pocketmq")
    chance = random.Random(seed)
    config = {"brokerIP1": Forgetful.host, "popCkStayBufferTimeOut": 1_000}
    broker = PocketBroker(tmp_path, config=config)
    await asyncio.to_thread(broker.start)
    history = History(orderly={_ORDERLY, "log"})
    run = Run(broker.namesrv, history)
    groups = ("push", _ORDERLY, "pop")
    loop = asyncio.get_running_loop()
    try:
        async with Forgetful(broker.port, chance) as network, AsyncExitStack() as stack:
            faults = Faults(broker, network, chance)
            async with asyncio.TaskGroup() as tasks:
                sending = [
                    tasks.create_task(run.produce(key, Wrong(chance.randint(-72, 72) * _HOURS_MS)))
                    for key in _KEYS
                ]
                await until_async(lambda: bool(history.acknowledged), "the first message")
                for number in range(2):
                    await run.push(stack, "push", f"push{number}", clock=Wrong(number * _HOURS_MS))
                    await run.push(stack, _ORDERLY, f"orderly{number}", orderly=True)
                popping = [tasks.create_task(run.pop("pop", f"pop{number}")) for number in range(2)]
                end = loop.time() + float(pytestconfig.getoption("--history-seconds"))
                while True:
                    await faults.each()
                    if loop.time() >= end:
                        break
                for task in sending:
                    task.cancel()
                for group in groups:
                    await until_async(partial(run.is_done, group), f"all of {group}")
                for task in popping:
                    task.cancel()
            await run.read_log()
    finally:
        broker.kill()
    log.warning("%s", history.summary())
    assert len(history.acknowledged) > len(_KEYS)
    assert history.faults() == [], f"seed {seed}"


def test_the_checker_sees_what_may_not_be() -> None:
    """Otherwise a run that finds nothing says nothing."""
    begun = {("k", number) for number in range(5)}
    good = History(begun, begun - {("k", 3)}, orderly={"g"})
    # What had no answer may come late or never; what comes again comes from an earlier one on.
    for order in ([0, 1, 2, 4], [0, 1, 2, 1, 2, 4, 3], [0, 3, 1, 2, 4]):
        good.seen["g"] = [("k", number) for number in order]
        assert good.faults() == []
    assert good.repeated() == {"g": 0}
    for order, word in (
        ([0, 1, 2], "never saw"),
        ([0, 2, 1, 4], "behind"),
        ([0, 1, 2, 4, 9], "sent"),
    ):
        good.seen["g"] = [("k", number) for number in order]
        (fault,) = good.faults()
        assert word in fault
    good.seen["g"] = [("k", number) for number in (0, 0, 1, 2, 1, 4)]
    assert (good.faults(), good.repeated()) == ([], {"g": 2})
