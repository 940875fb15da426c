"""Read: interleaved queues, old records, look-ups, opening. Run: python -m benchmarks.bench_read"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.hosts import pack_address
from pocketmq.store import MessageStore, ReadStatus, StoreConfig

HOST = pack_address("127.0.0.1", 10911)
MESSAGES = 100_000
QUEUES = 4
LONG_MAX = (1 << 63) - 1


def opened(root: Path) -> MessageStore:
    config = StoreConfig(store_path_root_dir=str(root))
    store = MessageStore(config, clock=ManualClock(), store_host=HOST)
    store.open()
    return store


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 messages of 128 B, round robin over 4 queues, a millisecond apart; cleanly stopped."""
    folder = tmp_path_factory.mktemp("store")
    clock = ManualClock()
    config = StoreConfig(store_path_root_dir=str(folder))
    store = MessageStore(config, clock=clock, store_host=HOST)
    store.open()
    for number in range(MESSAGES):
        own = b"UNIQ_KEY\x01%032X\x02TAGS\x01TagA\x02" % number
        store.append("Topic", number % QUEUES, b"x" * 128, own, 0, 0, 1, HOST)
        clock.advance_ms(1)
    store.close()
    return folder


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[MessageStore]:
    store = opened(root)
    yield store
    store.close()


def test_read_32_messages_between_those_of_other_queues(
    benchmark: BenchmarkFixture, store: MessageStore
) -> None:
    end = store.max_offset("Topic", 0)
    result = benchmark(store.read, "Topic", 0, end - 32, 32)
    assert (result.status, result.count, len(result.buffers)) == (ReadStatus.FOUND, 32, 1)


def test_read_32_messages_of_an_earlier_process_again(
    benchmark: BenchmarkFixture, store: MessageStore
) -> None:
    """Their bodies were checked at the first read; entry and header are compared at each."""
    result = benchmark(store.read, "Topic", 0, 0, 32)
    assert result.count == 32


def test_read_a_backlog_of_an_earlier_process_for_the_first_time(
    benchmark: BenchmarkFixture, root: Path, store: MessageStore
) -> None:
    """25,000 messages, every record of the log is checked on the way."""
    store.close()

    def set_up() -> tuple[tuple[MessageStore], dict[str, object]]:
        return (opened(root),), {}

    def consume(fresh: MessageStore) -> int:
        offset = count = 0
        while (result := fresh.read("Topic", 0, offset, 32)).count:
            offset, count = result.next_offset, count + result.count
        fresh.close()
        return count

    count = benchmark.pedantic(consume, setup=set_up, rounds=3)  # type: ignore[no-untyped-call]
    store.open()
    assert count == MESSAGES // QUEUES


def test_offset_by_time(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    middle = store.store_time_at("Topic", 0, 12_345)
    assert benchmark(store.offset_by_time, "Topic", 0, middle) == 12_345


def test_query_by_key(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    result = benchmark(store.query_by_key, "Topic", f"{54_321:032X}", 32, 0, LONG_MAX)
    assert len(result.records) == 1


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_open(benchmark: BenchmarkFixture, root: Path, store: MessageStore, clean: bool) -> None:
    store.close()

    def set_up() -> tuple[tuple[()], dict[str, object]]:
        if not clean:
            (root / "abort").touch()
        return (), {}

    def open_and_close() -> None:
        opened(root).close()

    benchmark.pedantic(open_and_close, setup=set_up, rounds=5)  # type: ignore[no-untyped-call]
    store.open()
    assert store.max_offset("Topic", 0) == MESSAGES // QUEUES


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
