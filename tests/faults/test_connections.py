"""R11: many idle connections cost little memory and are taken quickly, while active ones are served."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode
from tests.broker.serving import Peer
from tests.faults.watching import Watched, cpu_s, watched

SIZE_MAX = 8 << 10
RATE_MIN = 2_000
_ACTIVE_SHARE = 20
_SENDS = 10


def opened(broker: Watched, count: int) -> list[socket.socket]:
    """Connections that the broker has taken: each has asked something once."""
    host, _, port = broker.listen_address.rpartition(":")
    frame = encode(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}))
    found = []
    for _ in range(count):
        each = socket.create_connection((host, int(port)), timeout=60)
        each.sendall(frame)
        found.append(each)
    for each in found:
        assert each.recv(4096)
    return found


async def test_idle_connections_are_cheap_and_active_ones_are_served(
    tmp_path: Path, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """10,000 idle and 500 active ones with --connections 10000: at most 8 KB each, 2,000 taken a second."""
    count = int(request.config.getoption("--connections"))
    async with watched(tmp_path) as broker, await Peer.at(broker) as good:
        assert (await good.produce("T", b"first")).code == ResponseCode.SUCCESS
        idle = await asyncio.to_thread(opened, broker, 100)
        rss, cpu = broker.rss, cpu_s(broker.pid)
        idle += await asyncio.to_thread(opened, broker, count)
        rate = count / (cpu_s(broker.pid) - cpu)
        size = (broker.rss - rss) / count
        active = [await Peer.at(broker) for _ in range(count // _ACTIVE_SHARE)]
        await broker.worst_turn_ms()

        async def send(peer: Peer) -> None:
            for _ in range(_SENDS):
                assert (await peer.produce("T", b"x" * 100)).code == ResponseCode.SUCCESS

        async with asyncio.TaskGroup() as tasks:
            for peer in active:
                tasks.create_task(send(peer))
        figures = f"{size:.0f} bytes each, {rate:.0f} taken a CPU second"
        record_property("figures", figures)
        for each in idle:
            each.close()
        for peer in active:
            await peer.close()
        assert size <= SIZE_MAX, figures
        assert rate >= RATE_MIN, figures
