"""What classic clients may send to a topic of lite topics, and what only the broker says."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_dict, properties_to_text
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, batch, serving
from tests.broker.stored_messages import stored

FORGED = {"INNER_MULTI_DISPATCH": "%LMQ%$Chats$victim", "INNER_MULTI_QUEUE_OFFSET": "0"}
BOUND = {"attributes": {"lite.bind.topic": "Chats"}}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path) as running:
        tables = running.parts.tables
        tables.topics.update(TopicConfig("Chats", 2, 2, attributes={"message.type": "LITE"}))
        tables.groups.update(GroupConfig("g", extra=BOUND))
        yield running


async def say(peer: Peer, **properties: str) -> RemotingCommand:
    return await peer.produce("Chats", b"x", **cast("dict[str, Any]", properties))


async def test_only_the_broker_says_in_which_light_queues_a_message_is(
    broker: Broker, peer: Peer
) -> None:
    """Not even after the index was made anew from the log."""
    kinds: tuple[dict[str, str], ...] = (
        {},
        {"__LITE_TOPIC": "mine"},
        {"TRAN_MSG": "true", "PGROUP": "p"},
    )
    for properties in kinds:
        answer = await say(peer, **FORGED, **properties)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        names = properties_to_dict((await stored(broker, answer)).properties)
        assert names.get("INNER_MULTI_DISPATCH") in (None, "%LMQ%$Chats$mine")
    forged = properties_to_text({**FORGED, "__LITE_TOPIC": "mine"}).encode()
    broker.parts.messages.put.put("Chats", 0, b"x", forged, born_host=bytes(8))
    lite = broker.parts.messages.lite
    lite.close()
    for path in (Path(broker.parts.messages.store.config.store_path_root_dir) / "lite").glob("p*"):
        path.unlink()
    lite.load()
    ends = [lite.index.next_offset(lite.index.key("Chats", name)) for name in ("mine", "victim")]
    assert ends == [1, 0]


async def test_what_is_not_stored_in_a_lite_topic_now_is_refused(
    broker: Broker, peer: Peer
) -> None:
    for name in ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG"):
        answer = await say(peer, **{"__LITE_TOPIC": "a", name: "3"})
        assert (answer.code, name in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    members = batch((b"1", properties_to_text({"__LITE_TOPIC": "a", **FORGED}).encode()))
    code = RequestCode.SEND_BATCH_MESSAGE
    answer = await peer.produce("Chats", members, code=code, more={"m": "true"})
    assert (answer.code, "no batches" in (answer.remark or "")) == (13, True)


async def test_lite_topics_beyond_the_quota_are_refused(broker: Broker, peer: Peer) -> None:
    config = broker.parts.node.config
    config.max_lmq_consume_queue_num, config.enable_lmq_quota = 1, True
    codes = [(await peer.produce("Chats", __LITE_TOPIC=name)).code for name in ("a", "b", "a")]
    assert codes == [0, ResponseCode.LMQ_QUOTA_EXCEEDED, 0]
