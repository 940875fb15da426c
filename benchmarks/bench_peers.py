"""PocketMQ and its Python client beside what Python users would pick: NATS and Redis, with their clients.

    python -m benchmarks.bench_peers              three alternating rounds, three minutes
    python -m benchmarks.bench_peers --rounds 1

Each service stores what it is sent before it answers: PocketMQ as always, NATS in a JetStream file, Redis
in a stream with its append-only file. The servers are those of this machine (`nats-server`, `redis-server`
of Debian) or, for NATS, what Go builds; the clients are nats-py and redis-py, installed into a folder of
their own. What cannot be had is left out, and said.

    send        one process keeps 64 messages of 128 B on their way; messages/s, CPU of client and server
    end to end  1,000 messages/s from a publisher to a handler in the same process: p50 and p99
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.meter import cpu_seconds, machine
from tests.interop.brokers import PocketBroker
from tests.interop.processes import Process
from tests.kit.ports import free_ports

NATS = "github.com/nats-io/nats-server/v2@v2.11.0"
CLIENTS = ["nats-py==2.11.0", "redis==5.2.1"]
BODY = b"x" * 128
IN_FLIGHT, SENDS = 64, 20_000
PACE_PER_S, PACED = 1_000, 4_000

Publish = Callable[[bytes], Awaitable[object]]
Arrived = Callable[[bytes], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row a service."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.client:
        name, address, pid = given.client
        print(json.dumps(asyncio.run(_measure(name, address, int(pid)))))
        return 0
    with tempfile.TemporaryDirectory(prefix="pocketmq-peers-") as place:
        found = _rounds(Path(place), given.rounds)
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}\n")
    print("| service | sends/s, 64 in flight | CPU-s per 100,000: client + server | p50 | p99 |")
    print("|---|---:|---:|---:|---:|")
    for name, samples in found.items():
        print(_row(name, samples))
    return 0


def _row(name: str, samples: list[dict[str, float]]) -> str:
    def of(key: str, digits: int) -> str:
        values = sorted(sample[key] for sample in samples)
        spread = f" ({values[0]:,.{digits}f}-{values[-1]:,.{digits}f})" if len(values) > 1 else ""
        return f"{statistics.median(values):,.{digits}f}{spread}"

    cpu = f"{of('client_cpu', 2)} + {of('server_cpu', 2)}"
    return f"| {name} | {of('rate', 0)} | {cpu} | {of('p50_ms', 2)} ms | {of('p99_ms', 2)} ms |"


def _rounds(folder: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    packages = _install(folder / "clients")
    with PocketBroker(folder / "pocketmq") as broker:
        services = {"pocketmq": (broker.namesrv, broker.process.pid)}
        servers = _servers(folder) if packages else {}
        try:
            for name, (process, port) in servers.items():
                services[name] = (f"127.0.0.1:{port}", process.pid)
            found: dict[str, list[dict[str, float]]] = {name: [] for name in services}
            for _ in range(rounds):
                for name, (address, pid) in services.items():
                    found[name].append(_in_a_process(name, address, pid, packages))
        finally:
            for process, _ in servers.values():
                process.stop()
    return found


def _install(folder: Path) -> Path | None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--target", str(folder), *CLIENTS], check=False).returncode:
        print("nats-py and redis-py cannot be installed: PocketMQ alone", file=sys.stderr)
        return None
    return folder


def _servers(folder: Path) -> dict[str, tuple[Process, int]]:
    """What can be started, by name, with its port."""
    servers: dict[str, tuple[Process, int]] = {}
    ports = free_ports(2)
    nats = shutil.which("nats-server") or _build_nats(folder / "bin")
    if nats:
        words = [nats, "-a", "127.0.0.1", "-p", str(ports[0]), "-js", "-sd", str(folder / "js")]
        servers["nats"] = Process(words, folder / "nats.out"), ports[0]
    redis = shutil.which("redis-server")
    if redis:
        (folder / "redis").mkdir()
        words = [redis, "--bind", "127.0.0.1", "--port", str(ports[1]), "--appendonly", "yes"]
        words += ["--dir", str(folder / "redis")]
        servers["redis"] = Process(words, folder / "redis.out"), ports[1]
    for name in ("nats", "redis"):
        if name not in servers:
            print(f"no {name}-server here: left out", file=sys.stderr)
    return servers


def _build_nats(folder: Path) -> str | None:
    go = shutil.which("go")
    if go is None:
        return None
    environment = {**os.environ, "GOBIN": str(folder)}
    done = subprocess.run([go, "install", NATS], check=False, env=environment)
    return None if done.returncode else str(folder / "nats-server")


def _in_a_process(name: str, address: str, pid: int, packages: Path | None) -> dict[str, float]:
    """So that the client's CPU is its own."""
    environment = {**os.environ}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_peers", "--client", name, address, str(pid)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env=environment,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# ------------------------------------------------------------ in the client's process


