"""A master, its slaves, and requests that wait for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.slaves import Slave
from tests.broker.raw_slave import RawSlave
from tests.broker.serving import Peer, serving

FILE = 64 << 10


def end_of(broker: Broker) -> int:
    return broker.parts.messages.store.commit_log_max_position


def slaves(broker: Broker) -> list[Slave]:
    return broker.parts.messages.durability.replicas.slaves.connected


@asynccontextmanager
async def master(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Peer]]:
    """A master with small files, and a client."""
    store = {"mapped_file_size_commit_log": FILE, **settings.pop("store", {})}
    async with (
        serving(folder, store=store, **settings) as broker,
        await Peer.at(broker) as peer,
    ):
        yield broker, peer


@asynccontextmanager
async def await_slave() -> AsyncIterator[list[RawSlave]]:
    """Closes the slaves that are put into it."""
    taken: list[RawSlave] = []
    try:
        yield taken
    finally:
        for each in taken:
            await each.__aexit__()


SEND_V2 = {
    "a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "K\x01v",
    "j": 0, "k": False, "m": False,
}  # fmt: skip
