"""End to end: a running `pocketmq up` over a socket. Run: python -m benchmarks.bench_end_to_end

Rounds of a fixed number of messages; divide for messages/s. Against Java: python -m benchmarks.compare.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import raw_load
from tests.interop.brokers import PocketBroker

TOPIC, QUEUES = "BenchTopic", 4
MESSAGES = 20_000


def _rounds(benchmark: Any, load: Callable[[], float]) -> float:
    """Five rounds after one to get warm."""
    return float(benchmark.pedantic(load, rounds=5, warmup_rounds=1))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketBroker]:
    running = PocketBroker(tmp_path_factory.mktemp("broker"))
    running.start()
    raw_load.create_topic(running.address, TOPIC, QUEUES)
    yield running
    running.kill()


@pytest.mark.parametrize("in_flight", [1, 64, 512])
def test_send_single_messages(
    benchmark: BenchmarkFixture, broker: PocketBroker, in_flight: int
) -> None:
    frames = raw_load.Frames(TOPIC, QUEUES, 128).frames
    count = MESSAGES if in_flight > 1 else MESSAGES // 10
    benchmark.extra_info["messages"] = count

    def load() -> float:
        return raw_load.send_count(broker.address, frames, requests=count, in_flight=in_flight)

    assert _rounds(benchmark, load) > 0


def test_send_batches_of_16(benchmark: BenchmarkFixture, broker: PocketBroker) -> None:
    frames = raw_load.Frames(TOPIC, QUEUES, 128, batch=16).frames
    benchmark.extra_info["messages"] = MESSAGES

    def load() -> float:
        requests = MESSAGES // 16
        return raw_load.send_count(broker.address, frames, requests=requests, in_flight=64)

    assert _rounds(benchmark, load) > 0


def test_pull(benchmark: BenchmarkFixture, broker: PocketBroker) -> None:
    frames = raw_load.Frames(TOPIC, QUEUES, 128).frames
    raw_load.send_count(broker.address, frames, requests=MESSAGES, in_flight=64)
    benchmark.extra_info["messages"] = MESSAGES

    def load() -> int:
        return raw_load.pull(broker.address, TOPIC, QUEUES, records=MESSAGES).records

    assert _rounds(benchmark, load) >= MESSAGES


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
