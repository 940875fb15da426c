"""Heartbeats, consumer lists, offsets and locks over real connections."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pocketmq.broker.acts.offsets import OffsetActs
from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.page_cache import PageCache
from pocketmq.broker.groups.client_channel import CHANNEL_EXPIRED_MS
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import OUR_VERSION, RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from tests.broker.bare import Asker
from tests.broker.serving import Peer, body_of, number, serving
from tests.kit.waiting import until_async

CODE = RequestCode


async def members(peer: Peer, group: str) -> RemotingCommand:
    return await peer.ask(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})


# ---------------------------------------------------------------- membership


async def test_a_heartbeat_registers_and_makes_the_retry_topic(broker: Broker, peer: Peer) -> None:
    """S64, trap 16: %RETRY%g with the group's queues; the answer has no fields, and a version that
    lets clients use SQL92."""
    broker.parts.tables.groups.update(GroupConfig("g", retry_queues=3))
    answer = await peer.heartbeat("g", {"T": "A || B", "%RETRY%g": "*"}, producer="pg")
    assert (answer.code, answer.ext, bytes(answer.body)) == (0, None, b"")
    assert answer.version == OUR_VERSION >= 232
    retry = broker.parts.tables.topics.get("%RETRY%g")
    assert retry is not None
    assert (retry.read_queues, retry.perm) == (3, 6)
    subscription = broker.parts.members.consumers.subscription("g", "T")
    assert subscription is not None
    assert subscription.code_set == {65, 66}
    assert broker.parts.members.producers.available("pg") is not None
    assert body_of(await members(peer, "g")) == {"consumerIdList": ["c1"]}


async def test_the_notice_comes_before_the_answer_of_the_heartbeat(broker: Broker) -> None:
    """S67, wire.md 2.3: to all members, the one that caused it too; one-way."""
    async with await Peer.at(broker) as one, await Peer.at(broker) as two:
        one.send(CODE.HEART_BEAT, {}, _heartbeat("c1", "g"))
        frames = [await one.next(), await one.next()]
        assert [(frame.code, frame.is_response) for frame in frames] == [
            (CODE.NOTIFY_CONSUMER_IDS_CHANGED, False),
            (0, True),
        ]
        assert frames[0].is_oneway
        assert frames[0].ext == {"consumerGroup": "g"}
        two.send(CODE.HEART_BEAT, {}, _heartbeat("c2", "g"))
        assert (await two.next()).code == CODE.NOTIFY_CONSUMER_IDS_CHANGED
        assert (await one.next()).code == CODE.NOTIFY_CONSUMER_IDS_CHANGED
        await two.next()
        assert body_of(await members(one, "g")) == {"consumerIdList": ["c1", "c2"]}


async def test_a_client_with_two_connections_is_one_member(broker: Broker) -> None:
    """One that is half open, or two processes of one client id: both take the first share, and the queues of
    the other would have no owner. RocketMQ names it twice.
    """
    async with await Peer.at(broker) as old, await Peer.at(broker) as new:
        await old.heartbeat("g", {"T": "*"})
        await new.heartbeat("g", {"T": "*"})
        async with await Peer.at(broker) as other:
            await other.heartbeat("g", {"T": "*"}, client_id="c2")
            assert body_of(await members(other, "g")) == {"consumerIdList": ["c1", "c2"]}


@pytest.mark.parametrize("way", ["group", "broker"])
async def test_notices_can_be_switched_off(broker: Broker, peer: Peer, way: str) -> None:
    if way == "group":
        broker.parts.tables.groups.update(
            GroupConfig("g", notify_consumer_ids_changed_enable=False)
        )
    else:
        broker.config.notify_consumer_ids_changed_enable = False
    peer.send(CODE.HEART_BEAT, {}, _heartbeat("c1", "g"))
    assert (await peer.next()).is_response


async def test_a_lost_connection_leaves_at_once_with_a_notice(
    broker: Broker,
) -> None:
    """S72: kill -9 of a client; the group ends with its last member."""
    async with await Peer.at(broker) as one:
        async with await Peer.at(broker) as two:
            await one.heartbeat("g", {"T": "*"})
            await two.heartbeat("g", {"T": "*"}, client_id="c2", producer="pg")
            await one.request(CODE.NOTIFY_CONSUMER_IDS_CHANGED)
            await one.request(CODE.NOTIFY_CONSUMER_IDS_CHANGED)
            two.writer.transport.abort()
            await one.request(CODE.NOTIFY_CONSUMER_IDS_CHANGED)
            assert body_of(await members(one, "g")) == {"consumerIdList": ["c1"]}
            assert broker.parts.members.producers.groups == {}
    await until_async(lambda: broker.parts.members.consumers.groups == {})


async def test_a_client_that_unregisters_leaves(broker: Broker, peer: Peer) -> None:
    await peer.heartbeat("g", {"T": "*"}, producer="pg")
    answer = await peer.ask(
        CODE.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "g", "producerGroup": "pg"}
    )
    assert (answer.code, answer.ext) == (0, {})
    assert broker.parts.members.consumers.groups == {}
    assert broker.parts.members.producers.groups == {}
    answer = await members(peer, "g")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "no consumer for this group, g"
    answer = await peer.ask(CODE.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "none"})
    assert answer.code == 0


async def test_a_client_that_is_silent_is_closed(tmp_path: Path) -> None:
    """S72: the housekeeping scan, 120 s."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.heartbeat("g", {"T": "*"})
        clock.advance_ms(CHANNEL_EXPIRED_MS + 1)
        broker.parts.members.consumers.scan()
        assert await peer.ended()
        assert broker.parts.members.consumers.groups == {}


