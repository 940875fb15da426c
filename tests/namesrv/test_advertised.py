"""What address a client is told: that by which it came in, or the port that is mapped to the broker's."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.client import Message, Producer
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.testing.in_process import SETTINGS
from tests.kit.rough_proxy import RoughProxy


@asynccontextmanager
async def site(
    folder: Path, *, apart: bool = False, **settings: object
) -> AsyncIterator[tuple[NameServer, Broker]]:
    """A name server and a broker at 127.0.0.1 and .2. apart: the broker registers over a connection."""
    async with NameServer(
        NamesrvConfig(listen_port=0, route_by_client=True), SystemClock()
    ) as names:
        port = int((await names.listen()).rpartition(":")[2])
        names.config.bind_address, names.config.listen_port = "127.0.0.2", port
        await names.listen()
        texts = {**SETTINGS, **settings, "storePathRootDir": folder}
        if apart:
            texts["namesrvAddr"] = f"127.0.0.1:{port}"
        config, store = read_broker_conf({key: str(value) for key, value in texts.items()})
        local = None if apart else names.local
        async with Broker(config, store, clock=SystemClock(), name_server=local) as broker:
            await broker.server.listen("127.0.0.2", config.listen_port)
            yield names, broker


async def told(namesrv: str) -> str:
    async with Admin(name_server=namesrv) as admin:
        [broker] = await admin.brokers()
        return broker.address


@pytest.mark.parametrize("apart", [False, True], ids=["one process", "registered"])
async def test_a_client_is_told_the_address_by_which_it_has_come_in(
    tmp_path: Path, apart: bool
) -> None:
    async with site(tmp_path, apart=apart) as (names, broker):
        port = broker.config.listen_port
        asked = int(names.address.rpartition(":")[2])
        for host in ("127.0.0.1", "127.0.0.2"):
            assert await told(f"{host}:{asked}") == f"{host}:{port}"
            async with Producer("P", name_server=f"{host}:{asked}") as producer:
                await producer.send(Message("T", b"x"))
                reached = {each.local for each in broker.server.connections}
            assert f"{host}:{port}" in reached
        names.config.route_by_client = False
        assert await told(f"127.0.0.2:{asked}") == f"127.0.0.1:{port}"


async def test_behind_mapped_ports_clients_are_told_the_mapped_one(tmp_path: Path) -> None:
    """As with a container's published ports: both go through proxies, message ids too."""
    chance = random.Random(1)
    async with RoughProxy(0, chance) as to_names, RoughProxy(0, chance) as to_broker:
        async with site(tmp_path, advertisedPort=to_broker.port) as (names, broker):
            to_names.target = int(names.address.rpartition(":")[2])
            to_broker.target = broker.config.listen_port
            namesrv = f"127.0.0.1:{to_names.port}"
            assert await told(namesrv) == f"127.0.0.1:{to_broker.port}"
            async with Producer("P", name_server=namesrv) as producer:
                sent = await producer.send(Message("T", b"mapped"))
            async with Admin(name_server=namesrv) as admin:
                found = await admin.messages.by_offset_id(sent.offset_msg_id)
            assert found.body == b"mapped"
            assert to_broker.passed > 0
