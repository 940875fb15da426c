"""Filters: compiling and evaluating SQL92, Bloom positions. Run: python -m benchmarks.bench_filter"""

import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pocketmq.broker.sql92.bloom import BloomFilter
from pocketmq.model.record import properties_of
from pocketmq.model.sql92 import compile_expression
from pocketmq.model.sql92.filter import CompileCache
from pocketmq.model.subscription import parse_tags

PROPERTIES = {"a": "6", "b": "x", "c": "2.5", "TAGS": "TagA"}


@pytest.mark.parametrize(
    "expression",
    [
        "a > 5",
        "b = 'x'",
        "a > 5 AND b = 'x'",
        "c BETWEEN 1.5 AND 3.5",
        "b IN ('u', 'v', 'w', 'x') OR d IS NULL",
        "b CONTAINS 'x' AND NOT (a = 7)",
    ],
)
def test_evaluate(benchmark: BenchmarkFixture, expression: str) -> None:
    compiled = compile_expression(expression)
    assert benchmark(compiled.matches, PROPERTIES)


def test_compile(benchmark: BenchmarkFixture) -> None:

    def compile_anew() -> bool:
        return (
            CompileCache().compiled("a > 5 AND (b = 'x' OR c BETWEEN 1 AND 3)").matches(PROPERTIES)
        )

    assert benchmark(compile_anew)


def test_bloom_positions(benchmark: BenchmarkFixture) -> None:
    assert benchmark(BloomFilter().positions, "group1#TopicTest") == (79, 5, 68)


def test_parse_tags(benchmark: BenchmarkFixture) -> None:
    assert benchmark(parse_tags, "TagA || TagB || TagC") == {"TagA", "TagB", "TagC"}


def test_find_the_properties_of_a_record(benchmark: BenchmarkFixture) -> None:
    from pocketmq.model.record import MAGIC_V1, Record, write_record

    host = bytes(8)
    record = memoryview(
        write_record(
            Record(
                0,
                MAGIC_V1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                host,
                0,
                host,
                0,
                0,
                memoryview(b"x" * 128),
                "T",
                b"a\x016",
            )
        )
    )
    assert benchmark(properties_of, record) == b"a\x016"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
