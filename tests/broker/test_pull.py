"""Pulling from a real broker over a socket: the ladder, what is found, what is held, what is committed."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.acts.pull import PullActs
from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.latencies import Latencies
from pocketmq.broker.wire.pull import PullMessageProcessor, binary_found
from pocketmq.model.java_hash import string_hash
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode, encode_header
from pocketmq.remoting.quick.by_pattern import Patterns, learn_request
from pocketmq.store import ReadResult, ReadStatus
from tests.broker.members import open_connection
from tests.broker.pulled import fill
from tests.broker.serving import Peer, number, records, serving

CODE = RequestCode
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
OWN = 4  # sysFlag: the pull brings its expression


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path) as running:
        running.parts.tables.topics.update(TopicConfig("T", 4, 4))
        yield running


# ---------------------------------------------------------------- the ladder


async def test_a_broker_that_may_not_be_read_refuses(broker: Broker, peer: Peer) -> None:
    broker.config.broker_permission = 2
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] pulling message is forbidden"
    assert answer.ext == {}


async def test_an_unknown_group_is_created_or_refused(tmp_path: Path) -> None:
    """26 without autoCreateSubscriptionGroup; the system's own groups are always made."""
    async with serving(tmp_path, auto_create_subscription_group=False) as broker:
        broker.parts.tables.topics.update(TopicConfig("T", 4, 4))
        async with await Peer.at(broker) as peer:
            answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert answer.remark == f"subscription group [g] does not exist, {FAQ}"
            answer = await peer.pull("CID_RMQ_SYS_X", "T", 0, sys_flag=OWN, subscription="*")
            assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_a_group_that_may_not_consume_is_refused(broker: Broker, peer: Peer) -> None:
    broker.parts.tables.groups.update(GroupConfig("g", consume_enable=False))
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "subscription group no permission, g"


