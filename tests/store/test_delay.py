"""The delay levels: scheduled, delivered when due, once, with offsets that survive."""

import asyncio
import errno
import json
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from pocketmq.model.message_codec import properties_to_dict
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import ConfigFile, DelayService, DiskFull, MessageStore, RecordIllegal
from pocketmq.store.queue.tags_code import parse_delay_levels
from tests.store.stores import HOST, open_store, read_all, running_store, send

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def schedule(
    store: MessageStore,
    delay: DelayService,
    level: int,
    topic: str = "Topic",
    body: bytes = b"late",
) -> None:
    """What the broker does with a message that has a delay level."""
    properties = f"DELAY\x01{level}\x02TAGS\x01tagA\x02".encode()
    to, queue_id, properties, code = delay.schedule(topic, 2, properties, level)
    store.append(to, queue_id, body, properties, 5, 0, 77, HOST, tags_code=code)


def test_a_delayed_message_waits_in_its_levels_queue(tmp_path: Path) -> None:
    """disk.md 10: REAL_TOPIC, REAL_QID; the entry's code is the delivery time."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    schedule(store, delay, 3)
    [record] = read_all(store, SCHEDULE, 2)
    assert properties_to_dict(record.properties) == {
        "DELAY": "3",
        "TAGS": "tagA",
        "REAL_TOPIC": "Topic",
        "REAL_QID": "2",
    }
    assert store.entries(SCHEDULE, 2, 0, 1)[0][2] == clock.now_ms() + 10_000
    store.close()


def test_a_level_above_the_last_is_the_last(tmp_path: Path) -> None:
    """Level 99 is stored as 18."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    schedule(store, delay, 99)
    [record] = read_all(store, SCHEDULE, 17)
    assert properties_to_dict(record.properties)["DELAY"] == "18"
    assert store.entries(SCHEDULE, 17, 0, 1)[0][2] == clock.now_ms() + 7_200_000
    store.close()


def test_in_the_place_of_a_lost_record_nothing_is_delivered(tmp_path: Path) -> None:
    """Its entry is blank and names the log's first record: a half message, which was not committed."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    half = b"REAL_TOPIC\x01Topic\x02REAL_QID\x012\x02"
    store.append("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half", half, 0, 0, 77, HOST)
    for body in (b"first", b"damaged", b"last"):
        schedule(store, delay, 1, body=body)
    store.close()
    [log_file] = (tmp_path / "commitlog").iterdir()
    with log_file.open("r+b") as file:
        file.seek(log_file.read_bytes().index(b"damaged"))
        file.write(b"\xff")
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    clock.advance_ms(1_000)
    while delay.step() == 0:
        pass
    assert [bytes(each.body) for each in read_all(store, "Topic", 2)] == [b"first", b"last"]
    store.close()


def test_a_damaged_record_holds_up_no_other_of_its_level(tmp_path: Path) -> None:
    """Its topic is no text any more: the level stood still at it for ever."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    for body in (b"first", b"damaged", b"last"):
        schedule(store, delay, 1, body=body)
    [log_file] = (tmp_path / "commitlog").iterdir()
    data = log_file.read_bytes()
    at = data.index(SCHEDULE.encode(), data.index(b"damaged"))
    with log_file.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4)
    clock.advance_ms(1_000)
    while delay.step() == 0:
        pass
    assert [bytes(each.body) for each in read_all(store, "Topic", 2)] == [b"first", b"last"]
    assert delay.step() is None
    store.close()


def test_it_is_delivered_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    """The copy: same body, flag, born time and host; REAL_TOPIC, REAL_QID and DELAY stay in it."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    assert delay.step() is None
    schedule(store, delay, 2)
    schedule(store, delay, 1, body=b"sooner")
    assert delay.step() == 1000
    clock.advance_ms(999)
    assert delay.step() == 1
    assert store.max_offset("Topic", 2) == 0
    clock.advance_ms(1)
    while delay.step() == 0:
        pass
    assert [bytes(r.body) for r in read_all(store, "Topic", 2)] == [b"sooner"]
    clock.advance_ms(4000)
    while delay.step() == 0:
        pass
    late = read_all(store, "Topic", 2)[1]
    assert (bytes(late.body), late.flag, late.born_ms, late.born_host) == (b"late", 5, 77, HOST)
    assert properties_to_dict(late.properties).keys() == {"DELAY", "TAGS", "REAL_TOPIC", "REAL_QID"}
    # The copy's entry has the tag's code, so that filters see it.
    assert store.entries("Topic", 2, 1, 1)[0][2] == 3552231
    assert delay.step() is None
    assert delay.offsets == {1: 1, 2: 1}
    store.close()


def test_progress_survives_a_restart_in_rocketmqs_file(tmp_path: Path) -> None:
    """config/delayOffset.json: level to next offset, integer keys without quotes."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    for _ in range(3):
        schedule(store, delay, 1)
    clock.advance_ms(1000)
    while delay.step() == 0:
        pass
    schedule(store, delay, 1)
    delay.save()
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == b'{"offsetTable":{1:3}}'
    store.close()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    delay.load()
    assert delay.offsets == {1: 3}
    clock.advance_ms(1000)
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 4
    store.close()


