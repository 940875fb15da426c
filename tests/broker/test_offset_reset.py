"""Reset of one queue by the broker itself, as RocketMQ 5.x does: members learn of it with their next pull."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.popping import Popper
from tests.broker.serving import Peer, body_of, number, records, serving
from tests.kit.waiting import until_async

COMMIT, SUSPEND, OWN = 1, 2, 4


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """Forty messages in queue 0 of T, four in queue 1; g has consumed all of them and is offline."""
    async with serving(tmp_path) as made, await Peer.at(made) as peer:
        for n in range(40):
            await peer.produce("T", b"%d" % n)
        for n in range(4):
            await peer.produce("T", b"other %d" % n, queue_id=1)
        made.parts.tables.groups.find("g")
        for queue_id, offset in ((0, 40), (1, 4)):
            made.parts.tables.offsets.place("g", "T", queue_id, offset)
        yield made


async def reset(peer: Peer, **more: Any) -> RemotingCommand:
    ext = {"topic": "T", "group": "g", "timestamp": 0, "isForce": True, "queueId": 0, **more}
    return await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext, version=513)


async def stored(peer: Peer, queue_id: int = 0) -> int:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": queue_id}
    return number(await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext), "offset")


async def commit(peer: Peer, offset: int, *, oneway: bool = True) -> None:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset}
    if oneway:
        peer.send(RequestCode.UPDATE_CONSUMER_OFFSET, ext, oneway=True)
    else:
        await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


async def test_a_reset_of_one_queue_redelivers_only_that_queue(
    broker: Broker,
) -> None:
    """Five messages, not the topic."""
    async with await Peer.at(broker) as peer:
        answer = await reset(peer, offset=35)
        (queue,) = body_of(answer)["offsetTable"].items()
        assert (queue[0].get("queueId"), queue[1]) == (0, 35)
        assert (await stored(peer), await stored(peer, 1)) == (35, 4)
        found = await peer.pull("g", "T", 35, sys_flag=OWN, subscription="*")
        assert [int(record.body) for record in records(found)] == [35, 36, 37, 38, 39]


async def test_after_a_reset_the_old_offsets_of_a_member_do_not_count(
    broker: Broker,
) -> None:
    """Not those that come with the pull, nor those that a client still commits for a while."""
    async with await Peer.at(broker) as admin, await Peer.at(broker) as member:
        await member.heartbeat("g", {"T": "*"})
        await reset(admin, offset=35)
        await commit(member, 40)
        assert await stored(member) == 35
        told = await member.pull("g", "T", 40, sys_flag=COMMIT, commitOffset=40)
        assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert number(told, "nextBeginOffset") == 35
        await commit(member, 40)
        assert await stored(member) == 35
        # It has dropped the queue, and takes it anew.
        await commit(member, 35)
        found = await member.pull("g", "T", 35, sys_flag=COMMIT, commitOffset=35)
        assert len(records(found)) == 5
        await commit(member, 40)
        assert await stored(member) == 40


async def test_a_pull_that_waits_is_told_at_once(broker: Broker) -> None:
    async with await Peer.at(broker) as admin, await Peer.at(broker) as member:
        await member.heartbeat("g", {"T": "*"})
        waiting = member.send_pull("g", "T", 40, sys_flag=SUSPEND, suspendTimeoutMillis=60_000)
        await until_async(lambda: broker.parts.services.long_polling.polling("T", 0) == 1)
        await reset(admin, offset=35)
        told = await member.answer(waiting)
        assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")


async def test_a_client_that_does_not_go_where_it_is_told_is_told_once(broker: Broker) -> None:
    """A pull consumer keeps offsets of its own."""
    async with await Peer.at(broker) as peer:
        await reset(peer, offset=35)
        told = await peer.pull("g", "T", 10, sys_flag=OWN, subscription="*")
        assert told.code == ResponseCode.PULL_OFFSET_MOVED
        found = await peer.pull("g", "T", 10, sys_flag=OWN, subscription="*")
        assert len(records(found)) == 30


async def test_a_second_reset_replaces_one_no_member_has_seen(broker: Broker) -> None:
    async with await Peer.at(broker) as peer:
        await reset(peer, offset=35)
        await commit(peer, 20, oneway=False)
        assert await stored(peer) == 20
        found = await peer.pull("g", "T", 20, sys_flag=OWN, subscription="*")
        assert len(records(found)) == 20


async def test_a_group_that_pops_goes_on_at_the_reset_offset(broker: Broker) -> None:
    """Nothing of the reset is left for a group that pulls later."""
    async with await Peer.at(broker) as peer:
        await reset(peer, offset=35)
        popper = Popper(peer, broker.clock.now_ms)
        assert await popper.bodies() == [b"35", b"36", b"37", b"38", b"39"]
        found = await peer.pull("g", "T", 10, sys_flag=OWN, subscription="*")
        assert len(records(found)) == 30


@pytest.mark.parametrize("offset", [10, 38])
async def test_an_offset_set_by_an_administrator_moves_a_pop_group(
    broker: Broker, offset: int
) -> None:
    """Back and forth, as in RocketMQ: that is how tools reset a group that is offline."""
    async with await Peer.at(broker) as peer, await Peer.at(broker) as admin:
        broker.parts.tables.offsets.place("g", "T", 0, 20)
        popper = Popper(peer, broker.clock.now_ms)
        assert len(await popper.pop(maxMsgNums=10)) == 10
        await commit(admin, offset, oneway=False)
        [message] = await popper.pop(maxMsgNums=1)
        assert message.body == b"%d" % offset


async def test_without_an_offset_the_time_decides(broker: Broker) -> None:
    async with await Peer.at(broker) as peer:
        await reset(peer, timestamp=0, offset=-1)
        assert await stored(peer) == 0
        await reset(peer, timestamp=-1)
        assert await stored(peer) == 40


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "X"}, ResponseCode.TOPIC_NOT_EXIST, "Topic X does not exist"),
        ({"group": "x"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group x does not exist"),
        (
            {"offset": 99},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 99 not in consume queue range [0-40]",
        ),
        # RocketMQ takes these two: the next message would be passed over, or nothing reset.
        (
            {"offset": 41},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 41 not in consume queue range [0-40]",
        ),
        (
            {"queueId": 7, "offset": 0},
            ResponseCode.SYSTEM_ERROR,
            "queueId[7] is illegal, topic:[T] topicConfig.readQueueNums:[4]",
        ),
    ],
)
async def test_a_reset_that_cannot_be_is_refused(
    broker: Broker, more: dict[str, Any], code: int, remark: str
) -> None:
    async with await Peer.at(broker) as peer:
        answer = await reset(peer, **{"offset": 3, **more})
        assert (answer.code, answer.remark) == (code, remark)
        assert await stored(peer) == 40


@pytest.mark.parametrize("killed", [False, True])
async def test_a_recreated_topic_starts_without_old_offsets(tmp_path: Path, killed: bool) -> None:
    """Members commit on for a while, and the table without its offsets may not be saved any more."""
    async with serving(tmp_path) as made, await Peer.at(made) as peer:
        await peer.produce("T", b"old")
        await peer.heartbeat("g", {"T": "*"})
        await commit(peer, 1)
        assert await stored(peer) == 1
    saved = (tmp_path / "config" / "consumerOffset.json").read_bytes()
    async with serving(tmp_path) as made, await Peer.at(made) as peer:
        await peer.heartbeat("g", {"T": "*"})
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        await commit(peer, 1)
    if killed:
        (tmp_path / "config" / "consumerOffset.json").write_bytes(saved)
    async with serving(tmp_path) as made, await Peer.at(made) as peer:
        await peer.produce("T", b"new")
        assert await stored(peer) == 0


async def test_a_running_member_reads_a_recreated_topic_from_its_start(
    tmp_path: Path,
) -> None:
    """It pulls on behind the new topic's end; in any other queue it is sent to the end, as by RocketMQ."""
    async with serving(tmp_path) as made, await Peer.at(made) as peer:
        for topic in ("T", "Other"):
            for _ in range(5):
                await peer.produce(topic, b"old")
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        for _ in range(2):
            await peer.produce("T", b"new")
        for topic, following in (("T", 0), ("Other", 5)):
            told = await peer.pull("g", topic, 9, sys_flag=OWN, subscription="*")
            assert told.code == ResponseCode.PULL_OFFSET_MOVED
            assert number(told, "nextBeginOffset") == following


async def test_a_queue_is_reset_to_what_was_stored_at_a_time_or_later(broker: Broker) -> None:
    """As by 5.x; a time behind all messages repeats none of them."""
    store = broker.parts.messages.store
    last = store.store_time_at("T", 0, 39)
    async with await Peer.at(broker) as peer:
        await reset(peer, timestamp=last + 1)
        assert await stored(peer) == 40
        await reset(peer, timestamp=last)
        begin = await stored(peer)
        assert store.store_time_at("T", 0, begin) == last
        assert begin == 0 or store.store_time_at("T", 0, begin - 1) < last
