"""Sending to a real broker over a socket: codes, remarks, what is stored, what is created."""

import logging
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import get_property, parse_offset_msg_id, properties_to_dict
from pocketmq.model.names import BROKER_ONLY_TOPICS, REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.hosts import pack_host
from tests.broker.serving import Peer, batch, number, serving
from tests.broker.stored_messages import stored

CODE = RequestCode


@pytest.mark.parametrize("encoding", [0, 1], ids=["JSON", "ROCKETMQ"])
@pytest.mark.parametrize("code", [CODE.SEND_MESSAGE_V2, CODE.SEND_MESSAGE])
async def test_a_message_is_stored_as_sent_and_answered_with_its_place(
    broker: Broker, peer: Peer, encoding: int, code: int
) -> None:
    """Both codes and both header encodings, on the first (slow) and the second (short) way."""
    letters = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"]
    words = (
        "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag "
        "properties"
    )
    names = words.split()  # of the first version, in the order of the letters
    for offset in range(3):
        values = ["pg", "T", "TBW102", 4, 2, 0, 1_700_000_000_123, 7]
        text = "KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01tagA\x02mine\x01a=b:c\x02"
        ext = dict(zip(names if code == 10 else letters, [*values, text], strict=False))
        answer = await peer.ask(code, ext, b"body", encoding=encoding)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.encoding == encoding
        assert answer.ext is not None
        assert (number(answer, "queueId"), number(answer, "queueOffset")) == (2, offset)
        assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
        host, _ = parse_offset_msg_id(answer.ext["msgId"])
        assert host == broker.address
        record = await stored(broker, answer)
        assert (record.topic, record.queue_id, record.queue_offset) == ("T", 2, offset)
        assert (bytes(record.body), record.flag, record.born_ms) == (b"body", 7, 1_700_000_000_123)
        sock = peer.writer.get_extra_info("sockname")
        assert record.born_host == pack_host(f"{sock[0]}:{sock[1]}")
        assert record.store_host == pack_host(broker.address)
        # 4.9 adds CLUSTER and does not store WAIT.
        assert properties_to_dict(record.properties) == {
            "KEYS": "k1 k2",
            "TAGS": "tagA",
            "mine": "a=b:c",
            "CLUSTER": "DefaultCluster",
        }
    assert broker.parts.messages.store.entries("T", 2, 0, 1)[0][2] == 3552231
    assert broker.parts.messages.stats.put_counter("T", 2).nums == 3
    assert broker.parts.messages.stats.put_counter("T", 2).calls == 3


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("WAIT\x01true", {}),
        ("WAIT\x01false\x02KEYS\x01k", {"KEYS": "k"}),
        ("XWAIT\x01true\x02WAIT\x01true\x02", {"XWAIT": "true"}),
        ("note\x01WAIT\x02WAIT\x01true", {"note": "WAIT"}),
        ("CLUSTER\x01elsewhere\x02a\x01b", {"a": "b"}),
        ("POP_CK\x010 1 2 3 0 b 0 0\x02KEYS\x01k\x02", {"KEYS": "k"}),
        ("", {}),
        ("note\x01XDELAY\x02XDELAY\x013", {"note": "XDELAY", "XDELAY": "3"}),
    ],
)
async def test_the_wait_property_is_dropped_and_the_cluster_is_set(
    broker: Broker, peer: Peer, text: str, kept: dict[str, str]
) -> None:
    """Only whole pairs of that name count, at the beginning, in the middle and at the end."""
    for _ in range(2):
        answer = await peer.produce("T", more={"i": text})
        record = await stored(broker, answer)
        assert properties_to_dict(record.properties) == {**kept, "CLUSTER": "DefaultCluster"}


async def test_a_first_send_creates_the_topic_with_the_asked_queues(
    broker: Broker, peer: Peer
) -> None:
    """S82: min(4, 8) queues, permission without X; more than TBW102 has is cut to 8."""
    await peer.produce("T")
    assert str(broker.parts.tables.topics.get("T")) == (
        "TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=4, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]"
    )
    await peer.produce("Wide", more={"d": 64})
    wide = broker.parts.tables.topics.get("Wide")
    assert wide is not None
    assert wide.write_queues == 8
    refused = await peer.produce("None", more={"d": -3})
    none = broker.parts.tables.topics.get("None")
    assert none is not None
    assert none.write_queues == 0
    assert refused.code == ResponseCode.SYSTEM_ERROR