def test_an_offset_beyond_the_queue_is_moved_into_it(tmp_path: Path) -> None:
    """As after the queue was cut by a recovery."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    (tmp_path / "config").mkdir()
    offsets = {"offsetTable": {"1": 99, "2": -5}}
    (tmp_path / "config" / "delayOffset.json").write_text(json.dumps(offsets))
    delay = DelayService(store, clock)
    delay.load()
    assert delay.offsets == {1: 0, 2: 0}
    schedule(store, delay, 1)
    clock.advance_ms(1000)
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 1
    store.close()


def test_a_delayed_message_is_delivered_despite_a_smaller_limit(tmp_path: Path) -> None:
    """maxMessageSize is for senders."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    schedule(store, DelayService(store, clock), 1)
    store.close()
    store = open_store(tmp_path, clock, max_message_size=3)
    delay = DelayService(store, clock)
    clock.advance_ms(1000)
    while delay.step() == 0:
        pass
    assert [bytes(record.body) for record in read_all(store, "Topic", 2)] == [b"late"]
    with pytest.raises(RecordIllegal):
        send(store)
    store.close()


def test_a_clock_set_back_delays_nothing_beyond_its_level(tmp_path: Path) -> None:
    """R14."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    schedule(store, delay, 1)
    clock.jump_ms(-86_400_000)
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 1
    store.close()


def test_delayed_messages_wait_while_the_store_takes_none(tmp_path: Path) -> None:
    """Nothing is skipped on a full disk."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    full = True

    def deliver(*args: object) -> object:
        if full:
            raise DiskFull("here", "no space")
        return store.append(*args)  # type: ignore[arg-type]

    delay = DelayService(store, clock, deliver=deliver)  # type: ignore[arg-type]
    schedule(store, delay, 1)
    clock.advance_ms(1000)
    assert delay.step() == 1000
    assert delay.offsets == {}
    full = False
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 1
    store.close()


def test_after_a_lost_queue_pending_messages_keep_their_time(tmp_path: Path) -> None:
    """disk.md 17, 2: 4.9 rebuilds the entries with the tag's hash and delivers all of them at once."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    schedule(store, delay, 18)
    due_ms = clock.now_ms() + 7_200_000
    store.close()
    for path in (tmp_path / "consumequeue" / SCHEDULE / "17").iterdir():
        path.unlink()
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path, clock)
    assert store.entries(SCHEDULE, 17, 0, 1)[0][2] == due_ms
    store.close()


async def test_the_loop_delivers_and_saves_by_itself(tmp_path: Path) -> None:
    """run() in the broker's TaskGroup; a message scheduled while it sleeps wakes it."""
    clock = ManualClock()
    store = open_store(tmp_path, clock, message_delay_level="1s")
    delay = DelayService(store, clock)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(delay.run())
        await asyncio.sleep(0)
        schedule(store, delay, 1)
        clock.advance_ms(1000)
        async with asyncio.timeout(30):
            while store.max_offset("Topic", 2) == 0:
                await asyncio.sleep(0.001)
        running.cancel()
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == b'{"offsetTable":{1:1}}'
    store.close()


