"""Timers over crashes, cuts and damage: no message is lost, and none is early."""

import shutil
import struct
from pathlib import Path

import pytest

from pocketmq.model.names import TIMER_TOPIC
from pocketmq.store import DiskFull
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.properties import (
    TimerIllegal,
    due_ms,
)
from tests.store.timers import DAY_MS, DELAY_MS_MAX, START_MS, Timers


def before_three_are_lost(folder: Path, kept_ms: int) -> tuple[Timers, int]:
    """Return a store with one message on disk, and the position of three in the sixth second that are not."""
    timers = Timers(folder / "s")
    timers.send("T", "kept", TIMER_DELIVER_MS=kept_ms)
    timers.work()
    timers.timer.files.sync()
    end = timers.store.commit_log_max_position
    for number in range(3):
        timers.send("T", f"lost{number}", TIMER_DELIVER_MS=START_MS + 5_000)
    timers.work()
    timers.close()
    return timers, end


def lose_from(timers: Timers, position: int) -> None:
    """A power cut took the end of the commit log."""
    [log_file] = (timers.folder / "commitlog").iterdir()
    data = bytearray(log_file.read_bytes())
    data[position:] = bytes(len(data) - position)
    log_file.write_bytes(data)
    (timers.folder / "abort").touch()
    shutil.rmtree(timers.folder / "consumequeue")


def test_timers_lost_by_the_log_are_given_up_others_stay_on_time(
    tmp_path: Path,
) -> None:
    """Behind a power cut other records stand where the lost ones did."""
    timers = Timers(tmp_path / "s")
    timers.send("T", "kept", TIMER_DELIVER_MS=START_MS + 9_000)
    timers.work()
    end = timers.store.commit_log_max_position
    timers.send("T", "lost", TIMER_DELIVER_MS=START_MS + 5_000)
    timers.work()
    timers.close()
    lose_from(timers, end)
    timers.open()
    timers.send("T", "soon", TIMER_DELIVER_MS=START_MS + 12_000)
    timers.work()
    timers.pass_ms(7_000)
    assert timers.delivered("T") == []
    timers.pass_ms(7_000)
    assert timers.delivered("T") == ["kept", "soon"]
    timers.close()


def test_a_second_whose_units_were_cut_takes_messages_again(tmp_path: Path) -> None:
    """The commit log lost what the timer log knows; what comes in their second is linked to none of them."""
    timers, end = before_three_are_lost(tmp_path, START_MS + 9_000)
    lose_from(timers, end)
    timers.open()
    timers.send("T", "soon0", TIMER_DELIVER_MS=START_MS + 5_000)
    timers.work()
    assert [each.due_ms for each in timers.timer.pending.next(timers.timer.check.read_ms, 9)] == [
        (START_MS + 5_000) // 1000 * 1000 + 1000,
        (START_MS + 9_000) // 1000 * 1000 + 1000,
    ]
    timers.pass_ms(7_000)
    assert timers.delivered("T") == ["soon0"]
    timers.pass_ms(7_000)
    assert timers.delivered("T") == ["soon0", "kept"]
    timers.close()


def test_units_that_were_cut_are_not_found_again_behind_new_ones(tmp_path: Path) -> None:
    """Records of the same size come to stand where the lost ones did, and are due later."""
    timers, end = before_three_are_lost(tmp_path, START_MS + 3_000)
    units = {file.name: file.read_bytes() for file in (timers.folder / "timerlog").iterdir()}
    lose_from(timers, end)
    timers.open()
    for number in range(3):
        timers.send("T", f"soon{number}", TIMER_DELIVER_MS=START_MS + 12_000)
    timers.close()
    # The disk has not kept that they were cut.
    for name, data in units.items():
        (timers.folder / "timerlog" / name).write_bytes(data)
    timers.open()
    timers.work()
    timers.pass_ms(7_000)
    assert timers.delivered("T") == ["kept"]
    timers.pass_ms(7_000)
    assert timers.delivered("T") == ["kept", "soon0", "soon1", "soon2"]
    timers.close()


