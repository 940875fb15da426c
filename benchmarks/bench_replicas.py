"""A master and its slave beside a pair of real brokers, in one run: what a copy costs.

    python -m benchmarks.bench_replicas                 about five minutes
    python -m benchmarks.bench_replicas --quick         about two minutes
    python -m benchmarks.bench_replicas --java 5.5.0    beside another version
    python -m benchmarks.bench_replicas --compiled      and with the hot modules compiled, half as long again

alone       an ASYNC_MASTER without a slave, 64 sends in flight
copied      the same with a slave that follows
waited for  a SYNC_MASTER: a send is answered when the slave has it
catch-up    an empty slave at a master with a log of so many MiB, until it has all of it
idle        a pair without clients

Both kinds are up together and take turns, round by round: the rates are medians, the ratio is the median of
the rounds' ratios, so that other work on the machine meets both. CPU is that of all brokers of the row for
one send, for one MiB, or of one core.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import raw_load
from benchmarks.compiled_copy import compile_to
from benchmarks.meter import cpu_seconds, machine
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.transport.blocking import ask
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.kit.waiting import until

TOPIC, QUEUES, BODY, IN_FLIGHT = "ReplicasBench", 4, 128, 64
OURS, COMPILED = "pocketmq", "compiled"
# One file has all of what a slave catches up: a real one asks an empty store's master for its last file only.
FILE = 1536 << 20
# A real slave that misses its master's first answer about itself asks again after 40 s.
FIRST_BYTES_S = 120
# An idle pair is looked at so long, when what the catch-up has left behind is done.
SETTLE_S, IDLE_S = 10.0, 20.0
MIB = 1 << 20

Found = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Size:
    """How much is done. sends: of one load; rounds: of each kind; log: bytes that a slave catches up."""

    sends: int
    rounds: int
    log: int


class Pair:
    """Brokers of one kind and one name, started as they are needed.

    found: name of a row -> (rate, us of CPU) of each round.
    """

    def __init__(self, kind: str, folder: Path, stack: ExitStack, compiled: Path) -> None:
        self.kind = kind
        self._sources = compiled if kind == COMPILED else None
        self.found: Found = {}
        self._folder = folder
        self._stack = stack
        self.master: RunningBroker | None = None
        self.running: list[RunningBroker] = []

    def start(self, role: str) -> RunningBroker:
        """A master, or the slave of the last one, on an empty store."""
        is_slave = role == "SLAVE"
        how = {
            "config": {
                "brokerRole": role,
                "inSyncReplicas": 2,
                "mappedFileSizeCommitLog": FILE,
                "haSendHeartbeatInterval": 1_000,
            },
            "broker_id": int(is_slave),
            "namesrv": self.master.namesrv if is_slave and self.master else None,
        }
        folder = self._folder / role.lower()
        broker: RunningBroker
        if self.kind in (OURS, COMPILED):
            broker = PocketBroker(folder, sources=self._sources, **how)  # type: ignore[arg-type]
        else:
            broker = JavaBroker(folder, version=self.kind, heap="1g", jvm=(), **how)  # type: ignore[arg-type]
        self._stack.callback(broker.kill)
        broker.start()
        if not is_slave:
            self.master = broker
            raw_load.create_topic(broker.address, TOPIC, QUEUES)
        self.running.append(broker)
        return broker

    def note(self, name: str, rate: float, price: float) -> None:
        self.found.setdefault(name, []).append((rate, price))

    @property
    def cpu_s(self) -> float:
        return sum(cpu_seconds(broker.process.pid) for broker in self.running)


@contextmanager
def pairs(kinds: Sequence[str], compiled: Path, *roles: str) -> Iterator[list[Pair]]:
    """A pair of each kind, with brokers of these roles."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = [Pair(kind, Path(folder, kind), stack, compiled) for kind in kinds]
        for pair in made:
            for role in roles:
                pair.start(role)
        yield made


def end_of(broker: RunningBroker) -> int:
    """Raises: LookupError while the broker cannot say it."""
    answer = ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=30_000)
    if answer.code:
        raise LookupError(answer.remark)
    return int(fastjson.loads(answer.body)["table"]["commitLogMaxOffset"])


def follows(pair: Pair) -> None:
    """Wait until the slave has everything."""
    master, slave = pair.running
    until(lambda: end_of(slave) == end_of(master), "the slave has caught up", 600)


def sends(pair: Pair, name: str, count: int) -> None:
    """One load on the master: its rate, and the CPU of the master and of all of them for one send."""
    assert pair.master is not None
    pid = pair.master.process.pid
    frames = raw_load.Frames(TOPIC, QUEUES, BODY).frames
    before, master_before = pair.cpu_s, cpu_seconds(pid)
    rate = count / raw_load.send_count(
        pair.master.address, frames, requests=count, in_flight=IN_FLIGHT
    )
    if len(pair.running) > 1:
        follows(pair)
    pair.note(name, rate, (pair.cpu_s - before) / count * 1e6)
    pair.note(f"{name}, the master's", rate, (cpu_seconds(pid) - master_before) / count * 1e6)


