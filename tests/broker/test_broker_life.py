"""Start and stop of a broker: ports, addresses, files, what a stop finishes."""

import asyncio
import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.nameservers.addresses import advertise
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import parse_properties
from pocketmq.store import StoreConfig, StoreLocked, StoreUnreadable
from tests.broker.serving import Peer, serving
from tests.kit.ports import free_ports
from tests.kit.waiting import until_async


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_port_in_use_ends_the_start_with_the_store_untouched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = BrokerConfig(listen_port=port)
        with pytest.raises(OSError, match="ddress already in use"):
            async with Broker(config, StoreConfig(store_path_root_dir=str(tmp_path))):
                pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("abort", ["", "1\nanother boot"])
async def test_no_group_skips_messages_stored_after_a_power_cut(tmp_path: Path, abort: str) -> None:
    """Their offsets may be on the disk before the messages are."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        for _ in range(3):
            await peer.produce("T")
        queues = broker.parts.messages.store.queues()
        offsets = broker.parts.tables.offsets
        for topic, queue_id in queues:
            offsets.commit("g", topic, queue_id, 9, "test")
        ends = {each: broker.parts.messages.store.max_offset(*each) for each in queues}
    (tmp_path / "abort").write_text(abort)
    async with serving(tmp_path) as broker:
        offsets = broker.parts.tables.offsets
        assert {each: offsets.query("g", *each) for each in queues} == ends
    async with serving(tmp_path) as broker:
        broker.parts.tables.offsets.commit("g", "T", 0, 9, "test")
    async with serving(tmp_path) as broker:
        # Nothing is lost by a clean stop: what an administrator has set stays.
        assert broker.parts.tables.offsets.query("g", "T", 0) == 9


async def test_a_store_has_one_broker(tmp_path: Path) -> None:
    """The second fails, and leaves its port free."""
    async with serving(tmp_path) as first:
        [port] = free_ports(1)
        config = BrokerConfig(listen_port=port)
        with pytest.raises(StoreLocked):
            async with Broker(config, StoreConfig(store_path_root_dir=str(tmp_path))):
                pass
        assert not listens(port)
        async with await Peer.at(first) as peer:
            assert (await peer.produce("T")).code == ResponseCode.SUCCESS


async def test_a_table_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    """Starting without topics would throw them away; the store is closed cleanly behind it."""
    async with serving(tmp_path) as broker:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_text("{ broken")
    with pytest.raises(StoreUnreadable, match=r"topics\.json"):
        async with serving(tmp_path):
            pass
    assert not (tmp_path / "abort").exists()


async def test_the_fast_port_is_served_too(tmp_path: Path) -> None:
    """Trap 28: listenPort - 2, when it is free; not at all when it is switched off."""
    [port] = free_ports(1)
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with Broker(BrokerConfig(listen_port=port), store) as broker:
        host = broker.address.rpartition(":")[0]
        assert broker.address == f"{host}:{port}"
        async with Peer(*await asyncio.open_connection(host, port - 2)) as peer:
            assert (await peer.produce("T")).code == ResponseCode.SUCCESS
    assert not listens(port - 2)
    with socket.create_server(("127.0.0.1", port - 2)):
        async with Broker(BrokerConfig(listen_port=port), store) as broker:
            assert len(broker.server._listeners) == 1
    async with Broker(BrokerConfig(listen_port=port, fast_listen_enable=False), store) as broker:
        assert not listens(port - 2)


async def test_ids_name_the_address_that_clients_can_reach(tmp_path: Path) -> None:
    """brokerIP1 with the real port, never 0.0.0.0."""
    async with serving(tmp_path, broker_ip1="127.0.0.7") as broker, await Peer.at(broker) as peer:
        answer = await peer.produce("T")
        assert answer.ext is not None
        host, _ = parse_offset_msg_id(answer.ext["msgId"])
        assert host == broker.address
        assert host.startswith("127.0.0.7:")
    with socket.socket() as anywhere:
        anywhere.bind(("0.0.0.0", 0))
        ip, port = advertise(BrokerConfig(), anywhere)
        assert ip != "0.0.0.0"
        assert port == anywhere.getsockname()[1]
    async with serving(tmp_path, broker_ip1="localhost") as broker:
        assert broker.address.startswith("127.0.0.1:")


async def test_an_ipv6_broker_serves_and_stores(tmp_path: Path) -> None:
    async with serving(tmp_path, listen_address="::1") as broker:
        reader, writer = await asyncio.open_connection("::1", broker.config.listen_port)
        async with Peer(reader, writer) as peer:
            answer = await peer.produce("T", b"six")
            assert answer.ext is not None
            assert len(answer.ext["msgId"]) == 56
            assert await peer.bodies("g", "T") == [b"six"]


async def test_a_stop_answers_what_waits_for_the_disk(tmp_path: Path) -> None:
    """SYNC_FLUSH: sends that are in flight when the broker stops are answered truthfully."""
    async with serving(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as broker:
        async with await Peer.at(broker) as peer:
            await peer.produce("T")
            ext = {"a": "g", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
            before = broker.parts.messages.store.appends.put_count
            opaques = [peer.send(310, {**ext, "i": "a\x01b"}, b"x") for _ in range(100)]
            await until_async(lambda: broker.parts.messages.store.appends.put_count == before + 100)
            await broker._stack.aclose()
            for opaque in opaques:
                assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS
            assert await peer.ended()


async def test_a_stop_answers_held_pulls_and_ends_connections(tmp_path: Path) -> None:
    """It does not wait for long polls: they are answered as at their time-out, and none is held any
    more, so that clients work at once when the broker is back."""
    async with serving(tmp_path) as broker:
        peer = await Peer.at(broker)
        await peer.produce("T")
        opaque = peer.send_pull("g", "T", 1, sys_flag=6, subscription="*")
        await until_async(lambda: broker.parts.services.long_polling.count == 1)
    assert (await peer.answer(opaque)).code == ResponseCode.PULL_NOT_FOUND
    assert await peer.ended()
    await peer.close()


async def test_a_broker_that_stops_holds_no_pull(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.produce("T")
        broker.parts.services.long_polling.release()
        answer = await peer.pull("g", "T", 1, sys_flag=6, subscription="*")
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert broker.parts.services.long_polling.count == 0


async def test_a_broker_that_is_killed_keeps_its_topics(tmp_path: Path) -> None:
    """A topic is in topics.json before its first send is answered; groups follow within a second."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.produce("T")
        table = json.loads((tmp_path / "config" / "topics.json").read_bytes())
        assert table["topicConfigTable"]["T"]["writeQueueNums"] == 4
        await peer.heartbeat("g", {"T": "*"})
        path = tmp_path / "config" / "subscriptionGroup.json"
        await until_async(lambda: path.exists() and b'"g"' in path.read_bytes())