def test_a_long_stop_delivers_everything_that_was_due_meanwhile(timers: Timers) -> None:
    for days in range(1, 10):
        timers.send("T", str(days), TIMER_DELIVER_MS=START_MS + days * DAY_MS // 6)
    timers.work()
    timers.close()
    timers.clock.advance_ms(3 * DAY_MS)
    timers.open()
    timers.work()
    assert timers.delivered("T") == [str(days) for days in range(1, 10)]


def test_a_broker_of_rocketmq_reads_on_where_we_stopped(timers: Timers) -> None:
    """It takes the lower one of two offsets, a slave's and its master's: timers came twice there."""
    path = timers.folder / "config" / "timercheck"
    for count in (3, 5):
        timers.send("T", "waits", TIMER_DELAY_SEC=3_600)
        timers.send("T", "too", TIMER_DELAY_SEC=3_601)
        if count == 3:
            timers.send("T", "comes", TIMER_DELAY_SEC=1)
        timers.pass_ms(2_000)
        timers.close()
        assert struct.unpack(">7q", path.read_bytes()[:56])[2:4] == (count, count)
        timers.open()


@pytest.mark.parametrize("bit", [16, 40, 63, None], ids=str)
def test_a_damaged_time_of_progress_loses_nothing(timers: Timers, bit: int | None) -> None:
    """A changed bit took what was due for past, or for due in millions of years: nothing came any more."""
    for seconds in (1, 5, 3_600):
        timers.send("T", f"in {seconds}", TIMER_DELAY_SEC=seconds)
    timers.pass_ms(2_000)
    timers.close()
    path = timers.folder / "config" / "timercheck"
    data = path.read_bytes()
    read_ms = int.from_bytes(data[:8], "big")
    changed = 0 if bit is None else read_ms ^ 1 << bit
    path.write_bytes(changed.to_bytes(8, "big") + data[8:])
    timers.clock.advance_ms(10_000)
    timers.open()
    timers.work()
    assert sorted(set(timers.delivered("T"))) == ["in 1", "in 5"]
    timers.pass_ms(3_600_000)
    assert sorted(set(timers.delivered("T"))) == ["in 1", "in 3600", "in 5"]


def test_a_damaged_record_that_waits_stops_no_other_and_no_start(timers: Timers) -> None:
    """A topic that was no text ended each start, and held up what was due after it."""
    positions = []
    for number in range(3):
        positions.append(timers.store.commit_log_max_position)
        timers.send("T", str(number), TIMER_DELAY_SEC=5)
    timers.work()
    timers.close()
    [path] = (timers.folder / "commitlog").iterdir()
    data = bytearray(path.read_bytes())
    topic = data.index(TIMER_TOPIC.encode(), positions[1])
    data[topic : topic + 4] = b"\xff" * 4
    path.write_bytes(data)
    timers.open()
    timers.pass_ms(10_000)
    assert set(timers.delivered("T")) >= {"0", "2"}


def test_in_the_place_of_a_lost_record_no_other_comes_again(timers: Timers) -> None:
    """Its queue entry is blank and names the log's first record, a timer that was delivered."""
    timers.send("T", "first", TIMER_DELAY_SEC=5)
    timers.pass_ms(10_000)
    for body in ("lost", "last"):
        timers.send("T", body, TIMER_DELAY_SEC=5)
    timers.close()
    [path] = (timers.folder / "commitlog").iterdir()
    path.write_bytes(path.read_bytes().replace(b"lost", b"\xffost"))
    shutil.rmtree(timers.folder / "consumequeue")
    timers.open()
    timers.pass_ms(10_000)
    assert timers.delivered("T") == ["first", "last"]


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
async def test_a_master_that_followed_meanwhile_delivers_what_waits(
    timers: Timers, ahead_ms: int
) -> None:
    """It was in the middle of a second, and its clock ran ahead: the other master's progress counts."""
    timers.clock.jump_ms(ahead_ms)
    for number in range(300):
        timers.send("T", f"early {number}", TIMER_DELAY_SEC=5)
    timers.pass_ms(4_000)
    timers.clock.advance_ms(3_000)
    while len(timers.delivered("T")) < 256:
        timers.timer.step()
    timers.clock.jump_ms(-ahead_ms)
    # Another one leads, has delivered the rest, and takes what waits still.
    timers.clock.advance_ms(20_000)
    for ahead_sec in range(1, 40):
        timers.send("Late", str(ahead_sec), TIMER_DELAY_SEC=ahead_sec)
    now_ms = timers.clock.now_ms() // 1000 * 1000
    end = timers.store.max_offset(TIMER_TOPIC, 0)
    await timers.timer.follow(TimerCheck(read_ms=now_ms, queue_offset=end))
    timers.timer.load_anew()
    timers.pass_ms(60_000)
    assert sorted(map(int, timers.delivered("Late"))) == list(range(1, 40))
    assert len(timers.delivered("T")) == 256


def test_a_stop_of_a_year_is_not_counted_second_by_second(timers: Timers) -> None:
    for seconds in (1, 86_400):
        timers.send("T", f"in {seconds}", TIMER_DELAY_SEC=seconds)
    timers.work()
    timers.close()
    timers.clock.advance_ms(365 * 86_400_000)
    timers.open()
    steps = 0
    while timers.timer.step() == 0:
        steps += 1
    assert timers.delivered("T") == ["in 1", "in 86400"]
    assert steps < 100


def test_a_full_store_keeps_due_timers_until_it_has_room(timers: Timers) -> None:
    timers.send("T", "x", TIMER_DELAY_SEC=2)
    timers.work()
    timers.clock.advance_ms(5_000)

    def refuse(*_: object) -> None:
        raise DiskFull("here", "no room")

    timers.timer.deliver = refuse  # type: ignore[assignment]
    assert timers.timer.step() == 0
    assert timers.timer.step() > 0
    timers.timer.deliver = timers.store.append
    timers.work()
    assert timers.delivered("T") == ["x"]


@pytest.mark.parametrize(
    "text", ["TIMER_DELAY_SEC\x01soon", f"TIMER_DELIVER_MS\x01{START_MS + DELAY_MS_MAX + 1}"]
)
def test_a_time_that_is_none_or_too_far_ahead_is_refused(text: str) -> None:
    with pytest.raises(TimerIllegal):
        due_ms(text.encode(), START_MS, DELAY_MS_MAX)
