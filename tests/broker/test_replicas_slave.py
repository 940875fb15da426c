"""A slave of ours at a master of ours: log, tables, silence, reads, promotion."""

import asyncio
import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.broker.ha.introduction import signer
from pocketmq.broker.ha.taking import fetched_slices
from pocketmq.broker.ha.wire import HaWireError, SliceDecoder, head
from pocketmq.broker.readiness import readiness
from pocketmq.broker.refused import Refused
from pocketmq.files.records import Entry
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.store.errors import StoreFollows
from pocketmq.store.repair.reader import StoreReader
from tests.broker.pairs import (
    Pair,
    caught_up,
    copied,
    copied_once,
    end_of,
    log_bytes,
    pair,
    state_of,
)
from tests.broker.popping import Popper
from tests.broker.raw_slave import RawSlave
from tests.broker.serving import Peer, body_of, number
from tests.broker.test_transaction import ending, prepare
from tests.kit.waiting import until_async as until
from tests.store.stores import HOST


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave asks again and again for a master that a test has yet to start."""
    monkeypatch.setattr("pocketmq.broker.ha.follower.RETRY_MS", 50)


async def fill(peer: Peer, count: int = 60, size: int = 5_000, topic: str = "T") -> None:
    for number_ in range(count):
        answer = await peer.produce(topic, b"%d " % number_ + b"x" * size, queue_id=number_ % 4)
        assert answer.code == ResponseCode.SUCCESS


async def test_a_slave_has_the_log_and_the_queues_of_its_master(tmp_path: Path) -> None:
    """From an empty store, over several files, then what comes, then after a restart of either."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            await fill(peer)
            slave = await brokers.slave()
            await caught_up(slave, master)
            await fill(peer, 20)
            await caught_up(slave, master)
            await brokers.stop("s")
            await fill(peer, 20)
            slave = await brokers.slave()
            await caught_up(slave, master)
            store = slave.parts.messages.store
            assert store.queues() == master.parts.messages.store.queues()
            for topic, queue_id in store.queues():
                assert store.entries(topic, queue_id, 0, 100) == (
                    master.parts.messages.store.entries(topic, queue_id, 0, 100)
                )
        await brokers.stop("m")
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            await fill(peer, 5)
            await caught_up(slave, master)
        await brokers.stop_all()
    assert log_bytes(tmp_path / "s") == log_bytes(tmp_path / "m")


