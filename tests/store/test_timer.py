"""TimerService: to the second, never early, over crashes, as RocketMQ 5.5.0 lays it out."""

import asyncio
import errno
import shutil
import struct
import subprocess
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from json import loads
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record, read_record, read_records
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import DiskFull, MessageStore, RecordIllegal, StoreConfig
from pocketmq.store.timer.check import TimerCheck, TimerCheckFile
from pocketmq.store.timer.log import UNIT_SIZE, TimerLog
from pocketmq.store.timer.properties import (
    TimerIllegal,
    due_ms,
    has_timer,
    passed_on,
    without_timer,
)
from pocketmq.store.timer.service import ROLL_SECONDS, TimerService
from pocketmq.store.timer.wheel import NONE, Slot, TimerWheel
from tests.golden.golden_stores import unpack

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
DAY_MS = 86_400_000
DELAY_MS_MAX = 41 * DAY_MS
START_MS = 1_795_251_000_250


class Timers:
    """A store, its timer service and a clock that a test turns; `crash` keeps what the kernel has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(START_MS)
        self.open()

    def open(self) -> None:
        config = StoreConfig(
            store_path_root_dir=str(self.folder),
            mapped_file_size_commit_log=1 << 22,
        )
        self.store = MessageStore(config, clock=self.clock, store_host=HOST)
        self.store.open()
        self.timer = TimerService(self.store, self.clock, log_file_size=UNIT_SIZE * 11)
        self.timer.load()

    def close(self) -> None:
        self.timer.close()
        self.store.close()

    def crash(self) -> None:
        """What kill -9 leaves: the files as they are, nothing said goodbye."""
        copy = self.folder.with_name(self.folder.name + "x")
        # Unlike shutil it leaves the holes of the timer wheel out.
        subprocess.run(["cp", "-r", str(self.folder), str(copy)], check=True)
        self.close()
        self.folder = copy
        self.open()

    def send(self, topic: str, body: str, **properties: object) -> None:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        out_ms = due_ms(text, self.clock.now_ms(), DELAY_MS_MAX)
        assert out_ms is not None
        text = self.timer.schedule(topic, 0, text, out_ms)
        self.store.append(TIMER_TOPIC, 0, body.encode(), text, 0, 0, self.clock.now_ms(), HOST)

    def work(self) -> None:
        """Until there is nothing to do at this moment."""
        while self.timer.step() == 0:
            pass

    def pass_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.work()

    def count_all(self) -> None:
        while self.timer.pending.count_some(0):
            pass

    def delivered(self, topic: str) -> list[str]:
        return [bytes(record.body).decode() for record in self.records(topic)]

    def records(self, topic: str) -> list[Record]:
        found: list[Record] = []
        offset = 0
        while True:
            result = self.store.read(topic, 0, offset, 1000)
            if not result.count:
                return found
            found += [record for each in result.buffers for record in read_records(each)]
            offset = result.next_offset


@pytest.fixture
def timers(tmp_path: Path) -> Iterator[Timers]:
    made = Timers(tmp_path / "store")
    yield made
    made.close()


@pytest.mark.parametrize("times", [b"9" * 5_000, "\u00b2".encode(), b"-1", b"x"])
def test_a_count_that_a_client_forged_stops_no_timer(times: bytes) -> None:
    """Python refuses to read a number of 5,000 digits: the timers would end when the message goes round."""
    properties = passed_on(b"TIMER_ROLL_TIMES\x01" + times + b"\x02", 1, 2, goes_round=True)
    assert properties_to_dict(properties)["TIMER_ROLL_TIMES"] == "1"


@pytest.mark.parametrize("size", [32_000, 32_600, 32_700, 32_767])
def test_what_is_taken_is_delivered_however_much_it_carries(timers: Timers, size: int) -> None:
    """Its times are added to its properties; and maxMessageSize may be smaller when it is due."""
    text = "x" * (size - 120)
    try:
        timers.send("T", "body", TIMER_DELAY_SEC=5 * 86_400, TEXT=text)
    except RecordIllegal:
        assert size > 32_000
        return
    timers.store.appends._body_size_max = 3
    for _ in range(4):
        timers.pass_ms(2 * DAY_MS)
    assert timers.delivered("T") == ["body"]


@pytest.mark.parametrize("ahead_ms", [1, 749, 750, 751, 1_750, 5_000, 60_123, DAY_MS])
def test_a_message_comes_in_its_second_and_never_early(timers: Timers, ahead_ms: int) -> None:
    timers.send("T", "x", TIMER_DELAY_MS=ahead_ms)
    timers.work()
    timers.pass_ms(ahead_ms - 1)
    assert timers.delivered("T") == []
    timers.pass_ms(1_001)
    assert timers.delivered("T") == ["x"]


@settings(max_examples=60)
@given(
    deliver=st.lists(st.integers(1, 200_000), min_size=1, max_size=20),
    steps=st.lists(st.integers(1, 30_000), min_size=1, max_size=20),
)
def test_any_times_are_kept_whatever_the_clock_does(deliver: list[int], steps: list[int]) -> None:
    """Never before its time, and at most a second and one look of ours after it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        timers = Timers(Path(folder) / "s")
        try:
            for number, ahead in enumerate(deliver):
                timers.send("T", str(number), TIMER_DELIVER_MS=START_MS + ahead)
            timers.work()
            for step in [*steps, 200_000, 2_000]:
                timers.pass_ms(step)
                now = timers.clock.now_ms() - START_MS
                came = {int(text) for text in timers.delivered("T")}
                assert {n for n, ahead in enumerate(deliver) if ahead + 1_000 <= now} <= came
                assert came <= {n for n, ahead in enumerate(deliver) if ahead <= now}
            assert sorted(map(int, timers.delivered("T"))) == list(range(len(deliver)))
        finally:
            timers.close()


