"""A master and its slave beside a pair of real brokers, in one run: what a copy costs.

    python -m benchmarks.bench_replicas                 about four minutes
    python -m benchmarks.bench_replicas --quick         about one minute
    python -m benchmarks.bench_replicas --java 5.5.0    beside another version

alone       an ASYNC_MASTER without a slave, 64 sends in flight
copied      the same with a slave that follows
waited for  a SYNC_MASTER: a send is answered when the slave has it
catch-up    an empty slave at a master with a log of so many MiB, until it has all of it
idle        a pair that nobody uses

CPU is that of both brokers for one send, for one MiB, or of one core. On a machine that does other work only
the CPU means something.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import raw_load
from benchmarks.meter import cpu_seconds, machine
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.kit.waiting import until

from pocketmq.cli.ask import ask
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode

TOPIC, QUEUES, BODY, IN_FLIGHT = "ReplicasBench", 4, 128, 64
FILE = 128 << 20
IDLE_S = 5.0
MIB = 1 << 20


@dataclass(frozen=True)
class Size:
    """How much is done. sends: of one load; log: bytes that a slave catches up."""

    sends: int
    log: int


class Pair:
    """Brokers of one kind and one name, started as they are needed."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        self._kind = kind
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
        if self._kind == "pocketmq":
            broker = PocketBroker(folder, **how)  # type: ignore[arg-type]
        else:
            broker = JavaBroker(folder, version=self._kind, heap="1g", jvm=(), **how)  # type: ignore[arg-type]
        self._stack.callback(broker.kill)
        broker.start()
        if not is_slave:
            self.master = broker
            raw_load.create_topic(broker.address, TOPIC, QUEUES)
        self.running.append(broker)
        return broker

    @property
    def cpu_s(self) -> float:
        return sum(cpu_seconds(broker.process.pid) for broker in self.running)


@contextmanager
def pair(kind: str) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield Pair(kind, Path(folder), stack)


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


def sends(pair: Pair, count: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(sends/s, us of CPU of all brokers for one), and the same with the master's CPU alone."""
    assert pair.master is not None
    pid = pair.master.process.pid
    frames = raw_load.Frames(TOPIC, QUEUES, BODY).frames

    def load(requests: int) -> float:
        assert pair.master is not None
        return raw_load.send_count(
            pair.master.address, frames, requests=requests, in_flight=IN_FLIGHT
        )

    load(count // 2)
    before, master_before = pair.cpu_s, cpu_seconds(pid)
    rate = count / load(count)
    if len(pair.running) > 1:
        follows(pair)
    price = (pair.cpu_s - before) / count * 1e6
    return (rate, price), (rate, (cpu_seconds(pid) - master_before) / count * 1e6)


def measure(kind: str, size: Size) -> dict[str, tuple[float, float]]:
    """Name of a row -> (rate, price)."""
    found: dict[str, tuple[float, float]] = {}
    with pair(kind) as alone:
        alone.start("ASYNC_MASTER")
        found["alone, sends/s"], _ = sends(alone, size.sends)
    with pair(kind) as copied:
        master = copied.start("ASYNC_MASTER")
        frames = raw_load.Frames(TOPIC, QUEUES, 4_000).frames
        while end_of(master) < size.log:
            raw_load.send_count(master.address, frames, requests=5_000, in_flight=IN_FLIGHT)
        copied.start("SLAVE")
        slave = copied.running[1]
        until(lambda: end_of(slave) > 0, "the slave follows")
        at, begin, before = end_of(slave), time.perf_counter(), copied.cpu_s
        follows(copied)
        mib = (end_of(slave) - at) / MIB
        found["catch-up, MiB/s"] = (
            mib / (time.perf_counter() - begin),
            (copied.cpu_s - before) / max(mib, 1) * 1e6,
        )
        found["copied, sends/s"], found["of it the master"] = sends(copied, size.sends)
        before = copied.cpu_s
        time.sleep(IDLE_S)
        found["idle, % of a core"] = (100 * (copied.cpu_s - before) / IDLE_S, 0)
    with pair(kind) as waited:
        master = waited.start("SYNC_MASTER")
        waited.start("SLAVE")
        until(lambda: raw_load.first_send(master.address), "the slave acknowledges")
        found["waited for, sends/s"], found["of it that master"] = sends(waited, size.sends)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--java", default="4.9.7", help="version of the real brokers; - for none")
    given = options.parse_args(arguments)
    size = Size(10_000, 64 * MIB) if given.quick else Size(100_000, 1024 * MIB)
    print(machine())
    ours = measure("pocketmq", size)
    theirs = {} if given.java == "-" else measure(given.java, size)
    print(f"{'':>22}  {'PocketMQ':>10}  {'CPU us':>8}  {given.java:>10}  {'CPU us':>8}  ratio")
    for name, (rate, price) in ours.items():
        other, other_price = theirs.get(name, (0.0, 0.0))
        ratio = f"{rate / other:.2f} x, CPU {price / other_price:.2f} x" if other_price else ""
        print(
            f"{name:>22}  {rate:>10,.1f}  {price:>8.1f}  {other:>10,.1f}  {other_price:>8.1f}  {ratio}"
        )


if __name__ == "__main__":
    main()
