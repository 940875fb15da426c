"""Locks of queues for orderly consumption."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.groups.rebalance_lock import LOCK_MAX_LIVE_MS, RebalanceLock
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import ManualClock

Q = [MessageQueue("T", "b", number) for number in range(4)]


@pytest.fixture
def locks(clock: ManualClock) -> RebalanceLock:
    return RebalanceLock(clock)


def test_a_queue_has_one_owner(locks: RebalanceLock) -> None:
    """Two clients ask for overlapping queues; the same id again is a renewal, not a conflict."""
    assert locks.lock_batch("g", Q[:2], "c1") == Q[:2]
    assert locks.lock_batch("g", Q, "c2") == Q[2:]
    assert locks.lock_batch("g", Q, "c1") == Q[:2]
    assert locks.lock_batch("other", Q[:1], "c2") == Q[:1]


def test_the_locks_of_a_group_and_of_all_are_bounded(
    locks: RebalanceLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four thousand queues that do not exist are one request, and were kept for ten minutes."""
    monkeypatch.setattr("pocketmq.broker.groups.rebalance_lock.LOCKS_OF_GROUP_MAX", 3)
    monkeypatch.setattr("pocketmq.broker.groups.rebalance_lock.LOCKS_MAX", 4)
    assert locks.lock_batch("g", Q, "c1") == Q[:3]
    assert locks.lock_batch("other", Q, "c1") == Q[:1]
    assert locks.lock_batch("third", Q, "c1") == []
    assert locks.lock_batch("g", Q, "c1") == Q[:3]
    locks.unlock_batch("g", Q[:1], "c1")
    assert locks.lock_batch("other", Q, "c1") == Q[:2]


def test_an_unrenewed_lock_expires_after_a_minute(locks: RebalanceLock, clock: ManualClock) -> None:
    """60 s of monotonic time; a wall clock that is set forward ends nothing."""
    locks.lock_batch("g", Q[:1], "c1")
    clock.jump_ms(10 * LOCK_MAX_LIVE_MS)
    assert locks.lock_batch("g", Q[:1], "c2") == []
    clock.advance_ms(LOCK_MAX_LIVE_MS)
    assert locks.lock_batch("g", Q[:1], "c1") == Q[:1]
    clock.advance_ms(LOCK_MAX_LIVE_MS)
    assert locks.owner("g", Q[0]) == "c1"
    assert locks.lock_batch("g", Q[:1], "c2") == []
    clock.advance_ms(1)
    assert locks.owner("g", Q[0]) is None
    assert locks.lock_batch("g", Q[:1], "c2") == Q[:1]
    assert locks.lock_batch("g", Q[:1], "c1") == []


def test_only_the_owner_unlocks(locks: RebalanceLock, caplog: pytest.LogCaptureFixture) -> None:
    """A lock of another client stays; the log says whose it is."""
    locks.lock_batch("g", Q[:1], "c1")
    locks.unlock_batch("g", Q[:2], "c2")
    assert locks.owner("g", Q[0]) == "c1"
    assert "locked by other client. Group: g OtherClientId: c1" in caplog.text
    locks.unlock_batch("g", Q[:1], "c1")
    assert locks.owner("g", Q[0]) is None
    locks.unlock_batch("absent", Q[:1], "c1")


def test_locks_that_expired_long_ago_are_forgotten(
    locks: RebalanceLock, clock: ManualClock
) -> None:
    """Memory does not grow with clients that came and went."""
    locks.lock_batch("g", Q, "c1")
    clock.advance_ms(11 * LOCK_MAX_LIVE_MS)
    locks.lock_batch("h", Q, "c1")
    locks.scan()
    assert set(locks._locks) == {"h"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lock", "unlock", "wait"]),
            st.sampled_from(["c1", "c2", "c3"]),
            st.sets(st.integers(0, 3)),
        ),
        max_size=40,
    )
)
def test_at_any_time_a_queue_has_at_most_one_owner(
    steps: list[tuple[str, str, set[int]]],
) -> None:
    """A model with a map queue -> (owner, renewed)."""
    clock = ManualClock()
    locks = RebalanceLock(clock)
    model: dict[int, tuple[str, int]] = {}
    for kind, client, numbers in steps:
        now = clock.monotonic_ms()
        queues = [Q[number] for number in numbers]
        if kind == "wait":
            clock.advance_ms(LOCK_MAX_LIVE_MS // 3)
        elif kind == "lock":
            expected = []
            for number in numbers:
                owner, renewed = model.get(number, (client, now))
                if owner == client or now - renewed > LOCK_MAX_LIVE_MS:
                    model[number] = (client, now)
                    expected.append(Q[number])
            assert locks.lock_batch("g", queues, client) == expected
        else:
            locks.unlock_batch("g", queues, client)
            for number in numbers:
                if model.get(number, ("", 0))[0] == client:
                    del model[number]
