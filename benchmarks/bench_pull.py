"""Pull: a slice of a queue, a rare tag, a SQL92 filter. Run: python -m benchmarks.bench_pull"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import encode_batch
from pocketmq.model.sql92 import compile_expression
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.hosts import pack_address
from pocketmq.store import MessageStore, ReadStatus, StoreConfig

HOST = pack_address("127.0.0.1", 10911)
MESSAGES = 100_000
BATCH = 100


class ByCodes:
    """A tag subscription as the store asks it."""

    record = None

    def __init__(self, *tags: str) -> None:
        self.codes = frozenset(string_hash(tag) for tag in tags)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """100,000 messages of 128 B in one queue; one in a hundred has the tag `rare`, `a` counts to 100."""
    folder: Path = tmp_path_factory.mktemp("store")
    config = StoreConfig(store_path_root_dir=str(folder), message_index_enable=False)
    batch = encode_batch(
        (0, b"x" * 128, b"TAGS\x01%b\x02a\x01%d" % (b"TagA" if number else b"rare", number))
        for number in range(BATCH)
    )
    with asyncio.Runner() as runner:
        store = MessageStore(config, clock=SystemClock(), store_host=HOST)
        runner.get_loop()
        store.open()
        for _ in range(MESSAGES // BATCH):
            store.append_batch("Topic", 0, batch, b"", 0, 1, HOST)
        yield store
        store.close()


def test_read_32_messages(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    result = benchmark(store.read, "Topic", 0, 5_000, 32)
    assert (result.status, result.count) == (ReadStatus.FOUND, 32)


def test_read_32_messages_of_a_tag_that_one_percent_have(
    benchmark: BenchmarkFixture, store: MessageStore
) -> None:
    result = benchmark(store.read, "Topic", 0, 5_000, 32, ByCodes("rare"))
    assert result.count == 32


def test_look_for_a_tag_that_nobody_has(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    result = benchmark(store.read, "Topic", 0, 0, 32, ByCodes("other"))
    assert (result.status, result.count) == (ReadStatus.NO_MATCHED_MESSAGE, 0)


def test_read_32_messages_that_a_sql_filter_lets_through(
    benchmark: BenchmarkFixture, store: MessageStore
) -> None:
    expression = "a BETWEEN 10 AND 19"
    data = ConsumerFilterData(
        "g", "Topic", expression, "SQL92", None, 1, 1, 0, compile_expression(expression)
    )
    result = benchmark(store.read, "Topic", 0, 5_000, 32, ExpressionMessageFilter(data))
    assert result.count == 32


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
