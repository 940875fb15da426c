"""A group without members keeps what it has: its offsets, its order locks, its check points."""

import time
from functools import partial
from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.popping import Popper
from tests.broker.serving import Peer, number, serving
from tests.kit.waiting import until_async

SMALL_FILES = {"mapped_file_size_commit_log": 1 << 16}


def late_clock() -> ManualClock:
    """A clock for which whatever is written has outlived fileReservedTime."""
    return ManualClock(time.time_ns() // 1_000_000 + 100 * 3_600_000)


async def rounds_are_over(broker: Broker, folder: Path) -> None:
    """Wait until the broker has looked after its tables again, more than once."""
    file = folder / "config" / "consumerOffset.json"
    for mark in (1, 2):
        broker.parts.tables.offsets.place("mark", "M", 0, mark)
        # The table is written at intervals of the clock, and the clock is the test's.
        assert isinstance(broker.clock, ManualClock)
        broker.clock.advance_ms(60_000)
        await until_async(partial(is_offset, file, "M@mark", mark))


def is_offset(file: Path, key: str, offset: int) -> bool:
    """Whether the file holds that offset of queue 0."""
    if not file.exists():
        return False
    queues = fastjson.loads(file.read_bytes())["offsetTable"].get(key, {})
    return offset in (queues.get(0), queues.get("0"))


async def offset_of(peer: Peer, group: str, topic: str = "T") -> int:
    ext = {"consumerGroup": group, "topic": topic, "queueId": 0}
    answer = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    # Without a stored offset the client decides, and a push consumer begins at the end.
    return number(answer, "offset") if answer.code == ResponseCode.SUCCESS else -1


async def fill(broker: Broker, peer: Peer) -> tuple[int, int]:
    """Messages in several files of the log, the oldest of which expire. Returns: first offset and next."""
    for n in range(400):
        await peer.produce("T", b"%03d" % n + bytes(1000))
    assert broker.parts.messages.store.delete_expired_files() > 1
    return broker.parts.messages.store.min_offset("T", 0), broker.parts.messages.store.max_offset(
        "T", 0
    )


async def consume_all(peer: Peer, group: str, offset: int) -> int:
    """Messages that a member is given from `offset` on, as a client pulls on."""
    count = 0
    while True:
        answer = await peer.pull(group, "T", offset, sys_flag=4, subscription="*")
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return count
        if answer.code == ResponseCode.SUCCESS:
            count += number(answer, "nextBeginOffset") - offset
        offset = number(answer, "nextBeginOffset")


async def test_a_group_away_beyond_retention_gets_all_that_is_left(
    tmp_path: Path,
) -> None:
    """It is told where it was, which is too early, and the pull says where the first message is."""
    clock = late_clock()
    async with serving(tmp_path, clock=clock, store=SMALL_FILES) as broker:
        async with await Peer.at(broker) as peer:
            await peer.produce("T")
            await peer.heartbeat("g", {"T": "*"})
            await peer.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1},
            )
        async with await Peer.at(broker) as peer:
            begin, end = await fill(broker, peer)
            assert 1 < begin < end
            await rounds_are_over(broker, tmp_path)
            assert await offset_of(peer, "g") == 1
            assert await consume_all(peer, "g", 1) == end - begin


async def test_messages_popped_by_an_absent_group_stay_invisible(tmp_path: Path) -> None:
    """Check points and order locks outlast the members, too; nothing is handed out early."""
    clock = late_clock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for n in range(4):
            await peer.produce("T", b"%d" % n)
            await peer.produce("O", b"%d" % n)
        plain, ordered = (Popper(peer, clock.now_ms, topic=topic) for topic in ("T", "O"))
        long_ms = 600_000
        assert len(await plain.pop(invisibleTime=long_ms)) == 4
        first = await ordered.pop(order=True, maxMsgNums=2, invisibleTime=long_ms)
        assert [message.body for message in first] == [b"0", b"1"]
        # No member has consumed anything: the stored offset is that of the oldest message.
        broker.parts.tables.offsets.place("g", "T", 0, 0)
        broker.parts.tables.offsets.place("g", "O", 0, 0)
        await rounds_are_over(broker, tmp_path)
        assert await plain.bodies() == []
        assert await ordered.bodies(order=True, maxMsgNums=2) == []
        clock.advance_ms(long_ms)
        broker.parts.services.pop.step()
        again = await plain.pop()
        assert [(message.body, message.reconsume_times) for message in again] == [
            (b"%d" % n, 1) for n in range(4)
        ]
        assert await ordered.bodies(order=True, maxMsgNums=2) == [b"0", b"1"]


async def test_cleaning_queue_files_does_not_let_offsets_begin_anew(tmp_path: Path) -> None:
    """They would begin at 0, and a group that has consumed all waits far behind: it would miss what comes."""
    clock = late_clock()
    async with (
        serving(tmp_path, clock=clock, store=SMALL_FILES) as broker,
        await Peer.at(broker) as peer,
    ):
        for _ in range(5):
            await peer.produce("T")
        broker.parts.tables.offsets.place("g", "T", 0, 5)
        for _ in range(400):
            await peer.produce("Other", bytes(1000))
        assert broker.parts.messages.store.delete_expired_files() > 1
        assert (await peer.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        for _ in range(3):
            await peer.produce("T")
        assert await consume_all(peer, "g", await offset_of(peer, "g")) == 3
