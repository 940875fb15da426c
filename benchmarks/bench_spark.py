"""Queries in Spark over a store, beside the same messages as Parquet and as JSON lines, and beside `cat`.

    make bench-spark                               1 GiB of messages of 1 KiB that do not compress, local[2]
    python -m benchmarks.bench_spark --mib 64      for a look: start costs dominate

CPU seconds of JVM and Python, not time: they say more on a machine that others use. "named" reads the columns
of the query by option `columns`, "unnamed" by pocketmq.spark.read. The page cache is warm, and the forms take
turns within each round. The decoder without Spark: bench_bulk.py.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import bulk_store
from benchmarks.bench_bulk import GIB_OF_MESSAGES, cat
from benchmarks.bulk_store import key_of

from pocketmq.spark import read, session, setup

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


Query = Callable[["DataFrame"], "DataFrame"]
_SEVEN = "topic,queueId,queueOffset,body,tags,keys,storeTimestamp"
_DAY_MS = 86_400_000


class Job(NamedTuple):
    """query: of a frame with `columns`; wanted: the single number that it gives; None: all rows are written
    to nowhere. reach: CPU seconds at most, as a share of Parquet's."""

    name: str
    columns: str
    query: Query
    wanted: int | None
    reach: float


def jobs_of(messages: int) -> tuple[Job, ...]:
    """The table of docs/spark.md: reads of everything, then of one in a hundred, of one, of one minute."""
    from pyspark.sql import functions as f

    def sizes(where: str) -> Query:
        return lambda frame: frame.where(where).agg(f.sum(f.length("body")))

    key = key_of(messages // 3)
    step, noon = _DAY_MS // messages, _DAY_MS // 2
    first = bulk_store.START_MS + noon
    low, high = (f"timestamp_millis({at})" for at in (first, first + 60_000))
    minute = f"storeTimestamp >= {low} AND storeTimestamp < {high}"
    in_minute = sum(0 <= i * step - noon < 60_000 for i in range(messages))
    size = bulk_store.BODY_SIZE
    return (
        Job("count", "queueId", lambda d: d.groupBy().count(), messages, 1.1),
        Job(
            "group by tag", "tags",
            lambda d: d.groupBy("tags").count().agg(f.sum("count")), messages, 1.1,
        ),
        Job(
            "sum of body lengths", "body",
            lambda d: d.agg(f.sum(f.length("body"))), messages * size, 1.1,
        ),
        Job("seven columns", _SEVEN, lambda d: d.select(_SEVEN.split(",")), None, 1.1),
        Job("one tag of 100", "tags,body", sizes("tags = 'tag007'"), messages // 100 * size, 0.4),
        Job("one key", "keys,body", sizes(f"keys = '{key}'"), size, 0.4),
        Job("one minute of 24 h", "storeTimestamp,body", sizes(minute), in_minute * size, 0.4),
    )  # fmt: skip


def compare(spark: "SparkSession", root: Path, messages: int, rounds: int) -> bool:
    """Prints CPU seconds (JVM and Python together) of each job, beside the same messages in other forms.

    Returns: whether all is within reach.
    """
    parquet, lines = str(root.parent / "parquet"), str(root.parent / "json")
    whole = spark.read.format("pocketmq").load(str(root))
    for folder, kind in ((parquet, "parquet"), (lines, "json")):
        if not Path(folder).exists():
            whole.write.format(kind).save(folder)
    unit = min(cat_cpu(sorted((root / "commitlog").iterdir())) for _ in range(3))
    print(
        f"\n{messages} messages, CPU seconds of JVM and Python; cat: {unit:.2f}; median of {rounds} rounds\n"
        f"{'':<22}{'named':>9}{'unnamed':>9}{'Parquet':>9}{'JSON':>9}{'/Parquet':>10}{'reach':>7}{'unnamed/named':>15}"
    )

    def named(job: Job) -> "DataFrame":
        reader = spark.read.format("pocketmq").option("columns", job.columns)
        return job.query(reader.load(str(root)))

    forms: tuple[Callable[[Job], DataFrame], ...] = (
        named,
        lambda job: read(spark, str(root)).apply(job.query),
        lambda job: job.query(spark.read.parquet(parquet)),
        lambda job: job.query(spark.read.schema(whole.schema).json(lines)),
    )
    good = True
    for job in jobs_of(messages):
        used: list[list[float]] = [[] for _ in forms]
        for number in range(rounds + 1):
            for form, seconds in zip(forms, used, strict=True):
                before = cpu_seconds()
                _run(form(job), job)
                if number:  # the first round warms up
                    seconds.append(used_since(before))
        mine, unnamed, other, text = map(statistics.median, used)
        missed = mine > job.reach * other or unnamed > 1.2 * mine
        good &= not missed
        print(
            f"{job.name:<22}{mine:>9.2f}{unnamed:>9.2f}{other:>9.2f}{text:>9.2f}{mine / other:>10.2f}"
            f"{job.reach:>7.2f}{unnamed / mine:>15.2f}{'  BEYOND' if missed else ''}",
            flush=True,
        )
    return good


def _run(frame: "DataFrame", job: Job) -> None:
    if job.wanted is None:
        frame.write.format("noop").mode("overwrite").save()
        return
    found = frame.collect()[0][0]
    assert found == job.wanted, (job.name, found, job.wanted)


def cat_cpu(files: list[Path]) -> float:
    """CPU seconds of the unit of bench_bulk."""
    before = os.times()
    cat(files)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def cpu_seconds() -> dict[int, float]:
    """CPU seconds of each process below this one."""
    children: dict[int, list[tuple[int, float]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        fields = tail.split()
        ticks = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        children.setdefault(int(fields[1]), []).append((int(head.split()[0]), ticks))
    found: dict[int, float] = {}
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += [pid for pid, _ in below]
    return found


def used_since(before: dict[int, float]) -> float:
    """CPU seconds since then. Spark ends workers that idle: theirs are in `before` only."""
    return sum(ticks - before.get(pid, 0.0) for pid, ticks in cpu_seconds().items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mib", type=int, default=1024, help="size of the store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep what is made here, or use what is there")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-spark-"))
    messages = GIB_OF_MESSAGES * options.mib // 1024 // 100 * 100
    root = folder / "broker-a" / "store"
    try:
        if not root.exists():
            bulk_store.write_store(root, messages, step_ms=_DAY_MS // messages)
        # Each frame here is used once.
        spark = setup(session("local[2]", conf=CONF), push_filters=True)
        spark.sparkContext.setLogLevel("ERROR")
        print(f"Spark {spark.version}, local[2]")
        good = compare(spark, root, messages, options.rounds)
        spark.stop()
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
