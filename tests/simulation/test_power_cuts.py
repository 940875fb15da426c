"""A store on a disk that loses its power, again and again; the disk's own rules are tested here, too."""

import os
from pathlib import Path

import pytest

from pocketmq.store import MessageStore
from tests.simulation.machine import Machine
from tests.store.stores import open_store, read_all, send
from tests.store.timers import Timers


def _sync_below(folder: Path, chance: float, machine: Machine) -> None:
    """Some files reach the platter by themselves: the kernel writes back what it likes."""
    for path in sorted(folder.rglob("0" * 15 + "*")):
        if machine.chance(f"{path.name} {machine.loop.now_s}").random() < chance:
            descriptor = os.open(path, os.O_RDWR)
            os.fdatasync(descriptor)
            os.close(descriptor)
        machine.loop.now_s += 0.001


def _flush_log(store: MessageStore) -> None:
    for file in store.commit_log.files.files:
        file.sync()


def _check(store: MessageStore, flushed: set[tuple[int, bytes]]) -> None:
    there = {
        (queue, bytes(record.body))
        for queue in range(4)
        for record in read_all(store, "Topic", queue)
    }
    assert flushed <= there


@pytest.mark.parametrize("seed", range(60))
def test_what_was_flushed_is_there_after_every_power_cut(seed: int) -> None:
    """Four times: what one recovery cut off must not come back at the next and be believed."""
    with Machine(f"power {seed}") as machine:
        chance = machine.chance("test")
        disk = machine.disk("store")
        flushed: set[tuple[int, bytes]] = set()
        for life in range(4):
            store = open_store(Path(disk.root), message_index_enable=False)
            _check(store, flushed)
            sent: set[tuple[int, bytes]] = set()
            for number in range(chance.choice((1, 2, 5, 30))):
                queue, body = (
                    chance.randrange(4),
                    b"%d %02d " % (life, number) + bytes(100),
                )
                send(store, "Topic", queue, body)
                sent.add((queue, body))
                if chance.randrange(4) == 0:
                    _flush_log(store)
                    flushed |= sent
            _sync_below(Path(disk.root, "consumequeue"), chance.random(), machine)
            disk.after_power_cut()
            store.close()
        store = open_store(Path(disk.root), message_index_enable=False)
        _check(store, flushed)
        store.close()


@pytest.mark.parametrize("seed", range(4))
def test_no_timer_is_lost_when_the_power_goes_amid_a_clean_stop(seed: int) -> None:
    """timercheck must not call delivered what is not on the disk yet: the log is flushed after the timers."""
    with Machine(f"stop {seed}") as machine:
        disk = machine.disk("store")
        timers = Timers(Path(disk.root))
        timers.send("T", "x", TIMER_DELAY_MS=2_000)
        timers.work()
        timers.store.flush_now()
        timers.pass_ms(4_000)
        assert timers.delivered("T") == ["x"]
        timers.timer.close()
        disk.after_power_cut()
        timers.store.close()
        timers.folder = Path(disk.root)
        timers.open()
        timers.pass_ms(2_000)
        assert "x" in timers.delivered("T")
        timers.close()
