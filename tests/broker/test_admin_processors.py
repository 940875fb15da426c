"""Administration of a broker over its socket: what is changed is seen, kept, and told to name servers."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.model.record import read_record, read_records
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.settings import parse_properties
from pocketmq.store import StoreConfig
from tests.broker.admin_site import CODE, HEARTBEAT, OK, Site, queue
from tests.kit.waiting import until_async

# ------------------------------------------------------------ topics


async def test_a_compacted_topic_is_refused_unless_it_is_one(site: Site) -> None:
    """It would be served as any other; one of a store of RocketMQ's keeps what it says."""
    change = "+cleanup.policy=COMPACTION"
    refused = await site.make_topic("T", attributes=change)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "cleanup.policy=COMPACTION is not supported" in (refused.remark or "")
    assert site.broker.parts.tables.topics.get("T") is None
    assert (await site.make_topic("T", attributes="+cleanup.policy=DELETE")).code == OK
    assert (await site.make_topic("T", attributes=change)).code != OK
    old = TopicConfig("B", 1, 1, attributes={"cleanup.policy": "COMPACTION"})
    site.broker.parts.tables.topics.update(old)
    assert (await site.make_topic("B", 3, attributes=change)).code == OK


async def test_a_queue_type_is_fixed_and_batch_queues_are_refused(
    site: Site,
) -> None:
    """RocketMQ's remarks where it refuses; a topic that it made with batch queues keeps them."""
    refused = await site.make_topic("T", attributes="+queue.type=BatchCQ")
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "queue.type=BatchCQ is not supported: this broker stores batches message by message, and "
        "clients read them in the same way. Create the topic without queue.type",
    )
    wrong = await site.make_topic("T", attributes="+queue.type=Queue")
    assert wrong.remark == "value is not in set: [SimpleCQ, BatchCQ]"
    assert site.broker.parts.tables.topics.get("T") is None
    assert (await site.make_topic("T", attributes="+queue.type=SimpleCQ")).code == OK
    fixed = "attempt to update an unchangeable attribute. key: queue.type"
    for change in ("+queue.type=BatchCQ", "-queue.type"):
        assert (await site.make_topic("T", attributes=change)).remark == fixed
    site.broker.parts.tables.topics.update(
        TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"})
    )
    assert (await site.make_topic("B", 3)).code == OK
    found = site.broker.parts.tables.topics.get("B")
    assert found is not None
    assert (found.read_queues, found.attributes) == (3, {"queue.type": "BatchCQ"})
    rows = [{"topicName": "C", "attributes": {"+queue.type": "BatchCQ"}}]
    body = fastjson.dumps({"topicConfigList": rows})
    many = await site.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, body)
    assert (many.code, site.broker.parts.tables.topics.get("C")) == (
        ResponseCode.SYSTEM_ERROR,
        None,
    )


async def test_a_topic_is_made_routed_changed_listed_and_deleted(site: Site) -> None:
    made = await site.make_topic("T", 3)
    assert (made.code, made.remark) == (OK, "not set any response code")
    route = site.namesrv.routes.route("T")
    assert route is not None
    assert route["queueDatas"][0]["writeQueueNums"] == 3
    await site.make_topic("T", 5, perm=4)
    assert await site.json(CODE.GET_TOPIC_CONFIG, topic="T", lo=True) == {
        "attributes": {},
        "order": False,
        "perm": 4,
        "readQueueNums": 5,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 5,
    }
    site.put("T")
    site.broker.parts.tables.offsets.commit("g", "T", 0, 1, "test")
    assert (await site.ask(CODE.DELETE_TOPIC_IN_BROKER, topic="T")).code == OK
    gone = await site.ask(CODE.GET_TOPIC_CONFIG, topic="T")
    assert (gone.code, gone.remark) == (17, "No topic in this broker. topic: T")
    assert site.broker.parts.messages.store.max_offset("T", 0) == 0
    assert site.broker.parts.tables.offsets.query("g", "T", 0) == -1