async def test_unsaved_offsets_are_reported_and_delay_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: the messages come, health names what fails, and it is saved when there is room."""
    clock = ManualClock()
    full = True
    real = ConfigFile.write

    def write(file: ConfigFile, data: Iterable[bytes]) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, data)

    monkeypatch.setattr(ConfigFile, "write", write)
    settings: dict[str, object] = {"message_delay_level": "1s", "flush_delay_offset_interval": 1}
    async with running_store(tmp_path, clock, **settings) as store:
        store.side_tasks.retry_ms = 1
        delay = DelayService(store, clock)

        async def passes() -> None:
            clock.advance_ms(1_000)
            await asyncio.sleep(0.001)

        async with asyncio.TaskGroup() as tasks, asyncio.timeout(30):
            running = tasks.create_task(delay.run())
            for count in (1, 2):
                schedule(store, delay, 1)
                while store.max_offset("Topic", 2) < count:
                    await passes()
                while "delay-offsets" not in store.side_tasks.troubles:
                    await passes()
            full = False
            schedule(store, delay, 1)
            while store.side_tasks.troubles:
                await passes()
            running.cancel()
    assert store.max_offset("Topic", 2) == 3
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == b'{"offsetTable":{1:3}}'


@pytest.mark.parametrize("text", ["", "1", "s", "1s 2x", "-1s", "1.5s"])
def test_delay_levels_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(IllegalArgument, match="messageDelayLevel"):
        parse_delay_levels(text)


@pytest.mark.parametrize("ahead_ms", [30_000, 3_600_000, 86_400_000])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("ext", [False, True])
def test_a_corrected_clock_makes_nothing_due_early(
    tmp_path: Path, ahead_ms: int, restarted: bool, ext: bool
) -> None:
    """R14: store times stay at the highest that was written; due times go by the clock."""
    clock = ManualClock()
    store = open_store(tmp_path, clock, enable_consume_queue_ext=ext)
    clock.jump_ms(ahead_ms)
    send(store)
    clock.jump_ms(-ahead_ms)
    delay = DelayService(store, clock)
    schedule(store, delay, 2)
    if restarted:
        store.close()
        # As after a crash: every record's entry is looked at.
        (tmp_path / "abort").touch()
        store = open_store(tmp_path, clock, enable_consume_queue_ext=ext)
        delay = DelayService(store, clock)
        delay.load()
    assert delay.step() == 5_000
    clock.advance_ms(4_999)
    assert delay.step() == 1
    assert store.max_offset("Topic", 2) == 0
    clock.advance_ms(1)
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 1
    store.close()


def test_entries_that_are_made_again_go_by_the_clock_too(tmp_path: Path) -> None:
    """The queue is lost, and its record has the store time of a clock that ran ahead."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    clock.jump_ms(3_600_000)
    schedule(store, DelayService(store, clock), 2)
    clock.jump_ms(-3_600_000)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    assert delay.step() == 5_000
    store.close()


def test_the_unit_of_an_extended_entry_has_the_due_time(tmp_path: Path) -> None:
    """enableConsumeQueueExt: the entry holds an address, and a lost unit is made up from the record."""
    clock = ManualClock()
    store = open_store(tmp_path, clock, enable_consume_queue_ext=True)
    delay = DelayService(store, clock)
    schedule(store, delay, 2)
    assert delay.step() == 5_000
    store.close()
    shutil.rmtree(tmp_path / "consumequeue_ext")
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    assert delay.step() == 5_000
    clock.advance_ms(5_000)
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 1
    store.close()


async def test_the_stop_saves_offsets_after_the_log_is_flushed(tmp_path: Path) -> None:
    """The power may go amid a clean stop: what was delivered last must not count as done and be lost."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    schedule(store, delay, 1)
    clock.advance_ms(1_000)
    while delay.step() == 0:
        pass
    assert store.max_offset("Topic", 2) == 1
    assert store.flushed_position < store.commit_log_max_position
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(delay.run())
        await asyncio.sleep(0)
        running.cancel()
    assert b"{1:1}" in (tmp_path / "config" / "delayOffset.json").read_bytes()
    assert store.flushed_position == store.commit_log_max_position
    store.close()


def test_what_waits_in_a_level_that_is_gone_comes_all_the_same(tmp_path: Path) -> None:
    """messageDelayLevel was made shorter: its entries say when they are due. RocketMQ leaves them there."""
    clock = ManualClock()
    store = open_store(tmp_path, clock, message_delay_level="1s 5s 10s")
    delay = DelayService(store, clock)
    schedule(store, delay, 3)
    store.close()
    store = open_store(tmp_path, clock, message_delay_level="1s")
    delay = DelayService(store, clock)
    delay.load()
    assert delay.step() == 10_000
    clock.advance_ms(10_000)
    while delay.step() == 0:
        pass
    assert [bytes(each.body) for each in read_all(store, "Topic", 2)] == [b"late"]
    assert (delay.offsets, delay.step()) == ({3: 1}, None)
    store.close()


async def test_a_stop_waits_for_a_save_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that write one file at once leave a file that cannot be read, or the older offsets."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    delay = DelayService(store, clock)
    monkeypatch.setattr(store, "on_disk", lambda: asyncio.sleep(0))
    monkeypatch.setattr(store, "flush_now", lambda: None)
    begun, may_end = threading.Event(), threading.Event()
    writes: list[str] = []
    write = ConfigFile.write

    def slow(file: ConfigFile, data: Iterable[bytes]) -> None:
        writes.append("begins")
        if not begun.is_set():
            begun.set()
            assert may_end.wait(60)
        write(file, data)
        writes.append("ends")

    monkeypatch.setattr(ConfigFile, "write", slow)
    schedule(store, delay, 1)
    clock.advance_ms(20_000)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(delay.run())
        await asyncio.sleep(0)
        clock.advance_ms(20_000)
        schedule(store, delay, 3)
        while not begun.is_set():
            await asyncio.sleep(0.001)
        delay.offsets[2] = 0
        running.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        may_end.set()
    assert writes == ["begins", "ends"] * 2
    saved = (tmp_path / "config" / "delayOffset.json").read_bytes()
    assert saved == b'{"offsetTable":{1:1,2:0}}'
    store.close()
