"""A name server, and brokers of one name in this process: a master and those that follow it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.taking import FollowState
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from tests.broker.serving import serving
from tests.kit.waiting import until_async as until

FILE = 64 << 10


@asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    """Its address."""
    async with NameServer(NamesrvConfig(listen_port=0), SystemClock()) as running:
        yield await running.listen()


class Pair:
    """Brokers that can be started and stopped one by one, each on a folder of its own."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self._folder = folder
        self.namesrv = namesrv
        self._stacks: dict[str, AsyncExitStack] = {}
        self.running: dict[str, Broker] = {}

    async def start(self, name: str, **settings: Any) -> Broker:
        store = {"mapped_file_size_commit_log": FILE, **settings.pop("store", {})}
        stack = AsyncExitStack()
        how = {"slave_sync_interval": 100, **settings}
        broker = await stack.enter_async_context(
            serving(self._folder / name, store=store, namesrv_addr=self.namesrv, **how)
        )
        self._stacks[name] = stack
        self.running[name] = broker
        return broker

    async def master(self, name: str = "m", **settings: Any) -> Broker:
        return await self.start(name, **settings)

    async def slave(self, name: str = "s", **settings: Any) -> Broker:
        return await self.start(name, **{"broker_role": "SLAVE", "broker_id": 1, **settings})

    async def stop(self, name: str) -> None:
        await self._stacks.pop(name).aclose()

    async def stop_all(self) -> None:
        for name in list(self._stacks):
            await self.stop(name)


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    async with name_server() as namesrv:
        found = Pair(folder, namesrv)
        try:
            yield found
        finally:
            await found.stop_all()


def end_of(broker: Broker) -> int:
    return broker.parts.messages.store.commit_log_max_position


def state_of(slave: Broker) -> FollowState:
    follower = slave.parts.services.replication.follower
    assert follower is not None
    return follower.state


async def caught_up(slave: Broker, master: Broker) -> None:
    """Wait until the slave has the master's log, and then its tables."""
    await until(lambda: end_of(slave) == end_of(master), "the slave has the end of the log")
    await copied(slave)


async def copied(slave: Broker) -> None:
    """Wait for a whole round of tables that begins later than now."""
    for _ in range(2):
        await copied_once(slave)


async def copied_once(slave: Broker) -> None:
    """Wait for the end of a round of tables."""
    metadata = slave.parts.services.replication.metadata
    assert metadata is not None
    before = metadata.rounds
    await until(lambda: metadata.rounds > before)


def log_bytes(folder: Path) -> dict[str, bytes]:
    """The files of a store's log."""
    return {path.name: path.read_bytes() for path in sorted((folder / "commitlog").iterdir())}