def test_twelve_days_ahead_goes_round_and_comes_on_time(timers: Timers) -> None:
    """Every two days a new record: retention never reaches it (invariant 1)."""
    timers.send("T", "far", TIMER_DELIVER_MS=START_MS + 12 * DAY_MS, UNIQ_KEY="K")
    timers.work()
    records_before = timers.store.max_offset(TIMER_TOPIC, 0)
    for _ in range(12 * 24 - 1):
        timers.pass_ms(3_600_000)
        newest = timers.records(TIMER_TOPIC)[-1]
        assert timers.clock.now_ms() - newest.store_ms <= (ROLL_SECONDS + 2) * 1000
    assert timers.delivered("T") == []
    timers.pass_ms(3_600_000)
    timers.pass_ms(1_000)
    [record] = timers.records("T")
    properties = properties_to_dict(record.properties)
    rolls = timers.store.max_offset(TIMER_TOPIC, 0) - records_before
    assert int(properties["TIMER_ROLL_TIMES"]) == rolls >= 5
    assert int(properties["TIMER_DEQUEUE_MS"]) >= START_MS + 12 * DAY_MS


def test_what_is_recalled_does_not_come_and_its_neighbours_do(timers: Timers) -> None:
    at = START_MS + 5 * DAY_MS
    for key in ("one", "two", "three"):
        timers.send("T", key, TIMER_DELIVER_MS=at, UNIQ_KEY=key)
    timers.work()
    out_ms = (at - 1) // 1000 * 1000
    timers.send("T", "0", TIMER_DELIVER_MS=out_ms + 1, TIMER_DEL_UNIQKEY="T+one", UNIQ_KEY="one")
    timers.send("T", "0", TIMER_DELIVER_MS=out_ms + 1, TIMER_DEL_UNIQKEY="two", UNIQ_KEY="two")
    timers.send("T", "0", TIMER_DELIVER_MS=out_ms + 1, TIMER_DEL_UNIQKEY="U+three", UNIQ_KEY="q")
    for _ in range(5 * 24):
        timers.pass_ms(3_600_000)
    timers.pass_ms(2_000)
    assert timers.delivered("T") == ["three"]


def test_a_topic_recalls_its_own_messages_only(timers: Timers) -> None:
    """Ours: RocketMQ looks at the key alone, and a client that may send anywhere cancels what others send."""
    for key in ("one", "two"):
        timers.send("T", key, TIMER_DELAY_MS=1_500, UNIQ_KEY=key)
    for key in ("T+one", "two"):
        timers.send("Own", "0", TIMER_DELAY_MS=1_500, TIMER_DEL_UNIQKEY=key, UNIQ_KEY="r")
    timers.pass_ms(60_000)
    assert timers.delivered("T") == ["one", "two"]


