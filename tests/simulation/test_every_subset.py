"""R4: a power cut keeps any subset of what was not flushed; every subset while few writes are pending."""

import itertools
import random
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from pocketmq.store import MessageStore
from pocketmq.store.log.alike_run import AlikeRecords, AlikeRun
from tests.simulation.disk import Disk
from tests.simulation.machine import Machine
from tests.simulation.test_power_cuts import _flush_log, _sync_below
from tests.store.stores import HOST, open_store, read_all, send

PENDING_MAX = 12
# Of a story with more pending writes, or with torn ones.
_DRAWN = 40
_NEW, _OLD = 0, 4
Sent = dict[tuple[int, int], bytes]


class Fates(random.Random):
    """What becomes of each block, in the order in which the disk asks; first: how much of the journal."""

    def __init__(self, fates: Sequence[bool]) -> None:
        super().__init__(0)
        self.asked = 0
        self._fates = fates

    def _next(self) -> bool:
        place, self.asked = self.asked, self.asked + 1
        return self._fates[place] if place < len(self._fates) else False

    def randint(self, a: int, b: int) -> int:
        return b if self._next() else a

    def randrange(self, *args: Any) -> int:
        return _NEW if self._next() else _OLD

    def random(self) -> float:
        """Whether a length that grew by writing is the new one."""
        return 0.0 if self._next() else 1.0


def subsets(disk: Disk, chance: random.Random) -> Iterator[random.Random]:
    """Every one, or some with torn blocks."""
    counted = Fates(())
    shutil.rmtree(disk.cut_as(counted))
    if counted.asked <= PENDING_MAX:
        yield from map(Fates, itertools.product((False, True), repeat=counted.asked))
    for _ in range(_DRAWN):
        yield random.Random(chance.random())


def story(disk: Disk, chance: random.Random, machine: Machine) -> tuple[MessageStore, Sent, Sent]:
    """A store that is written to. Returns: it, what was sent, and what of that was flushed."""
    store = open_store(Path(disk.root), message_index_enable=False)
    sent: Sent = {}
    flushed: Sent = {}
    for number in range(chance.choice((1, 2, 3, 8))):
        if chance.randrange(5) == 0:
            sent |= _run(store, number, chance.choice((10, 1_500)))
        queue = chance.randrange(3)
        body = b"%d " % number + bytes(chance.choice((10, 3_000)))
        sent[queue, send(store, "Topic", queue, body)] = body
        if chance.randrange(3) == 0:
            _flush_log(store)
            flushed |= sent
    _sync_below(Path(disk.root, "consumequeue"), chance.choice((0, 0.5, 1)), machine)
    return store, sent, flushed


def _run(store: MessageStore, number: int, size: int) -> Sent:
    """Three messages that are stored together, if all queues are there; their bodies by place."""
    ids = [2, 0, 1]
    bodies = [b"%d run %d " % (number, queue) + bytes(size) for queue in ids]
    offsets = [store.max_offset("Topic", queue) for queue in ids]
    width = len(bodies[0])
    run = AlikeRun(
        ids,
        numpy.ones(len(ids), numpy.int64),
        numpy.frombuffer(b"".join(bodies), f"V{width}"),
        [zlib.crc32(body) for body in bodies],
        [],
        0,
        None,
    )
    common = AlikeRecords(0, 0, width, b"WAIT\x01true", [])
    if store.appends.append_run("Topic", run, common, HOST) is None:
        return {}
    return dict(zip(zip(ids, offsets, strict=True), bodies, strict=True))


def check(root: str, sent: Sent, flushed: Sent) -> None:
    """What was flushed is there, nothing is that was not sent, and the store takes more."""
    for more in (b"once more", b"and again"):
        store = open_store(Path(root), message_index_enable=False)
        there = {
            (queue, record.queue_offset): bytes(record.body)
            for queue in range(3)
            for record in read_all(store, "Topic", queue)
        }
        assert flushed.items() <= there.items()
        assert there.items() <= sent.items()
        for queue in range(3):
            sent = sent | {(queue, send(store, "Topic", queue, more)): more}
        store.close()


def test_whatever_a_power_cut_keeps_what_was_flushed_is_there(
    request: pytest.FixtureRequest,
) -> None:
    left = request.config.getoption("--power-subsets")
    for seed in itertools.count():
        with Machine(f"subset {seed}") as machine:
            chance = machine.chance("test")
            disk = machine.disk("store")
            store, sent, flushed = story(disk, chance, machine)
            for number, fates in enumerate(subsets(disk, chance)):
                root = disk.cut_as(fates)
                try:
                    check(root, sent, flushed)
                except Exception as error:
                    error.add_note(f"seed {seed}, subset {number}")
                    raise
                shutil.rmtree(root)
                left -= 1
                if left == 0:
                    break
            store.close()
        if left == 0:
            return
