"""The keys of sendOnce: what was sent lately is never taken for new, however it came."""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from benchmarks.raw_load import Frames
from pocketmq.broker.once import once_topic
from pocketmq.broker.once.columns import ascend
from pocketmq.broker.once.once_topic import OnceTopic
from pocketmq.broker.once.window import KeyWindow
from pocketmq.remoting.command import RemotingCommand
from tests.broker.test_send_ways import End


class Sends:
    """Keys as they are sent, and where their messages are."""

    def __init__(self, keys_max: int, *, has_numpy: bool) -> None:
        self.now_ms = 0
        self.window = KeyWindow(keys_max, 1_000, lambda: self.now_ms, partial(bool, has_numpy))
        self.topic = OnceTopic("T", self.window)
        self.keys: list[bytes] = []

    def one(self, key: bytes) -> bool:
        is_new = self.topic.is_new(key)
        if is_new:
            self.topic.latest[key] = len(self.keys)
            self.keys.append(key)
        return is_new

    def run(self, keys: Sequence[bytes]) -> bool:
        """Keys of one size, as a read brings them."""
        joined, size = b"".join(keys), len(keys[0])
        are_new = self.topic.are_new(joined, size, ascend)
        if are_new:
            positions = range(len(self.keys), len(self.keys) + len(keys))
            self.topic.note_run(joined, size, positions)
            self.keys += keys
        return are_new


def key_of(client: int, number: int, *, is_short: bool = False) -> bytes:
    return b"%d-%d" % (client, number) if is_short else b"7F00%016X%012X" % (client, number)


@pytest.mark.parametrize("has_numpy", [False, True])
@pytest.mark.parametrize("marks_max", [3, 4_096])
@pytest.mark.parametrize("keys_max", [4_096, 8_192])
def test_a_key_of_late_is_never_new(
    monkeypatch: pytest.MonkeyPatch, has_numpy: bool, marks_max: int, keys_max: int
) -> None:
    monkeypatch.setattr(once_topic, "_MARKS_MAX", marks_max)
    chance = random.Random(keys_max + marks_max)
    sends = Sends(keys_max, has_numpy=has_numpy)
    numbers = dict.fromkeys(range(5), 0)
    for step in range(4_000):
        if not step % 97:
            sends.topic.enter()
            sends.window.tick()
            sends.now_ms += chance.choice((1, 40))
        client = chance.randrange(5)
        numbers[client] += chance.randrange(1, 4)
        number, kind = numbers[client], chance.randrange(8)
        if kind == 0 and sends.keys:
            # Again, alone or among others.
            known = chance.choice(sends.keys[-(keys_max // 4) :])
            assert not sends.one(known), (step, known)
            others = [key_of(9, step * 8 + n) for n in range(3)]
            assert not sends.run([*others, known]) or len(known) != len(others[0])
        elif kind == 1:
            keys = [key_of(client, number + n) for n in range(chance.choice((2, 30)))]
            numbers[client] += len(keys)
            if chance.random() < 0.3:
                chance.shuffle(keys)
            assert sends.run(keys)
            assert not sends.run([keys[0], key_of(client, numbers[client] + 99)])
            assert not sends.run([key_of(8, 2 * step)] * 2)
        elif kind == 2:
            # What came late, after the next one.
            assert sends.one(key_of(client, number + 1))
            assert sends.one(key_of(client, number))
            numbers[client] += 1
        else:
            assert sends.one(key_of(client, number, is_short=kind == 3))


def test_a_window_forgets_by_number_and_by_time() -> None:
    """Also after more generations than a byte counts."""
    sends = Sends(64, has_numpy=True)
    for number in range(64 * 300):
        assert sends.one(key_of(1, number))
    assert not sends.one(sends.keys[-32])
    sends.topic.enter()
    numbers = [sends.window.knows(each) for each in range(1_000)]
    assert sum(numbers) <= 64
    for _ in range(2):
        sends.now_ms += 500
        sends.window.tick()
    assert sends.one(sends.keys[-1])


async def test_reads_that_come_again_are_stored_once(tmp_path: Path) -> None:
    """In columns, one by one, or partly; the answers are those of the first time."""
    end = End(tmp_path, alone=False, one_a_read=False, checked=False)
    end.site.parts.node.config.send_once = True
    end.begin()
    frames = Frames("T", 4, 128).frames

    def places(answers: Sequence[RemotingCommand]) -> list[tuple[str, str]]:
        assert all(each.code == 0 for each in answers), answers
        return [(ext["msgId"], ext["queueOffset"]) for each in answers if (ext := each.ext)]

    first = [places(end.read(frames[at : at + 64])) for at in range(0, 256, 64)]
    one_by_one = [places(end.read([frame]))[0] for frame in frames[256:320]]
    stored = end.store.commit_log_max_position
    for at in range(0, 256, 64):
        assert places(end.read(frames[at : at + 64])) == first[at // 64]
    assert places(end.read(frames[256:320])) == one_by_one
    assert end.store.commit_log_max_position == stored
    # The same frame twice in one read, among new ones.
    answers = places(end.read([*frames[320:350], frames[330], *frames[350:380]]))
    assert answers[30] == answers[10]
    assert len(set(answers)) == 60
