"""A store on a disk that loses its power, again and again; the disk's own rules are tested here, too."""

import os
from pathlib import Path

import pytest
from tests.simulation.machine import Machine
from tests.store.stores import open_store, read_all, send

from pocketmq.store import MessageStore


def _sync_below(folder: Path, chance: float, machine: Machine) -> None:
    """Some files reach the platter by themselves: the kernel writes back what it likes."""
    for path in sorted(folder.rglob("0" * 15 + "*")):
        if machine.chance(f"{path.name} {machine.loop.now_s}").random() < chance:
            descriptor = os.open(path, os.O_RDWR)
            os.fdatasync(descriptor)
            os.close(descriptor)
        machine.loop.now_s += 0.001


def _flush_log(store: MessageStore) -> None:
    for file in store._log.files.files:
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