async def test_an_illegal_group_name_is_registered_but_not_created(
    broker: Broker, peer: Peer
) -> None:
    """No topic, no entry in a file; the client is served as by a 4.9 broker without auto-creation."""
    await peer.heartbeat("../g", {"T": "*"})
    assert broker.parts.tables.groups.get("../g") is None
    assert broker.parts.tables.topics.get("%RETRY%../g") is None
    assert broker.parts.members.consumers.get("../g") is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}",
        b'{"clientID":7}',
        b'{"clientID":"c","consumerDataSet":{}}',
        b'{"clientID":"c","consumerDataSet":[7]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":null}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subVersion":"x"}]}]}',
        b'{"clientID":"c","producerDataSet":[{}]}',
        b"[" * 2000,
        b'{"clientID":"\xff"}',
    ],
)
async def test_a_heartbeat_that_is_none_is_an_error_and_not_the_end(
    broker: Broker, peer: Peer, body: bytes
) -> None:
    answer = await peer.ask(CODE.HEART_BEAT, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert broker.parts.members.consumers.groups == {}
    assert (await peer.heartbeat("g", {"T": "*"})).code == 0


async def test_a_heartbeat_without_expression_type_means_tags(broker: Broker, peer: Peer) -> None:
    """ali-ons leaves it out."""
    body = {
        "clientID": "c",
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": "T", "subString": "A", "tagsSet": ["A"], "codeSet": [65]}
                ],
            }
        ],
    }
    assert (await peer.ask(CODE.HEART_BEAT, None, json.dumps(body).encode())).code == 0
    subscription = broker.parts.members.consumers.subscription("g", "T")
    assert subscription is not None
    assert subscription.expression_type == "TAG"


# ---------------------------------------------------------------- expressions


async def test_an_expression_is_checked_before_a_consumer_starts(
    broker: Broker, peer: Peer
) -> None:
    """CHECK_CLIENT_CONFIG: 0, 23 with what is wrong and where, 1 when SQL92 is switched off."""

    async def check(text: str, kind: str = "SQL92") -> RemotingCommand:
        data = {"topic": "T", "subString": text, "expressionType": kind}
        body = {"clientId": "c", "group": "g", "subscriptionData": data, "namespace": ""}
        return await peer.ask(CODE.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())

    assert (await check("a > 1 AND b IS NOT NULL")).code == 0
    assert (await check("a", "TAG")).code == 0
    refused = await check("a >")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "line 1, column" in (refused.remark or "")
    empty = await peer.ask(CODE.CHECK_CLIENT_CONFIG, {}, b'{"clientId":"c"}')
    assert empty.code == 0
    broker.config.enable_property_filter = False
    refused = await check("a > 1")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "The broker does not support consumer to filter message by SQL92"


# ---------------------------------------------------------------- offsets


async def test_offsets_are_kept_per_topic_group_and_queue(broker: Broker, peer: Peer) -> None:
    """wire.md 3.5: any value is taken, a smaller one too."""
    await peer.produce("T")
    for offset in (7, 3):
        ext = {"consumerGroup": "g", "topic": "T", "queueId": 2, "commitOffset": offset}
        answer = await peer.ask(CODE.UPDATE_CONSUMER_OFFSET, ext)
        assert (answer.code, answer.ext) == (0, {})
        asked = await peer.ask(
            CODE.QUERY_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 2}
        )
        assert number(asked, "offset") == offset
    peer.send(
        CODE.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "T", "queueId": 2, "commitOffset": 9},
        oneway=True,
    )
    await until_async(lambda: broker.parts.tables.offsets.query("g", "T", 2) == 9)
    # Who may read one topic filled the table with numbers of queues, for ever. Low ones are taken, as by
    # RocketMQ: programs keep their own progress there.
    for queue_id in (65_536, -1, 1_000_000):
        ext = {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "commitOffset": 1}
        assert (await peer.ask(CODE.UPDATE_CONSUMER_OFFSET, ext)).code != 0
    ext = {"consumerGroup": "g", "topic": "T", "queueId": 65_535, "commitOffset": 1}
    assert (await peer.ask(CODE.UPDATE_CONSUMER_OFFSET, ext)).code == 0
    assert set(broker.parts.tables.offsets.offsets["T@g"]) == {2, 65_535}