def test_a_recall_of_what_no_longer_waits_leaves_the_count_alone(tmp_path: Path) -> None:
    """Clients recall twice, in both spellings, or after the delivery: over stops, crashes and rounds."""
    timers = Timers(tmp_path / "s")
    counts = timers.timer.pending.counts

    def recall(key: str, deliver_ms: int) -> None:
        # The handle has the time in any case, and a time that is over makes the broker take the next second.
        out_ms = (deliver_ms - 1) // 1000 * 1000
        text = f"TIMER_DEL_UNIQKEY\x01{key}\x02UNIQ_KEY\x01{key.removeprefix('T+')}\x02".encode()
        text = timers.timer.schedule("T", 0, text, out_ms)
        timers.store.append(TIMER_TOPIC, 0, b"0", text, 0, 0, timers.clock.now_ms(), HOST)
        timers.work()

    soon, late = START_MS + 3_000, START_MS + 5 * DAY_MS
    for key, at in (("over", soon), ("one", late), ("two", late), ("three", late)):
        timers.send("T", key, TIMER_DELIVER_MS=at, UNIQ_KEY=key)
    timers.pass_ms(6_000)
    assert timers.delivered("T") == ["over"]
    for key in ("T+over", "T+one", "one", "T+one"):
        recall(key, soon if key == "T+over" else late)
    assert counts == {"T": 2}
    timers.close()
    timers.open()
    assert not timers.timer.pending.counting
    recall("one", late)
    assert timers.timer.pending.counts == {"T": 2}
    timers.crash()
    timers.count_all()
    assert timers.timer.pending.counts == {"T": 2}
    timers.crash()
    recall("one", late)
    timers.count_all()
    assert timers.timer.pending.counts == {"T": 2}
    for _ in range(5 * 24 - 1):
        timers.pass_ms(3_600_000)
        assert timers.timer.pending.counts == {"T": 2}
    timers.pass_ms(2 * 3_600_000)
    assert timers.timer.pending.counts == {"T": 0}
    assert sorted(timers.delivered("T")) == ["over", "three", "two"]
    timers.close()


def test_a_recall_counts_however_much_came_before_it(timers: Timers) -> None:
    """All of it stood in the queue, nothing in the wheel, when the second was over."""
    for number in range(700):
        timers.send("T", str(number), TIMER_DELAY_MS=1_500, UNIQ_KEY=f"k{number}")
    for number in range(0, 700, 7):
        timers.send("T", "0", TIMER_DELAY_MS=1_500, TIMER_DEL_UNIQKEY=f"T+k{number}", UNIQ_KEY="r")
    timers.pass_ms(60_000)
    assert timers.delivered("T") == [str(number) for number in range(700) if number % 7]


def test_waiting_timers_outlive_a_short_retention(tmp_path: Path) -> None:
    """They go round before fileReservedTime is over (invariant 1)."""
    timers = Timers(tmp_path / "s")
    timers.store.config.file_reserved_time = 1
    timers.send("T", "x", TIMER_DELAY_SEC=5 * 3600)
    timers.work()
    for _ in range(10 * 5):
        timers.pass_ms(360_000)
        newest = timers.records(TIMER_TOPIC)[-1]
        assert timers.clock.now_ms() - newest.store_ms < 3_600_000
    timers.pass_ms(1_000)
    assert timers.delivered("T") == ["x"]
    timers.close()


def test_a_crash_at_any_moment_loses_nothing_and_is_never_early(tmp_path: Path) -> None:
    """kill -9: after each step of some, the process dies and comes back."""
    timers = Timers(tmp_path / "s")
    ahead = [1_500, 2_500, 2_600, 4_000, 4_000, 9_000]
    for number, ms in enumerate(ahead):
        timers.send("T", str(number), TIMER_DELIVER_MS=START_MS + ms)
        timers.timer.step()
        timers.crash()
    for _ in range(24):
        timers.clock.advance_ms(500)
        timers.timer.step()
        timers.crash()
        now = timers.clock.now_ms() - START_MS
        assert {int(text) for text in timers.delivered("T")} <= {
            number for number, ms in enumerate(ahead) if ms <= now
        }
    timers.work()
    # What came since timercheck was written last comes again.
    assert set(timers.delivered("T")) == {str(number) for number in range(len(ahead))}
    timers.close()


