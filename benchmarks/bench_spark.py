"""Stores in Spark, and the decoder below it, as ratios to `cat FILES | cat > /dev/null` (see bench_bulk.py).

Beside each ratio of Spark stand the CPU seconds of one run, by JVM and Python: on a machine that others
use too they say more than the wall time.

make bench-spark                               1 GiB of 1 KiB messages, local[2], page cache warm
python -m benchmarks.bench_spark --quick       64 MiB, for a look (start costs dominate)
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench_bulk import (
    GIB_OF_MESSAGES,
    SIXTEEN,
    Figure,
    decoder_figures,
    make_store,
    paired,
    print_table,
    selective_figures,
)

from pocketmq.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def spark_figures(spark: "SparkSession", root: Path, messages: int, rounds: int) -> list[Figure]:
    """The table of docs/spark.md, second half."""
    from pyspark.sql import functions as f

    files = sorted((root / "commitlog").iterdir())
    out = root / "out.parquet"

    def load(columns: str, **options: str) -> "DataFrame":
        reader = spark.read.format("pocketmq").options(columns=columns, **options)
        return reader.load(str(root))

    def equal(found: Any, wanted: Any) -> None:
        assert found == wanted, found

    jobs: tuple[tuple[str, Callable[[], Any], float | None, float | None], ...] = (
        ("count", lambda: equal(load("queueId").count(), messages), 0.35, 0.6),
        (
            "group by tag",
            lambda: equal(len(load("tags").groupBy("tags").count().collect()), 100),
            0.3,
            0.5,
        ),
        (
            "sum of body length",
            lambda: equal(
                load("body").agg(f.sum(f.length("body"))).collect()[0][0], messages * 1024
            ),
            0.3,
            0.5,
        ),
        ("16 columns, noop sink", lambda: _noop(load(SIXTEEN)), 0.15, 0.3),
        (
            "16 columns, parquet",
            lambda: load(SIXTEEN).write.mode("overwrite").parquet(str(out)),
            0.07,
            0.12,
        ),
        ("all 23 columns, noop sink", lambda: _noop(load("all")), None, None),
        (
            "count where tags = 'tag007'",
            lambda: equal(load("tags").where("tags = 'tag007'").count(), messages // 100),
            None,
            None,
        ),
    )
    jobs[0][1]()
    figures = []
    for name, run, reach, aim in jobs:
        cpu: list[tuple[float, float]] = []

        def counted(run: Callable[[], Any] = run, cpu: list[tuple[float, float]] = cpu) -> None:
            before = cpu_seconds()
            run()
            after = cpu_seconds()
            cpu.append((after[0] - before[0], after[1] - before[1]))

        figure = paired(name, counted, files, rounds, reach, aim)
        jvm, python = sorted(cpu, key=sum)[len(cpu) // 2]
        figure.note = f"CPU {jvm + python:.1f} s: JVM {jvm:.1f}, Python {python:.1f}"
        figures.append(figure)
    shutil.rmtree(out, ignore_errors=True)
    return figures


def cpu_seconds() -> tuple[float, float]:
    """CPU seconds of all processes below this one: (java, the rest)."""
    children: dict[int, list[tuple[int, bool, float]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        fields = tail.split()
        ticks = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        one = (int(head.split()[0]), "(java" in head, ticks)
        children.setdefault(int(fields[1]), []).append(one)
    java = other = 0.0
    waiting = [os.getpid()]
    while waiting:
        for pid, is_java, ticks in children.get(waiting.pop(), []):
            java, other = (java + ticks, other) if is_java else (java, other + ticks)
            waiting.append(pid)
    return java, other


def _noop(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="64 MiB instead of 1 GiB")
    parser.add_argument("--spark-only", action="store_true", help="leave the decoder out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, help="where the stores are made (default: a temporary one)"
    )
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-spark-"))
    messages = GIB_OF_MESSAGES // (16 if options.quick else 1) // 100 * 100
    try:
        root = make_store(folder, messages)
        below = [] if options.spark_only else decoder_figures(root, messages, options.rounds)
        if below:
            print_table(f"pocketmq.bulk, one core, {messages} messages", below)
        for part in (16, 4, 1) if below else ():
            small = make_store(folder, messages // part)
            selective = selective_figures(small, messages // part, options.rounds)
            print_table(f"a store of {messages // part} messages", selective)
        spark = session("local[2]", conf=CONF)
        spark.sparkContext.setLogLevel("ERROR")
        figures = spark_figures(spark, root, messages, options.rounds)
        print_table(f"Spark {spark.version}, local[2]", figures)
        spark.stop()
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    return int(any(f.missed for f in below + figures))


if __name__ == "__main__":
    sys.exit(main())
