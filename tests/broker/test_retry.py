"""Send-back: retry topic, delay levels, dead letters (CONSUMER_SEND_MSG_BACK)."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id, properties_to_dict
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record, read_record
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, records, serving
from tests.kit.waiting import until_async

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    # The first levels are short here, so that a message can be followed on its whole way.
    levels = "1s " * 2 + "1s " * 14 + "1h 2h"
    async with serving(tmp_path, store={"message_delay_level": levels}) as running:
        yield running


def position(answer: RemotingCommand) -> int:
    assert answer.ext is not None
    return parse_offset_msg_id(answer.ext["msgId"])[1]


async def send_back(
    peer: Peer, offset: int, level: int = 0, group: str = "g", **more: Any
) -> RemotingCommand:
    how = {"version": more.pop("version", 407)}
    ext = {"offset": offset, "group": group, "delayLevel": level, **more}
    return await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext, **how)


def waiting(broker: Broker, queue_id: int, topic: str = SCHEDULE) -> Record:
    """The newest record of a level's queue, or of the timer's."""
    last = broker.parts.messages.store.max_offset(topic, queue_id) - 1
    found = broker.parts.messages.store.record_at(
        broker.parts.messages.store.entries(topic, queue_id, last, 1)[0][0]
    )
    assert found is not None
    return read_record(found)


async def test_a_message_comes_back_by_the_level_of_its_count(broker: Broker, peer: Peer) -> None:
    """wire.md 3.3: level 3 + times consumed; reconsumeTimes one more; where it is from stays."""
    answer = await peer.produce("T", b"body", sys_flag=0x301, TAGS="t", KEYS="k", mine="x")
    assert answer.ext is not None
    assert (await send_back(peer, position(answer))).code == ResponseCode.SUCCESS
    first = waiting(broker, 2)
    assert properties_to_dict(first.properties) == {
        "TAGS": "t",
        "KEYS": "k",
        "mine": "x",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": answer.ext["msgId"],
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert (bytes(first.body), first.sys_flag, first.reconsume_times) == (b"body", 0x301, 1)
    assert first.born_ms == 1_700_000_000_000
    pulled = await peer.pull("g", "%RETRY%g", 0, sys_flag=6, subscription="*")
    (again,) = records(pulled)
    assert (again.topic, again.reconsume_times) == ("%RETRY%g", 1)

    await send_back(peer, again.position)
    second = waiting(broker, 3)
    properties = properties_to_dict(second.properties)
    assert second.reconsume_times == 2
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["ORIGIN_MESSAGE_ID"] == answer.ext["msgId"]
    assert properties["DELAY"] == "4"
    assert broker.parts.messages.stats.sent_back == {("g", "T"): 2}
    retry = broker.parts.tables.topics.get("%RETRY%g")
    assert retry is not None
    assert (retry.read_queues, retry.perm) == (1, 6)


@pytest.mark.parametrize(
    ("policy", "pauses_ms"),
    [
        ({"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [7_000, 3_000]}}, (7_000, 3_000)),
        (
            '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":4000,"max":9999,"multiplier":2}}',
            (4_000, 8_000, 9_999),
        ),
    ],
    ids=["customized", "exponential, as a text"],
)
async def test_a_groups_own_policy_says_when(
    tmp_path: Path, policy: Any, pauses_ms: tuple[int, ...]
) -> None:
    """It comes when the pause is over, not before, whatever it waited for earlier."""
    clock = ManualClock(1_700_000_000_000)
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        group = GroupConfig("g", retry_max_times=len(pauses_ms), extra={"groupRetryPolicy": policy})
        broker.parts.tables.groups.update(group)
        store = broker.parts.messages.store

        def is_there(offset: int) -> bool:
            return store.max_offset("%RETRY%g", 0) == offset + 1

        at = position(await peer.produce("T", TIMER_DELIVER_MS="1"))
        for count, pause_ms in enumerate(pauses_ms):
            assert (await send_back(peer, at)).code == ResponseCode.SUCCESS
            last = waiting(broker, 0, TIMER_TOPIC)
            due_ms = (clock.now_ms() + pause_ms - 1) // 1_000 * 1_000
            assert properties_to_dict(last.properties)["TIMER_OUT_MS"] == str(due_ms)
            clock.advance_ms(pause_ms + 1_000)
            await until_async(partial(is_there, count))
            (again,) = records(
                await peer.pull("g", "%RETRY%g", count, sys_flag=6, subscription="*")
            )
            assert again.reconsume_times == count + 1
            at = again.position
        # A level that the client names comes first; behind the maximum the message is dead.
        assert (await send_back(peer, at, maxReconsumeTimes=99, level=5)).code == 0
        assert properties_to_dict(waiting(broker, 4).properties)["DELAY"] == "5"
        assert (await send_back(peer, at)).code == ResponseCode.SUCCESS
        assert store.max_offset("%DLQ%g", 0) == 1


async def test_the_policy_that_every_tool_writes_is_none_of_its_own(
    broker: Broker, peer: Peer
) -> None:
    group = GroupConfig("g", extra={"groupRetryPolicy": {"type": "CUSTOMIZED"}})
    broker.parts.tables.groups.update(group)
    await send_back(peer, position(await peer.produce("T")))
    assert properties_to_dict(waiting(broker, 2).properties)["DELAY"] == "3"


async def test_the_client_may_choose_the_level(broker: Broker, peer: Peer) -> None:
    """A level above the last is the last."""
    stored = position(await peer.produce("T"))
    await send_back(peer, stored, level=17)
    assert waiting(broker, 16).topic == SCHEDULE
    await send_back(peer, stored, level=99)
    assert properties_to_dict(waiting(broker, 17).properties)["DELAY"] == "18"


@pytest.mark.parametrize(
    ("level", "more", "retry_max_times"),
    [
        (-1, {}, 16),
        (0, {}, 0),
        (0, {"maxReconsumeTimes": 0}, 16),
        (5, {"maxReconsumeTimes": 0}, 16),
    ],
)
async def test_given_up_it_goes_to_the_dead_letters_at_once(
    broker: Broker, peer: Peer, level: int, more: dict[str, Any], retry_max_times: int
) -> None:
    """A negative level, the group's maximum, or the client's own."""
    broker.parts.tables.groups.update(GroupConfig("g", retry_max_times=retry_max_times))
    stored = position(await peer.produce("T", b"dead", TAGS="t"))
    assert (await send_back(peer, stored, level, **more)).code == ResponseCode.SUCCESS
    (dead,) = records(await peer.pull("x", "%DLQ%g", 0, sys_flag=4, subscription="*"))
    assert (bytes(dead.body), dead.reconsume_times) == (b"dead", 1)
    assert properties_to_dict(dead.properties)["DELAY"] == "0"
    config = broker.parts.tables.topics.get("%DLQ%g")
    assert config is not None
    assert (config.write_queues, config.perm) == (1, 6)


async def test_an_old_clients_maximum_is_not_asked(broker: Broker, peer: Peer) -> None:
    """Before V3_4_9 the field had no meaning."""
    stored = position(await peer.produce("T"))
    await send_back(peer, stored, maxReconsumeTimes=0, version=120)
    assert broker.parts.messages.store.max_offset("%DLQ%g", 0) == 0
    assert broker.parts.messages.store.max_offset(SCHEDULE, 2) == 1


async def test_a_group_without_retry_queues_keeps_nothing(broker: Broker, peer: Peer) -> None:
    """retryQueueNums 0: answered with success, nothing done."""
    broker.parts.tables.groups.update(GroupConfig("g", retry_queues=0))
    stored = position(await peer.produce("T"))
    assert (await send_back(peer, stored)).code == ResponseCode.SUCCESS
    assert broker.parts.messages.store.appends.put_count == 1


@pytest.mark.parametrize("offset", [-1, 1, 10**9, 2**62])
async def test_an_offset_without_a_message_is_refused(
    broker: Broker, peer: Peer, offset: int
) -> None:
    """Also one inside of a record: no client makes the broker copy bytes that are no message."""
    await peer.produce("T", b"x" * 300)
    answer = await send_back(peer, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {offset}"
    assert broker.parts.messages.store.appends.put_count == 1


async def test_what_may_not_be_written_is_refused(broker: Broker, peer: Peer) -> None:
    stored = position(await peer.produce("T"))
    broker.parts.tables.topics.update(TopicConfig("%RETRY%g", 1, 1, perm=4))
    answer = await send_back(peer, stored)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[%RETRY%g] sending message is forbidden"
    broker.config.broker_permission = 4
    answer = await send_back(peer, stored)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"


async def test_an_unknown_group_is_refused_when_groups_are_not_created(tmp_path: Path) -> None:
    async with serving(tmp_path, auto_create_subscription_group=False) as broker:
        async with await Peer.at(broker) as peer:
            stored = position(await peer.produce("T"))
            answer = await send_back(peer, stored)
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert (answer.remark or "").startswith("subscription group not exist, g ")


async def test_retries_use_only_the_queues_of_the_retry_topic(broker: Broker, peer: Peer) -> None:
    """retryQueueNums was raised later; the topic stays as it was made, and queues from 1 on are not read."""
    stored = position(await peer.produce("T"))
    broker.parts.tables.topics.create_internal("%RETRY%g", 1)
    broker.parts.tables.groups.update(GroupConfig("g", retry_queues=8))
    for _ in range(8):
        assert (await send_back(peer, stored)).code == ResponseCode.SUCCESS
    store = broker.parts.messages.store
    places = [
        properties_to_dict(read_record(store.record_at(position) or b"").properties)["REAL_QID"]
        for position, _, _ in store.entries(SCHEDULE, 2, 0, 8)
    ]
    assert places == ["0"] * 8
