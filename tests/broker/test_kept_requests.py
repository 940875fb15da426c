"""What is kept of a request until it is answered: little, counted, and bounded for one client and for all."""

import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.metrics import snapshot
from pocketmq.model.message_codec import offset_msg_id
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.hosts import pack_host
from tests.broker.serving import Peer, serving
from tests.kit.waiting import until_async

CODE = RequestCode
MIB = 1 << 20
GROUP: dict[str, Any] = {"consumerGroup": "g", "topic": "T"}
PULL: dict[str, Any] = {
    **GROUP,
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 2 | 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 15_000,
    "subVersion": 1,
    "subscription": "*",
}
NOTIFICATION = {**GROUP, "queueId": -1, "pollTime": 15_000, "bornTime": 0}
POP = {**NOTIFICATION, "maxMsgNums": 32, "invisibleTime": 60_000, "initMode": 0, "order": "false"}
WAITING = [
    pytest.param(CODE.PULL_MESSAGE, PULL, id="pull"),
    pytest.param(CODE.POP_MESSAGE, POP, id="pop"),
    pytest.param(CODE.NOTIFICATION, NOTIFICATION, id="notification"),
]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path, kept_requests_max_size=4 * MIB) as running:
        yield running


def held(broker: Broker) -> tuple[int, int]:
    """How many requests wait for a message, and their weight."""
    services = broker.parts.services
    all_ = (services.long_polling, services.pop.polling, services.pop.notifications)
    return sum(each.count for each in all_), sum(each.weight for each in all_)


@pytest.mark.parametrize(("code", "ext"), WAITING)
async def test_a_request_that_waits_keeps_neither_its_body_nor_unknown_fields(
    broker: Broker, code: int, ext: dict[str, Any]
) -> None:
    async with await Peer.at(broker) as peer:
        await peer.produce("Other")
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        tracemalloc.start()
        try:
            for count in range(1, 21):
                peer.send(code, {**ext, "unknown": "x" * 100_000}, bytes(MIB))
                await until_async(lambda: held(broker)[0] == count)  # noqa: B023
            await peer.produce("Other")
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size < 4 * MIB


@pytest.mark.parametrize(
    ("code", "ext", "field"),
    [
        (CODE.PULL_MESSAGE, PULL, "subscription"),
        (CODE.PULL_MESSAGE, PULL, "expressionType"),
        (CODE.POP_MESSAGE, POP, "exp"),
        (CODE.POP_MESSAGE, POP, "attemptId"),
        (CODE.POP_MESSAGE, POP, "bname"),
        (CODE.NOTIFICATION, NOTIFICATION, "attemptId"),
        (CODE.NOTIFICATION, NOTIFICATION, "exp"),
    ],
)
async def test_each_text_of_a_request_that_waits_has_its_weight(
    broker: Broker, code: int, ext: dict[str, Any], field: str
) -> None:
    async with await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        peer.send(code, {**ext, field: "x" * 100_000})
        await until_async(lambda: held(broker)[0] == 1)
        assert held(broker)[1] > 20


async def test_messages_handed_to_members_that_do_not_answer_are_bounded(broker: Broker) -> None:
    """CONSUME_MESSAGE_DIRECTLY: the request is small, but the message is kept until the member answers."""
    async with await Peer.at(broker) as asking, await Peer.at(broker) as member:
        sent = await asking.produce("T", bytes(300_000))
        assert sent.code == ResponseCode.SUCCESS
        await member.heartbeat("g", {"T": "*"}, client_id="silent")
        [(position, *_)] = broker.parts.messages.store.entries("T", 0, 0, 1)
        msg_id = offset_msg_id(pack_host(broker.address), position)
        ext = {"consumerGroup": "g", "clientId": "silent", "msgId": msg_id}
        asked = [asking.send(CODE.CONSUME_MESSAGE_DIRECTLY, ext) for _ in range(5)]
        for opaque in asked[3:]:
            answer = await asking.answer(opaque)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "keptRequestsMaxSize" in (answer.remark or "")
        assert 900_000 < broker.server.shared_limits.kept_size < MIB
        for _ in range(3):
            member.reply(await member.request(CODE.CONSUME_MESSAGE_DIRECTLY))
        for opaque in asked[:3]:
            assert (await asking.answer(opaque)).code == ResponseCode.SUCCESS
        assert broker.server.shared_limits.kept_size == 0


async def test_many_that_keep_all_they_may_leave_room_for_another(broker: Broker) -> None:
    """Replies to an asker that takes none: from 12 connections, then from one more."""
    fields = {"b": "T", "a": "pg", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
    ext = {**fields, "i": "REPLY_TO_CLIENT\x01asker"}
    async with AsyncExitStack() as stack:
        asker = await stack.enter_async_context(await Peer.at(broker))
        await asker.heartbeat("", {}, producer="pg", client_id="asker")
        for _ in range(12):
            one = await stack.enter_async_context(await Peer.at(broker))
            sent = [one.send(CODE.SEND_REPLY_MESSAGE_V2, ext, bytes(100_000)) for _ in range(12)]
            assert (await one.answer(sent[-1])).code == ResponseCode.SYSTEM_BUSY
        assert 3 * MIB < broker.server.shared_limits.kept_size < 4 * MIB
        last = await stack.enter_async_context(await Peer.at(broker))
        opaque = last.send(CODE.SEND_REPLY_MESSAGE_V2, ext, bytes(30_000))
        while bytes((push := await asker.request(CODE.PUSH_REPLY_MESSAGE_TO_CLIENT)).body)[30_000:]:
            pass
        asker.reply(push)
        assert (await last.answer(opaque)).code == ResponseCode.SUCCESS


async def test_the_bound_is_a_setting_and_a_metric(broker: Broker) -> None:
    assert broker.server.shared_limits.limits.kept_size_max == 4 * MIB
    broker.server.shared_limits.kept_size = 12_345
    samples = {family.metric.name: family.samples for family in snapshot(broker)}
    [(_, size)] = samples["pocketmq_kept_requests_bytes"]
    assert size == 12_345
    broker.server.shared_limits.kept_size = 0
