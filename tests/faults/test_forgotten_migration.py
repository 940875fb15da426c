"""A firewall forgets every connection to a broker in the middle of `pocketmq migrate`, inwards or outwards.

Each step resumes with new connections, or all is undone: the source leads again and takes sends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.cli.migration.report import MigrationRefused
from pocketmq.cli.migration.source import Source
from pocketmq.client import Producer
from pocketmq.remoting.errors import PocketMQError
from tests.broker.pairs import Pair, end_of
from tests.cli import test_migrate, test_migrate_out
from tests.cli.test_migrate import QUICK, STEPS, led_to, stored
from tests.kit.forgetful_proxy import ForgetfulProxy
from tests.kit.waiting import until_async

HOST = "127.0.0.2"


class Forgetting:
    """Proxies before the source's two ports; `at` makes them forget at the first line that begins so."""

    def __init__(self, stack: AsyncExitStack, brokers: Pair, step: str) -> None:
        self._stack = stack
        self._step = step
        self._master: Callable[..., Awaitable[Broker]] = brokers.master
        self._proxies: list[ForgetfulProxy] = []
        self.said = ""
        brokers.master = self._behind_proxies  # type: ignore[assignment,method-assign]

    async def _behind_proxies(self) -> Broker:
        broker = await self._master(
            broker_ip1=HOST, ha_send_heartbeat_interval=200, ha_housekeeping_interval=1_000
        )
        for address in (broker.address, broker.registration.identity.ha_address):
            port = int(address.rpartition(":")[2])
            proxy = ForgetfulProxy(port, host=HOST, port=port)
            self._proxies.append(await self._stack.enter_async_context(proxy))
        return broker

    def at(self, line: str) -> None:
        if line.startswith(self._step) and not self.said:
            self.said = line
            for proxy in self._proxies:
                proxy.forget()


async def is_served(name_server: str, leader: Broker) -> None:
    async with Producer("after", name_server=name_server, **QUICK) as producer:
        before = end_of(leader)
        await stored(producer, b"after")
        assert end_of(leader) > before


@pytest.mark.parametrize("step", STEPS)
async def test_inwards_resumes_or_leaves_the_source_as_it_was(tmp_path: Path, step: str) -> None:
    async with AsyncExitStack() as stack, test_migrate.moving(tmp_path) as way:
        forgetting = Forgetting(stack, way.brokers, step)
        inwards = await way.start()
        way.at = forgetting.at
        is_moved = True
        try:
            await inwards.run()
        except (MigrationRefused, PocketMQError):
            is_moved = False
        assert forgetting.said
        leader = way.slave if is_moved else way.master
        await until_async(lambda: led_to(way.admin, leader))
        assert is_moved or way.master.config.start_accept_send_request_time_stamp == 0
        await is_served(way.namesrv, leader)


@pytest.mark.parametrize("step", ["the same", "waiting for offsets", "clients wait", "restart the"])
async def test_outwards_resumes_or_leaves_the_broker_as_it_was(tmp_path: Path, step: str) -> None:
    async with AsyncExitStack() as stack, test_migrate_out.moving(tmp_path) as way:
        forgetting = Forgetting(stack, way.brokers, step)
        outwards = await way.start()
        say = way._say

        def said(line: str) -> None:
            forgetting.at(line)
            say(line)

        way._say = said  # type: ignore[method-assign]
        outwards = await way.again()
        source = await Source.found(way.admin, way.master.config.broker_name)
        facts = await source.facts()
        is_moved = True
        async with asyncio.TaskGroup() as tasks:
            restarting = tasks.create_task(way.restarted())
            try:
                await outwards.run(facts)
            except (MigrationRefused, PocketMQError):
                is_moved = False
                restarting.cancel()
        assert forgetting.said
        # Not undone: the other broker may lead already, and there would be two.
        assert is_moved or step != "restart the"
        leader = restarting.result() if is_moved else way.master
        await until_async(lambda: led_to(way.admin, leader))
        await until_async(lambda: leader.role.leads)
        await is_served(way.admin.name_servers[0], leader)
