"""A slave of ours at a master of ours: log, tables, silence, reads, promotion."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.introduction import signer
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from tests.broker.filled_brokers import fill
from tests.broker.pairs import (
    caught_up,
    copied,
    log_bytes,
    pair,
    state_of,
)
from tests.broker.popping import Popper
from tests.broker.raw_slave import RawSlave
from tests.broker.serving import Peer, body_of, number
from tests.kit.waiting import until_async as until


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave asks again and again for a master that a test has yet to start."""
    monkeypatch.setattr("pocketmq.broker.ha.follower.RETRY_MS", 50)


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
        # What a topic keeps holds at the slave, too.
        tables.topics.update(TopicConfig("deleted", 4, 4, attributes={"reserve.time": "1ms"}))
        stores = [each.parts.messages.store for each in (master, slave)]
        await until(lambda: [each.min_offset("deleted", 0) for each in stores] == [1, 1])
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
        assert mine.topics.get("forgotten") is not None
        assert mine.topics.get("deleted") is None
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
