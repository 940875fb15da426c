"""make bench: PocketMQ and the real Java broker under the same load, in turn, on this machine, in one run.

    python -m benchmarks.compare                     about 45 minutes, three alternating rounds
    python -m benchmarks.compare --quick --rounds 3  about 15 minutes, three short rounds
    python -m benchmarks.compare --quick             about 6 minutes, one round
    python -m benchmarks.compare --only raw   the rows whose title holds the word

Prints the speed table and writes it to benchmarks/results.md. PocketMQ is measured pure and, where mypyc and
a C compiler are there, compiled. The brokers run side by side and only one of them is under load; every row
is measured on one after the other, so that a slow minute of the machine meets all. The CPU figures are those
to trust on a busy machine.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks import raw_load, report
from benchmarks.compiled_copy import compile_to
from benchmarks.meter import Meter, anonymous_mb, cpu_seconds
from benchmarks.results import Footprint, Growth, Measured, Results
from benchmarks.rows import (
    BACKLOG_QUEUES,
    BACKLOG_TOPIC,
    FULL,
    QUEUES,
    QUICK,
    ROWS,
    SYNC_ROW,
    TOPIC,
    Effort,
    Place,
    Row,
    fill,
    raw_send,
)
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker

# What a broker.conf of production has: full-size files, no special settings.
CONFIG: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "transactionTimeOut": 6_000,
    "transactionCheckInterval": 60_000,
    "diskMaxUsedSpaceRatio": 95,
    # The Java broker answers SYSTEM_BUSY after 200 ms in its queue; a busy machine is no broker's fault.
    "waitTimeMillsInSendQueue": 5_000,
}
_TABLE_BEGINS, _TABLE_ENDS = "<!-- speed table: begin -->", "<!-- speed table: end -->"
JAVA_HEAP = "1g"
COMPILED = "compiled"
# The Java broker that ratios are of; a further version is "java-5.5.0".
JAVA = "java"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, about 4 minutes")
    parser.add_argument("--rounds", type=int, help="alternating rounds")
    parser.add_argument(
        "--only", default="", help="rows whose title holds this word; no results file"
    )
    parser.add_argument(
        "--brokers", default="java,pocketmq,compiled", help="which of java,pocketmq,compiled"
    )
    parser.add_argument(
        "--java",
        help="versions of the Java broker, the one that ratios are of first: 4.9.7,5.5.0, the default of "
        "a full run; --quick has 4.9.7 alone",
    )
    parser.add_argument(
        "--data", type=Path, help="folder for the stores (default: a temporary one)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results.md", help="results file"
    )
    parser.add_argument(
        "--growth", help="only how it is with so many messages stored: 300000,30000000 (8 GB)"
    )
    options = parser.parse_args(arguments)
    if options.growth:
        options.brokers = "pocketmq"
    effort = QUICK if options.quick else FULL
    javas = (options.java or ("4.9.7" if options.quick else "4.9.7,5.5.0")).split(",")
    rounds = options.rounds or effort.rounds
    names = options.brokers.split(",")
    if set(names) - {JAVA, "pocketmq", COMPILED}:
        parser.error(f"--brokers: {options.brokers!r} names none of java,pocketmq,compiled")
    if JAVA in names:
        at = names.index(JAVA) + 1
        names[at:at] = [f"{JAVA}-{version}" for version in javas[1:]]
    rows = [row for row in ROWS if options.only in row.title]
    with_sync = options.only in SYNC_ROW.title
    if not rows and not with_sync:
        parser.error(f"--only: no row's title holds {options.only!r}")
    with _folder(options.data) as folder:
        if COMPILED in names and not compile_to(folder / COMPILED):
            names.remove(COMPILED)
        run = _Run(folder, effort, rounds, names, javas)
        if options.growth:
            run.measure_growth([int(each) for each in options.growth.split(",")])
        else:
            run.measure(rows, with_sync=with_sync, everything=not options.only)
    text = report.text(run.results, effort, rounds)
    print(text)
    if not (options.only or options.growth) and {JAVA, "pocketmq"} <= set(names):
        write(options.output, text)
        print(f"written to {options.output}", file=sys.stderr)
    return 0


def write(path: Path, text: str) -> None:
    """Put the tables between the file's two marks; a file without marks becomes the tables alone."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    before, begin, rest = old.partition(_TABLE_BEGINS)
    _, end, after = rest.partition(_TABLE_ENDS)
    whole = f"{before}{begin}\n\n{text}\n{end}{after}" if begin and end else text
    path.write_text(whole, encoding="utf-8")


