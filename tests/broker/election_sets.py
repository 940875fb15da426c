"""A name server, a controller and a set of brokers in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.election.replication import ElectedReplication
from pocketmq.controller import Controller, ControllerConfig
from pocketmq.controller.keeping import FileKeeper
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import ConfigFile
from tests.broker.pairs import Pair, end_of, name_server
from tests.kit.waiting import until_async as until


class Set(Pair):
    """Brokers whose roles a controller decides."""

    def __init__(self, folder: Path, namesrv: str, controllers: str) -> None:
        """controllers: their addresses."""
        super().__init__(folder, namesrv)
        self.controllers = controllers

    async def member(self, name: str, **settings: Any) -> Broker:
        how = {
            "enable_controller_mode": True,
            "controller_addr": self.controllers,
            "broker_heartbeat_interval": 200,
            "sync_broker_metadata_period": 500,
            "slave_timeout": 15_000,
            **settings,
        }
        return await self.start(name, **how)

    async def of(self, count: int, **settings: Any) -> list[Broker]:
        """Start that many, the first of which leads, and wait until all are in sync."""
        found = []
        for number in range(count):
            broker = await self.member(f"b{number}", **settings)
            found.append(broker)
            if not number:
                await until(lambda: leads(found[0]), "the first broker leads")
        await self.in_sync(found)
        return found

    async def in_sync(self, brokers: list[Broker]) -> Broker:
        """Wait until one of them leads and all of them are in sync; return it."""

        def is_so() -> bool:
            ids = {replication_of(each).in_sync.own_id for each in brokers}
            masters = [each for each in brokers if leads(each)]
            return len(masters) == 1 and replication_of(masters[0]).in_sync.confirmed == ids

        await until(is_so, "one leads and all are in sync")
        return next(each for each in brokers if leads(each))


@asynccontextmanager
async def controlled(folder: Path) -> AsyncIterator[Set]:
    async with (
        name_server() as namesrv,
        Controller(
            ControllerConfig(listen_port=0, heartbeat_timeout=2_000),
            SystemClock(),
            FileKeeper(ConfigFile(str(folder / "controller.json"))),
        ) as controller,
    ):
        await controller.listen()
        found = Set(folder, namesrv, controller.address)
        try:
            yield found
        finally:
            await found.stop_all()


def replication_of(broker: Broker) -> ElectedReplication:
    found = broker.parts.services.replication
    assert isinstance(found, ElectedReplication)
    return found


def leads(broker: Broker) -> bool:
    return not replication_of(broker).follows


async def equal(brokers: list[Broker]) -> None:
    """Wait until all logs have the same end."""
    await until(lambda: len({end_of(each) for each in brokers}) == 1, "all logs end alike")