async def test_a_slave_of_a_master_whose_log_begins_later(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            await fill(peer)
        files = master.parts.messages.store.commit_log.files.files
        files.pop(0)
        slave = await brokers.slave()
        await caught_up(slave, master)
        assert slave.parts.messages.store.commit_log_min_position == files[0].start > 0


async def test_a_late_slave_has_no_queues_of_deleted_topics(tmp_path: Path) -> None:
    """The log brings their records, and promoted it would give them to a new topic of that name."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            for topic in ("Gone", "Again"):
                await peer.produce(topic, b"old")
                await peer.produce(topic, b"old")
                request = {"topic": topic}
                assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, request)).code == 0
            await peer.produce("Again", b"new")
        slave = await brokers.slave()
        await caught_up(slave, master)
        await copied(slave)
        store = slave.parts.messages.store
        assert (store.queues(), store.max_offset("Again", 0)) == ([("Again", 0)], 1)


async def test_a_slave_that_waits_for_its_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told of a master that registers later, without a restart."""
    async with pair(tmp_path) as brokers:
        slave = await brokers.slave()
        await until(lambda: "no master" in state_of(slave).trouble)
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            await fill(peer, 5)
        await caught_up(slave, master)
        # A server that claims its name may send anything.
        identity = master.registration.identity
        await master.registration.become(replace(identity, ha_address="127.0.0.1:99999"))
        master.parts.services.replication.listener.drop_all()
        await until(lambda: "'127.0.0.1:99999', the master's port" in caplog.text)
        await master.registration.become(identity)
        await until(lambda: state_of(slave).connected)


async def test_an_empty_master_is_followed_from_its_first_byte_on(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        await copied(slave)
        async with await Peer.at(master) as peer:
            await fill(peer, 3)
        await caught_up(slave, master)


async def test_the_size_of_the_files_is_the_masters(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            await fill(peer)
        slave = await brokers.slave(store={"mapped_file_size_commit_log": 1 << 20})
        await caught_up(slave, master)
        await brokers.stop_all()
    assert log_bytes(tmp_path / "s") == log_bytes(tmp_path / "m")


async def test_topics_groups_and_offsets_are_copied(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        tables = master.parts.tables
        tables.topics.update(TopicConfig("made", 3, 5))
        tables.topics.update(TopicConfig("gone", 1, 1))
        async with await Peer.at(master) as peer:
            await fill(peer, 4, 100, "forgotten")
            await fill(peer, 4, 100, "deleted")
        tables.groups.update(GroupConfig("g", retry_max_times=7))
        tables.offsets.commit("g", "made", 2, 41, "test")
        tables.offsets.commit("g", "made", 1, 9, "test")
        slave = await brokers.slave()
        await caught_up(slave, master)
        await copied(slave)
        mine = slave.parts.tables
        assert mine.topics.topics == tables.topics.topics
        assert mine.groups.groups == tables.groups.groups
        assert mine.offsets.offsets["made@g"] == {2: 41, 1: 9}
        # The larger one wins, but for an offset that was set back at the master.
        mine.offsets.commit("g", "made", 2, 50, "test")
        tables.offsets.commit("g", "made", 1, 4, "test")
        tables.topics.delete("gone")
        # As after the loss of its table: the records are in its log and its queues. It still serves them.
        tables.topics.delete("forgotten")
        async with await Peer.at(master) as peer:
            assert (
                await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "deleted"})
            ).code == 0
        tables.topics.update(TopicConfig("later", 2, 2))
        for _ in range(4):
            await copied(slave)
        assert {topic for topic, _ in slave.parts.messages.store.queues()} == {"forgotten"}
        async with await Peer.at(master) as peer:
            await fill(peer, 4, 100, "forgotten")
        await caught_up(slave, master)
        await copied(slave)
        for number_ in range(4):
            entries = [
                broker.parts.messages.store.entries("forgotten", number_, 0, 9)
                for broker in (slave, master)
            ]
            assert entries[0] == entries[1]
        assert mine.offsets.offsets["made@g"] == {2: 50, 1: 4}
        assert mine.topics.get("gone") is None
        assert mine.topics.topics == tables.topics.topics
        mine.offsets.commit("g", "forgotten", 0, 9, "test")
        mine.offsets.commit("gone with the master", "made", 0, 9, "test")
        await brokers.stop("s")
        # Set back, and deleted and made again, while it does not look.
        tables.offsets.commit("g", "made", 1, 2, "test")
        async with await Peer.at(master) as peer:
            request = {"topic": "forgotten"}
            assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, request)).code == 0
            await fill(peer, 4, 100, "forgotten")
        slave = await brokers.slave()
        await caught_up(slave, master)
        await copied(slave)
        kept = {"made@g": {2: 41, 1: 2}, "made@gone with the master": {0: 9}}
        assert slave.parts.tables.offsets.offsets == kept
        assert slave.parts.tables.topics.get("later") == TopicConfig("later", 2, 2)
        assert slave.parts.tables.groups.find("g") == tables.groups.find("g")