def catch_up(pair: Pair, size: int) -> None:
    """A slave joins a master with so many bytes."""
    master = pair.master
    assert master is not None
    frames = raw_load.Frames(TOPIC, QUEUES, 4_000).frames
    while not raw_load.first_send(master.address) or end_of(master) < size:
        raw_load.send_count(master.address, frames, requests=5_000, in_flight=IN_FLIGHT)
    os.sync()
    slave = pair.start("SLAVE")
    until(lambda: end_of(slave) > 0, "the slave follows", FIRST_BYTES_S)
    at, begin, before = end_of(slave), time.perf_counter(), pair.cpu_s
    follows(pair)
    copied = end_of(slave) - at
    if copied < size // 2:
        raise RuntimeError(f"{pair.kind}: {copied} bytes of {size} were left to be copied: no rate")
    mib = copied / MIB
    price = (pair.cpu_s - before) / mib * 1e6
    pair.note("catch-up, MiB/s", mib / (time.perf_counter() - begin), price)


def idle(pair: Pair) -> None:
    time.sleep(SETTLE_S)
    before = pair.cpu_s
    time.sleep(IDLE_S)
    pair.note("idle, % of a core", 100 * (pair.cpu_s - before) / IDLE_S, 0)


def measure(kinds: Sequence[str], compiled: Path, size: Size) -> list[Found]:
    """What was found of each kind. compiled: where the compiled copy is."""
    found: list[Found] = [{} for _ in kinds]
    with (
        pairs(kinds, compiled, "ASYNC_MASTER") as alone,
        pairs(kinds, compiled, "ASYNC_MASTER") as copied,
    ):
        for pair in copied:
            catch_up(pair, size.log)
            idle(pair)
        take_turns(size, (alone, "alone, sends/s"), (copied, "copied, sends/s"))
        for each, *both in zip(found, alone, copied, strict=True):
            for pair in both:
                each.update(pair.found)
            each["lost by copying, %"] = [
                (100 - 100 * with_it[0] / without[0], 0)
                for with_it, without in zip(
                    each["copied, sends/s"], each["alone, sends/s"], strict=True
                )
            ]
    with pairs(kinds, compiled, "SYNC_MASTER", "SLAVE") as waited:
        for pair in waited:
            assert pair.master is not None
            address = pair.master.address
            until(lambda at=address: raw_load.first_send(at), "the slave acknowledges")  # type: ignore[misc]
        take_turns(size, (waited, "waited for, sends/s"))
        for each, pair in zip(found, waited, strict=True):
            each.update(pair.found)
    return found


def take_turns(size: Size, *rows: tuple[list[Pair], str]) -> None:
    """Loads on all of them in turn; the first round warms up."""
    for number in range(size.rounds + 1):
        for pairs_of_it, name in rows:
            for pair in pairs_of_it:
                sends(pair, name, size.sends)
                if not number:
                    pair.found.pop(name)
                    pair.found.pop(f"{name}, the master's")


def table(kinds: Sequence[str], found: list[Found]) -> Iterator[str]:
    """The lines that are printed."""
    heads = "".join(f"{kind:>12}{'CPU us':>9}" for kind in kinds)
    yield f"{'':>34}{heads}"
    for name in found[0]:
        each = [of_kind[name] for of_kind in found]
        middle = [[statistics.median(column) for column in zip(*of, strict=True)] for of in each]
        line = "".join(f"{rate:>12,.1f}{price:>9.1f}" for rate, price in middle)
        # What the others are compared with: the real brokers, if there are any.
        *ours, last = each
        if ours and "%" not in name and all(rate for rate, _ in last):
            for kind, mine, its in zip(kinds, ours, middle, strict=False):
                ratio = statistics.median(a / b for (a, _), (b, _) in zip(mine, last, strict=True))
                line += f"  {kind} {ratio:.2f} x, CPU {its[1] / middle[-1][1]:.2f} x"
        yield f"{name:>34}{line}"


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--compiled", action="store_true", help="the compiled form, too")
    options.add_argument("--java", default="4.9.7", help="version of the real brokers; - for none")
    given = options.parse_args(arguments)
    size = Size(10_000, 5, 64 * MIB) if given.quick else Size(50_000, 7, 1024 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder)
        kinds = [OURS]
        if given.compiled and compile_to(compiled):
            kinds.append(COMPILED)
        if given.java != "-":
            kinds.append(given.java)
        print(machine(), f"load {os.getloadavg()[0]:.1f}", flush=True)
        for line in table(kinds, measure(kinds, compiled, size)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
