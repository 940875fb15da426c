"""Topics that keep less than the log: what expires, what readers see, and which files go."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq import bulk
from pocketmq.cli.app import run
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import MessageStore
from pocketmq.store.queue.topic_retention import Reserved, TopicRetention
from tests.store.stores import HOST, open_store

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time_ns() // 1_000_000)


def retention_of(store: MessageStore, **reserved: str) -> TopicRetention:
    parsed = Reserved.parse({f"reserve.{name}": value for name, value in reserved.items()})
    assert parsed is not None
    store.reserve({"Topic": parsed})
    assert store.topic_retention is not None
    return store.topic_retention


def put(store: MessageStore, count: int, topic: str = "Topic", size: int = 100) -> None:
    for number in range(count):
        store.append(topic, 0, b"x" * size, b"KEYS\x01k%d" % number, 0, 0, 1, HOST)


def test_each_bound_moves_the_beginning_and_all_readers_agree(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = open_store(tmp_path, clock)
    put(store, 10)
    ((place, size, _),) = store.entries("Topic", 0, 0, 1)
    clock.advance_ms(HOUR_MS)
    put(store, 10)
    assert retention_of(store, count="15").tick() == 5
    assert (store.min_offset("Topic", 0), store.max_offset("Topic", 0)) == (5, 20)
    assert retention_of(store, time="30m").tick() == 5
    assert store.min_offset("Topic", 0) == 10
    assert retention_of(store, size=str(4 * size)).tick() == 6
    assert store.min_offset("Topic", 0) == 16
    assert retention_of(store, size=str(4 * size)).tick() == 0
    put(store, 1)
    assert retention_of(store, size=str(4 * size)).tick() == 1
    result = store.read("Topic", 0, 3, 32)
    assert (result.next_offset, result.min_offset) == (17, 17)
    # By position and by key, too.
    assert store.message_at(place) is None
    assert store.query_by_key("Topic", "k3", 32, 0, clock.now_ms()).records == []
    store.close()
    again = open_store(tmp_path, clock)
    assert (again.min_offset("Topic", 0), again.max_offset("Topic", 0)) == (17, 21)
    again.close()
    scanned = bulk.scan(str(tmp_path), topics=["Topic"], columns="queueOffset").read_all()
    assert sorted(scanned["queueOffset"].to_pylist()) == [17, 18, 19, 20]
    assert run(["store", "verify", str(tmp_path), "--json"]) == 0


def test_queue_of_which_all_has_expired_keeps_its_offsets(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = open_store(tmp_path, clock)
    put(store, 5)
    clock.advance_ms(2 * HOUR_MS)
    assert retention_of(store, time="1").tick() == 5
    assert (store.min_offset("Topic", 0), store.max_offset("Topic", 0)) == (5, 5)
    store.close()
    again = open_store(tmp_path, clock)
    assert (again.min_offset("Topic", 0), again.max_offset("Topic", 0)) == (5, 5)
    assert again.clean_expired_consume_queues(()) == 0
    put(again, 1)
    assert (again.min_offset("Topic", 0), again.max_offset("Topic", 0)) == (5, 6)
    again.close()


def test_log_files_go_when_no_queue_needs_them(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path, clock, delete_when="")
    assert store.retention is not None
    store.retention.measure_disk_use = lambda path: 0.5
    put(store, 90, size=3_000)
    before = len(os.listdir(tmp_path / "commitlog"))
    retention_of(store, count="1").tick()
    # Another topic's message in the first file keeps it, and what is behind.
    other = tmp_path / "other"
    kept = open_store(other, clock, delete_when="")
    put(kept, 1, "Other")
    put(kept, 90, size=3_000)
    retention_of(kept, count="1").tick()
    assert kept.retention is not None
    kept.retention.measure_disk_use = lambda path: 0.5
    assert kept.retention.step() == []
    kept.close()
    gone = store.retention.step()
    assert len(gone) == before - len(store.commit_log.files.files) > 0
    store.retention.delete_left()
    assert store.min_offset("Topic", 0) == 89
    store.close()


@pytest.mark.parametrize("text", ["0", "-2", "", "1.5", "ten", "1w", " 1"])
def test_bad_values_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(IllegalArgument, match=r"reserve.time=.* is not hours"):
        Reserved.parse({"reserve.time": text})
    with pytest.raises(IllegalArgument, match=r"is not a number, above 0"):
        Reserved.parse({"reserve.count": "5m"})


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(10, 200)), min_size=1, max_size=8),
    st.integers(200, 2_000),
)
def test_size_kept_is_the_most_that_fits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], bound: int
) -> None:
    """After each tick the rest fits, and one message more would not."""
    store = open_store(tmp_path_factory.mktemp("size"), ManualClock(1_000_000))
    sizes: list[int] = []
    for count, size in steps:
        put(store, count, size=size)
        retention = retention_of(store, size=str(bound))
        retention.tick()
        begin, end = store.min_offset("Topic", 0), store.max_offset("Topic", 0)
        sizes += [each[1] for each in store.entries("Topic", 0, len(sizes), end)][-count:]
        assert sum(sizes[begin:]) <= bound
        assert begin == 0 or sum(sizes[begin - 1 :]) > bound
    store.close()