async def test_a_pull_of_a_missing_or_unreadable_topic_is_refused(
    broker: Broker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await peer.pull("g", "Nope", 0, sys_flag=OWN, subscription="*")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == f"topic[Nope] not exist, apply first please! {FAQ}"
    light = await peer.pull("g", "%LMQ%Nope", 0, sys_flag=OWN, subscription="*")
    assert light.code == ResponseCode.TOPIC_NOT_EXIST
    assert "read the topic that its messages were sent to" in (light.remark or "")
    assert "the topic Nope not exist, consumer: 127.0.0.1:" in caplog.text
    broker.parts.tables.topics.update(TopicConfig("W", 4, 4, perm=2))
    answer = await peer.pull("g", "W", 0, sys_flag=OWN, subscription="*")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[W] pulling message is forbidden"


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
async def test_a_queue_that_the_topic_lacks_is_refused(peer: Peer, queue_id: int) -> None:
    answer = await peer.pull("g", "T", 0, queue_id=queue_id, sys_flag=OWN, subscription="*")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(
        f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[127.0"
    )


async def test_an_expression_that_does_not_parse_is_refused(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """S73: 23."""
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="||")
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark == "parse the consumer's subscription failed"
    assert "Parse the consumer's subscription[||] failed, group: g" in caplog.text


async def test_a_group_that_nobody_has_registered_is_refused(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """S74: 24."""
    answer = await peer.pull("g", "T", 0)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert answer.remark == "the consumer's group info not exist" + FAQ
    assert "the consumer's group info not exist, group: g" in caplog.text


async def test_a_group_that_may_not_broadcast_is_refused(broker: Broker, peer: Peer) -> None:
    """S75: 16."""
    broker.parts.tables.groups.update(GroupConfig("g", consume_broadcast_enable=False))
    await peer.heartbeat("g", {"T": "*"}, message_model="BROADCASTING")
    answer = await peer.pull("g", "T", 0)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the consumer group[g] can not consume by broadcast way"


async def test_a_topic_that_the_group_does_not_subscribe_is_refused(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """S76, S79, E2a: 24, and the WARN line of the second article."""
    await peer.heartbeat("myconsumerGroup", {"mytest": "*"})
    answer = await peer.pull("myconsumerGroup", "T", 0)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert answer.remark == "the consumer's subscription not exist" + FAQ
    wanted = "the consumer's subscription not exist, group: myconsumerGroup, topic:T"
    assert [r.levelno for r in caplog.records if r.getMessage() == wanted] == [logging.WARNING]


async def test_a_pull_newer_than_the_subscription_is_refused(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """S77: 25; an equal or older version passes."""
    await peer.heartbeat("g", {"T": "A"}, sub_version=5)
    answer = await peer.pull("g", "T", 0, subVersion=6)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert answer.remark == "the consumer's subscription not latest"
    assert "The broker's subscription is not latest, group: g A" in caplog.text
    for version in (5, 0):
        answer = await peer.pull("g", "T", 0, subVersion=version)
        assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_sql_without_filter_data_or_with_older_data_is_refused(
    broker: Broker, peer: Peer
) -> None:
    """S78: 27 for an expression that does not parse, 28 for one that is older than the pull's."""
    await peer.heartbeat("g", {"T": "a >"}, expression_type="SQL92", sub_version=5)
    answer = await peer.pull("g", "T", 0, subVersion=5)
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert answer.remark == (
        "The broker's consumer filter data is not exist!Your expression may be wrong!"
    )
    await peer.heartbeat("h", {"T": "a > 1"}, expression_type="SQL92", sub_version=5)
    subscription = broker.parts.members.consumers.subscription("h", "T")
    assert subscription is not None
    subscription.sub_version = 9
    answer = await peer.pull("h", "T", 0, subVersion=9)
    assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST
    broker.config.enable_property_filter = False
    for flag in (0, OWN):
        answer = await peer.pull(
            "h", "T", 0, subVersion=5, sys_flag=flag, subscription="a > 1", expressionType="SQL92"
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == ("The broker does not support consumer to filter message by SQL92")


@pytest.mark.parametrize("missing", ["consumerGroup", "topic", "queueOffset", "subVersion"])
async def test_a_field_that_is_missing_is_an_error_and_not_the_end(
    peer: Peer, missing: str
) -> None:
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": OWN,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "subscription": "*",
    }
    del ext[missing]
    answer = await peer.ask(CODE.PULL_MESSAGE, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert missing in (answer.remark or "")
    assert (await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*")).code == 19


# ---------------------------------------------------------------- what a read says


@pytest.mark.parametrize("encoding", [0, 1], ids=["JSON", "ROCKETMQ"])
@pytest.mark.parametrize("code", [CODE.PULL_MESSAGE, CODE.LITE_PULL_MESSAGE])
async def test_what_is_there_is_found_with_where_to_go_on(
    broker: Broker, peer: Peer, code: int, encoding: int
) -> None:
    await fill(peer, *"abcde")
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": 0,
        "queueOffset": 1,
        "maxMsgNums": 2,
        "sysFlag": OWN,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "subscription": "*",
    }
    answer = await peer.ask(code, ext, encoding=encoding)
    assert answer.encoding == encoding
    assert answer.remark == "FOUND"
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "5",
    }
    assert [bytes(record.body) for record in records(answer)] == [b"1", b"2"]
    got = broker.parts.messages.stats.get_counter("g", "T", 0)
    assert (got.nums, got.calls, got.size) == (2, 1, len(answer.body))


async def test_a_pull_returns_32_messages_by_default(broker: Broker, peer: Peer) -> None:
    await fill(peer, *"a" * 40)
    for count_max, count in ((32, 32), (36, 36), (100, 40)):
        broker.config.max_transfer_count_on_message_in_memory = count_max
        answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*", maxMsgNums=50)
        assert len(records(answer)) == count
        assert (answer.ext or {})["nextBeginOffset"] == str(count)


@pytest.mark.parametrize("encoding", [0, 1], ids=["JSON", "ROCKETMQ"])
@pytest.mark.parametrize("code", [CODE.PULL_MESSAGE, CODE.LITE_PULL_MESSAGE])
async def test_pulls_are_cut_and_answered_as_those_that_are_parsed(
    broker: Broker, peer: Peer, code: int, encoding: int
) -> None:
    """Found, past the end, of a queue that is not there."""
    await fill(peer, *"abcde")
    parts = broker.parts
    acts = PullActs(
        parts.node, parts.tables, parts.members, parts.messages, parts.services.long_polling
    )
    latencies = Latencies()
    processor = PullMessageProcessor(broker.config, acts, latencies, parts.node.clock)
    handlers = processor.handlers()
    connection = open_connection(ManualClock())
    cutting, fields = (
        Patterns(),
        {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": "0",
            "queueOffset": "1",
            "maxMsgNums": "2",
            "sysFlag": str(OWN | 1),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "1790000000000",
            "subscription": "a || c",
            "maxMsgBytes": "100000",
        },
    )
    handler: Any = handlers[code]
    first = RemotingCommand(code, fields, opaque=5, encoding=encoding)
    learn_request(cutting, encode(first)[4:], first, handler)
    changes = [
        {},
        {"queueOffset": "2", "commitOffset": "2"},
        {"queueOffset": "5"},
        {"queueId": "9"},
        {"queueOffset": "3", "sysFlag": str(OWN)},
    ]
    for opaque, change in enumerate(changes, 6):
        command = RemotingCommand(code, {**fields, **change}, opaque=opaque, encoding=encoding)
        frame = encode(command)[4:]
        cut = cutting.answer(frame, connection, handlers)
        assert cut is not None
        parsed = handler.handle(decode(frame), connection)
        assert _whole(cut) == _whole(parsed)
    assert parts.tables.offsets.query("g", "T", 0) == 0
    assert sum(sum(row[:-1]) for row in latencies.rows().values()) == 2 * len(changes)
    other = RemotingCommand(code, {**fields, "queueOffset": "x"}, opaque=9, encoding=encoding)
    assert cutting.answer(encode(other)[4:], connection, handlers) is None
    if code == CODE.LITE_PULL_MESSAGE:
        broker.config.lite_pull_message_enable = False
        assert cutting.answer(encode(first)[4:], connection, handlers) is None


def _whole(reply: Any) -> RemotingCommand:
    frame = encode(reply) if isinstance(reply, RemotingCommand) else reply
    return decode(b"".join([frame] if isinstance(frame, bytes) else frame)[4:])


@pytest.mark.parametrize("opaque", [-7, 0, 2**31 - 1])
@pytest.mark.parametrize("high", [5, 10**18])
def test_a_header_that_is_filled_in_is_the_encoders(opaque: int, high: int) -> None:
    """Byte for byte, whatever the values."""
    result = ReadResult(ReadStatus.FOUND, high - 2, 0, high, [], 0, 0)
    request = RemotingCommand(CODE.PULL_MESSAGE, opaque=opaque, encoding=SerializeType.ROCKETMQ)
    fields = {
        "suggestWhichBrokerId": "12",
        "nextBeginOffset": str(high - 2),
        "minOffset": "0",
        "maxOffset": str(high),
    }
    answer = request.answer(ResponseCode.SUCCESS, "FOUND", fields)
    assert binary_found(opaque, result, 12) == encode_header(answer)


@pytest.mark.parametrize(
    ("queue_id", "offset", "code", "remark", "following"),
    [
        (0, 3, 19, "OFFSET_OVERFLOW_ONE", 3),
        (0, 4, 21, "OFFSET_OVERFLOW_BADLY", 3),
        (0, 2**62, 21, "OFFSET_OVERFLOW_BADLY", 3),
        (0, -5, 21, "OFFSET_TOO_SMALL", 0),
        (1, 0, 19, "NO_MATCHED_LOGIC_QUEUE", 0),
        (1, 7, 21, "NO_MATCHED_LOGIC_QUEUE", 0),
        (1, -1, 21, "NO_MATCHED_LOGIC_QUEUE", 0),
    ],
)
async def test_an_offset_outside_the_queue_is_answered_by_the_table(
    peer: Peer, queue_id: int, offset: int, code: int, remark: str, following: int
) -> None:
    """wire.md 3.4.5: 19 only at the very end, 21 with the right offset elsewhere."""
    await fill(peer, *"abc")
    answer = await peer.pull("g", "T", offset, queue_id=queue_id, sys_flag=OWN, subscription="*")
    assert (answer.code, number(answer, "nextBeginOffset")) == (code, following)
    assert answer.remark in (remark, "NO_MESSAGE_IN_QUEUE" if queue_id else remark)


async def test_a_moved_offset_leaves_an_event(broker: Broker, peer: Peer) -> None:
    """4.x writes OFFSET_MOVED_EVENT when it answers 21."""
    await fill(peer, "a")
    await peer.pull("g", "T", 99, sys_flag=OWN, subscription="*")
    (body,) = await peer.bodies("tools", "OFFSET_MOVED_EVENT")
    assert fastjson.loads(body) == {
        "consumerGroup": "g",
        "messageQueue": {"brokerName": "b", "queueId": 0, "topic": "T"},
        "offsetNew": 1,
        "offsetRequest": 99,
    }


async def test_what_a_filter_skips_moves_the_offset(peer: Peer) -> None:
    """S80: 20 with the offset behind what was looked at; then 19 at the end."""
    await fill(peer, "A", "A", "B", "A")
    await peer.heartbeat("g", {"T": "C"})
    answer = await peer.pull("g", "T", 0)
    assert (answer.code, answer.remark) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
    )
    assert number(answer, "nextBeginOffset") == 4
    await peer.heartbeat("g", {"T": "B"}, sub_version=2)
    answer = await peer.pull("g", "T", 0)
    assert [bytes(record.body) for record in records(answer)] == [b"2"]
    assert number(answer, "nextBeginOffset") == 4


async def test_a_pull_is_filtered_by_its_own_or_the_groups_expression(
    peer: Peer,
) -> None:
    """S44, S45, E2b: tag B is stored; a pull with tagA and the flag gets the A messages."""
    await fill(peer, "A", "B", "A", "B")
    await peer.heartbeat("g", {"T": "B"})
    assert [r.body for r in records(await peer.pull("g", "T", 0))] == [b"1", b"3"]
    own = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="A || C")
    assert [r.body for r in records(own)] == [b"0", b"2"]


async def test_tags_of_one_code_both_pass_the_broker(peer: Peer) -> None:
    """S42, S80: Aa and BB share 2112; the client tells them apart."""
    assert string_hash("Aa") == string_hash("BB")
    await fill(peer, "Aa", "BB", "C")
    await peer.heartbeat("g", {"T": "Aa"})
    assert [r.body for r in records(await peer.pull("g", "T", 0))] == [b"0", b"1"]


async def test_a_class_filter_subscription_is_not_filtered_here(peer: Peer) -> None:
    """classFilterMode: everything goes out."""
    await fill(peer, "A", "B")
    body = {
        "clientID": "c",
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {
                        "topic": "T",
                        "subString": "A",
                        "codeSet": [65],
                        "tagsSet": ["A"],
                        "classFilterMode": True,
                        "subVersion": 1,
                    }
                ],
            }
        ],
    }
    await peer.ask(CODE.HEART_BEAT, {}, fastjson.dumps(body))
    assert len(records(await peer.pull("g", "T", 0))) == 2


