"""Request-reply: a reply is pushed to the one who asked, then stored."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, number

CODE = RequestCode
TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES: dict[str, Any] = {
    "MSG_TYPE": "reply",
    "CORRELATION_ID": "id-7",
    "REPLY_TO_CLIENT": "asker",
    "TTL": "3000",
}


async def reply(peer: Peer, **changed: Any) -> RemotingCommand:
    properties = {**PROPERTIES, **changed.pop("properties", {})}
    return await peer.produce(
        TOPIC, b"answer", code=CODE.SEND_REPLY_MESSAGE_V2, **changed, **properties
    )


async def test_a_reply_reaches_the_connection_of_the_one_who_asked(broker: Broker) -> None:
    """326 with the reply's header, the hosts and PUSH_REPLY_TIME; then stored; then answered."""
    async with await Peer.at(broker) as asker, await Peer.at(broker) as replier:
        await asker.heartbeat("", {}, producer="pg", client_id="asker")
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(reply(replier))
            push = await asker.request(CODE.PUSH_REPLY_MESSAGE_TO_CLIENT)
            asker.reply(push)
        answer = answering.result()
        assert bytes(push.body) == b"answer"
        assert push.ext is not None
        assert push.ext["topic"] == TOPIC
        assert push.ext["storeHost"] == broker.address
        sock = replier.writer.get_extra_info("sockname")
        assert push.ext["bornHost"] == f"{sock[0]}:{sock[1]}"
        properties = properties_to_dict(push.ext["properties"])
        assert properties.pop("PUSH_REPLY_TIME").isdigit()
        assert properties == PROPERTIES
        assert answer.code == ResponseCode.SUCCESS
        assert (number(answer, "queueId"), number(answer, "queueOffset")) == (0, 0)
        assert await replier.bodies("g", TOPIC) == [b"answer"]


@pytest.mark.parametrize("store", [True, False])
async def test_a_reply_to_nobody_is_an_error_and_stored_all_the_same(
    broker: Broker, store: bool
) -> None:
    """The remark names the client; storeReplyMessageEnable decides about storing."""
    broker.config.store_reply_message_enable = store
    async with await Peer.at(broker) as replier:
        answer = await reply(replier)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "push reply message fail, channel of <asker> not found."
        answer = await reply(replier, properties={"REPLY_TO_CLIENT": ""})
        assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
        assert broker.parts.messages.store.appends.put_count == (2 if store else 0)


async def test_a_client_that_refuses_the_reply_is_told_to_the_replier(broker: Broker) -> None:
    async with await Peer.at(broker) as asker, await Peer.at(broker) as replier:
        await asker.heartbeat("", {}, producer="pg", client_id="asker")
        opaque = replier.send(
            CODE.SEND_REPLY_MESSAGE_V2,
            {
                "a": "pg",
                "b": TOPIC,
                "c": "TBW102",
                "d": 4,
                "e": 0,
                "f": 0,
                "g": 1,
                "h": 0,
                "i": "REPLY_TO_CLIENT\x01asker",
            },
            b"x",
        )
        push = await asker.request(CODE.PUSH_REPLY_MESSAGE_TO_CLIENT)
        # The replier's connection is served while the push is waited for.
        assert (await replier.produce("T")).code == ResponseCode.SUCCESS
        asker.reply(push, ResponseCode.SYSTEM_ERROR, "no")
        answer = await replier.answer(opaque)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "push reply message to askerfail."


async def test_a_client_that_goes_while_it_is_pushed_to_is_told_too(broker: Broker) -> None:
    async with await Peer.at(broker) as replier:
        async with await Peer.at(broker) as asker:
            await asker.heartbeat("", {}, producer="pg", client_id="asker")
            opaque = replier.send(
                CODE.SEND_REPLY_MESSAGE,
                {
                    "producerGroup": "pg",
                    "topic": TOPIC,
                    "defaultTopic": "TBW102",
                    "defaultTopicQueueNums": 4,
                    "queueId": 0,
                    "sysFlag": 0,
                    "bornTimestamp": 1,
                    "flag": 0,
                    "properties": "REPLY_TO_CLIENT\x01asker",
                },
                b"x",
            )
            await asker.request(CODE.PUSH_REPLY_MESSAGE_TO_CLIENT)
        answer = await replier.answer(opaque)
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_reply_to_a_topic_that_does_not_exist_is_refused(broker: Broker) -> None:
    async with await Peer.at(broker) as replier:
        answer = await replier.produce(
            "../x", b"answer", code=CODE.SEND_REPLY_MESSAGE_V2, **PROPERTIES
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("The specified topic contains illegal characters")
        assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_replies_that_nobody_takes_are_kept_up_to_a_bound(broker: Broker) -> None:
    """The asker answers nothing: replies beyond the bound are refused, until he has disconnected."""
    shared_limits = broker.server.shared_limits
    shared_limits.limits = replace(shared_limits.limits, kept_size_max=4 << 20)
    body = bytes(200_000)
    fields = {"b": TOPIC, "a": "pg", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
    async with await Peer.at(broker) as replier, await Peer.at(broker) as other:
        async with await Peer.at(broker) as asker:
            await asker.heartbeat("", {}, producer="pg", client_id="asker")
            ext = {**fields, "i": "REPLY_TO_CLIENT\x01asker"}
            sent = [replier.send(CODE.SEND_REPLY_MESSAGE_V2, ext, body) for _ in range(7)]
            for opaque in sent[5:]:
                refused = await replier.answer(opaque)
                assert refused.code == ResponseCode.SYSTEM_BUSY
                assert "too many replies wait" in (refused.remark or "")
            assert 1_000_000 <= shared_limits.kept_size <= 1 << 20
            # Other requests of his, and another's reply, are served.
            assert (await replier.produce("T")).code == ResponseCode.SUCCESS
            opaque = other.send(CODE.SEND_REPLY_MESSAGE_V2, ext, b"small")
            for _ in range(6):
                push = await asker.request(CODE.PUSH_REPLY_MESSAGE_TO_CLIENT)
            asker.reply(push)
            assert (await other.answer(opaque)).code == ResponseCode.SUCCESS
        for opaque in sent[:5]:
            assert (await replier.answer(opaque)).code == ResponseCode.SYSTEM_ERROR
        assert shared_limits.kept_size == 0
        assert (await reply(replier)).code == ResponseCode.SYSTEM_ERROR
