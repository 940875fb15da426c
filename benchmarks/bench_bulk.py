"""How fast whole stores become Arrow columns, as a ratio to `cat FILES | cat > /dev/null` on the same files.

    python -m benchmarks.bench_bulk                1 GiB of 1 KiB messages in eight queues, page cache warm
    python -m benchmarks.bench_bulk --quick        64 MiB, for a look

Each figure is the median of pairs: the unit is measured beside every run, since a shared machine changes its
mind. A ratio of 2 is twice as fast as cat. One core: pyarrow's threads are switched off.
"""

import argparse
import hashlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import bulk_store
from pocketmq import bulk
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import read_record
from pocketmq.remoting.hosts import unpack_host

GIB_OF_MESSAGES = 874_000
SIXTEEN = (
    "topic,brokerName,queueId,queueOffset,body,tags,keys,properties,flag,bornTimestamp,storeTimestamp,"
    "commitLogOffset,storeSize,sysFlag,reconsumeTimes,bornHost"
)
# (name, columns, reach, aim): ratios to reach
WORK = (
    ("3 integer columns of the index", "queueId,queueOffset,storeSize", 3.0, 8.0),
    ("3 integer columns of the records", "queueId,queueOffset,storeTimestamp", 3.0, 8.0),
    ("body only", "body", 0.9, 1.3),
    ("tags only", "tags", 0.9, 1.3),
    ("properties as a map", "properties", None, None),
    ("standard columns", None, None, None),
    ("16 columns, properties as a map", SIXTEEN, 0.15, 0.4),
    ("all 23 columns", "all", None, None),
)


@dataclass
class Figure:
    """One line of the table; times in seconds."""

    name: str
    seconds: float
    ratio: float
    reach: float | None
    aim: float | None
    note: str = ""

    @property
    def missed(self) -> bool:
        return self.reach is not None and self.ratio < self.reach

    def __str__(self) -> str:
        goal = "" if self.reach is None else f"{self.reach:>6.2f} {self.aim or 0:>6.2f}"
        mark = "  BELOW" if self.missed else ""
        return (
            f"{self.name:<44}{self.seconds:>8.3f} s {self.ratio:>7.2f} {goal:<14}{self.note}{mark}"
        )


def cat(files: list[Path]) -> float:
    """Seconds of the unit."""
    names = " ".join(f"'{f}'" for f in files)
    began = time.perf_counter()
    subprocess.run(f"cat {names} | cat > /dev/null", shell=True, check=True)
    return time.perf_counter() - began


def paired(
    name: str,
    run: Callable[[], Any],
    files: list[Path],
    rounds: int,
    reach: float | None = None,
    aim: float | None = None,
) -> Figure:
    """Medians of `rounds` pairs of unit and run."""
    times, ratios = [], []
    for _ in range(rounds):
        unit = cat(files)
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
        unit = min(unit, cat(files))
        ratios.append(unit / times[-1])
    return Figure(name, statistics.median(times), statistics.median(ratios), reach, aim)


