"""A firewall restarts, a NAT loses its table: open connections carry nothing any more, and nothing says so.

New ones work at once. All recover within a heartbeat and a time-out: clients of every kind, a broker at
its name server, a slave at its master.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    PocketMQError,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.testing import InProcess
from tests.broker.serving import serving
from tests.broker.test_registration import name_server, route
from tests.console.console_peer import browser
from tests.interop.brokers import PocketBroker
from tests.kit.forgetful_proxy import ForgetfulProxy
from tests.kit.nursery import Nursery
from tests.kit.waiting import until_async

PROXY_HOST = "127.0.0.2"


async def test_a_broker_registers_by_another_connection(tmp_path: Path) -> None:
    """It stayed out of the routes for as long as it ran."""
    async with name_server() as server:
        port = int(server.address.rpartition(":")[2])
        async with ForgetfulProxy(port) as proxy:
            settings: dict[str, Any] = {
                "namesrv_addr": f"127.0.0.1:{proxy.port}",
                "register_broker_timeout_mills": 1_000,
            }
            async with serving(tmp_path, **settings) as broker:
                broker.registration.wait_ms = 600_000
                proxy.forget()
                broker.parts.tables.topics.update(TopicConfig("New", 1, 1))
                await until_async(lambda: route(server, "New") == (1, 1, 6))
                await until_async(lambda: broker.registration.is_registered)
                assert proxy.opened == 2


@asynccontextmanager
async def _behind_proxy() -> AsyncIterator[tuple[InProcess, ForgetfulProxy]]:
    """A broker that clients reach by a proxy."""
    async with AsyncExitStack() as stack:
        server = InProcess({"brokerIP1": PROXY_HOST})
        await asyncio.to_thread(server.start)
        stack.push_async_callback(asyncio.to_thread, server.stop)
        port = int(server.broker.rpartition(":")[2])
        proxy = ForgetfulProxy(port, host=PROXY_HOST, port=port)
        await stack.enter_async_context(proxy)
        await asyncio.to_thread(server.create_topic, "T", queues=4)
        yield server, proxy


async def test_clients_of_every_kind_go_on(tmp_path: Path) -> None:
    """Producer, push, orderly push and simple consumer did nothing for as long as they ran."""
    seen: dict[str, set[bytes]] = {"push": set(), "orderly": set(), "simple": set()}
    quick: dict[str, Any] = {"request_timeout_ms": 1_000, "heartbeat_interval_ms": 1_000}
    acknowledged: set[bytes] = set()

    def push(kind: str, namesrv: str) -> PushConsumer:
        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            seen[kind].update(each.body for each in messages)

        consumer = PushConsumer(
            kind,
            listener=listen,
            name_server=namesrv,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            orderly=kind == "orderly",
            **quick,
        )
        consumer.subscribe("T")
        return consumer

    async def pop(consumer: SimpleConsumer) -> None:
        while True:
            try:
                for message in await consumer.receive(wait_ms=500):
                    seen["simple"].add(message.body)
                    await consumer.ack(message)
            except PocketMQError:
                continue

    async def send(producer: Producer, until: int) -> None:
        number = len(acknowledged)
        while number < until:
            body = b"%d" % number
            try:
                await producer.send(Message("T", body))
            except PocketMQError:
                continue
            acknowledged.add(body)
            number += 1

    async with _behind_proxy() as (server, proxy), AsyncExitStack() as stack:
        simple = SimpleConsumer(
            "simple",
            name_server=server.namesrv,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            **quick,
        )
        simple.subscribe("T")
        producer = Producer("p", name_server=server.namesrv, send_timeout_ms=1_000, **quick)
        for client in (producer, push("push", server.namesrv), push("orderly", server.namesrv)):
            await stack.enter_async_context(client)
        await stack.enter_async_context(simple)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        popping = tasks.create_task(pop(simple))
        await send(producer, 40)
        await until_async(lambda: all(acknowledged <= each for each in seen.values()))
        proxy.forget()
        await send(producer, 80)
        await until_async(lambda: all(acknowledged <= each for each in seen.values()))
        popping.cancel()


async def test_the_console_goes_on(tmp_path: Path) -> None:
    """Its pages, and what it samples; a broker that is silent is left alone for some seconds first."""
    async with _behind_proxy() as (server, proxy):
        config = ConsoleConfig(port=0, sample_interval_ms=500)
        console = ConsoleServer(config, {"name_server": server.namesrv}, SystemClock())
        producer = Producer("p", name_server=server.namesrv)
        async with console, browser(console) as user, producer:
            await user.open()
            await producer.send(Message("T", b"before"))

            async def shown() -> bool:
                found = await user.get("/messages", topic="T", begin=0, end=1 << 42)
                return found.status == 200 and len(found.json["items"]) == 1

            await until_async(shown)
            opened = proxy.opened
            proxy.forget()
            await until_async(shown)
            assert proxy.opened > opened


async def test_spark_goes_on() -> None:
    """Planners and tasks: routes, offsets and pulls by new connections, within a time-out and a retry."""
    async with _behind_proxy() as (server, proxy):
        async with Producer("p", name_server=server.namesrv) as producer:
            for number in range(40):
                await producer.send(Message("T", b"%d" % number))
        access = BrokerAccess(server.namesrv, timeout_ms=1_000, retry_timeout_ms=20_000)
        with BrokerClient(access) as client:

            def look() -> tuple[list[BrokerQueue], list[int]]:
                queues = client.queues("T", Perm.READ)
                return queues, [client.max_offset(queue) for queue in queues]

            queues, ends = await asyncio.to_thread(look)
            assert sum(ends) == 40
            opened = proxy.opened
            proxy.forget()
            assert await asyncio.to_thread(look) == (queues, ends)
            proxy.forget()
            offsets = await asyncio.to_thread(client.group_offsets, queues, "g")
            assert offsets == [None] * len(queues)
            assert proxy.opened == opened + 2


async def test_a_slave_follows_its_master_by_other_connections(tmp_path: Path) -> None:
    """Its port for slaves found out, but the questions before it went the old way."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(
            NameServer(NamesrvConfig(listen_port=0), SystemClock())
        )
        address = await namesrv.listen()
        nursery = stack.enter_context(Nursery())
        settings: dict[str, object] = {
            "mappedFileSizeCommitLog": 1 << 18,
            "haSendHeartbeatInterval": 200,
            "haHousekeepingInterval": 1_000,
            "slaveSyncInterval": 200,
        }
        master = PocketBroker(
            tmp_path / "a",
            namesrv=address,
            config={**settings, "brokerRole": "ASYNC_MASTER", "brokerIP1": PROXY_HOST},
            nursery=nursery,
        )
        stack.callback(master.kill)
        proxies = [
            await stack.enter_async_context(ForgetfulProxy(port, host=PROXY_HOST, port=port))
            for port in (master.port, master.port + 1)
        ]
        await asyncio.to_thread(master.start)
        slave = PocketBroker(
            tmp_path / "b",
            namesrv=address,
            config={
                **settings,
                "brokerRole": "SLAVE",
                "brokerId": 1,
                "haMasterAddress": f"{PROXY_HOST}:{master.port + 1}",
            },
            nursery=nursery,
        )
        stack.callback(slave.kill)
        await asyncio.to_thread(slave.start)
        async with Producer("p", name_server=address) as producer:
            await producer.send(Message("T", b"before"))
            await until_async(lambda: _log_of(slave) == _log_of(master) != b"")
            opened = [proxy.opened for proxy in proxies]
            for proxy in proxies:
                proxy.forget()
            # The producer has its own lesson from it.
            stored = 0
            while not stored:
                try:
                    stored += bool(await producer.send(Message("T", b"after")))
                except PocketMQError:
                    continue
            await until_async(lambda: _log_of(slave) == _log_of(master))
        assert all(proxy.opened > before for proxy, before in zip(proxies, opened, strict=True))


def _log_of(broker: PocketBroker) -> bytes:
    """What its log has."""
    files = sorted((broker.store / "commitlog").glob("*"))
    return b"".join(each.read_bytes() for each in files).rstrip(b"\0")
