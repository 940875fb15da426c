"""TimerService: to the second, never early, over crashes, as RocketMQ 5.5.0 lays it out."""

import shutil
from dataclasses import replace
from json import loads
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import DiskFull, MessageStore, RecordIllegal, StoreConfig
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.log import UNIT_SIZE, TimerLog
from pocketmq.store.timer.properties import (
    has_timer,
    passed_on,
    without_timer,
)
from pocketmq.store.timer.service import ROLL_SECONDS, TimerService
from tests.golden.golden_stores import unpack
from tests.store.timers import DAY_MS, HOST, START_MS, Timers


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


# ------------------------------------------------------------ the files


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
