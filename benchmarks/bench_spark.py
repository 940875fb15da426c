"""Queries in Spark over a store, beside the same messages as Parquet and as JSON lines, and beside `cat`.

    make bench-spark                               1 GiB of messages of 1 KiB that do not compress, local[2]
    python -m benchmarks.bench_spark --mib 64      for a look: start costs dominate

CPU seconds of JVM and Python, not time: they say more on a machine that others use. "named" says by options
which columns and messages it wants; "by read" leaves the columns to pocketmq.spark.read, and "by where" the
messages, too, to a where clause, as Parquet and JSON lines are asked; making the frame counts. The page cache
is warm: what a file's writer left there is dropped, and the file read anew, before each session. The forms
take turns within each round; JSON lines are slow and run once. What the JVM makes of a job differs between
sessions, and what else they ran decides, too: seven columns of Parquet took 1.2 s in one and 2.1 in the next.
So there are several sessions, each in a process of its own, and their medians count: of five, a group by tag
cost 1.16 of Parquet in one run and 1.00 in the next. A store four times as large tells what a GiB more costs
beside what any query does. It prints rows for docs/spark.md. The decoder without Spark: bench_bulk.py.
"""

import argparse
import functools
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import bulk_store
from benchmarks.bench_bulk import GIB_OF_MESSAGES, cat
from benchmarks.bulk_store import key_of
from pocketmq.spark import read, session

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
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"

Query = Callable[["DataFrame"], "DataFrame"]
Found = dict[str, dict[str, float]]
"""CPU seconds by the name of a job and the form of its messages."""
_SEVEN = "topic,queueId,queueOffset,body,tags,keys,storeTimestamp"
_DAY_MS = 86_400_000
# The JVM compiles what it runs, also in the seconds that are counted. A query of a few hundredths of a second
# is mostly that, and the system counts no smaller ones. So each form runs for some rounds, and so many
# seconds in all, before it is counted, and again while it is.
_WARM = 2
_ENOUGH_S = 1.0
# So many of the jobs read everything.
_READ_ALL = 4


class Job(NamedTuple):
    """query: of a frame with the messages and columns of `options`; `where`: the same choice as a condition.
    wanted: the single number that it gives; None: all rows are written to nowhere. reach: CPU seconds at
    most, as a share of Parquet's."""

    name: str
    options: dict[str, str]
    query: Query
    wanted: int | None
    reach: float
    where: str = ""


