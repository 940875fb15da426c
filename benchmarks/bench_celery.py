"""Celery on PocketMQ beside Celery on Redis, in one run: empty tasks, and a worker that has nothing to do.

    python -m benchmarks.bench_celery              three alternating rounds
    python -m benchmarks.bench_celery --tasks 1000 --rounds 1 --idle 5

A worker of two processes (prefork) runs tasks that do nothing and store no result. Tasks/s are counted from
the first task to the last, all of them sent before; CPU is that of worker and broker. Redis is
this machine's `redis-server` with its append-only file, since PocketMQ stores what it is sent, too; without
one it is left out, and said.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from celery import Celery

import pocketmq.integrations.celery  # noqa: F401 - makes `pocketmq://` known
from benchmarks.meter import cpu_seconds, machine
from tests.interop.brokers import PocketBroker
from tests.interop.processes import Process
from tests.kit.ports import free_ports

APP = """
import os
from celery import Celery
import pocketmq.integrations.celery
app = Celery("bench", broker=os.environ["BENCH_BROKER"])

@app.task(ignore_result=True)
def nothing(): pass

@app.task(ignore_result=True)
def note(path): open(path, "w").close()
"""
LOOK_S = 0.01


class Service(NamedTuple):
    """A broker by its URL, and its process."""

    url: str
    pid: int


class Sample(NamedTuple):
    """One round. CPU in seconds for all tasks; idle: the worker's share of a core."""

    sent_per_s: float
    done_per_s: float
    worker_cpu: float
    broker_cpu: float
    idle: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row a broker."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without a task")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pocketmq-celery-") as place, ExitStack() as stack:
        folder = Path(place)
        (folder / "bench.py").write_text(APP)
        services = _services(folder, stack)
        found: dict[str, list[Sample]] = {name: [] for name in services}
        for _ in range(given.rounds):
            for name, service in services.items():
                found[name].append(_round(service, folder, given.tasks, given.idle))
    print(
        f"Celery, prefork 2, {given.tasks:,} empty tasks; {machine()}; load {os.getloadavg()[0]:.1f}\n"
    )
    print("| broker | sent/s | done/s | CPU-s: worker + broker | idle worker, of a core |")
    print("|---|---:|---:|---:|---:|")
    for name, samples in found.items():
        sent, done, worker, broker, idle = (
            statistics.median(values) for values in zip(*samples, strict=True)
        )
        print(f"| {name} | {sent:,.0f} | {done:,.0f} | {worker:.1f} + {broker:.1f} | {idle:.2%} |")
    return 0


def _services(folder: Path, stack: ExitStack) -> dict[str, Service]:
    broker = stack.enter_context(PocketBroker(folder / "pocketmq"))
    services = {"PocketMQ": Service(f"pocketmq://{broker.namesrv}", broker.process.pid)}
    redis = shutil.which("redis-server")
    if redis is None:
        print("no redis-server here: left out", file=sys.stderr)
        return services
    (folder / "redis").mkdir()
    [port] = free_ports(1)
    words = [redis, "--bind", "127.0.0.1", "--port", str(port), "--appendonly", "yes"]
    process = Process([*words, "--dir", str(folder / "redis")], folder / "redis.out")
    stack.callback(process.stop)
    services["Redis"] = Service(f"redis://127.0.0.1:{port}", process.pid)
    return services


def _round(service: Service, folder: Path, tasks: int, idle_s: float) -> Sample:
    marks = folder / "begun", folder / "done"
    for mark in marks:
        mark.unlink(missing_ok=True)
    app = Celery("bench", broker=service.url, set_as_current=False)
    with app.producer_pool.acquire(block=True) as producer:
        app.send_task("bench.note", (str(marks[0]),), producer=producer, ignore_result=True)
        broker_before, began = cpu_seconds(service.pid), time.perf_counter()
        for _ in range(tasks):
            app.send_task("bench.nothing", producer=producer, ignore_result=True)
        sent_per_s = tasks / (time.perf_counter() - began)
        app.send_task("bench.note", (str(marks[1]),), producer=producer, ignore_result=True)
    with _worker(service, folder) as worker:
        times = []
        for mark in marks:
            while not mark.exists():
                time.sleep(LOOK_S)
            times.append(time.perf_counter())
        done_per_s = tasks / (times[1] - times[0])
        worker_cpu = _tree_cpu(worker)
        broker_cpu = cpu_seconds(service.pid) - broker_before
        time.sleep(2)
        before = _tree_cpu(worker)
        time.sleep(idle_s)
        idle = (_tree_cpu(worker) - before) / idle_s
    return Sample(sent_per_s, done_per_s, worker_cpu, broker_cpu, idle)


@contextmanager
def _worker(service: Service, folder: Path) -> Iterator[int]:
    with (folder / "worker.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "bench", "worker", "-c", "2", "-l", "WARNING"],
            cwd=folder,
            env={**os.environ, "BENCH_BROKER": service.url},
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _tree_cpu(pid: int) -> float:
    """Of a worker and the processes of its pool."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(int(each)) for each in children)


if __name__ == "__main__":
    sys.exit(main())
