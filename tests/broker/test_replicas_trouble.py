"""A slave whose log differs from its master's, or whose master is another than it seems; states and roles."""

import asyncio
import struct
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.broker.ha.taking import fetched_slices
from pocketmq.broker.ha.wire import HaWireError, SliceDecoder, head
from pocketmq.broker.readiness import readiness
from pocketmq.files.records import Entry
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.store.errors import StoreFollows
from pocketmq.store.repair.reader import StoreReader
from tests.broker.filled_brokers import fill
from tests.broker.pairs import (
    Pair,
    caught_up,
    copied_once,
    end_of,
    log_bytes,
    pair,
    state_of,
)
from tests.broker.popping import Popper
from tests.broker.serving import Peer, body_of
from tests.kit.waiting import until_async as until
from tests.store.stores import HOST


async def diverged(brokers: Pair, count: int = 40) -> int:
    """Two masters that were one for so many messages. Returns: the end that they share."""
    master = await brokers.master()
    slave = await brokers.slave()
    async with await Peer.at(master) as peer:
        await fill(peer, count, size=count * 125)
        await caught_up(slave, master)
        common = end_of(slave)
        await brokers.stop("s")
        await fill(peer, 60, topic="lost")
        master.parts.tables.offsets.commit("g", "T", 0, 10_000, "test")
    await brokers.stop("m")
    new = await brokers.master("s")
    async with await Peer.at(new) as peer:
        await fill(peer, 80, topic="kept")
    return common


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


async def _in_trouble(slave: Broker, told: str) -> None:
    await until(lambda: told in state_of(slave).trouble)


async def test_another_end_than_the_masters_is_refused_with_both_ends(tmp_path: Path) -> None:
    """However little the two have in common."""
    async with pair(tmp_path) as brokers:
        common = await diverged(brokers, count=2)
        before = b"".join(log_bytes(tmp_path / "m").values())
        old = await brokers.slave("m")
        await until(lambda: f"they differ from {common} on" in state_of(old).trouble)
        own, theirs = end_of(old), state_of(old).master_end
        assert f"ends at {own}, the master's at {theirs}" in state_of(old).trouble
        await brokers.stop("m")
        after = b"".join(log_bytes(tmp_path / "m").values())
        # An empty file may have been there in advance.
        assert after.rstrip(b"\0") == before.rstrip(b"\0")


@pytest.mark.parametrize("by_hand", [False, True])
async def test_it_is_cut_back_where_that_is_wanted_and_kept_in_a_file(
    tmp_path: Path, by_hand: bool
) -> None:
    async with pair(tmp_path) as brokers:
        common = await diverged(brokers)
        lost = b"".join(log_bytes(tmp_path / "m").values())[common:]
        old = await brokers.slave("m", slave_divergence="refuse" if by_hand else "cut")
        if by_hand:
            await until(lambda: "they differ from" in state_of(old).trouble)
            async with Admin(name_server=brokers.namesrv) as admin:
                assert await admin.replicas.resync(old.address) == state_of(old).cuts
        new = brokers.running["s"]
        await caught_up(old, new)
        kept = state_of(old).cuts
        assert Path(kept[0]).name == f"commitlog-{common:020d}"
        assert lost.startswith(_bytes(kept[0]))
        found = [each for path in kept for each in StoreReader(path).walk()]
        assert [each.topic for each in found if isinstance(each, Entry)] == [b"lost"] * 60
        store = old.parts.messages.store
        assert store.max_offset("lost", 0) == 0
        assert store.max_offset("kept", 0) == new.parts.messages.store.max_offset("kept", 0)
        # An offset of what was cut off would hide what comes in its place.
        assert old.parts.tables.offsets.query("g", "T", 0) <= store.max_offset("T", 0)
        await brokers.stop_all()
    assert log_bytes(tmp_path / "s") == log_bytes(tmp_path / "m")