async def _measure(name: str, address: str, pid: int) -> dict[str, float]:
    arrivals: dict[bytes, float] = {}

    def arrived(body: bytes) -> None:
        arrivals.setdefault(body, time.perf_counter())

    services = {"pocketmq": _pocketmq, "nats": _nats, "redis": _redis}
    found: dict[str, float] = {}

    async def load(publish: Publish) -> None:
        await _send(publish, IN_FLIGHT)
        before = time.process_time(), cpu_seconds(pid), time.perf_counter()
        await _send(publish, SENDS)
        found["rate"] = SENDS / (time.perf_counter() - before[2])
        found["client_cpu"] = (time.process_time() - before[0]) / SENDS * 100_000
        found["server_cpu"] = (cpu_seconds(pid) - before[1]) / SENDS * 100_000

    async def paced(publish: Publish) -> None:
        sent = await _at_a_pace(publish, arrivals)
        times = sorted((arrivals[body] - at) * 1_000 for body, at in sent.items())
        found["p50_ms"], found["p99_ms"] = times[len(times) // 2], times[len(times) * 99 // 100]

    await services[name](address, load, paced, arrived)
    return found


async def _send(publish: Publish, count: int) -> None:
    """`count` messages, IN_FLIGHT of them on their way."""
    left = iter(range(count))

    async def one_after_the_other() -> None:
        for _ in left:
            await publish(BODY)

    await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT)))


async def _at_a_pace(publish: Publish, arrivals: dict[bytes, float]) -> dict[bytes, float]:
    """When each message was sent; returns when all have arrived. Raises: TimeoutError."""
    sent: dict[bytes, float] = {}
    run = time.time_ns()
    async with asyncio.timeout(60), asyncio.TaskGroup() as sending:
        while not arrivals:
            # Until the subscription is known.
            await publish(b"first")
            await asyncio.sleep(0.1)
        begun = time.perf_counter()
        for number in range(PACED):
            await asyncio.sleep(max(0.0, begun + number / PACE_PER_S - time.perf_counter()))
            body = b"%020d%0108d" % (run, number)
            sent[body] = time.perf_counter()
            sending.create_task(_published(publish, body))
        while not sent.keys() <= arrivals.keys():
            await asyncio.sleep(0.05)
    return sent


async def _published(publish: Publish, body: bytes) -> None:
    await publish(body)


Load = Callable[[Publish], Awaitable[None]]


async def _pocketmq(address: str, load: Load, paced: Load, arrived: Arrived) -> None:
    from pocketmq.client import Message, Producer, PushConsumer

    async def handle(messages: list[Any], context: object) -> None:
        for message in messages:
            arrived(message.body)

    async with Producer("peers", name_server=address) as producer:
        await load(lambda body: producer.send(Message("PeersSend", body)))
        # The topic is there before its consumer asks for it.
        await producer.send(Message("PeersPace", BODY))
        consumer = PushConsumer(f"peers{time.time_ns()}", listener=handle, name_server=address)
        consumer.subscribe("PeersPace")
        async with consumer:
            await paced(lambda body: producer.send(Message("PeersPace", body)))


async def _nats(address: str, load: Load, paced: Load, arrived: Arrived) -> None:
    import nats  # type: ignore[import-not-found]

    connection = await nats.connect(f"nats://{address}")
    stream = connection.jetstream()
    await stream.add_stream(name="peers", subjects=["send", "pace"])

    async def handle(message: Any) -> None:
        arrived(message.data)
        await message.ack()

    await load(lambda body: stream.publish("send", body))
    from nats.js.api import DeliverPolicy  # type: ignore[import-not-found]

    await stream.subscribe("pace", cb=handle, manual_ack=True, deliver_policy=DeliverPolicy.NEW)
    await paced(lambda body: stream.publish("pace", body))
    await connection.close()


async def _redis(address: str, load: Load, paced: Load, arrived: Arrived) -> None:
    from redis.asyncio import (  # type: ignore[import-not-found]
        BlockingConnectionPool,
        Redis,
    )

    host, _, port = address.rpartition(":")
    # A caller that finds all in use waits: the plain pool would refuse.
    pool = BlockingConnectionPool(
        host=host, port=int(port), max_connections=IN_FLIGHT + 8, timeout=None
    )
    client = Redis(connection_pool=pool)
    await load(lambda body: client.xadd("send", {"body": body}))

    async def read() -> None:
        last = "$"
        while True:
            for _, entries in await client.xread({"pace": last}, count=100, block=1_000):
                for number, fields in entries:
                    arrived(fields[b"body"])
                    last = number

    async with asyncio.TaskGroup() as reading:
        reader = reading.create_task(read())
        await paced(lambda body: client.xadd("pace", {"body": body}))
        reader.cancel()
    await client.aclose()


if __name__ == "__main__":
    sys.exit(main())
