"""How far slaves are behind, which count, and what a stop answers."""

import asyncio
import socket
from pathlib import Path

import pytest

from pocketmq.broker.figures.metrics import snapshot
from pocketmq.broker.ha.flow import Flow
from pocketmq.broker.ha.listener import SlaveConnection
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.raw_slave import RawSlave
from tests.broker.replicating_master import SEND_V2, await_slave, end_of, master, slaves
from tests.kit.waiting import until_async as until


async def test_how_far_a_slave_is_behind_in_bytes_and_in_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    async with master(tmp_path, clock=clock) as (broker, peer):
        async with await RawSlave.at(broker) as slave:
            await peer.produce("T")
            slave.report(end_of(broker))
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            had, before = clock.monotonic_ms(), end_of(broker)
            known = broker.parts.messages.durability.replicas.slaves
            await until(lambda: bool(known._ends))
            await peer.produce("T")
            clock.advance_ms(7_000)
            await until(lambda: known._ends[-1][1] == had + 7_000)
            figures = {f.metric.name: [s[1] for s in f.samples] for f in snapshot(broker)}
            assert figures["pocketmq_replica_lag_bytes"] == [end_of(broker) - before]
            assert figures["pocketmq_replica_lag_seconds"] == [7]
            slave.report(end_of(broker))
            await until(lambda: slaves(broker)[0].acked == end_of(broker))
            figures = {f.metric.name: [s[1] for s in f.samples] for f in snapshot(broker)}
            assert figures["pocketmq_replica_lag_seconds"] == [0]


async def test_a_slave_too_far_behind_does_not_count(tmp_path: Path) -> None:
    async with master(tmp_path, broker_role="SYNC_MASTER", ha_max_gap_not_in_sync=50_000) as (
        broker,
        peer,
    ):
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            while end_of(broker) <= 50_000:
                await peer.produce("T", b"x" * 10_000, WAIT="false")
            assert (await peer.produce("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            await slave.take(end_of(broker))
            slave.report(end_of(broker))
            await until(lambda: slaves(broker)[0].acked == end_of(broker))
            opaque = peer.send(RequestCode.SEND_MESSAGE_V2, SEND_V2, b"b")
            replicas = broker.parts.messages.durability.replicas
            await until(lambda: replicas.waiting == 1)
            slave.report(end_of(broker))
            assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS


async def test_disk_and_slaves_are_both_waited_for(tmp_path: Path) -> None:
    """The flush begins with the send, not with the slaves' answer."""
    async with master(
        tmp_path,
        clock=ManualClock(),
        broker_role="SYNC_MASTER",
        store={"flush_disk_type": "SYNC_FLUSH"},
    ) as (broker, peer):
        store = broker.parts.messages.store
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            opaque = peer.send(RequestCode.SEND_MESSAGE_V2, SEND_V2, b"b")
            replicas = broker.parts.messages.durability.replicas
            await until(lambda: replicas.waiting == 1)
            await until(lambda: store.flushed_position == end_of(broker) > 0)
            assert replicas.waiting == 1
            slave.report(end_of(broker))
            assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS


async def test_who_was_on_its_way_in_at_the_stop_is_turned_away(tmp_path: Path) -> None:
    async with master(tmp_path) as (broker, _):
        listener = broker.parts.services.replication.listener
        assert listener._server is not None
        loop, closed = asyncio.get_running_loop(), await RawSlave.at(broker)
        await until(lambda: len(listener.connections) == 1)
        await listener.close()
        assert await closed.ended()
        near, far = socket.socketpair()
        with far:
            far.setblocking(False)
            await loop.connect_accepted_socket(lambda: SlaveConnection(listener), near)
            try:
                assert await loop.sock_recv(far, 1) == b""
            except ConnectionError:
                pass
        assert not listener.connections
        await closed.__aexit__()


async def test_a_stop_answers_who_waits(tmp_path: Path) -> None:
    async with await_slave() as taken:
        async with master(tmp_path, clock=ManualClock(), broker_role="SYNC_MASTER") as (
            broker,
            peer,
        ):
            taken.append(await RawSlave.at(broker))
            taken[0].report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            replicas = broker.parts.messages.durability.replicas
            answered: list[ResponseCode] = []
            assert (await peer.produce("T", WAIT="false")).code == ResponseCode.SUCCESS
            assert replicas.ask(end_of(broker), answered.append) is None
            taken[0].writer.transport.abort()
        assert answered == [ResponseCode.FLUSH_SLAVE_TIMEOUT]


@pytest.mark.parametrize(("asked_ms", "bytes_a_second"), [(1_999, 0), (2_000, 30), (3_000, 0)])
def test_a_flow_is_that_of_the_last_whole_second(asked_ms: int, bytes_a_second: int) -> None:
    flow = Flow()
    flow.add(10, 1_000)
    flow.add(20, 1_999)
    assert flow.per_second(asked_ms) == bytes_a_second
    assert flow.total == 30