def count_rows(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(b.num_rows for b in batches)


def struct_loop(root: Path, limit: int) -> float:
    """Seconds a message of the plain way: the same 16 columns, one record at a time with struct."""
    log = min((root / "commitlog").iterdir())
    with log.open("rb") as file:
        data = memoryview(file.read(limit * 2048))
    rows: list[tuple[Any, ...]] = []
    at = 0
    began = time.perf_counter()
    for _ in range(limit):
        record = read_record(data, at, check_crc=False)
        properties = properties_to_dict(record.properties)
        rows.append(
            (
                record.topic, "broker", record.queue_id, record.queue_offset, bytes(record.body),
                properties.get("TAGS"), properties.get("KEYS"), properties, record.flag,
                datetime.fromtimestamp(record.born_ms / 1000, UTC),
                datetime.fromtimestamp(record.store_ms / 1000, UTC),
                record.position, record.size, record.sys_flag, record.reconsume_times,
                unpack_host(record.born_host),
            )
        )  # fmt: skip
        at += record.size
    return (time.perf_counter() - began) / limit


def decoder_figures(root: Path, messages: int, rounds: int) -> list[Figure]:
    """The table of docs/spark.md, first half."""
    files = sorted((root / "commitlog").iterdir())
    pa.set_cpu_count(1)
    loop = struct_loop(root, min(messages, 20_000))
    figures = []
    for name, columns, reach, aim in WORK:

        def run(columns: str | None = columns) -> None:
            rows = count_rows(bulk.scan(str(root), columns=columns))
            assert rows == messages, rows

        figure = paired(name, run, files, rounds, reach, aim)
        if columns == SIXTEEN:
            figure.note = f"{loop * messages / figure.seconds:.0f} x a struct loop (10)"
        figures.append(figure)
    return figures


def selective_figures(root: Path, messages: int, rounds: int) -> list[Figure]:
    """What 1 % costs, by tag, time and offset, beside the whole."""
    files = sorted((root / "commitlog").iterdir())
    percent = messages // 100
    start = bulk_store.START_MS + messages // 2
    offsets = {"bench": {root.name: dict.fromkeys(range(8), messages // 16)}}
    ends = {"bench": {root.name: dict.fromkeys(range(8), messages // 16 + percent // 8)}}
    selections: tuple[tuple[str, dict[str, Any]], ...] = (
        ("everything", {}),
        ("1 % by tag", {"tags": ["tag007"]}),
        ("1 % by time", {"starting_ms": start, "ending_ms": start + percent}),
        ("1 % by offset", {"starting_offsets": offsets, "ending_offsets": ends}),
    )
    figures: list[Figure] = []
    for name, selection in selections:
        rows = 0

        def run(selection: dict[str, Any] = selection) -> None:
            nonlocal rows
            rows = count_rows(bulk.scan(str(root), **selection))

        figure = paired(f"  {name}", run, files, rounds)
        share = figure.seconds / figures[0].seconds if figures else 1.0
        figure.note = f"{rows} rows, {100 * share:.1f} % of the time"
        figures.append(figure)
    return figures


def verify(
    root: Path,
    messages: int,
    *,
    batch_bytes: int = 8 << 20,
    each: Callable[[int], None] | None = None,
) -> str:
    """Hashes every body, tag and key of a generated store against its generator. Returns: the hash.

    each: called after each batch with the rows so far.
    """
    noise = bulk_store.body_noise(bulk_store.BODY_SIZE)
    wanted, found = hashlib.sha256(), hashlib.sha256()
    rows = 0
    for batch in bulk.scan(
        str(root), columns="body,tags,keys", verify_crc=True, batch_bytes=batch_bytes
    ):
        for name in batch.schema.names:
            found.update(b"".join(v.as_buffer() for v in batch.column(name)))
        span = range(rows, rows + batch.num_rows)
        wanted.update(b"".join(bulk_store.body_of(i, bulk_store.BODY_SIZE, noise) for i in span))
        wanted.update("".join(f"tag{i % 100:03d}" for i in span).encode())
        wanted.update("".join(map(bulk_store.key_of, span)).encode())
        rows += batch.num_rows
        if each is not None:
            each(rows)
    assert rows == messages, rows
    assert found.digest() == wanted.digest()
    return f"{rows} messages counted and hashed against the generator: {found.hexdigest()[:16]}"


def print_table(title: str, figures: list[Figure]) -> None:
    print(f"\n{title:<44}{'time':>10} {'ratio':>7} {'reach':>6} {'aim':>6}")
    for figure in figures:
        print(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="64 MiB instead of 1 GiB")
    parser.add_argument(
        "--verify", action="store_true", help="hash what is read, before it is timed"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, help="where the stores are made (default: a temporary one)"
    )
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="bench-bulk-"))
    largest = GIB_OF_MESSAGES // (16 if options.quick else 1)
    try:
        root = make_store(folder, largest)
        if options.verify:
            print(verify(root, largest))
        figures = decoder_figures(root, largest, options.rounds)
        print_table(f"pocketmq.bulk, one core, {largest} messages", figures)
        for part in (16, 4, 1):
            small = make_store(folder, largest // part)
            print_table(
                f"a store of {largest // part} messages",
                selective_figures(small, largest // part, options.rounds),
            )
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    return int(any(f.missed for f in figures))


def make_store(folder: Path, messages: int) -> Path:
    """The generated store of that many messages; made once."""
    root = folder / f"bench{messages}"
    if not root.exists():
        bulk_store.write_store(root, messages)
    return root


if __name__ == "__main__":
    sys.exit(main())
