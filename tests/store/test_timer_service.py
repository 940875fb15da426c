"""The service of timers beside a running store: what it saves, and when."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from pocketmq.store.timer.check import TimerCheck, TimerCheckFile
from tests.store.timers import DAY_MS, Timers


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
