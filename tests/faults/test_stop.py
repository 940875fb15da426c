"""A stop ends the broker, whatever its clients leave unread."""

import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.transport.tls import client_context
from tests.broker.serving import Peer
from tests.cli.servers import Server
from tests.faults.test_memory import LARGE, MIB, park
from tests.faults.watching import cpu_s, memory

# As many as may wait for one queue, for 800.
_EACH = 5
_PATIENCE_MS = 120_000
# What each peer that does not read may cost: encrypted ahead of its reading, and at the stop.
_SIZE_MAX = MIB // 4
_STOP_MS_MAX = 5


def children_s() -> float:
    """CPU time of the children that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def test_sigterm_ends_it_beside_tls_peers_that_do_not_read(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """800 of them with --tls-peers 800, and five answers of 3 MB for each: it took more than 30 s."""
    count = int(request.config.getoption("--tls-peers"))
    server = Server(tmp_path, "up", "--namesrv-port", "0", "--broker-port", "0", "--data", "store")
    try:
        broker = SimpleNamespace(listen_address=server.ready()["broker"])
        pid = server.process.pid
        context = client_context()
        async with await Peer.at(broker) as good, await Peer.at(broker, context) as last:
            assert (await good.produce("T", b"first")).code == ResponseCode.SUCCESS
            peers = [await Peer.at(broker, context) for _ in range(count)]
            for peer in peers:
                await park(peer, _EACH)
            await park(last, 1)
            last.writer.transport.resume_reading()  # type: ignore[attr-defined]
            before = memory(pid, "RssAnon")
            assert (await good.produce("T", b"x" * LARGE)).code == ResponseCode.SUCCESS
            # They are answered in the order in which they came.
            assert len((await last.next(_PATIENCE_MS)).body) > LARGE
            assert memory(pid, "RssAnon") - before < 40 * MIB + count * _SIZE_MAX
            used = cpu_s(pid) + children_s()
            assert server.stop() == 0
            assert children_s() - used < 1 + count * _STOP_MS_MAX / 1000
        assert not (tmp_path / "store" / "abort").exists()
        for peer in peers:
            peer.writer.transport.abort()
    finally:
        server.kill()