async def test_sql_filters_by_properties(peer: Peer) -> None:
    """S78: by the heartbeat's expression and by the pull's own; one that does not parse passes all."""
    for place in range(6):
        await peer.produce("T", b"%d" % place, price=str(place))
    await peer.heartbeat("g", {"T": "price > 3"}, expression_type="SQL92")
    assert [r.body for r in records(await peer.pull("g", "T", 0))] == [b"4", b"5"]
    own: dict[str, Any] = {"sys_flag": OWN, "expressionType": "SQL92"}
    answer = await peer.pull("g", "T", 0, **own, subscription="price BETWEEN 1 AND 2")
    assert [r.body for r in records(answer)] == [b"1", b"2"]
    answer = await peer.pull("g", "T", 0, **own, subscription="price >")
    assert len(records(answer)) == 6


async def test_an_answer_has_a_size_limit_but_at_least_one_message(
    broker: Broker, peer: Peer
) -> None:
    """256 KiB as RocketMQ's; maxMsgBytes of 5.x clients is honoured."""
    for _ in range(4):
        await peer.produce("T", b"x" * 100_000)
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*")
    assert len(records(answer)) == 2
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*", maxMsgBytes=10)
    assert len(records(answer)) == 1
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*", maxMsgBytes=10**9)
    assert len(records(answer)) == 4
    answer = await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*", maxMsgNums=-7)
    assert len(records(answer)) == 1


async def test_lite_pull_can_be_switched_off(broker: Broker, peer: Peer) -> None:
    broker.config.lite_pull_message_enable = False
    answer = await peer.pull("g", "T", 0, code=CODE.LITE_PULL_MESSAGE)
    assert answer.code == ResponseCode.NO_PERMISSION
