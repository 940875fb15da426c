"""ProcessQueue against a model of Java's TreeMap, and the rules that follow from it."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sortedcontainers import SortedDict

from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.model.message import MessageExt, Property

NOW = 1_000


def message(offset: int, size: int = 1, properties: dict[str, str] | None = None) -> MessageExt:
    return MessageExt("T", b"x" * size, queue_offset=offset, properties=properties or {})


@dataclass
class TreeMapModel:
    """ProcessQueue as RocketMQ writes it: a sorted map under one lock."""

    cached: "SortedDict[int, int]" = field(default_factory=SortedDict)
    taken: "SortedDict[int, int]" = field(default_factory=SortedDict)
    offset_max: int = -1


OFFSETS = st.integers(0, 40)


class ProcessQueueMachine(RuleBasedStateMachine):
    """S28, S29, S30: whatever order messages come and go in."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(NOW)
        self.model = TreeMapModel()

    @rule(offsets=st.lists(st.tuples(OFFSETS, st.integers(0, 5)), max_size=6))
    def put(self, offsets: list[tuple[int, int]]) -> None:
        fresh = [(offset, size) for offset, size in offsets if offset not in self.model.taken]
        self.queue.put([message(offset, size) for offset, size in fresh])
        for offset, size in fresh:
            if offset not in self.model.cached:
                self.model.cached[offset] = size
                self.model.offset_max = max(self.model.offset_max, offset)

    @rule(offsets=st.lists(OFFSETS, max_size=6))
    def remove(self, offsets: list[int]) -> None:
        before = len(self.model.cached)
        got = self.queue.remove([message(offset) for offset in offsets], NOW)
        for offset in offsets:
            self.model.cached.pop(offset, None)
        if before == 0:
            assert got == -1
        elif not self.model.cached:
            assert got == self.model.offset_max + 1
        else:
            assert got == self.model.cached.peekitem(0)[0]

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        got = [each.queue_offset for each in self.queue.take(count, NOW)]
        expected = list(self.model.cached)[:count]
        assert got == expected
        for offset in expected:
            self.model.taken[offset] = self.model.cached.pop(offset)

    @rule()
    def commit(self) -> None:
        expected = self.model.taken.peekitem(-1)[0] + 1 if self.model.taken else -1
        assert self.queue.commit() == expected
        self.model.taken.clear()

    @rule()
    def take_all_back(self) -> None:
        self.queue.take_back([message(each) for each in self.model.taken])
        for offset, size in self.model.taken.items():
            self.model.cached[offset] = size
        self.model.taken.clear()

    @invariant()
    def bounds_and_count_agree(self) -> None:
        cached = self.model.cached
        assert self.queue.first_offset == (cached.peekitem(0)[0] if cached else None)
        span = cached.peekitem(-1)[0] - cached.peekitem(0)[0] if cached else 0
        assert self.queue.max_span == span
        for limit in (0, 5, 20):
            assert self.queue.span_exceeds(limit) == (span > limit)
        assert self.queue.message_count == len(cached) + len(self.model.taken)
        assert self.queue.has_waiting == bool(cached)


ProcessQueueMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None
)
TestProcessQueue = ProcessQueueMachine.TestCase


def test_messages_that_come_out_of_order_are_taken_in_order() -> None:
    """S28: a sorted map, not a list in order of arrival."""
    queue = ProcessQueue(NOW)
    queue.put([message(5), message(3)])
    queue.put([message(4)])
    assert [each.queue_offset for each in queue.take(9, NOW)] == [3, 4, 5]


def test_remove_says_what_to_commit() -> None:
    """S29: -1 if empty before, one past the highest if empty after, else the first one left."""
    queue = ProcessQueue(NOW)
    assert queue.remove([message(1)], NOW) == -1
    queue.put([message(7), message(8), message(9)])
    assert queue.remove([message(8)], NOW) == 7
    assert queue.remove([message(7)], NOW) == 9
    assert queue.remove([message(9)], NOW) == 10
    assert queue.remove([message(9)], NOW) == -1


def test_what_is_finished_first_is_not_committed_first() -> None:
    """E4: 7 and 8 in work, 8 ends first: the offset to commit stays 7 until 7 has ended."""
    queue = ProcessQueue(NOW)
    queue.put([message(7), message(8)])
    assert queue.remove([message(8)], NOW) == 7
    assert queue.remove([message(7)], NOW) == 9


def test_count_size_and_time_of_consumption_are_kept() -> None:
    """S30: message count, body bytes and the time of the last consumption."""
    queue = ProcessQueue(NOW)
    queue.put([message(1, 10), message(2, 20)])
    queue.put([message(2, 20)])
    assert (queue.message_count, queue.message_size) == (2, 30)
    queue.remove([message(1)], NOW + 5)
    assert (queue.message_count, queue.message_size, queue.last_consume_ms) == (1, 20, NOW + 5)
    queue.take(1, NOW + 9)
    assert (queue.message_count, queue.message_size, queue.last_consume_ms) == (1, 20, NOW + 9)
    queue.commit()
    assert (queue.message_count, queue.message_size) == (0, 0)


def test_an_orderly_turn_is_started_once_until_it_ends() -> None:
    """S22: put asks for a turn only when none is under way; an empty take ends the turn."""
    queue = ProcessQueue(NOW)
    assert queue.put([message(1)])
    assert not queue.put([message(2)])
    assert len(queue.take(9, NOW)) == 2
    assert not queue.put([message(3)])
    queue.take(9, NOW)
    assert queue.take(9, NOW) == []
    assert queue.put([message(4)])


def test_a_message_expires_when_its_listener_takes_too_long() -> None:
    """S30: the first message alone is looked at, and only once its listener has begun."""
    queue = ProcessQueue(NOW)
    queue.put([message(1), message(2)])
    assert queue.oldest_expired(10_000, 100) is None
    started = message(1, 1, {Property.CONSUME_START_TIME.value: "9000"})
    queue.put([started])
    assert queue.oldest_expired(9_100, 100) is None
    assert queue.oldest_expired(9_101, 100) is started
    # A producer may write anything there.
    for text in ("soon", "", "-1", "9" * 5_000):
        queue.put([message(1, 1, {Property.CONSUME_START_TIME.value: text})])
        assert queue.oldest_expired(9_101, 100) is None


def test_locks_and_pulls_expire_by_the_clock() -> None:
    """S22: a lock is trusted for 30 s, a pull request is missed after 120 s."""
    queue = ProcessQueue(NOW)
    assert not queue.lock_expired(NOW + 30_000)
    assert queue.lock_expired(NOW + 30_001)
    assert not queue.pull_expired(NOW + 120_000)
    assert queue.pull_expired(NOW + 120_001)
