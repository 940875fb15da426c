"""A gRPC front of a broker with a topic of each kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.model.tables import TopicConfig
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import front


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Asking]:
    kinds = {"F": "FIFO", "D": "DELAY", "X": "TRANSACTION", "M": "MIXED"}
    async with front(tmp_path, kinds) as (broker, server), asking(server.address) as asked:
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        yield asked