def jobs_of(messages: int) -> tuple[Job, ...]:
    """The table of docs/spark.md: reads of everything, then of one in a hundred, of one, of one minute."""
    from pyspark.sql import functions as f

    def sizes(frame: "DataFrame") -> "DataFrame":
        return frame.agg(f.sum(f.length("body")))

    key = key_of(messages // 3)
    step, noon = _DAY_MS // messages, _DAY_MS // 2
    first = bulk_store.START_MS + noon
    minute = {"startingTimestamp": str(first), "endingTimestamp": str(first + 60_000)}
    low, high = (f"timestamp_millis({at})" for at in minute.values())
    in_time = f"storeTimestamp >= {low} AND storeTimestamp < {high}"
    in_minute = sum(0 <= i * step - noon < 60_000 for i in range(messages))
    size = bulk_store.BODY_SIZE
    body = {"columns": "body"}
    return (
        Job("count", {"columns": "queueId"}, lambda d: d.groupBy().count(), messages, 1.1),
        Job(
            "group by tag", {"columns": "tags"},
            lambda d: d.groupBy("tags").count().agg(f.sum("count")), messages, 1.1,
        ),
        Job("sum of body lengths", body, sizes, messages * size, 1.1),
        Job("seven columns", {"columns": _SEVEN}, lambda d: d.select(_SEVEN.split(",")), None, 1.1),
        Job(
            "one tag of 100", body | {"subExpression": "tag007"}, sizes, messages // 100 * size, 0.4,
            "tags = 'tag007'",
        ),
        Job("one key", body | {"keys": key}, sizes, size, 0.4, f"keys = '{key}'"),
        Job("one minute of 24 h", body | minute, sizes, in_minute * size, 0.4, in_time),
    )  # fmt: skip


def measure(spark: "SparkSession", root: Path, messages: int, rounds: int, lines: bool) -> Found:
    """Return CPU seconds (JVM and Python together) of each job in one session, by form, medians.

    lines: JSON lines, too, which are slow.
    """
    parquet = _written_as(spark, root, "parquet")
    _read_anew(root, Path(parquet))
    whole = spark.read.format("pocketmq").load(str(root))

    def asked(job: Job, frame: "DataFrame") -> "DataFrame":
        return job.query(frame.where(job.where) if job.where else frame)

    def named(job: Job) -> "DataFrame":
        return _named(spark, job, root)

    def unnamed(job: Job) -> "DataFrame":
        options = {name: value for name, value in job.options.items() if name != "columns"}
        return read(spark, str(root), **options).apply(job.query)

    def by_where(job: Job) -> "DataFrame":
        return read(spark, str(root)).apply(lambda frame: asked(job, frame))

    def from_parquet(job: Job) -> "DataFrame":
        return asked(job, spark.read.parquet(parquet))

    def from_lines(job: Job) -> "DataFrame":
        text = _written_as(spark, root, "json")
        return asked(job, spark.read.schema(whole.schema).json(text))

    found: Found = {}
    for job in jobs_of(messages):
        forms = {"named": named, "read": unnamed, "parquet": from_parquet}
        if job.where:
            forms["where"] = by_where
        _turns(job, forms, _WARM)
        used = _turns(job, forms, rounds)
        found[job.name] = {name: statistics.median(seconds) for name, seconds in used.items()}
        if lines:
            found[job.name]["json"] = _cpu_of(from_lines, job)
    return found


def _turns(
    job: Job, forms: Mapping[str, "Callable[[Job], DataFrame]"], rounds: int
) -> dict[str, list[float]]:
    """Return the CPU seconds of at least so many rounds, in which the forms take turns."""
    used: dict[str, list[float]] = {name: [] for name in forms}
    done = 0
    while done < rounds or min(map(sum, used.values())) < _ENOUGH_S:
        for name, form in forms.items():
            used[name].append(_cpu_of(form, job))
        done += 1
    return used


def compare(root: Path, messages: int, sessions: Sequence[Found]) -> bool:
    """Print the medians of some sessions, and the shares that each of them gave.

    Returns: whether all is within reach.
    """
    unit = min(cat_cpu(sorted((root / "commitlog").iterdir())) for _ in range(3))
    print(
        f"\nmedians of {len(sessions)} sessions\n\n| CPU seconds, {messages:,} messages (`cat`: {unit:.2f}) "
        "| named | by `read` | by `read`, `where` | Parquet | JSON lines | named / Parquet | least and most "
        "| reach | read / named |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    good = True
    for job in jobs_of(messages):
        found = [session[job.name] for session in sessions]

        def cell(form: str, found: Sequence[Mapping[str, float]] = found) -> str:
            seconds = [one[form] for one in found if form in one]
            return f"{statistics.median(seconds):.2f}" if seconds else ""

        shares = sorted(one["named"] / one["parquet"] for one in found)
        share = statistics.median(shares)
        unnamed = statistics.median(one["read"] / one["named"] for one in found)
        missed = share > job.reach or unnamed > 1.2
        good &= not missed
        cells = [cell(form) for form in ("named", "read", "where", "parquet", "json")]
        cells += [f"{share:.2f}", f"{shares[0]:.2f} {shares[-1]:.2f}", f"{job.reach:.1f}"]
        print(
            f"| {job.name} | {' | '.join(cells)} | {unnamed:.2f} |{' BEYOND' if missed else ''}",
            flush=True,
        )
    return good


def _named(spark: "SparkSession", job: Job, root: Path) -> "DataFrame":
    return job.query(spark.read.format("pocketmq").options(**job.options).load(str(root)))


def _written_as(spark: "SparkSession", root: Path, kind: str) -> str:
    """The folder of the store's messages in this form, written unless it is there."""
    folder = root.parent / kind
    if not folder.exists():
        spark.read.format("pocketmq").load(str(root)).write.format(kind).save(str(folder))
    return str(folder)


def _read_anew(*folders: Path) -> None:
    """Have the page cache hold the files as a reader of the disk leaves them.

    What wrote a file, and in what memory, decides the size of its pages there, and so what each byte costs.
    """
    for path in itertools.chain.from_iterable(folder.rglob("*") for folder in folders):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(1 << 20):
                    pass


def grow(spark: "SparkSession", roots: dict[int, Path], rounds: int) -> None:
    """Prints what the reads of everything cost with two stores, and what a GiB more does.

    roots: by their size, MiB, two of them.
    """
    small, large = roots
    gib = (large - small) / 1024
    print(
        f"\n| CPU seconds, median of {rounds} | {small:,} MiB: ours | Parquet | {large:,} MiB: ours "
        "| Parquet | a GiB more: ours | Parquet |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    jobs = {mib: jobs_of(messages_of(mib))[:_READ_ALL] for mib in roots}

    def ours(mib: int, job: Job) -> "DataFrame":
        return _named(spark, job, roots[mib])

    def columnar(mib: int, job: Job) -> "DataFrame":
        return job.query(spark.read.parquet(_written_as(spark, roots[mib], "parquet")))

    for root in roots.values():
        _read_anew(root, Path(_written_as(spark, root, "parquet")))
    for number, job in enumerate(jobs[small]):
        used: dict[tuple[Callable[[int, Job], DataFrame], int], list[float]] = {}
        for turn in range(_WARM + rounds):
            for mib in roots:
                for form in (ours, columnar):
                    asked = jobs[mib][number]
                    seconds = _cpu_of(functools.partial(form, mib), asked)
                    if turn >= _WARM:
                        used.setdefault((form, mib), []).append(seconds)
        found = {place: statistics.median(seconds) for place, seconds in used.items()}
        cells = [found[form, mib] for mib in roots for form in (ours, columnar)]
        cells += [(found[form, large] - found[form, small]) / gib for form in (ours, columnar)]
        print(f"| {job.name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)


def _cpu_of(form: "Callable[[Job], DataFrame]", job: Job) -> float:
    """CPU seconds of a job, its analysis by the form included."""
    before = cpu_seconds()
    _run(form(job), job)
    return used_since(before)


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


def messages_of(mib: int) -> int:
    """How many messages make a store of this size."""
    return GIB_OF_MESSAGES * mib // 1024 // 100 * 100


def _made(folder: Path, mib: int) -> Path:
    """The root of a store of this size, written unless it is there."""
    root = folder / "broker-a" / "store"
    if not root.exists():
        messages = messages_of(mib)
        bulk_store.write_store(root, messages, step_ms=_DAY_MS // messages)
    return root


def _session(root: Path, mib: int, rounds: int, conf: Mapping[str, str], *, lines: bool) -> Found:
    """Measure in a session of a process of its own."""
    asked = [root, mib, rounds, conf, lines]
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_spark", "--session", json.dumps(asked, default=str)],
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    found: Found = json.loads(child.stdout.splitlines()[-1])
    return found


def _one_session(asked: str) -> None:
    """Print what _session() wants."""
    root, mib, rounds, conf, lines = json.loads(asked)
    spark = spark_session(conf)
    print(json.dumps(measure(spark, Path(root), messages_of(mib), rounds, lines)))
    spark.stop()


def spark_session(conf: Mapping[str, str]) -> "SparkSession":
    spark = session("local[2]", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mib", type=int, default=1024, help="size of the store")
    parser.add_argument(
        "--larger",
        type=int,
        default=4,
        help="how much larger a second store is; 0: no second store",
    )
    parser.add_argument("--rounds", type=int, default=6, help="in each session, at least")
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="keep what is made here, or use what is there")
    parser.add_argument(
        "--tcp", action="store_true", help="between JVM and Python, in place of Unix sockets"
    )
    parser.add_argument("--session", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.session:
        _one_session(options.session)
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        root = _made(folder, options.mib)
        conf = CONF | {_UNIX_SOCKETS: str(not options.tcp).lower()}
        load, today = os.getloadavg()[0], time.strftime("%d %B %Y, %H:%M")
        way = "TCP" if options.tcp else "Unix sockets"
        print(
            f"Spark {version('pyspark')}, local[2], {way}, {today}, load of the machine {load:.1f} before"
        )
        found: list[Found] = []
        for number in range(options.sessions):
            found.append(_session(root, options.mib, options.rounds, conf, lines=not number))
            print(f"session {number + 1}: {json.dumps(found[-1])}", file=sys.stderr)
        good = compare(root, messages_of(options.mib), found)
        if options.larger:
            large = options.mib * options.larger
            roots = {options.mib: root, large: _made(folder / str(large), large)}
            spark = spark_session(conf)
            grow(spark, roots, options.rounds)
            spark.stop()
        print(f"\nload after: {os.getloadavg()[0]:.1f}")
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