async def test_topics_are_created_only_from_an_inheritable_default(
    broker: Broker, peer: Peer
) -> None:
    """A default topic without the X bit, or none at all: 17 with RocketMQ's remark."""
    await peer.produce("Plain")
    for default in ("Plain", "NoSuchTopic"):
        answer = await peer.produce("New", more={"c": default})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == (
            "topic[New] not exist, apply first please!"
            "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
        )
        assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    broker.parts.tables.topics.update(TopicConfig("Mother", 3, 3, perm=7))
    assert (await peer.produce("Child", more={"c": "Mother"})).code == ResponseCode.SUCCESS
    child = broker.parts.tables.topics.get("Child")
    assert child is not None
    assert (child.write_queues, child.perm) == (3, 6)


async def test_without_auto_creation_only_known_topics_are_taken(tmp_path: Path) -> None:
    """autoCreateTopicEnable=false: no TBW102, 17; a retry topic is made all the same."""
    async with serving(tmp_path, auto_create_topic_enable=False) as broker:
        assert broker.parts.tables.topics.get("TBW102") is None
        async with await Peer.at(broker) as peer:
            assert (await peer.produce("T")).code == ResponseCode.TOPIC_NOT_EXIST
            broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
            assert (await peer.produce("T")).code == ResponseCode.SUCCESS
            assert (await peer.produce("%RETRY%g")).code == ResponseCode.SUCCESS
            retry = broker.parts.tables.topics.get("%RETRY%g")
            assert retry is not None
            assert (retry.write_queues, retry.perm) == (1, 6)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        (
            "../../etc",
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "a/b",
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "T\n",
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("t" * 128, "The specified topic is longer than topic max length."),
    ],
)
async def test_a_bad_topic_name_is_refused(
    broker: Broker, peer: Peer, tmp_path: Path, topic: str, remark: str
) -> None:
    """Code 1 with RocketMQ 4.9's remark; nothing is created, in memory or on disk."""
    before = set(broker.parts.tables.topics.topics)
    for code in (CODE.SEND_MESSAGE_V2, CODE.SEND_BATCH_MESSAGE):
        answer = await peer.produce(topic, code=code)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert set(broker.parts.tables.topics.topics) == before
    assert list(broker.parts.messages.store.queues()) == []


@pytest.mark.parametrize(
    "topic", [*sorted(BROKER_ONLY_TOPICS), TIMER_TOPIC, REVIVE_TOPIC_PREFIX + "DefaultCluster"]
)
async def test_nobody_may_send_to_the_brokers_own_topics(
    broker: Broker, peer: Peer, topic: str
) -> None:
    """Also where the topic is there, and also as a reply."""
    broker.parts.tables.topics.create_internal(topic, 8)
    for code in (CODE.SEND_MESSAGE_V2, CODE.SEND_BATCH_MESSAGE, CODE.SEND_REPLY_MESSAGE_V2):
        answer = await peer.produce(topic, code=code, REPLY_TO_CLIENT="c")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"Sending message to topic[{topic}] is forbidden."
    assert broker.parts.messages.store.max_offset(topic, 0) == 0


