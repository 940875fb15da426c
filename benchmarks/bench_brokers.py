"""1, 2 and 4 brokers of one `pocketmq up --brokers N` on this machine, in one run: what more processes give.

    python -m benchmarks.bench_brokers              about 90 seconds, three alternating rounds
    python -m benchmarks.bench_brokers --quick      about 30 seconds, one round

Every broker has a load process of its own (benchmarks.raw_load), so the load takes processor time from the
brokers: on 2 cores, 2 brokers and 2 loads share them. `CPU us` is the brokers' own processor time for one
message; what it leaves is what more cores would give. Ratios are to one broker, of the same round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import raw_load
from benchmarks.meter import cpu_seconds, machine
from tests.interop.processes import Process
from tests.kit.ports import free_ports

COUNTS = (1, 2, 4)
TOPIC, QUEUES, BODY, IN_FLIGHT = "BrokersBench", 4, 128, 64
BACKLOG = 60_000
LOADS = ("send", "pull")


@dataclass
class Figures:
    """Of one number of brokers; a list has an item for each round."""

    ready_ms: float = 0.0
    memory_mb: float = 0.0
    per_s: dict[str, list[float]] = field(default_factory=lambda: {load: [] for load in LOADS})
    cpu_us: dict[str, list[float]] = field(default_factory=lambda: {load: [] for load in LOADS})


class Site:
    """A running `up --brokers N`."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        namesrv, port = free_ports(2)
        words = ["up", "--brokers", str(count), "--broker-name", "bench", "--data", str(folder)]
        words += ["--namesrv-port", str(namesrv), "--broker-port", str(port)]
        words += ["--log-level", "WARNING"]
        program = str(Path(sys.executable).parent / "pocketmq")
        begin = time.perf_counter()
        self.process = Process([program, *words], folder.with_suffix(".log"))
        line = self.process.wait_for_line("ready")
        self.ready_ms = (time.perf_counter() - begin) * 1000
        said = dict(word.split("=", 1) for word in line.split()[1:])
        self.addresses = said["broker"].split(",")
        brokers = [int(pid) for pid in said.get("pids", said["pid"]).split(",")]
        self.pids = sorted({*brokers, int(said["pid"])})
        for address in self.addresses:
            raw_load.create_topic(address, TOPIC, QUEUES)

    def memory_mb(self) -> float:
        """Of all its processes; a page that they share counts once, files do not count."""
        return sum(_proportional_mb(pid) for pid in self.pids)

    def load(self, kind: str, seconds: float) -> tuple[float, float]:
        """One load on each broker at the same time: messages a second, CPU us a message."""
        with ExitStack() as leave:
            loads = []
            for address in self.addresses:
                words = [sys.executable, "-m", "benchmarks.bench_brokers"]
                load = subprocess.Popen(
                    [*words, "--load", kind, address, str(seconds)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                leave.enter_context(load)
                leave.callback(load.kill)
                loads.append(load)
            for load in loads:
                # Its frames are made; it waits.
                assert load.stdout is not None
                assert load.stdout.readline() == "made\n"
            before = sum(map(cpu_seconds, self.pids))
            begin = time.perf_counter()
            for load in loads:
                assert load.stdin is not None
                load.stdin.write("go\n")
                load.stdin.flush()
            messages = sum(
                json.loads(load.stdout.readline()) for load in loads if load.stdout is not None
            )
            took = time.perf_counter() - begin
            cpu = sum(map(cpu_seconds, self.pids)) - before
        return messages / took, cpu / messages * 1e6


def _proportional_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"no Pss_Anon in /proc/{pid}/smaps_rollup; this needs Linux 5.3 or newer")


def run_load(kind: str, address: str, seconds: float) -> int:
    """The load process: make frames, wait for the word, load, print the messages."""
    frames = raw_load.Frames(TOPIC, QUEUES, BODY).frames
    print("made", flush=True)
    sys.stdin.readline()
    if kind == "send":
        result = raw_load.send(address, frames, in_flight=IN_FLIGHT, warmup_s=0.0, window_s=seconds)
        print(result.requests, flush=True)
    else:
        end = time.perf_counter() + seconds
        messages = 0
        while (left := end - time.perf_counter()) > 0:
            messages += raw_load.pull(address, TOPIC, QUEUES, seconds=left).records
        print(messages, flush=True)
    return 0


def measure(rounds: int, seconds: float) -> dict[int, Figures]:
    found = {count: Figures() for count in COUNTS}
    with tempfile.TemporaryDirectory(prefix="pocketmq-bench-") as place, ExitStack() as leave:
        sites = []
        for count in COUNTS:
            site = Site(Path(place) / f"brokers-{count}", count)
            leave.callback(site.process.stop)
            sites.append(site)
            found[count].ready_ms = site.ready_ms
            found[count].memory_mb = site.memory_mb()
            for address in site.addresses:
                frames = raw_load.Frames(TOPIC, QUEUES, BODY).frames
                raw_load.send_count(address, frames, requests=BACKLOG // count, in_flight=IN_FLIGHT)
        for _ in range(rounds):
            for kind in LOADS:
                for site in sites:
                    per_s, cpu_us = site.load(kind, seconds)
                    found[site.count].per_s[kind].append(per_s)
                    found[site.count].cpu_us[kind].append(cpu_us)
                    said = f"{site.count} brokers, {kind}: {per_s:,.0f}/s, {cpu_us:.1f} CPU us"
                    print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stderr, flush=True)
    return found


def table(found: dict[int, Figures]) -> str:
    """Medians of the rounds; the ratio is the median of each round's own."""
    one = found[1]
    lines = [
        "| brokers | ready ms | memory MB | send/s | ratio | CPU us | pull/s | ratio | CPU us |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for count, figures in found.items():
        cells = [str(count), f"{figures.ready_ms:.0f}", f"{figures.memory_mb:.0f}"]
        for kind in LOADS:
            ratios = [a / b for a, b in zip(figures.per_s[kind], one.per_s[kind], strict=True)]
            cells += [
                f"{statistics.median(figures.per_s[kind]):,.0f}",
                f"{statistics.median(ratios):.2f}",
                f"{statistics.median(figures.cpu_us[kind]):.1f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, about 30 seconds")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.load:
        kind, address, seconds = given.load
        return run_load(kind, address, float(seconds))
    found = measure(1 if given.quick else 3, 2.0 if given.quick else 4.0)
    print(f"{machine()}; bodies of {BODY} bytes, {IN_FLIGHT} sends in flight for each broker\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