async def test_a_new_group_starts_at_0_while_offset_0_is_in_memory(
    broker: Broker, peer: Peer
) -> None:
    """Trap 3: 0 on a young queue and on a missing one; 22 once the beginning is only on disk."""
    await peer.produce("T")
    ask = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    for queue_id in (0, 1, 77):
        answer = await peer.ask(CODE.QUERY_CONSUMER_OFFSET, {**ask, "queueId": queue_id})
        assert (answer.code, number(answer, "offset")) == (0, 0)
    kept = await peer.ask(CODE.QUERY_CONSUMER_OFFSET, {**ask, "setZeroIfNotFound": False})
    assert (kept.code, kept.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "Not found, do not set to zero, maybe this group boot first",
    )


async def test_a_new_group_of_java_5_0_starts_at_0_like_others(broker: Broker, peer: Peer) -> None:
    """It alone asks not to be given 0, and skipped what was sent before it."""
    await peer.produce("T")
    ask = {"consumerGroup": "g", "topic": "T", "queueId": 0, "setZeroIfNotFound": False}
    for version, code in ((Version.V5_0_0, 0), (Version.V5_5_0, ResponseCode.QUERY_NOT_FOUND)):
        answer = await peer.ask(CODE.QUERY_CONSUMER_OFFSET, ask, version=version)
        assert answer.code == code


async def test_a_new_group_on_an_old_queue_gets_not_found(
    tmp_path: Path,
) -> None:
    """22: the first message is farther back than 40 % of the memory, or gone."""
    async with serving(tmp_path) as broker:
        async with await Peer.at(broker) as peer:
            await peer.produce("T", b"x" * 1000)
            await peer.produce("T", b"x" * 1000)
        parts = broker.parts
        messages = replace(parts.messages, reach=PageCache(parts.messages.store, 1000))
        small = OffsetActs(parts.tables, parts.members, messages)
        queue, asker = GroupQueue("g", "T", 0), Asker()
        with pytest.raises(Refused) as refused:
            small.query(queue, asker)
        assert refused.value.code == ResponseCode.QUERY_NOT_FOUND
        assert str(refused.value) == (
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )
        broker.parts.tables.offsets.commit("g", "T", 0, 1, "test")
        assert small.query(queue, asker) == 1


# ---------------------------------------------------------------- locks


async def test_queues_are_locked_for_one_client(broker: Broker) -> None:
    """41 answers those that are the client's now; 42 gives them back."""
    queues = [{"brokerName": "b", "queueId": number, "topic": "T"} for number in range(3)]

    def body(client: str, mine: list[dict[str, object]]) -> bytes:
        return json.dumps({"clientId": client, "consumerGroup": "g", "mqSet": mine}).encode()

    async with await Peer.at(broker) as peer:
        locked = await peer.ask(CODE.LOCK_BATCH_MQ, {}, body("c1", queues[:2]))
        assert body_of(locked) == {"lockOKMQSet": queues[:2]}
        locked = await peer.ask(CODE.LOCK_BATCH_MQ, {}, body("c2", queues))
        assert body_of(locked) == {"lockOKMQSet": queues[2:]}
        assert (await peer.ask(CODE.UNLOCK_BATCH_MQ, {}, body("c1", queues))).code == 0
        locked = await peer.ask(CODE.LOCK_BATCH_MQ, {}, body("c2", queues))
        assert body_of(locked) == {"lockOKMQSet": queues}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"consumerGroup":"g"}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":7}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[7]}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","queueId":"x"}]}',
    ],
)
async def test_a_lock_request_that_is_none_is_an_error(peer: Peer, body: bytes) -> None:
    for code in (CODE.LOCK_BATCH_MQ, CODE.UNLOCK_BATCH_MQ):
        assert (await peer.ask(code, {}, body)).code == ResponseCode.SYSTEM_ERROR


# ---------------------------------------------------------------- what survives a restart


async def test_topics_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    """S57: config/*.json, written by a clean stop."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.produce("T", b"kept")
        await peer.heartbeat("g", {"T": "a > 1"}, expression_type="SQL92", sub_version=7)
        broker.parts.tables.offsets.commit("g", "T", 0, 1, "test")
        broker.parts.tables.topics.update(
            TopicConfig("U", 2, 3, attributes={"message.type": "FIFO"})
        )
        version = broker.parts.tables.topics.data_version
    async with serving(tmp_path) as broker:
        assert broker.parts.tables.offsets.query("g", "T", 0) == 1
        assert broker.parts.tables.topics.get("U") == TopicConfig(
            "U", 2, 3, attributes={"message.type": "FIFO"}
        )
        assert broker.parts.tables.topics.data_version == version
        assert broker.parts.tables.groups.get("g") == GroupConfig("g")
        data = broker.parts.tables.filters.get("T", "g")
        assert data is not None
        assert (data.expression, data.client_version) == ("a > 1", 7)
        async with await Peer.at(broker) as peer:
            assert await peer.bodies("g", "T") == [b"kept"]


def _heartbeat(client_id: str, group: str) -> bytes:
    data = {"topic": "T", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    return json.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [data],
                }
            ],
            "producerDataSet": [],
        }
    ).encode()