async def test_offsets_are_saved_while_it_runs(tmp_path: Path) -> None:
    """flushConsumerOffsetInterval."""
    async with serving(tmp_path, flush_consumer_offset_interval=1) as broker:
        async with await Peer.at(broker) as peer:
            ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 5}
            await peer.ask(15, ext)
            path = tmp_path / "config" / "consumerOffset.json"
            await until_async(lambda: path.exists() and b"T@g" in path.read_bytes())
            assert path.read_bytes() == b'{"offsetTable":{"T@g":{0:5}}}'


async def test_a_table_that_cannot_be_saved_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker continues, and logs it."""
    async with serving(tmp_path, flush_consumer_offset_interval=1) as broker:
        real = broker.parts.tables.offsets._file.save
        failed: list[bool] = []

        def fail(value: Any) -> None:
            if not failed:
                failed.append(True)
                raise OSError(28, "No space left on device")
            real(value)

        broker.parts.tables.offsets._file.save = fail  # type: ignore[method-assign]
        broker.parts.tables.offsets.commit("g", "T", 0, 5, "test")
        path = tmp_path / "config" / "consumerOffset.json"
        troubles = broker.parts.messages.store.side_tasks.troubles
        await until_async(lambda: path.exists() and b"T@g" in path.read_bytes() and not troubles)
    assert "failed and will be retried task=consumerOffset.json" in caplog.text


# ---------------------------------------------------------------- settings


def test_a_real_broker_conf_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ's conf/broker.conf and what people add; unknown names are told with the nearest."""
    caplog.set_level(logging.INFO)
    text = """
    # Licensed to the Apache Software Foundation
    brokerClusterName = DefaultCluster
    brokerName = broker-a
    brokerId = 0
    deleteWhen = 04
    fileReservedTime = 48
    brokerRole = ASYNC_MASTER
    flushDiskType = ASYNC_FLUSH
    sendMessageThreadPoolNums = 64
    autoCreateTopicEnabel = false
    """
    broker, store = read_broker_conf(parse_properties(text))
    assert (broker.broker_name, broker.broker_cluster_name) == ("broker-a", "DefaultCluster")
    assert (store.file_reserved_time, store.flush_disk_type) == (48, "ASYNC_FLUSH")
    assert "setting has no effect in PocketMQ: sendMessageThreadPoolNums" in caplog.text
    assert (
        "ignored an unknown setting: autoCreateTopicEnabel (did you mean 'autoCreateTopicEnable'?)"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("listenPort", "70000", "at most 65535"),
        ("listenPort", "ten", "must be a number"),
        ("autoCreateTopicEnable", "yes", "must be true or false"),
        ("brokerRole", "BOSS", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("registerNameServerPeriod", "1", "at least 10000"),
        ("flushDiskType", "NEVER", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("aclEnable", "maybe", "must be true or false"),
    ],
)
def test_a_value_that_is_not_allowed_names_what_is(name: str, value: str, says: str) -> None:
    with pytest.raises(IllegalArgument, match=says):
        read_broker_conf({name: value})


def test_the_brokers_own_name_is_legal_in_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's name, since one topic is called like the broker."""
    monkeypatch.setattr(socket, "gethostname", lambda: "my host.örg")
    assert BrokerConfig().broker_name == "my-host--rg"


def test_the_names_are_rocketmqs_defaults() -> None:
    """Those of BrokerConfig 4.9.7, but for what is said to be ours."""
    defaults = BrokerConfig(broker_name="x").to_properties()
    for name, value in {
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "brokerPermission": "6",
        "defaultTopicQueueNums": "8",
        "autoCreateTopicEnable": "true",
        "autoCreateSubscriptionGroup": "true",
        "flushConsumerOffsetInterval": "5000",
        "longPollingEnable": "true",
        "shortPollingTimeMills": "1000",
        "transactionTimeOut": "6000",
        "transactionCheckMax": "15",
        # 5.x's, whose clients wait for no longer; 4.9 has 60000.
        "transactionCheckInterval": "30000",
        "registerNameServerPeriod": "30000",
        "regionId": "DefaultRegion",
        "traceOn": "true",
        "traceTopicEnable": "false",
        "slaveReadEnable": "false",
        "rejectTransactionMessage": "false",
        "storeReplyMessageEnable": "true",
        "notifyConsumerIdsChangedEnable": "true",
        "expectConsumerNumUseFilter": "32",
        "maxErrorRateOfBloomFilter": "20",
    }.items():
        assert defaults[name] == value, name
