"""A broker as it comes and what tests connect to it; a file that needs another has a fixture of its name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.transport.client import RemotingClient
from tests.broker.admin_site import Site
from tests.broker.serving import Peer, number, serving


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[Peer]:
    async with await Peer.at(broker) as connected:
        yield connected


@pytest.fixture
async def good(broker: Broker) -> AsyncIterator[Peer]:
    """The client beside: it must be served before and after."""
    async with await Peer.at(broker) as peer:
        assert (await peer.produce("T", b"before")).code == ResponseCode.SUCCESS
        yield peer
        last = number(await peer.produce("T", b"after"), "queueOffset")
        assert (await peer.bodies("g", "T"))[0] == b"before"
        assert await peer.bodies("g", "T", last) == [b"after"]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    clock = SystemClock()
    async with (
        NameServer(NamesrvConfig(listen_port=0), clock) as namesrv,
        RemotingClient({}, clock) as client,
    ):
        made = Site(tmp_path, namesrv, client)
        async with made.broker:
            yield made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
