"""What peers do not send to its end, or do not read, costs a bounded memory, whatever their number."""

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.transport.tls import client_context
from tests.broker.serving import Peer
from tests.faults.watching import Watched, watched

CODE = RequestCode
MIB = 1 << 20
LARGE = 3 * MIB


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Watched]:
    async with watched(
        tmp_path, half_frames_max_size=32 * MIB, unread_max_size=32 * MIB
    ) as running:
        yield running


async def park(peer: Peer, count: int) -> None:
    """Pulls that wait; the peer reads nothing of what comes then."""
    for _ in range(count):
        peer.send_pull("g", "T", 1, sys_flag=6, subscription="*", suspendTimeoutMillis=60_000)
    # Answered in order, so that all of them wait now.
    await peer.ask(CODE.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("connections", "each"), [(1, 200), (60, 2)])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_peers_that_do_not_read_cost_a_bounded_memory(
    broker: Watched, tls: bool, connections: int, each: int
) -> None:
    """200 pulls wait for one message of 3 MB, and no client reads it. It was 1.8 GB with TLS."""
    async with await Peer.at(broker) as good:
        assert (await good.produce("T", b"first")).code == ResponseCode.SUCCESS
        await good.bodies("g", "T")
        context = client_context() if tls else None
        peers = [await Peer.at(broker, context) for _ in range(connections)]
        for peer in peers:
            await park(peer, each)
        before = broker.rss
        assert (await good.produce("T", b"x" * LARGE)).code == ResponseCode.SUCCESS
        await broker.worst_turn_ms()
        # Who reads is served meanwhile.
        assert await good.bodies("g", "T", 1) == [b"x" * LARGE]
        assert broker.rss - before < 40 * MIB
        for peer in peers:
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for peer in peers:
            for _ in range(each):
                assert len((await peer.next()).body) > LARGE
        for peer in peers:
            await peer.close()


async def test_half_frames_of_all_connections_cost_a_bounded_memory(broker: Watched) -> None:
    """40 peers that send 16 MB less one byte of a frame, and stop there."""
    half = struct.pack(">I", 16 * MIB - 4) + bytes(16 * MIB - 5)
    before = broker.rss
    peers = [await Peer.at(broker) for _ in range(40)]
    for peer in peers:
        peer.writer.write(half)
    async with await Peer.at(broker) as good:
        for number in range(20):
            assert (await good.produce("T", b"%d" % number)).code == ResponseCode.SUCCESS
        assert broker.rss - before < 120 * MIB
    for peer in peers:
        peer.writer.transport.abort()
