"""`pocketmq lake` over a generated store, beside pyarrow alone; bodies as columns beside Spark's from_json.

    make bench-lake                                     300,000 messages of 1 KiB that do not compress
    python -m benchmarks.bench_lake --messages 8000000  10 GB of log, which need 22 GB of disk
    python -m benchmarks.bench_lake --no-spark          without the row of from_json

CPU seconds, not time, of the work without imports; each in a process of its own that has done the same with
1,000 messages before, in turns, and the medians of `--rounds` count. "pyarrow alone" writes the same columns
to one Parquet file in the order of the log, compressed as the lake's, with memory from the same place; what
decodes them is counted apart. Memory is the most that a process had, pages of the mapped log included. Of
from_json: JVM and Python of one Spark session,
local[2], in which both ways write seven fields of the same bodies to nowhere, by turns. It prints rows for
docs/lake.md.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import bulk_store
from benchmarks.meter import machine

MESSAGES = 300_000
FEW = 1_000
JSON_MESSAGES = 200_000
WARM = 3
TIMES_MAX, MB_A_CPU_S_MIN, MEMORY_MB_MAX, FROM_JSON_MAX = 1.5, 40, 600, 0.7
FIELDS = (
    "id BIGINT, sku STRING, quantity INT, price DOUBLE, paid BOOLEAN, customer STRING, city STRING"
)


def lake(store: Path, out: Path) -> tuple[float, float]:
    """CPU seconds of a copy of a store, twice."""
    from pocketmq.bulk.offsets import LossRule
    from pocketmq.bulk.partition import Topics
    from pocketmq.lake.catalog import opened_catalog
    from pocketmq.lake.copy import LakeCopy
    from pocketmq.lake.files import FileSource
    from pocketmq.lake.iceberg import IcebergTables

    began = time.process_time()
    with opened_catalog(str(out)) as catalog:
        source = FileSource([str(store)], Topics(), LossRule(True))
        LakeCopy(IcebergTables(catalog), source).round()
    spent = time.process_time() - began
    return spent, spent


def delta(store: Path, out: Path) -> tuple[float, float]:
    """The same into Delta tables."""
    from pocketmq.bulk.offsets import LossRule
    from pocketmq.bulk.partition import Topics
    from pocketmq.lake.copy import LakeCopy
    from pocketmq.lake.delta import DeltaTables
    from pocketmq.lake.files import FileSource

    began = time.process_time()
    LakeCopy(DeltaTables(str(out)), FileSource([str(store)], Topics(), LossRule(True))).round()
    spent = time.process_time() - began
    return spent, spent


def plain(store: Path, out: Path) -> tuple[float, float]:
    """CPU seconds of writing the same columns by pyarrow alone, and of that and of decoding them."""
    import pyarrow.parquet as pq

    from pocketmq import bulk
    from pocketmq.bulk.columns.schema import schema_of
    from pocketmq.lake.columns import NAMES

    out.mkdir()
    spent, first = 0.0, time.process_time()
    with pq.ParquetWriter(
        out / "plain.parquet", schema_of(NAMES), compression="zstd", compression_level=1
    ) as writer:
        for batch in bulk.scan(str(store), columns=list(NAMES)):
            began = time.process_time()
            writer.write_batch(batch)
            spent += time.process_time() - began
        began = time.process_time()
    ended = time.process_time()
    return spent + ended - began, ended - first


def measured(kind: str, store: Path, folder: Path) -> dict[str, float]:
    """What one run costs, in a process of its own."""
    out = folder / kind
    words = [sys.executable, "-m", "benchmarks.bench_lake", "--one", kind, str(store), str(out)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(out, ignore_errors=True)
    found: dict[str, float] = json.loads(shown.splitlines()[-1])
    return found


def one(kind: str, store: Path, out: Path) -> None:
    from pocketmq.lake.memory import use_thrifty_memory

    use_thrifty_memory()
    work = {"lake": lake, "delta": delta, "plain": plain}[kind]
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        few = Path(name) / "broker-a" / "store"
        bulk_store.write_store(few, FEW, log_file_size=1 << 22, queue_file_entries=FEW)
        work(few, Path(name) / "out")
    cpu, whole = work(store, out)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    sys.stdout.write(json.dumps({"cpu": cpu, "whole": whole, "memory": memory}) + "\n")


def compare(folder: Path, messages: int, rounds: int) -> None:
    store = folder / "broker-a" / "store"
    size = bulk_store.write_store(store, messages)
    found: dict[str, list[dict[str, float]]] = {"lake": [], "delta": [], "plain": []}
    for _ in range(rounds):
        for kind, all_of in found.items():
            all_of.append(measured(kind, store, folder))
    copied, as_delta, written = (
        statistics.median(one["cpu"] for one in of) for of in found.values()
    )
    memory = max(one["memory"] for kind in ("lake", "delta") for one in found[kind])
    decoded = statistics.median(one["whole"] for one in found["plain"])
    times, speed = copied / written, size / 1e6 / copied
    print_row(f"CPU of {size / 1e6:.0f} MB of log", f"{copied:.2f} s", "", True)
    print_row(
        "beside writing by pyarrow alone", f"{times:.2f} x", f"<= {TIMES_MAX} x", times <= TIMES_MAX
    )
    print_row("beside decoding, and writing by pyarrow", f"{copied / decoded:.2f} x", "", True)
    print_row("with `--format delta`", f"{as_delta / copied:.2f} x", "", True)
    wanted = f">= {MB_A_CPU_S_MIN}"
    print_row("MB of log a CPU second", f"{speed:.0f}", wanted, speed >= MB_A_CPU_S_MIN)
    wanted = f"<= {MEMORY_MB_MAX} MB"
    print_row("memory at most", f"{memory:.0f} MB", wanted, memory <= MEMORY_MB_MAX)


def write_bodies(store: Path, messages: int) -> None:
    from tests.store.bulk_stores import Message, WrittenStore

    cities = ("Berlin", "Lima", "Osaka", "Quito")
    WrittenStore(store, log_file_size=1 << 28).add(
        Message(
            topic="orders",
            queue_id=i % 8,
            body=json.dumps(
                {
                    "id": i,
                    "sku": f"sku-{i % 1000:05d}",
                    "quantity": i % 7 + 1,
                    "price": i % 10_000 / 100,
                    "paid": i % 3 > 0,
                    "customer": f"customer {i * 7919 % 100_000}",
                    "city": cities[i % 4],
                }
            ).encode(),
        )
        for i in range(messages)
    )


def bodies(folder: Path, messages: int, rounds: int) -> None:
    """The row of from_json."""
    from pyspark.sql import functions as f

    from benchmarks.bench_spark import CONF, cpu_seconds, spark_session, used_since

    store = folder / "broker-b" / "store"
    write_bodies(store, messages)
    spark = spark_session(CONF)
    source = spark.read.format("pocketmq").option("subscribe", "orders")
    names = [field.split()[0] for field in FIELDS.split(", ")]
    ours = source.option("bodySchema", FIELDS).option("columns", ",".join(names)).load(str(store))
    text = source.option("columns", "body").load(str(store)).select(f.col("body").cast("string"))
    theirs = text.select(f.from_json("body", FIELDS).alias("o")).select("o.*")
    assert ours.agg(f.sum("price")).collect() == theirs.agg(f.sum("price")).collect()
    spent: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(-WARM, rounds):
        for name, frame in (("ours", ours), ("theirs", theirs)):
            before = cpu_seconds()
            frame.write.format("noop").mode("overwrite").save()
            if turn >= 0:
                spent[name].append(used_since(before))
    spark.stop()
    mine, other = (statistics.median(of) for of in spent.values())
    value = f"{mine / other:.2f} x ({mine:.2f} s, {other:.2f} s)"
    reach = f"<= {FROM_JSON_MAX} x"
    print_row("bodySchema beside from_json", value, reach, mine / other <= FROM_JSON_MAX)


def print_row(name: str, value: str, reach: str, is_reached: bool) -> None:
    mark = ("yes" if is_reached else "no") if reach else ""
    print(f"| {name} | {value} | {reach} | {mark} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=MESSAGES, help="0: only the row of from_json"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the store (default: a temporary one)")
    parser.add_argument("--no-spark", action="store_true", help="without the row of from_json")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.one:
        one(given.one[0], Path(given.one[1]), Path(given.one[2]))
        return
    load = os.getloadavg()[0]
    print(f"{machine()}; load {load:.0f}; {time.strftime('%-d %B %Y')}\n")
    print("| | now | reach | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        if given.messages:
            compare(Path(name), given.messages, given.rounds)
        if not given.no_spark:
            bodies(Path(name), JSON_MESSAGES, given.rounds * 2)


if __name__ == "__main__":
    main()