def test_a_wheel_kept_in_memory_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    """A 5.5 broker that was killed has written its log, not its wheel (invariant 4)."""
    timers = Timers(tmp_path / "s")
    for number in range(30):
        timers.send("T", str(number), TIMER_DELIVER_MS=START_MS + 10_000 + number * 300)
    timers.work()
    never_flushed = TimerCheck(read_ms=timers.timer.check.read_ms)
    timers.close()
    (timers.folder / "config" / "timercheck").write_bytes(never_flushed.pack().ljust(4096, b"\0"))
    (timers.folder / "timerwheel").unlink()
    timers.open()
    timers.pass_ms(30_000)
    assert sorted(map(int, timers.delivered("T"))) == list(range(30))
    timers.close()


def test_units_that_a_power_cut_took_are_made_again(tmp_path: Path) -> None:
    """The disk kept the wheel and timercheck, and lost the end of the log that they speak of."""
    timers = Timers(tmp_path / "s")
    for number in range(8):
        timers.send("T", str(number), TIMER_DELIVER_MS=START_MS + 9_000)
    timers.work()
    timers.timer.files.sync()
    synced_to = timers.timer.check.log_position
    for number in range(8, 24):
        timers.send("T", str(number), TIMER_DELIVER_MS=START_MS + 9_000 + number % 3 * 4_000)
    timers.work()
    timers.close()
    check = replace(timers.timer.check, log_position=synced_to)
    (timers.folder / "config" / "timercheck").write_bytes(check.pack().ljust(4096, b"\0"))
    for file in sorted((timers.folder / "timerlog").iterdir()):
        data = bytearray(file.read_bytes())
        lost_from = max(0, UNIT_SIZE * 9 - int(file.name))
        data[lost_from:] = bytes(len(data) - lost_from)
        file.write_bytes(data)
    timers.open()
    timers.send("T", "late", TIMER_DELIVER_MS=START_MS + 20_000)
    timers.work()
    early = {f"{number}" for number in range(8)} | {f"{n}" for n in range(8, 24) if n % 3 == 0}
    timers.pass_ms(10_000)
    assert set(timers.delivered("T")) == early
    timers.pass_ms(11_000)
    assert sorted(timers.delivered("T")) == sorted([*map(str, range(24)), "late"])
    timers.close()


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