async def test_a_slave_is_silent_and_refuses_what_only_a_master_does(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer, await Peer.at(slave) as other:
            await peer.produce("T", b"now")
            await peer.produce("T", b"late", DELAY="1")
            await caught_up(slave, master)
            assert (await other.produce("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            await other.heartbeat("g", {"T": "*"})
            # The late one may be there by then.
            assert (await other.bodies("g", "T"))[:1] == [b"now"]
            await until(lambda: master.parts.messages.store.max_offset("T", 0) == 2)
            await caught_up(slave, master)
            assert not slave.role.running
        await brokers.stop_all()
    assert log_bytes(tmp_path / "s") == log_bytes(tmp_path / "m")


async def test_reads_from_a_slave(tmp_path: Path) -> None:
    """Found: 0. Beyond its end: held while it may be behind, else 20, and no client is moved."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with await Peer.at(master) as peer, await Peer.at(slave) as other:
            await peer.produce("T", b"one")
            await caught_up(slave, master)
            assert await other.bodies("g", "T") == [b"one"]
            answer = await other.pull("g", "T", 5, sys_flag=4, subscription="*")
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert number(answer, "nextBeginOffset") == 5
            held = other.send_pull("g", "T", 1, sys_flag=6, subscription="*")
            await peer.produce("T", b"two")
            found = await other.answer(held)
            assert found.code == ResponseCode.SUCCESS
            assert number(found, "nextBeginOffset") == 2
            assert number(found, "suggestWhichBrokerId") == 0
            assert (
                number(
                    await other.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}),
                    "offset",
                )
                == 2
            )


async def test_a_group_far_behind_is_sent_to_a_slave_if_enabled(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master(slave_read_enable=True)
        async with await Peer.at(master) as peer:
            await fill(peer, 8)
            how = {"sys_flag": 4, "subscription": "*"}
            assert number(await peer.pull("g", "T", 0, **how), "suggestWhichBrokerId") == 0
            master.store_config.access_message_in_memory_max_ratio = 0
            await fill(peer, 8)
            assert number(await peer.pull("g", "T", 0, **how), "suggestWhichBrokerId") == 1
            master.config.slave_read_enable = False
            assert number(await peer.pull("g", "T", 0, **how), "suggestWhichBrokerId") == 0


async def test_routes_name_the_slave_by_its_number(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave(broker_id=3)
        async with await Peer.at(master) as peer:
            await peer.produce("T")
        await caught_up(slave, master)
        host, _, port = brokers.namesrv.rpartition(":")
        listens = type("Listens", (), {"listen_address": f"{host}:{port}"})()
        async with await Peer.at(listens) as names:
            route = body_of(await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": master.address, "3": slave.address}


async def test_what_only_pocketmq_has_goes_on_after_a_promotion(tmp_path: Path) -> None:
    """Sub-groups of an isolated group, what an orderly pop holds, and who has locked a queue."""
    body = {"consumerGroup": "p", "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}]}

    async def locked(peer: Peer, client: str) -> int:
        data = fastjson.dumps({**body, "clientId": client})
        return len(body_of(await peer.ask(RequestCode.LOCK_BATCH_MQ, {}, data))["lockOKMQSet"])

    async with pair(tmp_path) as brokers:
        master = await brokers.master()
        isolate = {"attributes": {"group.mode": "isolate"}}
        master.parts.tables.groups.update(GroupConfig("g", extra=isolate))
        slave = await brokers.slave()
        async with await Peer.at(master) as red, await Peer.at(master) as blue:
            for number_ in range(4):
                await red.produce("T", b"%d" % number_, TAGS="red" if number_ % 2 else "blue")
            await red.heartbeat("g", {"T": "red"}, client_id="c1")
            await blue.heartbeat("g", {"T": "blue"}, client_id="c2")
            assert await red.bodies("g", "T", subscription="red") == [b"1", b"3"]
            await red.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 4},
            )
            assert await locked(red, "c1") == 1
            await red.heartbeat("p", {"T": "*"}, client_id="c1")
            popper = Popper(red, master.clock.now_ms, group="p")
            assert len(await popper.pop(order=True, queueId=0, maxMsgNums=2)) == 2
            await caught_up(slave, master)
            rows = [
                [(row["subscriptions"], row["queues"]) for row in each.describe("g")]
                for each in (slave.parts.tables.isolated, master.parts.tables.isolated)
            ]
            assert rows[0] == rows[1]
            assert rows[0][0] != rows[0][1]
        await brokers.stop("m")
        await slave.parts.services.replication.promote()
        async with await Peer.at(slave) as peer:
            assert await locked(peer, "c3") == 0
            assert await locked(peer, "c1") == 1
            await peer.heartbeat("p", {"T": "*"}, client_id="c1")
            popper = Popper(peer, slave.clock.now_ms, group="p")
            assert await popper.pop(order=True, queueId=0) == []


async def test_a_slave_signs_what_it_asks_of_a_master_with_accounts(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(
        "accounts:\n  - {accessKey: followers, secretKey: secret-words, admin: true}\n",
        encoding="utf-8",
    )
    signs = json.dumps({"accessKey": "followers", "secretKey": "secret-words"})
    async with pair(tmp_path) as brokers:
        master = await brokers.master(acl_enable=True, acl_file=str(accounts))
        master.parts.tables.topics.update(TopicConfig("made", 3, 5))
        async with await RawSlave.at(master) as stranger:
            # The log holds every topic: no account, no slave.
            stranger.report(0)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await stranger.slice()
        slave = await brokers.slave()
        await until(lambda: "No accessKey is configured" in state_of(slave).trouble)
        await brokers.stop("s")
        slave = await brokers.slave(inner_client_authentication_credentials=signs)
        await copied(slave)
        assert slave.parts.tables.topics.get("made") == TopicConfig("made", 3, 5)
    with pytest.raises(IllegalArgument, match="innerClientAuthenticationCredentials"):
        signer(BrokerConfig(inner_client_authentication_credentials="slaves:secret-words"))


# ------------------------------------------------------------ promotion and demotion


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


def _position(broker: Broker, offset: int) -> int:
    return broker.parts.messages.store.entries("T", 0, offset, 1)[0][0]


async def _commit(peer: Peer, group: str, offset: int) -> None:
    ext = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
    assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


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


def _has(broker: Broker, body: bytes, topic: str = "T") -> bool:
    result = broker.parts.messages.store.read(topic, 0, 0, 1_000)
    return any(body in bytes(buffer) for buffer in result.buffers)


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


# ------------------------------------------------------------ divergence


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


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


async def test_a_log_of_somebody_else_is_never_followed(tmp_path: Path) -> None:
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


# ------------------------------------------------------------ asked from outside


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


async def _in_trouble(slave: Broker, told: str) -> None:
    await until(lambda: told in state_of(slave).trouble)


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