async def test_a_log_of_another_broker_is_never_followed(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        for name in ("s", "m"):
            broker = await brokers.master(name)
            async with await Peer.at(broker) as peer:
                await fill(peer, 30, topic=f"only-{name}")
            await brokers.stop(name)
        await brokers.master("m")
        slave = await brokers.slave("s", slave_divergence="cut")
        await until(lambda: "nothing in common" in state_of(slave).trouble)
        assert slave.parts.messages.store.max_offset("only-s", 0) > 0


async def test_the_status_and_the_health_of_a_pair(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master(broker_role="SYNC_MASTER")
        async with await Peer.at(master) as peer:
            code = RequestCode.GET_BROKER_HA_STATUS
            alone = body_of(await peer.ask(code))
            assert (alone["master"], alone["inSyncSlaveNums"]) == (True, 0)
            assert "SLAVE_NOT_AVAILABLE" in alone["trouble"]
            assert not readiness(master).checks["replicas"]
            slave = await brokers.slave()
            await until(lambda: readiness(master).checks["replicas"])
            await fill(peer, 10)
            await caught_up(slave, master)
            assert readiness(slave).checks["replicas"]
            figures = {f.metric.name: [s[1] for s in f.samples] for f in snapshot(master)}
            assert (
                figures["pocketmq_replicas_in_sync"] == figures["pocketmq_replicas_wanted"] == [1]
            )
            assert figures["pocketmq_replica_lag_bytes"] == [0]
            assert figures["pocketmq_replica_lag_seconds"] == [0]
            assert figures["pocketmq_replica_following"] == []
            figures = {f.metric.name: [s[1] for s in f.samples] for f in snapshot(slave)}
            assert figures["pocketmq_replica_following"] == [1]
            assert 0 <= figures["pocketmq_replica_metadata_age_seconds"][0] < 600
            found = body_of(await peer.ask(code))
            (row,) = found["haConnectionInfo"]
            assert row["inSync"]
            assert row["slaveAckOffset"] == found["masterCommitLogMaxOffset"] == end_of(slave)
            async with await Peer.at(slave) as other:
                mine = body_of(await other.ask(code))
                assert mine["role"] == "SLAVE"
                assert mine["haClientRuntimeInfo"]["isActivated"]
                assert mine["haClientRuntimeInfo"]["behind"] == 0
            await brokers.stop("s")
            await until(lambda: not readiness(master).checks["replicas"])


async def test_a_role_is_changed_by_a_request(tmp_path: Path) -> None:
    code = PocketRequestCode.CHANGE_ROLE
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer, await Peer.at(slave) as other:
            await fill(peer, 5)
            await caught_up(slave, master)
            refused = await other.ask(code, {"act": "promote"})
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert refused.remark == (
                f"the master {master.address} is online and answers as ASYNC_MASTER: stop or demote it first"
            )
            assert (await peer.ask(code, {"act": "demote", "newBrokerId": 7})).code == 0
            await until(lambda: master.config.broker_id == 7)
            await until(lambda: not state_of(slave).connected)
            assert (await other.ask(code, {"act": "promote"})).code == 0
            assert (await other.produce("T", b"after")).code == ResponseCode.SUCCESS
            await caught_up(master, slave)
            assert (await other.ask(code, {"act": "resync"})).code == 0
            assert (await other.ask(code, {"act": "nonsense"})).code == ResponseCode.SYSTEM_ERROR


async def test_a_slave_asks_for_byte_1_where_0_means_the_last_file() -> None:
    """RocketMQ's does; byte 0 of a log is always 0, and the rest is asked for from 1 on."""
    log = bytes(range(200))

    served: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(writer)
        try:
            asked = int.from_bytes(await reader.readexactly(8), "big") or 100
            writer.write(head(asked, len(log) - asked) + log[asked:])
            await reader.read()
        except ConnectionError:
            pass
        writer.transport.abort()
        await asyncio.sleep(0)
        served.discard(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        assert await fetched_slices(f"{host}:{port}", 0, 20) == log[:20]
        assert await fetched_slices(f"{host}:{port}", 150, 20) == log[150:170]
        await until(lambda: not served, "both connections have ended")


async def test_a_slave_says_which_record_keeps_it_from_following(tmp_path: Path) -> None:
    """A header has no checksum: a queue offset far behind the queue's end would fill the slave's disk."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            await fill(peer, 3, topic="Odd")
        store = master.parts.messages.store
        position = store.entries("Odd", 1, 0, 1)[0][0]
        store.commit_log.files.files[0].map[position + 20] = 0x40
        slave = await brokers.slave()
        said = f"not a record at position {position} (its queue offset is {0x40 << 56}"
        await until(lambda: said in state_of(slave).trouble)
        assert said in slave.parts.services.replication.status()["trouble"]
        await until(lambda: any(said in reason for reason in readiness(slave).reasons))
        assert end_of(slave) == position


async def test_a_master_of_another_ha_protocol_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its configuration, since the first bytes on its port look the same."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer:
            await fill(peer, 3)
        await caught_up(slave, master)
        follower = slave.parts.services.replication.follower
        assert follower is not None
        asked = follower.master.settings
        for name in ("enableControllerMode", "enableDLegerCommitLog", "duplicationEnable"):

            async def settings(name: str = name) -> dict[str, str]:
                return {**await asked(), name: "true"}

            monkeypatch.setattr(follower.master, "settings", settings)
            master.parts.services.replication.listener.drop_all()
            await _in_trouble(slave, f"the master has {name}=true and speaks another protocol")
        assert not state_of(slave).connected
        assert not readiness(slave).checks["replicas"]


def test_slices_of_another_language_are_refused() -> None:
    for offset, size in ((0, -1), (-1, 0), (0, 1 << 30)):
        with pytest.raises(HaWireError, match="it is in controller mode"):
            list(SliceDecoder().feed(struct.pack(">qi", offset, size)))


async def test_a_topic_newer_than_the_copied_tables_is_promoted(
    tmp_path: Path,
) -> None:
    """Its messages are here: members were told that there is no such topic, and what had been popped was
    dropped. One that the master had deleted before stays deleted.
    """
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        now_ms = master.parts.node.clock.now_ms
        async with await Peer.at(master) as peer:
            await peer.produce("Gone", b"old")
            await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
            master.parts.tables.topics.update(TopicConfig("Wide", 2, 2, 4))
            await caught_up(slave, master)
            slave.config.slave_sync_interval = 3_600_000
            await copied_once(slave)
            await peer.produce("New", b"a", queue_id=2)
            master.parts.tables.topics.update(TopicConfig("Wide", 8, 8, 6))
            await peer.produce("Wide", b"b", queue_id=5)
            assert await Popper(peer, now_ms, "New").bodies(invisibleTime=1_000) == [b"a"]
            await until(lambda: end_of(slave) == end_of(master), "the slave has the log")
        await brokers.stop("m")
        await slave.parts.services.replication.promote(force=True)
        topics = slave.parts.tables.topics
        assert topics.get("Gone") is None
        found = [topics.get("New"), topics.get("Wide")]
        assert found == [TopicConfig("New", 3, 3), TopicConfig("Wide", 6, 6, 4)]
        async with await Peer.at(slave) as peer:
            popper = Popper(peer, now_ms, "New")

            async def again() -> bool:
                return await popper.bodies() == [b"a"]

            await until(again, "it comes again")


async def test_a_demoted_master_stores_nothing_after_its_last_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came over gRPC, or had waited for a new topic, was stored meanwhile: it was acknowledged, and
    cut off later.
    """
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        store, listener = master.parts.messages.store, master.parts.services.replication.listener
        finish = listener.finish
        ends: list[int] = []

        async def late(within_ms: int) -> None:
            with pytest.raises(StoreFollows):
                store.append("T", 0, b"late", b"", 0, 0, 0, HOST)
            assert store.following is not None
            ends.append(end_of(master))
            await finish(within_ms)

        monkeypatch.setattr(listener, "finish", late)
        async with await Peer.at(master) as peer:
            await fill(peer, 20)
            await master.parts.services.replication.demote(1)
        assert [end_of(master)] == ends
        await until(lambda: end_of(slave) == end_of(master), "the slave has the rest")
