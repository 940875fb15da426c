"""Progress, promotion and demotion: groups continue where they were."""

import time
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.refused import Refused
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.filled_brokers import fill
from tests.broker.pairs import (
    caught_up,
    copied,
    copied_once,
    end_of,
    log_bytes,
    pair,
    state_of,
)
from tests.broker.popping import Popper
from tests.broker.serving import Peer, number
from tests.broker.transactions import ending, prepare
from tests.kit.waiting import until_async as until


def _position(broker: Broker, offset: int) -> int:
    return broker.parts.messages.store.entries("T", 0, offset, 1)[0][0]


async def _commit(peer: Peer, group: str, offset: int) -> None:
    ext = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
    assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


def _has(broker: Broker, body: bytes, topic: str = "T") -> bool:
    result = broker.parts.messages.store.read(topic, 0, 0, 1_000)
    return any(body in bytes(buffer) for buffer in result.buffers)


async def test_progress_is_copied_after_the_log_it_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promoted in between, the slave would take for done what it never got: pops, delays, timers."""
    monkeypatch.setattr("pocketmq.broker.ha.table_sync._LOOKS_MAX", 1)
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer:
            await peer.produce("T", b"first")
            await peer.produce("T", b"second")
            popper = Popper(peer, master.clock.now_ms, group="p")
            taken = await popper.pop(maxMsgNums=1)
            assert [each.body for each in taken] == [b"first"]
            await peer.produce("U", b"delayed", DELAY="1")
            await peer.produce("U", b"timed", TIMER_DELIVER_MS=str(master.clock.now_ms() + 1_000))
            await caught_up(slave, master)
            # The network takes nothing more of the log.
            (connection,) = master.parts.services.replication.listener.connections
            connection.pause_writing()
            taken = await popper.pop(maxMsgNums=1)
            assert [each.body for each in taken] == [b"second"]
        store = master.parts.messages.store
        await until(lambda: store.max_offset("U", 0) == 2, "both are delivered at the master")
        check = master.parts.services.timer.check
        now_ms = master.clock.now_ms()
        await until(lambda: check.read_ms >= now_ms, "the timers' progress says so")
        await copied(slave)
        assert end_of(slave) < end_of(master)
        await slave.parts.services.replication.promote(force=True)
        async with await Peer.at(slave) as peer:
            popper = Popper(peer, slave.clock.now_ms, group="p")
            assert [each.body for each in await popper.pop()] == [b"second"]
        await until(lambda: _has(slave, b"delayed", "U"))
        await until(lambda: _has(slave, b"timed", "U"))


async def test_new_groups_start_equally_on_a_slave_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they have in hand or have sent back is not in the slave's log; no half message is skipped."""
    monkeypatch.setattr("pocketmq.broker.ha.table_sync._LOOKS_MAX", 1)
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        isolate = {"attributes": {"group.mode": "isolate"}}
        master.parts.tables.groups.update(GroupConfig("i", extra=isolate))
        slave = await brokers.slave()
        async with await Peer.at(master) as peer:
            for body in (b"first", b"second", b"third"):
                await peer.produce("T", body)
            half = await prepare(peer)
            await peer.heartbeat("i", {"T": "*"})
            await caught_up(slave, master)
            (connection,) = master.parts.services.replication.listener.connections
            connection.pause_writing()
            end = end_of(slave)
            popper = Popper(peer, master.clock.now_ms, group="p")
            assert len(await popper.pop(maxMsgNums=3)) == 3
            for group in ("g", "i"):
                assert await peer.bodies(group, "T", 1) == [b"second", b"third"]
                back = {"group": group, "offset": _position(master, 1), "delayLevel": 1}
                assert (await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
                await _commit(peer, group, 3)
            assert (await peer.ask(RequestCode.END_TRANSACTION, ending(half, 8))).code == 0
            await master.parts.services.check.check()
            assert master.parts.services.half.half_offset == 1
            # It did not begin at this master: a slave takes what it is told.
            master.parts.tables.offsets.commit("old", "T", 0, 2, "test")
            await copied(slave)
        assert end_of(slave) == end < end_of(master)
        await slave.parts.services.replication.promote(force=True)
        offsets = slave.parts.tables.offsets
        assert {group: offsets.query(group, "T", 0) for group in ("p", "g", "i", "old")} == (
            {"p": 0, "g": 1, "i": 1, "old": 2}
        )
        # The sub-group is a member's that was copied; what it has done since is not in this log.
        (sub_group,) = slave.parts.tables.isolated.describe("i")
        assert "T" not in sub_group["queues"]
        assert slave.parts.services.half.waiting_count == 1
        async with await Peer.at(slave) as peer:
            popper = Popper(peer, slave.clock.now_ms, group="p")
            assert len(await popper.pop(maxMsgNums=3)) == 3


async def test_a_promoted_slave_goes_on_where_its_master_ended(tmp_path: Path) -> None:
    """Messages, delays, half messages, offsets; then the old one comes back as its slave."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer:
            await fill(peer, 30)
            await peer.produce("T", b"late", DELAY="1")
            master.parts.tables.offsets.commit("g", "T", 0, 3, "test")
            # As of a group that had read what never came here.
            master.parts.tables.offsets.commit("ahead", "T", 0, 1_000, "test")
            await caught_up(slave, master)
        with pytest.raises(Refused, match="stop or demote it first"):
            await slave.parts.services.replication.promote()
        await brokers.stop("m")
        end = end_of(slave)
        # As of a master whose log was cut back when it followed: what comes next would be skipped.
        slave.parts.services.delay.offsets[3] = 9
        await slave.parts.services.replication.promote()
        assert slave.parts.services.delay.offsets[3] == 0
        assert slave.config.broker_id == 0
        async with await Peer.at(slave) as peer:
            before = slave.parts.messages.store.max_offset("T", 0)
            assert number(await peer.produce("T", b"new"), "queueOffset") >= before
            await until(lambda: _has(slave, b"late"))
            assert slave.parts.tables.offsets.query("g", "T", 0) == 3
            assert slave.parts.tables.offsets.query("ahead", "T", 0) == before
            back = await brokers.slave("m")
            await caught_up(back, slave)
            assert end_of(back) > end
            await fill(peer, 20)
            await caught_up(back, slave)
        await brokers.stop_all()
    assert log_bytes(tmp_path / "s") == log_bytes(tmp_path / "m")


async def test_what_came_and_is_no_record_is_led_past_only_by_force(tmp_path: Path) -> None:
    """Refused, it remains the slave that it was."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer:
            await fill(peer, 3)
            await caught_up(slave, master)
        await brokers.stop("m")
        await until(lambda: not state_of(slave).connected)
        replication, store = slave.parts.services.replication, slave.parts.messages.store
        assert store.following is not None
        end = end_of(slave)
        store.following.receive(b"\x01" * 200)
        with pytest.raises(Refused, match="force the promotion"):
            await replication.promote()
        assert replication.follower is not None
        assert slave.config.broker_role == "SLAVE"
        await replication.promote(force=True)
        async with await Peer.at(slave) as peer:
            assert (await peer.produce("T", b"new")).code == ResponseCode.SUCCESS
        assert end_of(slave) > end
        assert slave.parts.messages.store.max_offset("T", 0) == 2


async def test_a_demoted_master_follows_the_new_one(tmp_path: Path) -> None:
    """What it had stored and been told is with the new one, whose last round of tables was long ago."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer, await Peer.at(slave) as other:
            await fill(peer, 10)
            await caught_up(slave, master)
            slave.config.slave_sync_interval = 60_000
            await copied_once(slave)
            await fill(peer, 10)
            master.parts.tables.offsets.commit("g", "T", 0, 2, "test")
            await master.parts.services.replication.demote(2)
            assert end_of(slave) == end_of(master)
            assert (await peer.produce("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            # The new one asks the old one, which is no master any more.
            await until(lambda: f"{master.address} is a slave, too" in state_of(slave).trouble)
            await slave.parts.services.replication.promote("SYNC_MASTER")
            assert slave.parts.tables.offsets.query("g", "T", 0) == 2
            await until(lambda: state_of(master).connected)
            await until(lambda: slave.parts.messages.durability.replicas.slaves.in_sync_count == 1)
            assert (await other.produce("T", b"again")).code == ResponseCode.SUCCESS
            await caught_up(master, slave)
        await brokers.stop_all()
    assert log_bytes(tmp_path / "s") == log_bytes(tmp_path / "m")


async def test_a_queue_emptied_before_the_slave_came_continues(
    tmp_path: Path,
) -> None:
    """Nothing in the log that it is sent speaks of the queue; its offsets do not begin anew all the same."""
    clock = ManualClock(time.time_ns() // 1_000_000 + 100 * 3_600_000)
    async with pair(tmp_path) as brokers:
        master = await brokers.master(clock=clock)
        async with await Peer.at(master) as peer:
            for body in (b"1", b"2", b"3"):
                await peer.produce("Early", body)
            master.parts.tables.offsets.commit("g", "Early", 0, 3, "test")
            await fill(peer, 200)
        store = master.parts.messages.store
        assert store.delete_expired_files() > 0
        assert (store.min_offset("Early", 0), store.max_offset("Early", 0)) == (0, 3)
        for _ in range(2):
            slave = await brokers.slave(clock=clock)
            await caught_up(slave, master)
            assert slave.parts.messages.store.commit_log_min_position > 0
            assert slave.parts.messages.store.next_offset("Early", 0) == 3
            await brokers.stop("s")
        slave = await brokers.slave(clock=clock)
        await brokers.stop("m")
        await slave.parts.services.replication.promote()
        assert slave.parts.tables.offsets.query("g", "Early", 0) == 3
        async with await Peer.at(slave) as peer:
            assert number(await peer.produce("Early", b"4"), "queueOffset") == 3
            assert await peer.bodies("g", "Early", 3) == [b"4"]
