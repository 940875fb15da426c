"""Append: one message, a batch, and the index behind them. Run: python -m benchmarks.bench_append"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pocketmq.model.record import encode_batch
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.hosts import pack_address
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.index.index_keys import key_hashes

HOST = pack_address("127.0.0.1", 10911)
BORN_MS = 1_790_000_000_000


def properties(number: int) -> bytes:
    return b"UNIQ_KEY\x01%032X\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster" % number


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    # Without its background tasks: what is measured is the append alone.
    config = StoreConfig(store_path_root_dir=str(tmp_path), message_index_enable=False)
    with asyncio.Runner() as runner:
        store = MessageStore(config, clock=SystemClock(), store_host=HOST)
        runner.get_loop()
        store.open()
        yield store
        store.close()


@pytest.mark.parametrize("body_size", [128, 1024])
def test_append_a_message(benchmark: BenchmarkFixture, store: MessageStore, body_size: int) -> None:
    body, own = b"x" * body_size, properties(1)
    stored = benchmark(store.append, "Topic", 0, body, own, 0, 0, BORN_MS, HOST)
    assert stored.queue_offset == store.max_offset("Topic", 0) - 1


@pytest.mark.parametrize("count", [16, 100])
def test_append_a_batch(benchmark: BenchmarkFixture, store: MessageStore, count: int) -> None:
    batch = encode_batch([(0, b"x" * 128, properties(number)) for number in range(count)])
    outer = b"CLUSTER\x01DefaultCluster"
    stored = benchmark(store.append_batch, "Topic", 0, batch, outer, 0, BORN_MS, HOST)
    assert stored.count == count


def test_hash_the_keys_of_1024_records(benchmark: BenchmarkFixture) -> None:
    batch = [(number, number * 300, BORN_MS, properties(number)) for number in range(1024)]
    keyed = benchmark(key_hashes, batch, -1, tags=False)
    assert keyed is not None
    assert len(keyed.hashes) == 1024


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