@pytest.mark.parametrize(
    ("byte", "new"),
    [
        (0, b"\x80"),
        (4, b"\xff" * 8),
        (4, b"\x7f"),
        (4, bytes(8)),
        (10, b"\x08"),
        (15, b"\x05"),
        (16, b"\x80"),
        (22, b"\x08"),
        (24, b"\x80"),
        (28, b"\x80"),
        (28, b"\x01"),
        (28, bytes(8)),
        (36, b"\x80"),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", [0, 4])
def test_a_damaged_unit_costs_no_message_and_makes_none_early(
    timers: Timers, byte: int, new: bytes, place: int
) -> None:
    """It cost its own, those before it in its second, or all behind it; its neighbours tell what it was."""
    for number in range(30):
        timers.send("T", str(number), TIMER_DELAY_SEC=5 + number % 2)
    timers.work()
    timers.close()
    # A file has 11 units less the end.
    [*_, path] = sorted((timers.folder / "timerlog").iterdir())[:2]
    data = bytearray(path.read_bytes())
    at = UNIT_SIZE * place + byte
    data[at : at + len(new)] = new
    path.write_bytes(data)
    timers.open()
    timers.pass_ms(5_000)
    assert not {str(number) for number in range(1, 30, 2)} & set(timers.delivered("T"))
    timers.pass_ms(5_000)
    assert {str(number) for number in range(30)} == set(timers.delivered("T"))


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


def test_a_delay_level_wins_and_what_waited_once_waits_no_more() -> None:
    asked = b"TIMER_DELAY_SEC\x015\x02KEYS\x01k\x02"
    assert has_timer(asked)
    assert without_timer(asked) == b"KEYS\x01k\x02"
    assert not has_timer(asked + b"TIMER_OUT_MS\x011\x02")
    assert not has_timer(b"XTIMER_DELAY_SEC\x015\x02")


# ------------------------------------------------------------ the files of RocketMQ 5.5.0


def test_the_golden_timer_log_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    """Each record of a real broker's timer topic, placed at the second at which that broker placed it,
    gives its units, and its wheel."""
    golden = unpack("v550-main.clean", tmp_path / "golden")
    theirs = TimerLog(str(golden / "timerlog"), 572)
    theirs.load(0)
    units = list(theirs.walk(0))
    assert len(units) == 33
    copy = tmp_path / "copy"
    shutil.copytree(golden, copy)
    shutil.rmtree(copy / "timerlog")
    (copy / "timerwheel").unlink()
    (copy / "config" / "timercheck").unlink()
    clock = ManualClock(units[0][1].write_ms)
    store = MessageStore(StoreConfig(store_path_root_dir=str(copy)), clock=clock, store_host=HOST)
    store.open()
    timer = TimerService(store, clock, log_file_size=572)
    timer.load()
    # Nothing is delivered while the records are placed.
    timer.check.read_ms = units[0][1].write_ms
    for _, unit in units:
        clock.jump_ms(unit.write_ms - clock.now_ms())
        data = store.record_at(unit.position)
        assert data is not None
        timer._place(read_record(data), unit.position, unit.size)
    timer.close()
    store.close()
    for file in sorted((golden / "timerlog").iterdir()):
        ours = (copy / "timerlog" / file.name).read_bytes()
        assert ours == file.read_bytes(), file.name
    assert (copy / "timerwheel").read_bytes() == (golden / "timerwheel").read_bytes()


def test_timer_counts_match_the_real_broker_after_a_crash(tmp_path: Path) -> None:
    golden = unpack("v550-main.clean", tmp_path / "golden")
    file = golden / "config" / "timermetrics"
    theirs = {name: each["count"] for name, each in loads(file.read_text())["timingCount"].items()}
    timers = Timers(golden)
    timers.count_all()
    assert dict(timers.timer.pending.counts) == theirs
    timers.clock.jump_ms(timers.timer.check.read_ms - timers.clock.now_ms())
    timers.send("GdTimer", "x", TIMER_DELAY_SEC=400_000, UNIQ_KEY="k")
    timers.work()
    theirs["GdTimer"] += 1
    assert dict(timers.timer.pending.counts) == theirs
    timers.close()
    saved = loads(file.read_text())["timingCount"]
    assert {name: each["count"] for name, each in saved.items()} == theirs
    timers.open()
    assert not timers.timer.pending.counting
    assert dict(timers.timer.pending.counts) == theirs
    timers.close()
    # Torn, and without its .bak: statistics are no reason not to start.
    file.write_text(file.read_text()[:60])
    file.with_name("timermetrics.bak").unlink()
    timers.open()
    timers.count_all()
    assert dict(timers.timer.pending.counts) == theirs
    for number in range(300):
        timers.send("GdTimer", "y", TIMER_DELAY_SEC=number // 30 + 1, UNIQ_KEY=f"l{number}")
    timers.work()
    timers.crash()
    # Some are delivered, and others come, before the count is done.
    timers.clock.advance_ms(3_000)
    for _ in range(4):
        timers.timer.step()
    timers.send("GdTimer", "z", TIMER_DELAY_SEC=100)
    timers.count_all()
    timers.pass_ms(12_000)
    assert timers.timer.pending.counts["GdTimer"] == theirs["GdTimer"] + 1
    for _ in range(130):
        timers.pass_ms(3_600_000)
    assert not any(timers.timer.pending.counts.values())
    timers.close()


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


# ------------------------------------------------------------ the files


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


async def test_the_service_runs_by_itself(tmp_path: Path) -> None:
    """The loop wakes for what comes, and saves when it ends."""
    timers = Timers(tmp_path / "s")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(timers.timer.run())
        # What is saved says what was delivered, so it waits for the log to be on the disk.
        assert timers.store.flushing is not None
        flushing = tasks.create_task(timers.store.flushing.run_log())
        await asyncio.sleep(0)
        timers.send("T", "x", TIMER_DELAY_SEC=3)
        while timers.timer.files.log.end == 0:
            await asyncio.sleep(0)
        timers.clock.advance_ms(5_000)
        timers.timer.arrived.set()
        while not timers.delivered("T"):
            await asyncio.sleep(0)
        running.cancel()
        flushing.cancel()
    assert (timers.folder / "config" / "timercheck").stat().st_size == 4096
    timers.close()


async def test_unsaved_progress_is_reported_and_delays_nothing(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO at timercheck: timers come, health names what fails, and it is saved when that is over."""
    broken = False
    real = TimerCheckFile.save

    def save(file: TimerCheckFile, check: TimerCheck) -> None:
        if broken:
            raise OSError(errno.EIO, "Input/output error")
        real(file, check)

    monkeypatch.setattr(TimerCheckFile, "save", save)
    troubles = timers.store.side_tasks.troubles
    timers.store.side_tasks.retry_ms = 1
    assert timers.store.flushing is not None

    async def passes() -> None:
        timers.clock.advance_ms(1_000)
        timers.timer.arrived.set()
        await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as tasks, asyncio.timeout(30):
        running = tasks.create_task(timers.timer.run())
        flushing = tasks.create_task(timers.store.flushing.run_log())
        # The first one is not taken before it is there.
        for count in (1, 2, 3):
            timers.send("T", "x", TIMER_DELAY_SEC=3)
            while len(timers.delivered("T")) < count:
                await passes()
            while broken and "timer-sync" not in troubles:
                await passes()
            broken = True
        broken = False
        while troubles:
            await passes()
        running.cancel()
        flushing.cancel()
    assert (timers.folder / "config" / "timercheck").stat().st_size == 4096


def test_a_crash_after_a_clock_was_set_right_loses_no_timer(timers: Timers) -> None:
    """Nothing that was saved may say that the time which comes again is over."""
    timers.send("T", "before", TIMER_DELAY_MS=2_000)
    timers.work()
    timers.clock.jump_ms(3_600_000)
    timers.work()
    timers.timer.files.sync()
    timers.clock.jump_ms(-3_600_000)
    timers.work()
    timers.send("T", "after", TIMER_DELAY_MS=3_000)
    timers.work()
    timers.crash()
    timers.pass_ms(9_000)
    # What came before may come again.
    assert set(timers.delivered("T")) == {"before", "after"}


def test_a_full_disk_leaves_no_unit_outside_the_wheel(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(slot: object) -> None:
        raise DiskFull("here", "no room")

    timers.send("T", "x", TIMER_DELAY_SEC=2)
    with monkeypatch.context() as full:
        full.setattr(timers.timer.files.wheel, "put", refuse)
        assert all(timers.timer.step() > 0 for _ in range(3))
    assert timers.timer.files.log.end == 0
    timers.work()
    assert timers.timer.files.log.end == UNIT_SIZE
    timers.pass_ms(4_000)
    assert timers.delivered("T") == ["x"]


@pytest.mark.parametrize("ahead_ms", [5_000, 3_600_000, 2 * DAY_MS])
@pytest.mark.parametrize("restarted", [False, True])
def test_timers_go_on_when_a_clock_that_ran_ahead_is_set_right(
    timers: Timers, ahead_ms: int, restarted: bool
) -> None:
    """R14: the seconds that were delivered meanwhile are not delivered again."""
    timers.send("T", "before", TIMER_DELAY_MS=4_000)
    timers.send("T", "far", TIMER_DELAY_MS=21 * DAY_MS)
    timers.work()
    timers.clock.jump_ms(ahead_ms)
    timers.work()
    assert timers.delivered("T") == ["before"]
    if restarted:
        timers.close()
        timers.open()
    timers.clock.jump_ms(-ahead_ms)
    timers.work()
    timers.send("T", "after", TIMER_DELAY_MS=3_000)
    timers.work()
    timers.pass_ms(2_999)
    assert timers.delivered("T") == ["before"]
    timers.pass_ms(1_001)
    assert timers.delivered("T") == ["before", "after"]
    timers.pass_ms(60_000)
    assert timers.delivered("T") == ["before", "after"]


async def test_a_stop_waits_for_a_save_that_is_under_way(
    timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor is closed next, and the number may be another file's when the thread writes there."""
    begun, may_end = threading.Event(), threading.Event()
    save = TimerCheckFile.save

    def slow(file: TimerCheckFile, check: TimerCheck) -> None:
        begun.set()
        assert may_end.wait(60)
        save(file, check)

    monkeypatch.setattr(timers.store, "on_disk", lambda: asyncio.sleep(0))
    timers.send("T", "body", TIMER_DELAY_SEC=5)
    timers.work()
    monkeypatch.setattr(TimerCheckFile, "save", slow)
    timers.send("T", "body", TIMER_DELAY_SEC=6)
    timers.clock.advance_ms(2_000)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(timers.timer.run())
        while not begun.is_set():
            await asyncio.sleep(0.001)
        running.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        ended_early = running.done()
        may_end.set()
    assert not ended_early
