"""Timers in the files of RocketMQ 5.5.0: written again byte for byte, continued, counted alike."""

import struct
import tracemalloc
from pathlib import Path

from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.log import TimerLog
from pocketmq.store.timer.service import TimerService
from pocketmq.store.timer.wheel import NONE, Slot, TimerWheel
from tests.golden.golden_stores import unpack
from tests.store.timers import HOST, Timers


def test_the_golden_store_is_continued(tmp_path: Path) -> None:
    """What a real broker left waiting comes, each once, but what was recalled."""
    golden = unpack("v550-main.clean", tmp_path / "golden")
    check = TimerCheck(*struct.unpack(">7q", (golden / "config" / "timercheck").read_bytes()[:56]))
    clock = ManualClock(check.read_ms + 5_000)
    store = MessageStore(StoreConfig(store_path_root_dir=str(golden)), clock=clock, store_host=HOST)
    store.open()
    timer = TimerService(store, clock)
    timer.load()
    assert timer.check == check
    log = TimerLog(str(golden / "timerlog"), 572)
    log.load(0)
    waiting, recalled = set(), set()
    for _, unit in log.walk(0):
        data = store.record_at(unit.position)
        assert data is not None
        properties = properties_to_dict(read_record(data).properties)
        if unit.write_ms + unit.delay_ms < check.read_ms or properties["REAL_TOPIC"] != "GdTimer":
            continue
        if "TIMER_DEL_UNIQKEY" in properties:
            recalled.add(properties["UNIQ_KEY"])
        else:
            waiting.add(properties["UNIQ_KEY"])
    assert recalled
    before = [store.max_offset("GdTimer", queue) for queue in range(4)]
    for _ in range(4 * 24):
        clock.advance_ms(3_600_000)
        while timer.step() == 0:
            pass
    came = []
    for queue in range(4):
        for offset in range(before[queue], store.max_offset("GdTimer", queue)):
            [(position, _, _)] = store.entries("GdTimer", queue, offset, 1)
            data = store.record_at(position)
            assert data is not None
            came.append(properties_to_dict(read_record(data).properties)["UNIQ_KEY"])
    assert sorted(came) == sorted(waiting - recalled)
    timer.close()
    store.close()


def test_messages_that_wait_take_no_memory(timers: Timers) -> None:
    """Small: what 4,000 messages leave behind in these modules. By hand: 1,000,000."""
    for number in range(4_000):
        timers.send("T", "x", TIMER_DELAY_SEC=60 + number, UNIQ_KEY=f"k{number}")
    timers.close()
    tracemalloc.start()
    try:
        timers.open()
        timers.work()
        held = tracemalloc.take_snapshot().filter_traces(
            [
                tracemalloc.Filter(True, "*/store/timer*"),
                tracemalloc.Filter(True, "*/message_store.py"),
            ]
        )
    finally:
        tracemalloc.stop()
    assert timers.timer.pending.counts["T"] == 4_000
    assert sum(each.size for each in held.statistics("filename")) < 40_000


def test_a_slot_of_another_round_is_empty(tmp_path: Path) -> None:
    wheel = TimerWheel(str(tmp_path / "timerwheel"))
    wheel.load()
    assert wheel.get(5).last == NONE
    wheel.put(Slot(5, 0, 52, 2))
    assert wheel.get(5) == Slot(5, 0, 52, 2)
    assert wheel.get(5 + 1_209_600).last == NONE
    wheel.close()


def test_a_wheel_that_a_crash_left_empty_is_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").touch()
    wheel = TimerWheel(str(tmp_path / "timerwheel"))
    wheel.load()
    assert wheel.get(5).last == NONE
    wheel.put(Slot(5, 0, 52, 2))
    wheel.close()
    wheel = TimerWheel(str(tmp_path / "timerwheel"))
    wheel.load()
    assert wheel.get(5) == Slot(5, 0, 52, 2)
    wheel.close()


def test_files_of_the_log_go_with_the_records_that_they_are_for(timers: Timers) -> None:
    for number in range(40):
        timers.send("T", str(number), TIMER_DELAY_SEC=5)
    timers.work()
    files = sorted((timers.folder / "timerlog").iterdir())
    assert len(files) == 4
    end = timers.store.commit_log_max_position
    assert timers.timer.files.log.delete_before(0) == 0
    assert timers.timer.files.log.delete_before(end) == 3
    assert sorted((timers.folder / "timerlog").iterdir()) == files[3:]
