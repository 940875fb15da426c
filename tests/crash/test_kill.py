"""R1 at the level of the store: kill -9 while it writes, again and again on the same store."""

import os
import random
import selectors
import subprocess
import sys
import time
from pathlib import Path

from pocketmq.model.record import read_record
from pocketmq.store import MessageStore
from tests.crash.recorded_store import LONG_MAX, Place, open_store, served
from tests.crash.writer import SIZES, body_of

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("POCKETMQ_KILL_ROUNDS", "12"))
SEED = int(os.environ.get("POCKETMQ_SEED", "20261121"))


def run_and_kill(store: Path, seed: int, number: int, after_lines: int) -> list[tuple[Place, int]]:
    """Let a writer acknowledge about so many messages, kill it, and take what it had said."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", str(store), str(seed), str(number)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert writer.stdout is not None
    descriptor = writer.stdout.fileno()
    said = b""
    deadline = time.monotonic() + 60
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while said.count(b"\n") < after_lines and time.monotonic() < deadline:
            if selector.select(1):
                data = os.read(descriptor, 1 << 16)
                if not data:
                    break
                said += data
    writer.kill()
    said += writer.stdout.read()
    writer.stdout.close()
    assert writer.wait() == -9, "the writer ended by itself"
    whole = said[: said.rfind(b"\n") + 1].decode().splitlines()
    acknowledged: list[tuple[Place, int]] = []
    for line in whole:
        topic, queue_id, offset, number_text = line.split()
        acknowledged.append(((topic, int(queue_id), int(offset)), int(number_text)))
    return acknowledged


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    """R1; POCKETMQ_KILL_ROUNDS for more, POCKETMQ_SEED to replay the schedule."""
    chance = random.Random(SEED)
    known: dict[Place, bytes] = {}
    number = 0
    for round_number in range(ROUNDS):
        said = run_and_kill(tmp_path, chance.randrange(1 << 30), number, chance.randrange(1, 900))
        assert said, f"round {round_number}, seed {SEED}: the writer said nothing"
        for place, sent in said:
            assert place not in known, f"an offset was given twice: {place}"
            known[place] = body_of(sent)
        store = open_store(tmp_path, **SIZES)
        try:
            found = served(store)
            lost = {place for place, body in known.items() if found.get(place) != body}
            assert not lost, f"round {round_number}, seed {SEED}"
            # What was stored and could not be said any more stays from now on, like all else.
            known = found
            check_keys(store, said[-30:])
        finally:
            store.close()
        number = said[-1][1] + 1000


def check_keys(store: MessageStore, said: list[tuple[Place, int]]) -> None:
    """The index has the messages of the writer's last moment."""
    for (topic, _, offset), sent in said:
        found: list[tuple[int, bytes]] = []
        # The messages of a batch have the key of the first.
        for key in range(sent - 4, sent + 1):
            for data in store.query_by_key(topic, f"key{key}", 64, 0, LONG_MAX).records:
                record = read_record(data)
                found.append((record.queue_offset, bytes(record.body)))
        assert (offset, body_of(sent)) in found