async def test_a_queue_that_the_topic_lacks_is_refused_by_number(
    broker: Broker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """Also on the second send, when the topic is known to the short way."""
    for _ in range(2):
        answer = await peer.produce("T", queue_id=44)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        sock = peer.writer.get_extra_info("sockname")
        assert answer.remark == (
            "request queueId[44] is illegal, TopicConfig [topicName=T, readQueueNums=4, "
            "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] "
            f"Producer: {sock[0]}:{sock[1]}"
        )
        assert answer.remark in caplog.text
        assert (await peer.produce("T")).code == ResponseCode.SUCCESS


async def test_a_negative_queue_id_lets_the_broker_choose(broker: Broker, peer: Peer) -> None:
    seen = {number(await peer.produce("T", queue_id=-1), "queueId") for _ in range(60)}
    assert seen == {0, 1, 2, 3}


async def test_a_changed_topic_is_seen_by_the_next_send(broker: Broker, peer: Peer) -> None:
    """The short way forgets a topic that was changed."""
    assert (await peer.produce("T", queue_id=3)).code == ResponseCode.SUCCESS
    broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
    assert (await peer.produce("T", queue_id=3)).code == ResponseCode.SYSTEM_ERROR
    broker.parts.tables.topics.delete("T")
    assert (await peer.produce("T", queue_id=3)).code == ResponseCode.SUCCESS


async def test_order_topics_of_an_unwritable_broker_are_refused(broker: Broker, peer: Peer) -> None:
    """wire.md 3.2.3; other topics are still taken, as in RocketMQ."""
    broker.parts.tables.topics.update(TopicConfig("Ordered", 4, 4, order=True))
    assert (await peer.produce("Ordered")).code == ResponseCode.SUCCESS
    broker.config.broker_permission = 4
    answer = await peer.produce("Ordered")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"
    assert (await peer.produce("T")).code == ResponseCode.SUCCESS


async def test_sizes_are_limited(tmp_path: Path) -> None:
    """The body at maxMessageSize passes, one byte more is 13; properties end at 32,767 bytes."""
    async with serving(tmp_path, store={"max_message_size": 1000}) as broker:
        async with await Peer.at(broker) as peer:
            assert (await peer.produce("T", b"x" * 1000)).code == ResponseCode.SUCCESS
            for body, text in ((b"x" * 1001, ""), (b"x", "k\x01" + "v" * 32_766)):
                for _ in range(2):
                    answer = await peer.produce("T", body, more={"i": text})
                    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
                    assert answer.remark == (
                        "the message is illegal, maybe msg body or properties length not matched. "
                        "msg body length limit 1000B, msg properties length limit 32KB."
                    )
            assert (await peer.produce("T", b"")).code == ResponseCode.SUCCESS
    assert broker.parts.messages.store.appends.put_count == 2


async def test_sends_before_their_time_are_refused(broker: Broker, peer: Peer) -> None:
    broker.config.start_accept_send_request_time_stamp = broker.clock.now_ms() + 3_600_000
    answer = await peer.produce("T")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("broker unable to service, until 2")


async def test_a_oneway_send_is_stored_and_not_answered(broker: Broker, peer: Peer) -> None:
    await peer.produce("T")
    ext = {"a": "g", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "a\x01b"}
    peer.send(CODE.SEND_MESSAGE_V2, ext, b"one", oneway=True)
    peer.send(CODE.SEND_MESSAGE_V2, {**ext, "e": 99}, b"bad", oneway=True)
    answer = await peer.produce("T", b"two")
    assert number(answer, "queueOffset") == 2


async def test_numbers_may_come_as_json_numbers(broker: Broker, peer: Peer) -> None:
    """ali-ons sends raw numbers and booleans (wire.md 1.2)."""
    header = (
        b'{"code":310,"language":"JAVA","version":121,"opaque":77,"flag":0,"extFields":{"a":"g",'
        b'"b":"T","c":"TBW102","d":4,"e":1,"f":0,"g":1700000000000,"h":0,"i":"TAGS\\u0001t",'
        b'"j":0,"k":false}}'
    )
    frame = len(header).to_bytes(4, "big") + header + b"body"
    for _ in range(2):
        peer.writer.write(len(frame).to_bytes(4, "big") + frame)
        answer = await peer.answer(77)
        assert (answer.code, number(answer, "queueId")) == (0, 1)


async def test_a_wrong_address_flag_is_corrected(broker: Broker, peer: Peer) -> None:
    """sysFlag bits 16 and 32 say how long the hosts in the record are: the broker sets them itself."""
    for code in (CODE.SEND_MESSAGE_V2, CODE.SEND_BATCH_MESSAGE):
        for _ in range(2):
            body = batch((b"x", b"")) if code == CODE.SEND_BATCH_MESSAGE else b"x"
            answer = await peer.produce("T", body, sys_flag=0x31, code=code)
            assert (await stored(broker, answer)).sys_flag & 0x30 == 0


async def test_a_priority_chooses_the_queue_of_a_priority_topic(broker: Broker, peer: Peer) -> None:
    """The answer names it; other topics, and texts that are no priority, leave the sender's choice."""
    topics = broker.parts.tables.topics
    topics.update(TopicConfig("P", 4, 4, attributes={"message.type": "PRIORITY"}))
    chosen = []
    for topic in ("P", "P", "T", "T"):
        for priority in ("0", "2", "9" * 20, "-1", "x"):
            answer = await peer.produce(topic, queue_id=1, _SYS_MSG_PRIORITY_=priority)
            chosen.append(number(answer, "queueId"))
    assert chosen == [*[0, 2, 3, 1, 1] * 2, *[1] * 10]


# ---------------------------------------------------------------- when the store does not take it


@pytest.mark.parametrize("as_batch", [False, True], ids=["message", "batch"])
async def test_messages_of_5x_clients_get_region_and_trace_switch(
    broker: Broker, peer: Peer, as_batch: bool
) -> None:
    """On both ways, once each; a batch's own id is not stored over those of its messages."""
    code, body = int(CODE.SEND_MESSAGE_V2), b"body"
    if as_batch:
        code, body = int(CODE.SEND_BATCH_MESSAGE), batch((b"body", b"UNIQ_KEY\x01own"))
    sender = {"UNIQ_KEY": "of the sender"}
    wanted = {
        "UNIQ_KEY": "own" if as_batch else "of the sender",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    for more in ({}, {}, {"MSG_REGION": "elsewhere"}):
        given: dict[str, Any] = {"how": {"version": 413}, **sender, **more}
        answer = await peer.produce("T", body, code=code, **given)
        properties = bytes((await stored(broker, answer)).properties)
        assert properties_to_dict(properties) == wanted
        assert properties.count(b"MSG_REGION") == 1
    record = await stored(broker, await peer.produce("T", body, code=code, UNIQ_KEY="x"))
    assert not {"MSG_REGION", "TRACE_ON"} & set(properties_to_dict(record.properties))


async def test_what_a_stored_message_weighs_is_counted(broker: Broker, peer: Peer) -> None:
    """TOPIC_PUT_NUMS and TOPIC_PUT_SIZE: records, not bodies."""
    sizes = 0
    for _ in range(3):
        sizes += (await stored(broker, await peer.produce("T", a="b"))).size
    minute = broker.parts.messages.stats.windows("TOPIC_PUT_SIZE", "T")
    assert minute is not None
    assert minute[0].sum == sizes
    assert get_property(b"a\x01b", b"a") == b"b"


def test_the_answers_template_is_an_answer_like_any_other() -> None:
    """decode(encode(x)) of an answer that was made without the codec."""
    answer = RemotingCommand(0, {"a": "b"}, flag=1)
    assert decode(encode(answer)[4:]) == answer


async def test_messages_keep_their_order_within_a_connection(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """One queue, four connections, all at once: each connection's messages are in its order."""
    caplog.set_level(logging.ERROR)
    peers = [await Peer.at(broker) for _ in range(4)]
    ext = {"a": "g", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "a\x01b"}
    sent: list[list[int]] = [[] for _ in peers]
    for place in range(50):
        for index, connection in enumerate(peers):
            opaque = connection.send(310, ext, f"{index}:{place}".encode())
            sent[index].append(opaque)
    for index, connection in enumerate(peers):
        for opaque in sent[index]:
            assert (await connection.answer(opaque)).code == 0
    bodies: list[bytes] = []
    while len(bodies) < 200:
        bodies += await peers[0].bodies("g", "T", len(bodies), maxMsgNums=64)
    for index in range(4):
        own = [body for body in bodies if body.startswith(b"%d:" % index)]
        assert own == [b"%d:%d" % (index, place) for place in range(50)]
    for connection in peers:
        await connection.close()
