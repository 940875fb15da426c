"""Held pulls on a clock that the test turns: who is woken, when, how often."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from pocketmq.broker.filters.tag_filter import TagFilter
from pocketmq.broker.waiting.long_polling import CHECK_INTERVAL_MS, HeldPull, LongPolling
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import EntryFilter
from tests.broker.members import open_connection


class Held:
    """A LongPolling whose queue ends, turns of the loop and answers the test sees."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ends: dict[tuple[str, int], int] = {}
        self.turns: list[Callable[[], None]] = []
        self.polling = LongPolling(
            self.clock, lambda topic, queue: self.ends.get((topic, queue), 0), self.turns.append
        )
        self.answered: list[int] = []
        self.run: Callable[[int], None] = self.answered.append
        self.connection = open_connection(self.clock)
        self._opaque = 0

    def hold(
        self,
        offset: int = 0,
        *,
        queue_id: int = 0,
        matches: EntryFilter | None = None,
        ms: int = 15_000,
        passes: Callable[[bytes], bool] | None = None,
        connection: Connection | None = None,
    ) -> int:
        self._opaque += 1
        opaque = self._opaque
        deadline = self.clock.monotonic_ms() + ms

        def again() -> None:
            self.run(opaque)

        pull = HeldPull(again, connection or self.connection, offset, matches, deadline, passes)
        self.polling.hold("T", queue_id, pull)
        return opaque

    def arrive(self, code: int = 0, *, queue_id: int = 0, properties: bytes = b"") -> None:
        end = self.ends[("T", queue_id)] = self.ends.get(("T", queue_id), 0) + 1
        self.polling.arrived("T", queue_id, end, code, 0, properties)

    def turn(self) -> None:
        """The next turn of the event loop."""
        turns, self.turns[:] = list(self.turns), []
        for call in turns:
            call()


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_pull_is_woken_once_by_all_messages_of_a_turn(held: Held) -> None:
    """Invariant 2."""
    opaque = held.hold()
    for _ in range(3):
        held.arrive()
    assert held.answered == []
    assert len(held.turns) == 1
    held.turn()
    assert held.answered == [opaque]
    held.arrive()
    assert held.turns == []


def test_a_pull_is_woken_only_by_its_queue_and_tag(held: Held) -> None:
    """Codes are compared by their low 32 bits, as Java's intValue does."""
    a = held.hold(matches=TagFilter(frozenset({65, -685785664})))
    b = held.hold(queue_id=1)
    held.arrive(66)
    held.turn()
    assert held.answered == []
    held.arrive(-685785664)
    held.turn()
    assert held.answered == [a]
    held.arrive(queue_id=1)
    held.turn()
    assert held.answered == [a, b]
    assert held.polling.count == 0


def test_an_offset_ahead_of_the_queue_waits_on(held: Held) -> None:
    opaque = held.hold(offset=2)
    held.arrive()
    held.arrive()
    held.turn()
    assert held.answered == []
    held.arrive()
    held.turn()
    assert held.answered == [opaque]


def test_properties_decide_for_sql(held: Held) -> None:
    opaque = held.hold(passes=lambda properties: properties == b"yes")
    held.arrive(properties=b"no")
    held.turn()
    assert held.polling.count == 1
    held.arrive(properties=b"yes")
    held.turn()
    assert held.answered == [opaque]


def test_time_runs_out_for_each_by_itself(held: Held) -> None:
    """At its deadline, not before; the wall clock does not matter."""
    first, second = held.hold(ms=1_000), held.hold(ms=2_000)
    held.clock.jump_ms(10**9)
    held.polling.check()
    held.turn()
    assert held.answered == []
    held.clock.advance_ms(1_000)
    held.polling.check()
    held.turn()
    assert held.answered == [first]
    held.clock.advance_ms(1_000)
    held.polling.check()
    held.turn()
    assert held.answered == [first, second]


def test_a_look_wakes_pulls_that_only_skipped_messages(held: Held) -> None:
    """RocketMQ's look every 5 s: a filtered pull learns the offset to continue from (20)."""
    opaque = held.hold(matches=TagFilter(frozenset({65})))
    held.arrive(66)
    held.turn()
    assert held.answered == []
    held.clock.advance_ms(CHECK_INTERVAL_MS)
    held.polling.check()
    held.turn()
    assert held.answered == [opaque]


def test_a_closed_connection_is_answered_no_more(held: Held) -> None:
    """Whether it ends before or after it was woken."""
    other = open_connection(held.clock)
    held.hold()
    stays = held.hold(connection=other)
    held.arrive()
    held.connection.closed = True
    held.turn()
    assert held.answered == [stays]
    held.hold(1)
    held.polling.connection_closed(held.connection)
    assert held.polling.count == 0
    held.hold(1)
    held.polling.check()
    assert held.polling.count == 0


def test_a_woken_pull_that_fails_does_not_affect_others(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    broken, fine = held.hold(), held.hold()

    def run(opaque: int) -> None:
        if opaque == broken:
            raise ValueError("a bug")
        held.answered.append(opaque)

    held.run = run
    held.arrive()
    held.turn()
    assert held.answered == [fine]
    assert "cannot answer a held pull" in caplog.text


async def test_the_watch_wakes_at_the_first_deadline_only() -> None:
    """A pull with an earlier deadline than the one slept for is answered at its own."""
    answered: list[int] = []
    done = asyncio.Event()
    call_soon = asyncio.get_running_loop().call_soon
    polling = LongPolling(SystemClock(), lambda topic, queue: 0, call_soon)

    def run(opaque: int) -> None:
        answered.append(opaque)
        if len(answered) == 2:
            done.set()

    clock = SystemClock()
    connection = open_connection(ManualClock())
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(polling.watch())
        now = clock.monotonic_ms()
        for opaque, ms in ((1, 400), (2, 150)):
            polling.hold("T", 0, HeldPull(partial(run, opaque), connection, 0, None, now + ms))
        async with asyncio.timeout(15):
            await done.wait()
        watch.cancel()
    assert answered == [2, 1]
    assert clock.monotonic_ms() - now >= 400


def test_a_held_pull_weighs_what_its_expression_takes(held: Held) -> None:
    """A pull with 200 KB of tags takes the room of fifty."""
    pull = HeldPull(lambda: None, held.connection, 0, None, 15_000)
    pull.weigh("a||" * 66_667)
    held.polling.hold("T", 0, pull)
    held.hold()
    assert held.polling.weight == 2 + 200_000 // 4_096