class _Run:
    """One run of the comparison; the results are its attributes."""

    def __init__(
        self, folder: Path, effort: Effort, rounds: int, names: Sequence[str], javas: Sequence[str]
    ) -> None:
        self.results = Results({name: Footprint() for name in names}, javas[0])
        self._folder = folder
        self._effort = effort
        self._rounds = rounds
        self._names = names

    def measure(self, rows: Sequence[Row], *, with_sync: bool, everything: bool) -> None:
        if everything:
            for name in self._names:
                self._measure_starts(name)
        if rows:
            self._measure_plain(rows, with_idle=everything)
        if with_sync:
            self._measure_sync()
        if everything and "pocketmq" in self._names:
            self.measure_growth()

    def _measure_plain(self, rows: Sequence[Row], *, with_idle: bool) -> None:
        with contextlib.ExitStack() as leave:
            places = [self._open(name, "main", {}, leave) for name in self._names]
            if with_idle:
                self._measure_idle(places)
            if any("backlog" in row.title or "tag" in row.title for row in rows):
                for place in places:
                    self._say(f"{place.name}: {self._effort.backlog:,} messages of backlog")
                    fill(place.broker, self._effort.backlog)
            for place in places:
                # What a JVM needs to get warm, and a store to have its files.
                _warm(place)
                self.results.footprints[place.name].loaded_mb = anonymous_mb(place.pid)
            self._measure_rows(rows, places)

    def _measure_rows(self, rows: Sequence[Row], places: Sequence[Place]) -> None:
        for row in rows:
            measured = Measured(row, {place.name: [] for place in places})
            self.results.measured.append(measured)
            for _ in range(self._rounds):
                for place in places:
                    sample = row.measure(place)
                    measured.samples[place.name].append(sample)
                    self._say(
                        f"{row.title}: {place.name} {sample.rate:,.0f}/s, {sample.cpu:.2f} CPU-s/100k"
                        + (
                            f", p50 {sample.p50_us:,.0f} us, p99 {sample.p99_us:,.0f} us"
                            if sample.p50_us is not None and sample.p99_us is not None
                            else ""
                        )
                    )

    def _measure_starts(self, name: str) -> None:
        for number in range(self._effort.starts):
            broker = self._make(name, self._folder / f"start-{name}-{number}", {})
            try:
                seconds = _seconds_to_first_ack(broker)
            finally:
                broker.kill()
            self.results.footprints[name].start_s.append(seconds)
            self._say(f"{name}: first message acknowledged after {seconds:.2f} s")

    def _measure_idle(self, places: Sequence[Place]) -> None:
        # Both rest at the same time: nothing else of this run works.
        time.sleep(self._effort.idle_s / 2)
        meters = [Meter(place.pid) for place in places]
        time.sleep(self._effort.idle_s)
        for place, meter in zip(places, meters, strict=True):
            footprint = self.results.footprints[place.name]
            footprint.idle_cpu_share = meter.share
            footprint.idle_mb = anonymous_mb(place.pid)
            self._say(f"{place.name}: idle {footprint.idle_mb:.0f} MB, {meter.share:.2%} of a core")

    def _measure_sync(self) -> None:
        with contextlib.ExitStack() as leave:
            config = {"flushDiskType": "SYNC_FLUSH"}
            places = [self._open(name, "sync", config, leave) for name in self._names]
            for place in places:
                _warm(place)
            self._measure_rows([SYNC_ROW], places)

    def measure_growth(self, stored_counts: Sequence[int] = ()) -> None:
        """Start, send, pull and memory by messages stored: the backlog and ten times as many, or as given."""
        counts = stored_counts or (self._effort.backlog, self._effort.backlog * 10)
        brokers = {
            count: self._make("pocketmq", self._folder / f"growth-{count}", {}) for count in counts
        }
        try:
            for count, broker in brokers.items():
                broker.start()
                _create_topics(broker)
                fill(broker, count)
                # It is filled faster than it is indexed; what the index costs stands in the rows of sends.
                while raw_load.unindexed(broker.address):
                    time.sleep(1)
                # A stop waits until all is on the disk, which is minutes for what was written in minutes.
                os.sync()
                broker.stop()
            for _ in range(self._rounds):
                for count, broker in brokers.items():
                    self._measure_stored(broker, count)
                    broker.stop()
        finally:
            for broker in brokers.values():
                broker.kill()

    def _measure_stored(self, broker: RunningBroker, stored: int) -> None:
        """Start a broker that has so many messages; it is left running."""
        start_s = _seconds_to_first_ack(broker)
        place = Place("pocketmq", broker, self._folder, self._effort)
        start_cpu = cpu_seconds(place.pid)
        sample = raw_send(64)(place)
        before = cpu_seconds(place.pid)
        pulled = raw_load.pull(
            broker.address, BACKLOG_TOPIC, BACKLOG_QUEUES, records=self._effort.backlog
        )
        self.results.growth.append(
            Growth(
                stored,
                start_s,
                sample.rate,
                pulled.records / pulled.seconds,
                anonymous_mb(place.pid),
                start_cpu,
                sample.cpu,
                (cpu_seconds(place.pid) - before) / pulled.records * 100_000,
            )
        )
        self._say(f"growth: {self.results.growth[-1]}")

    def _open(
        self, name: str, purpose: str, config: Mapping[str, object], leave: contextlib.ExitStack
    ) -> Place:
        broker = self._make(name, self._folder / f"{purpose}-{name}", config)
        leave.callback(broker.kill)
        broker.start()
        _create_topics(broker)
        return Place(name, broker, self._folder / f"{purpose}-{name}", self._effort)

    def _make(self, name: str, folder: Path, config: Mapping[str, object]) -> RunningBroker:
        merged = {**CONFIG, **config}
        if name == "pocketmq":
            return PocketBroker(folder, config=merged)
        if name == COMPILED:
            return PocketBroker(folder, config=merged, sources=self._folder / COMPILED)
        version = name.removeprefix(JAVA)[1:] or self.results.java
        jvm = ("-Xms" + JAVA_HEAP, "-XX:+UseG1GC")
        return JavaBroker(folder, version=version, heap=JAVA_HEAP, jvm=jvm, config=merged)

    @staticmethod
    def _say(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _create_topics(broker: RunningBroker) -> None:
    for topic, queues in ((TOPIC, QUEUES), (BACKLOG_TOPIC, BACKLOG_QUEUES)):
        raw_load.create_topic(broker.address, topic, queues)
        _wait_until(partial(raw_load.has_route, broker.namesrv, topic), f"route of {topic}")


def _seconds_to_first_ack(broker: RunningBroker) -> float:
    """From the start of the broker's process. The Java name server is started before and not counted."""
    if isinstance(broker, JavaBroker):
        broker.start_namesrv()
    started = time.perf_counter()
    broker.launch()

    def acknowledged() -> bool:
        if broker.process.returncode is not None:
            raise RuntimeError(f"the broker ended at its start: {broker.log()[-2000:]}")
        return raw_load.first_send(broker.address)

    _wait_until(acknowledged, "first acknowledged message")
    seconds = time.perf_counter() - started
    broker.wait_until_ready()
    return seconds


def _wait_until(condition: Callable[[], bool], what: str, within_s: float = 60) -> None:
    end = time.perf_counter() + within_s
    while not condition():
        if time.perf_counter() > end:
            raise TimeoutError(f"{what} did not come in {within_s} s")
        time.sleep(0.005)


def _warm(place: Place) -> None:
    frames = raw_load.Frames(TOPIC, QUEUES, 128).frames
    seconds = 6.0 if place.name.startswith(JAVA) else 1.0
    raw_load.send(place.broker.address, frames, in_flight=64, warmup_s=seconds, window_s=0.1)
    raw_load.pull(place.broker.address, TOPIC, QUEUES, seconds=seconds / 3)


@contextlib.contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pocketmq-bench-", dir=given))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
