"""kill -9 of the members of a group, again and again: every message is processed, no offset is ahead of it.

Three members share four queues while a producer sends; every 50 to 1,500 ms one of them, which may be
starting yet, is killed and started again under its name. After each kill no offset that the broker holds lies
beyond a message that no member has done (or sent back); in the end every acknowledged message is done, and
members of an orderly group have done each queue's in order. The seed is printed; POCKETMQ_SEED replays the
choices.
"""

import logging
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.interop.asking import ask, make_topic_at
from tests.interop.brokers import PocketBroker, RunningBroker
from tests.interop.processes import Process
from tests.kit.waiting import until

log = logging.getLogger(__name__)

TOPIC, GROUP = "KilledMembers", "killed"
QUEUES, MEMBERS = 4, 3


class Line(NamedTuple):
    """What a member has printed of a message."""

    is_done: bool
    queue_id: int
    offset: int
    times: int
    body: str
    ns: int


class Printed:
    """The lines of one process and those that took its place, as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def more(self) -> list[list[str]]:
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._position += end
        return [line.split() for line in data[:end].decode().splitlines()]


class Site:
    """The processes, and what they have said."""

    def __init__(self, broker: RunningBroker, folder: Path, kind: str) -> None:
        self._broker, self._folder, self._kind = broker, folder, kind
        self.producer = self._start("producer", "producer")
        self.members = [self._member(number) for number in range(MEMBERS)]
        self._printed = [Printed(self._folder / f"member{n}.out") for n in range(MEMBERS)]
        self._sent = Printed(self._folder / "producer.out")
        self.acked: set[str] = set()
        self.lines: list[Line] = []
        self._handled: list[set[int]] = [set() for _ in range(QUEUES)]
        # Offsets before are handled, queue by queue.
        self.whole = [0] * QUEUES

    def _start(self, name: str, kind: str, *words: str) -> Process:
        module = [sys.executable, "-m", "tests.crash.group_process", kind]
        names = [self._broker.namesrv, TOPIC, GROUP, *words]
        return Process([*module, *names], self._folder / f"{name}.out", cwd=Path.cwd())

    def _member(self, number: int) -> Process:
        return self._start(f"member{number}", self._kind, f"instance{number}")

    def kill(self, number: int) -> None:
        """kill -9, and another in its place at once."""
        self.members[number].kill()
        self.members[number] = self._member(number)

    def stop(self) -> None:
        for process in (self.producer, *self.members):
            process.kill()

    def read(self) -> None:
        """Take in what was printed since."""
        self.acked.update(words[1] for words in self._sent.more() if words[0] == "acked")
        for printed in self._printed:
            for words in printed.more():
                if words[0] in ("done", "failed"):
                    kind, queue_id, offset, times, body, ns = words
                    line = Line(
                        kind == "done", int(queue_id), int(offset), int(times), body, int(ns)
                    )
                    self.lines.append(line)
                    self._handle(line)

    def _handle(self, line: Line) -> None:
        """A message of the topic itself is done, or on its way to the retry topic."""
        if self._kind == "orderly":
            if not line.is_done:
                return
        elif line.times:
            return
        offsets = self._handled[line.queue_id]
        offsets.add(line.offset)
        while self.whole[line.queue_id] in offsets:
            self.whole[line.queue_id] += 1

    def committed(self) -> list[int]:
        """The group's offsets at the broker."""
        found = []
        for queue_id in range(QUEUES):
            ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            answer = ask(self._broker.address, RequestCode.QUERY_CONSUMER_OFFSET, ext)
            assert answer.code == ResponseCode.SUCCESS, answer
            found.append(int((answer.ext or {})["offset"]))
        return found

    def check_offsets(self) -> None:
        """No offset is beyond what was handled: the offsets are asked first: members consume meanwhile."""
        committed = self.committed()
        self.read()
        for queue_id, offset in enumerate(committed):
            assert offset <= self.whole[queue_id], (queue_id, offset, self.whole)

    def a_member_consumes(self) -> bool:
        self.read()
        return bool(self.lines)

    def story(self) -> str:
        """What is not done, and the last words of each process: why a wait came to no end."""
        self.read()
        missing = sorted(self.acked - {line.body for line in self.lines if line.is_done}, key=int)
        names = ["producer", *(f"member{number}" for number in range(MEMBERS))]
        words = [f"{n}: {(self._folder / f'{n}.out').read_text()[-1500:]}" for n in names]
        last = [line for line in self.lines if line.ns > time.monotonic_ns() - 10 * 10**9]
        return "\n".join(
            [
                f"{len(missing)} of {len(self.acked)} are not done, the first {missing[:20]}",
                f"offsets {self.committed()}, handled to {self.whole}",
                f"{len(last)} lines in the last ten seconds",
                *words,
            ]
        )

    def all_is_done(self) -> bool:
        self.read()
        return self.acked <= {line.body for line in self.lines if line.is_done}


def in_order(lines: list[Line]) -> bool:
    """Whether no message was done before one that stands before it in its queue, by any member."""
    reached = [0] * QUEUES
    for line in sorted(lines, key=lambda line: line.ns):
        if line.is_done:
            if line.offset > reached[line.queue_id]:
                return False
            reached[line.queue_id] = max(reached[line.queue_id], line.offset + 1)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
def test_every_message_is_processed_though_members_are_killed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """R2."""
    kills = max(1, int(request.config.getoption("--consumer-kills")) // 2)
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.warning("seed %d", seed)
    chance = random.Random(seed)
    with PocketBroker(tmp_path / "broker") as broker:
        make_topic_at(broker.address, TOPIC, QUEUES)
        site = Site(broker, tmp_path, kind)
        try:
            until(site.a_member_consumes, "a member consumes")
            for _ in range(kills):
                time.sleep(chance.uniform(0.05, 1.5))
                site.kill(chance.randrange(MEMBERS))
                site.check_offsets()
            site.producer.kill()
            until(site.all_is_done, "every acknowledged message is done", within_s=180)
            # A dead member's locks stand for a minute.
            until(
                lambda: site.committed() == site.whole, "the offsets are at the ends", within_s=180
            )
            site.check_offsets()
        except TimeoutError as error:
            raise AssertionError(site.story()) from error
        finally:
            site.stop()
    times = Counter(line.body for line in site.lines if line.is_done)
    log.warning(
        "kind=%s kills=%d acknowledged=%d done=%d more_than_once=%d most=%d",
        kind,
        kills,
        len(site.acked),
        len(times),
        sum(count > 1 for count in times.values()),
        max(times.values()),
    )
    assert len(site.acked) > kills
    if kind == "orderly":
        assert in_order(site.lines)
