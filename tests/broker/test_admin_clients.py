"""Administration that reaches clients: connections, resets, running information, direct consumption."""

from typing import Any

import pytest

from pocketmq.broker.figures.metrics import snapshot
from pocketmq.model.message_codec import offset_msg_id
from pocketmq.model.record import read_record
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.fastjson import ObjectKey
from pocketmq.remoting.hosts import pack_host
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection
from tests.broker.admin_site import CODE, HEARTBEAT, OK, Site, queue
from tests.kit.waiting import until_async


async def test_who_is_connected_is_shown(site: Site) -> None:
    """S65, S66, S85."""
    await site.make_topic("T", 1)
    await site.ask(CODE.HEART_BEAT, fastjson.dumps(HEARTBEAT))
    found = await site.json(CODE.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    (connection,) = found.pop("connectionSet")
    assert (connection["clientId"], connection["language"]) == ("c1", "PYTHON")
    assert found["subscriptionTable"]["T"]["subString"] == "tagA"
    assert found["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    producers = await site.json(CODE.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
    assert producers["connectionSet"] == [connection]
    everybody = (await site.json(CODE.GET_ALL_PRODUCER_INFO))["data"]
    assert everybody["p"][0]["remoteIP"] == "/" + connection["clientAddr"]
    assert await site.json(CODE.QUERY_TOPIC_CONSUME_BY_WHO, topic="T") == {"groupList": ["g"]}
    offline = await site.ask(CODE.GET_CONSUMER_CONNECTION_LIST, consumerGroup="none")
    assert (offline.code, offline.remark) == (206, "the consumer group[none] not online")


async def test_a_reset_reaches_all_members_and_returns_the_offsets(site: Site) -> None:
    """wire.md 3.6."""
    await site.make_topic("T", 2)
    for _ in range(3):
        site.put("T", 0)
    where: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": True}
    none = await site.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, **where)
    assert (none.code, none.remark) == (1, "THe consumer group <g> not exist")
    for queue_id in (0, 1):
        site.broker.parts.tables.offsets.commit("g", "T", queue_id, 0, "test")
    offline = await site.ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, **where)
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    got: list[Any] = []

    def reset(request: RemotingCommand, connection: Connection) -> None:
        got.append((request.ext, fastjson.loads(request.body)))

    async with RemotingClient(
        {CODE.RESET_CONSUMER_CLIENT_OFFSET: reset}, SystemClock()
    ) as consumer:
        beat = RemotingCommand(CODE.HEART_BEAT, None, fastjson.dumps(HEARTBEAT))
        await consumer.invoke(site.broker.address, beat)
        answer = await site.json(CODE.INVOKE_BROKER_TO_RESET_OFFSET, **where)
        # A second question over the same connection comes back after the push did.
        await consumer.invoke(site.broker.address, RemotingCommand(CODE.GET_BROKER_RUNTIME_INFO))
    assert answer == {"offsetTable": {queue("T", 0): 3, queue("T", 1): 0}}
    ((ext, pushed),) = got
    assert ext == {"group": "g", "isForce": "false", "timestamp": "-1", "topic": "T"}
    assert pushed == answer


