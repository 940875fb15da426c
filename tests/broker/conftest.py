"""A broker as it comes, and a connection to it; a file that needs another has a fixture of that name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from tests.broker.serving import Peer, serving


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[Peer]:
    async with await Peer.at(broker) as connected:
        yield connected