async def test_topics_and_groups_survive_a_restart(site: Site) -> None:
    await site.make_topic("T", 3, attributes="+message.type=FIFO")
    await site.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g","retryMaxTimes":3}')
    await site.broker.__aexit__(None, None, None)
    site.broker = site.make()
    async with site.broker:
        assert (await site.json(CODE.GET_TOPIC_CONFIG, topic="T"))["attributes"] == {
            "message.type": "FIFO"
        }
        found = await site.json(CODE.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
        assert (found["retryMaxTimes"], found["retryQueueNums"]) == (3, 1)


async def test_attributes_are_added_changed_and_removed(site: Site) -> None:
    await site.make_topic("T", attributes="+a=1,+b=2")
    await site.make_topic("T", attributes="+a=3,-b")
    assert (await site.json(CODE.GET_TOPIC_CONFIG, topic="T"))["attributes"] == {"a": "3"}
    refused = await site.make_topic("T", attributes="a=1")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "+name=value" in (refused.remark or "")


@pytest.mark.parametrize(
    ("topic", "more", "remark"),
    [
        ("../etc/passwd", {}, "illegal characters"),
        ("a b", {}, "illegal characters"),
        ("x" * 128, {}, "longer than topic max length"),
        ("TBW102", {}, "conflict with system topic"),
        ("rmq_sys_x", {}, "conflict with system topic"),
        ("T", {"readQueueNums": -1}, "readQueueNums is 0 to 65536, not -1"),
        ("T", {"writeQueueNums": 1_000_000}, "65536, not 1000000"),
        ("T", {"perm": 64}, "perm is 0 to 7, not 64"),
        ("T", {"perm": "x"}, "is not a number"),
    ],
)
async def test_a_topic_that_cannot_be_is_refused_and_leaves_nothing(
    site: Site, topic: str, more: dict[str, Any], remark: str
) -> None:
    """CVE-2019-17572 and its like: the name never reaches the file system."""
    before = set(site.broker.parts.tables.topics.topics)
    answer = await site.make_topic(topic, **more)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    assert set(site.broker.parts.tables.topics.topics) == before


async def test_several_topics_are_made_together_or_not_at_all(site: Site) -> None:
    def body(*names: str) -> bytes:
        rows = [{"topicName": n, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for n in names]
        return fastjson.dumps({"topicConfigList": rows})

    refused = await site.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, body("T1", "no/good"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert site.broker.parts.tables.topics.get("T1") is None
    assert (await site.ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, body("T1", "T2"))).code == OK
    assert site.namesrv.routes.route("T2") is not None


async def test_all_topics_come_at_once_or_in_pages(site: Site) -> None:
    whole = await site.ask(CODE.GET_ALL_TOPIC_CONFIG)
    assert whole.ext == {}
    table = fastjson.loads(whole.body)["topicConfigTable"]
    names: list[str] = []
    while len(names) < len(table):
        answer = await site.ask(CODE.GET_ALL_TOPIC_CONFIG, topicSeq=len(names), maxTopicNum=4)
        assert answer.ext == {"totalTopicNum": str(len(table))}
        names += fastjson.loads(answer.body)["topicConfigTable"]
    assert names == sorted(table)


async def test_topic_status_shows_each_write_queue(site: Site) -> None:
    """S86."""
    await site.make_topic("T", 2)
    site.put("T", 1)
    site.put("T", 1)
    found = (await site.json(CODE.GET_TOPIC_STATS_INFO, topic="T"))["offsetTable"]
    assert found[queue("T", 0)] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert (found[queue("T", 1)]["minOffset"], found[queue("T", 1)]["maxOffset"]) == (0, 2)
    assert found[queue("T", 1)]["lastUpdateTimestamp"] > 1_600_000_000_000
    missing = await site.ask(CODE.GET_TOPIC_STATS_INFO, topic="none")
    assert (missing.code, missing.remark) == (17, "topic[none] not exist")
    five = await site.json(CODE.GET_TOPIC_STATS_INFO, topic="T", version=Version.V5_5_0)
    assert five["topicPutTps"] == 0.0


# ------------------------------------------------------------ groups and offsets


async def test_a_group_is_made_with_defaults_listed_and_deleted(site: Site) -> None:
    await site.ask(
        CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g","consumeEnable":false}'
    )
    table = (await site.json(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
    assert table["g"] == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": False,
        "consumeFromMinEnable": True,
        "groupName": "g",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    site.broker.parts.tables.offsets.commit("g", "T", 0, 5, "test")
    await site.ask(CODE.DELETE_SUBSCRIPTIONGROUP, groupName="g", removeOffset=False)
    assert site.broker.parts.tables.groups.get("g") is None
    assert site.broker.parts.tables.offsets.query("g", "T", 0) == 5
    await site.ask(CODE.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset=True)
    assert site.broker.parts.tables.offsets.query("g", "T", 0) == -1
    refused = await site.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"a/../b"}')
    assert refused.code == ResponseCode.SYSTEM_ERROR


async def test_consume_stats_cover_topics_with_offsets_of_the_group(site: Site) -> None:
    await site.make_topic("T", 2)
    for _ in range(3):
        site.put("T", 0)
    site.broker.parts.tables.offsets.commit("g", "T", 0, 2, "test")
    site.broker.parts.tables.offsets.commit("g", "gone", 0, 2, "test")
    found = await site.json(CODE.GET_CONSUME_STATS, consumerGroup="g")
    row = found["offsetTable"][queue("T", 0)]
    assert (row["brokerOffset"], row["consumerOffset"]) == (3, 2)
    assert row["lastTimestamp"] > 1_600_000_000_000
    assert found["offsetTable"][queue("T", 1)] == {
        "brokerOffset": 0,
        "consumerOffset": 0,
        "lastTimestamp": 0,
    }
    assert "pullOffset" not in row
    assert await site.json(CODE.GET_CONSUME_STATS, consumerGroup="absent") == {
        "consumeTps": 0.0,
        "offsetTable": {},
    }
    site.broker.parts.tables.groups.find("g")
    whole = await site.json(CODE.GET_BROKER_CONSUME_STATS, isOrder=False)
    assert whole["totalDiff"] == 1
    assert whole["brokerAddr"] == site.broker.address


async def test_offsets_of_a_group_are_copied_and_corrected(site: Site) -> None:
    await site.make_topic("T", 1)
    site.broker.parts.tables.offsets.commit("from", "T", 0, 7, "test")
    assert (
        await site.ask(
            CODE.CLONE_GROUP_OFFSET, srcGroup="from", destGroup="to", topic="T", offline=True
        )
    ).code == OK
    assert site.broker.parts.tables.offsets.query("to", "T", 0) == 7
    await site.ask(CODE.CLONE_GROUP_OFFSET, srcGroup="from", destGroup="all", topic="")
    assert site.broker.parts.tables.offsets.query("all", "T", 0) == 7
    site.broker.parts.tables.offsets.commit("behind", "T", 0, 3, "test")
    found = await site.json(
        CODE.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="to", filterGroups="behind"
    )
    assert found == {"correctionOffsets": {"0": 7}}


async def test_who_consumes_a_topic_and_what_a_group_consumes(site: Site) -> None:
    site.broker.parts.tables.offsets.commit("g1", "T", 0, 1, "test")
    assert await site.json(CODE.QUERY_TOPIC_CONSUME_BY_WHO, topic="T") == {"groupList": ["g1"]}
    assert await site.json(CODE.QUERY_TOPICS_BY_CONSUMER, group="g1") == {
        "brokerAddr": site.broker.address,
        "topicList": ["T"],
    }
    assert await site.json(CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g1", topic="T") == {
        "group": "g1",
        "topic": "T",
    }


async def test_the_time_span_says_how_long_the_next_message_has_waited(site: Site) -> None:
    await site.make_topic("T", 1)
    empty = (await site.json(CODE.QUERY_CONSUME_TIME_SPAN, topic="T", group="g"))[
        "consumeTimeSpanSet"
    ]
    assert empty[0]["delayTime"] == 0
    site.put("T")
    site.put("T")
    site.broker.parts.tables.offsets.commit("g", "T", 0, 1, "test")
    (row,) = (await site.json(CODE.QUERY_CONSUME_TIME_SPAN, topic="T", group="g"))[
        "consumeTimeSpanSet"
    ]
    assert row["messageQueue"] == {"brokerName": "a", "queueId": 0, "topic": "T"}
    assert row["minTimeStamp"] <= row["consumeTimeStamp"] <= row["maxTimeStamp"]
    assert 0 <= row["delayTime"] < 600_000


async def test_offsets_of_a_queue_and_by_time(site: Site) -> None:
    await site.make_topic("T", 1)
    site.put("T")
    site.put("T")
    where: dict[str, Any] = {"topic": "T", "queueId": 0}
    assert (await site.ask(CODE.GET_MAX_OFFSET, **where)).ext == {"offset": "2"}
    assert (await site.ask(CODE.GET_MIN_OFFSET, **where)).ext == {"offset": "0"}
    early = await site.ask(CODE.SEARCH_OFFSET_BY_TIMESTAMP, **where, timestamp=0)
    late = await site.ask(CODE.SEARCH_OFFSET_BY_TIMESTAMP, **where, timestamp=1 << 60)
    assert early.ext == {"offset": "0"}
    assert late.ext in ({"offset": "1"}, {"offset": "2"})
    time_ms = await site.ask(CODE.GET_EARLIEST_MSG_STORETIME, **where)
    assert int((time_ms.ext or {})["timestamp"]) > 1_600_000_000_000
    unknown = await site.ask(CODE.GET_MAX_OFFSET, topic="none", queueId=7)
    assert unknown.ext == {"offset": "0"}
    none = await site.ask(CODE.GET_EARLIEST_MSG_STORETIME, topic="none", queueId=7)
    assert none.ext == {"timestamp": "-1"}
    bad = await site.ask(CODE.GET_MAX_OFFSET, topic="T")
    assert bad.code == ResponseCode.SYSTEM_ERROR
    negative = await site.ask(CODE.GET_MAX_OFFSET, topic="T", queueId=-5)
    assert negative.ext == {"offset": "0"}


# ------------------------------------------------------------ messages


async def test_messages_are_found_by_key_unique_key_and_position(site: Site) -> None:
    await site.make_topic("T", 1)
    site.put("T", 0, b"one", b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U1")
    at = site.put("T", 0, b"two", b"KEYS\x01k2\x02UNIQ_KEY\x01U2")
    window: dict[str, Any] = {"maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 62}

    async def bodies(key: str, **more: Any) -> list[bytes]:
        answer = await site.ask(CODE.QUERY_MESSAGE, topic="T", key=key, **window, **more)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            assert set(answer.ext or {}) == {
                "indexLastUpdateTimestamp",
                "indexLastUpdatePhyoffset",
            }
            return []
        return [bytes(record.body) for record in read_records(bytes(answer.body))]

    async with asyncio.timeout(60):
        # The index trails the log.
        while await bodies("k2") != [b"one", b"two"]:
            await asyncio.sleep(0.01)
    assert await bodies("k2") == [b"one", b"two"]
    assert await bodies("k1") == [b"one"]
    assert await bodies("U2", _UNIQUE_KEY_QUERY=True) == [b"two"]
    assert await bodies("nothing") == []
    found = await site.ask(CODE.VIEW_MESSAGE_BY_ID, offset=at)
    assert bytes(read_record(bytes(found.body)).body) == b"two"
    for wrong in (at + 1, -1, 1 << 60):
        missing = await site.ask(CODE.VIEW_MESSAGE_BY_ID, offset=wrong)
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert missing.remark == f"can not find message by the offset, {wrong}"


async def test_the_entries_of_a_queue_are_shown(site: Site) -> None:
    await site.make_topic("T", 1)
    site.put("T", 0, b"x", b"TAGS\x01TagA")
    where: dict[str, Any] = {"topic": "T", "queueId": 0, "count": 5}
    found = await site.json(CODE.QUERY_CONSUME_QUEUE, **where, index=0, consumerGroup="g")
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 1)
    assert found["filterData"] == "g@T is not online!"
    assert found["queueData"][0]["tagsCode"] == 2598919
    beyond = await site.ask(CODE.QUERY_CONSUME_QUEUE, **where, index=9)
    assert beyond.remark == "Index 9 of 0@T is not exist!"
    missing = await site.ask(CODE.QUERY_CONSUME_QUEUE, topic="none", queueId=3, index=0, count=1)
    assert (missing.code, missing.remark) == (1, "3@none is not exist!")


# ------------------------------------------------------------ settings


async def test_only_settings_of_the_allowed_list_can_be_changed(site: Site) -> None:
    """CVE-2023-33246: a typed list of what may change, all of a request or nothing."""

    async def change(text: str) -> RemotingCommand:
        return await site.ask(CODE.UPDATE_BROKER_CONFIG, text.encode())

    async def shown() -> dict[str, str]:
        answer = await site.ask(CODE.GET_BROKER_CONFIG)
        assert set(fastjson.loads((answer.ext or {})["version"])) == {"counter", "timestamp"}
        return parse_properties(bytes(answer.body).decode())

    assert (await change("flushIntervalCommitLog=400\nnoSuchSetting=1\n")).code == OK
    assert (await shown())["flushIntervalCommitLog"] == "400"
    refused = await change("flushIntervalCommitLog=300\nstorePathRootDir=/tmp/x\n")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "storePathRootDir" in (refused.remark or "")
    wrong = await change("traceOn=perhaps\n")
    assert wrong.code == ResponseCode.SYSTEM_ERROR
    assert (await shown())["flushIntervalCommitLog"] == "400"


async def test_what_rocketmq_changes_at_run_time_changes_here(site: Site) -> None:
    """Seen at a running 4.9.7: these work at once there, or for what is made after them."""

    async def change(text: str) -> None:
        assert (await site.ask(CODE.UPDATE_BROKER_CONFIG, text.encode())).code == OK

    async def is_found(key: str) -> bool:
        site.put("T", 0, b"b", f"KEYS\x01{key}".encode())
        query: dict[str, Any] = {"maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1 << 50}
        return (await site.ask(CODE.QUERY_MESSAGE, topic="T", key=key, **query)).code == OK

    await site.make_topic("T", 1)
    assert await is_found("k1")
    await change("messageIndexEnable=false")
    assert not await is_found("k2")
    await change("messageIndexEnable=true")
    assert await is_found("k3")

    ext = site.folder / "consumequeue_ext" / "T" / "0"
    await site.ask(CODE.HEART_BEAT, fastjson.dumps(HEARTBEAT).replace(b'"TAG"', b'"SQL92"'))
    await change("enableConsumeQueueExt=true\nenableCalcFilterBitMap=true")
    site.put("T")
    (file,) = ext.iterdir()
    # The unit's size, tags code, store time and size of the bit map: 112 bits.
    assert file.read_bytes()[:2] + file.read_bytes()[18:20] == b"\x00\x22\x00\x0e"
    end = file.read_bytes().rstrip(b"\0")
    await change("enableConsumeQueueExt=false")
    site.put("T")
    assert file.read_bytes().rstrip(b"\0") == end
    read = site.broker.parts.messages.store.read("T", 0, 0, 32)
    assert sum(len(list(read_records(each))) for each in read.buffers) == 5

    await change("serverChannelMaxIdleTimeSeconds=7\nfilterDataCleanTimeSpan=1")
    assert site.broker.server.idle_ms == 7_000
    filters = site.broker.parts.tables.filters
    filters.unregister("g")

    def is_forgotten() -> bool:
        filters.clean()
        return filters.get("T", "g") is None

    await until_async(is_forgotten)
    async with NameServer(NamesrvConfig(listen_port=0), SystemClock()) as other:
        await other.listen()
        await change(f"namesrvAddr={other.address}")
        await until_async(lambda: other.routes.route("T") is not None)


# ------------------------------------------------------------ cleaning up


def test_each_setting_may_change_while_it_runs_or_says_why_not() -> None:
    for group in (BrokerConfig, StoreConfig):
        fixed = {name for name, known in group.keys().items() if not known.runtime}
        assert group.FIXED.keys() == fixed


async def test_what_apache_changes_at_run_time_changes_here(site: Site) -> None:
    """flushConsumerOffsetInterval among them; a refusal names the reason."""

    async def change(text: str) -> RemotingCommand:
        return await site.ask(CODE.UPDATE_BROKER_CONFIG, text.encode())

    async def send() -> int:
        """To a topic that is not there yet."""
        names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag"
        values = ("p", "Unknown", "TBW102", 4, 0, 0, 0, 0)
        fields: dict[str, Any] = dict(zip(names.split(), values, strict=True))
        return (await site.ask(CODE.SEND_MESSAGE, b"x", properties="", **fields)).code

    assert (
        await change("flushConsumerOffsetInterval=1234\nautoCreateTopicEnable=false\n")
    ).code == OK
    assert site.broker.config.flush_consumer_offset_interval == 1234
    assert await send() == ResponseCode.TOPIC_NOT_EXIST
    assert (await change("autoCreateTopicEnable=true\n")).code == OK
    assert await send() == OK
    refused = await change("messageDelayLevel=1s\n")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "messages are waiting on the current levels" in (refused.remark or "")