async def test_running_info_status_and_direct_consumption_are_relayed(site: Site) -> None:
    await site.make_topic("T", 1)
    position = site.put("T", 0, b"direct", b"UNIQ_KEY\x01U")
    msg_id = offset_msg_id(pack_host(site.broker.address), position)
    seen: list[RemotingCommand] = []

    def answer(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        seen.append(request)
        if request.code == CODE.GET_CONSUMER_STATUS_FROM_CLIENT:
            table = {"messageQueueTable": {queue("T", 0): 1}}
            return request.answer(OK, body=fastjson.dumps(table))
        return request.answer(OK, body=b'{"said":"by the client"}')

    handled = (
        CODE.GET_CONSUMER_RUNNING_INFO,
        CODE.CONSUME_MESSAGE_DIRECTLY,
        CODE.GET_CONSUMER_STATUS_FROM_CLIENT,
    )
    async with RemotingClient(dict.fromkeys(handled, answer), SystemClock()) as consumer:
        beat = RemotingCommand(CODE.HEART_BEAT, None, fastjson.dumps(HEARTBEAT))
        await consumer.invoke(site.broker.address, beat)
        member: dict[str, Any] = {"consumerGroup": "g", "clientId": "c1"}
        said = {"said": "by the client"}
        assert await site.json(CODE.GET_CONSUMER_RUNNING_INFO, **member, jstackEnable=True) == said
        assert seen[-1].ext == {**member, "jstackEnable": "true"}
        assert await site.json(CODE.CONSUME_MESSAGE_DIRECTLY, **member, msgId=msg_id) == said
        assert bytes(read_record(bytes(seen[-1].body)).body) == b"direct"
        assert (seen[-1].ext or {})["brokerName"] == "a"
        status = await site.json(
            CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g", clientAddr=""
        )
        assert status == {"consumerTable": {"c1": {queue("T", 0): 1}}, "messageQueueTable": {}}
        for wrong in ("zz", "7F" * 16):
            bad = await site.ask(CODE.CONSUME_MESSAGE_DIRECTLY, **member, msgId=wrong)
            assert bad.code == ResponseCode.SYSTEM_ERROR
    gone = await site.ask(CODE.GET_CONSUMER_RUNNING_INFO, consumerGroup="x", clientId="y")
    assert (gone.code, gone.remark) == (1, "The Consumer <x> <y> not online")


async def test_the_metric_says_what_only_the_members_know(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape asks them; the doctor's rules judge what they say."""
    monkeypatch.setattr("pocketmq.broker.groups.member_reports.INTERVAL_S", 0.01)
    await site.make_topic("T", 2)
    for queue_id in (0, 1):
        site.put("T", queue_id)
        site.broker.parts.tables.offsets.commit("g", "T", queue_id, 0, "test")
    elsewhere = ObjectKey.of(brokerName="b", queueId=0, topic="T")
    said: dict[str, list[ObjectKey] | None] = {}

    def member(client_id: str) -> RemotingClient:
        def answer(request: RemotingCommand, connection: Connection) -> RemotingCommand:
            assert (request.ext or {})["clientId"] == client_id
            queues = said[client_id]
            if queues is None:
                return request.answer(ResponseCode.SYSTEM_ERROR)
            row = {"cachedMsgCount": 1, "lastConsumeTimestamp": 1}
            return request.answer(OK, body=fastjson.dumps({"mqTable": dict.fromkeys(queues, row)}))

        return RemotingClient({CODE.GET_CONSUMER_RUNNING_INFO: answer}, SystemClock())

    def measured() -> set[str]:
        (family,) = (
            each for each in snapshot(site.broker) if each.metric.name == "pocketmq_group_symptoms"
        )
        return {values[-2] for values, _ in family.samples} - {"LAG"}

    async def until_metric(wanted: set[str]) -> None:
        await until_async(lambda: measured() == wanted)

    steps: list[tuple[list[ObjectKey], list[ObjectKey] | None, set[str]]] = [
        ([queue("T", 0), queue("T", 1)], [], {"MEMBER_STUCK", "ONE_MEMBER_HAS_ALL"}),
        ([queue("T", 0)], [elsewhere], {"MEMBER_STUCK", "QUEUES_UNREAD"}),
        ([queue("T", 0), queue("T", 1)], [elsewhere], {"MEMBER_STUCK"}),
        ([queue("T", 0)], [], {"MEMBER_STUCK", "QUEUES_UNREAD"}),
        ([queue("T", 0)], None, {"MEMBER_STUCK"}),
    ]
    async with member("c1") as first, member("c2") as second:
        for client_id, client in (("c1", first), ("c2", second)):
            beat = fastjson.dumps({**HEARTBEAT, "clientID": client_id})
            await client.invoke(site.broker.address, RemotingCommand(CODE.HEART_BEAT, None, beat))
        for one, other, wanted in steps:
            said.update(c1=one, c2=other)
            await until_metric(wanted)


async def test_a_client_that_is_too_old_is_not_asked(site: Site) -> None:
    async with RemotingClient({}, SystemClock()) as consumer:
        beat = RemotingCommand(CODE.HEART_BEAT, None, fastjson.dumps(HEARTBEAT), version=30)
        await consumer.invoke(site.broker.address, beat)
        answer = await site.ask(CODE.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "too low" in (answer.remark or "")
