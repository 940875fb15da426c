"""What the Python client costs, beside the official Java client, at the same broker on this machine.

    python -m benchmarks.bench_client                        at PocketMQ
    python -m benchmarks.bench_client --broker rocketmq-4.9.7
    python -m benchmarks.bench_client --quick                one fifth of the messages

Each row runs in a process of its own, so that its processor time and memory are its own. `CPU us` is
processor time of the client for one message, all threads, without its start; it is the figure to trust on
a busy machine, and 10 us are 100,000 messages per second and core. The Java generators are Apache's own
(rocketmq-example 5.5.0), after their warm-up. rocketmq-python-client 5 speaks gRPC to a 5.x proxy, which
neither broker here is, so it cannot be measured beside these.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import official_load
from benchmarks.meter import cpu_seconds, machine
from tests.interop.brokers import RunningBroker, make_broker

BODY = bytes(128)
QUEUES = 4
SENDS, BACKLOG = 40_000, 200_000
WINDOW = 1_000
JAVA_THREADS = 64
# Under callgrind a send may take longer than programs wait for it, and its retries would be counted.
PATIENCE_MS = 600_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--broker", default="pocketmq", help="pocketmq or rocketmq-VERSION")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--uvloop", action="store_true", help="run the asyncio rows on uvloop")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--row", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.row:
        Stopwatch.counted = given.counted
        name, name_server, topic, count = given.row
        print(json.dumps(run_row(name, name_server, topic, int(count), uvloop=given.uvloop)))
        return 0
    share = 5 if given.quick else 1
    print(machine())
    print(f"\nbroker {given.broker}, bodies of {len(BODY)} bytes, {QUEUES} queues\n")
    print("| row | messages | per second | CPU us | client memory MB |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with make_broker(given.broker, folder / "broker") as broker:
            for name in (
                "send one by one",
                "send 64 under way",
                "send 1000 under way",
                "send in batches of 100",
                "blocking, begin_send",
            ):
                count = SENDS // share // (10 if name.endswith("one") else 1)
                show(name, own_process(broker, name, "SendBench", count, uvloop=given.uvloop))
            own_process(broker, "send in batches of 100", "Backlog", BACKLOG // share, uvloop=False)
            for name in ("consume, coroutine listener", "consume, thread listener", "lite pull"):
                show(
                    name,
                    own_process(broker, name, "Backlog", BACKLOG // share, uvloop=given.uvloop),
                )
            if not given.no_java:
                java_rows(broker, folder, share)
    return 0


def show(name: str, row: dict[str, float]) -> None:
    rate = row["messages"] / row["seconds"]
    cpu_us = row["cpu_s"] / row["messages"] * 1e6
    memory = f"{row['memory_mb']:.0f}" if "memory_mb" in row else ""
    print(f"| {name} | {row['messages']:.0f} | {rate:,.0f} | {cpu_us:.1f} | {memory} |", flush=True)


def own_process(
    broker: RunningBroker, name: str, topic: str, count: int, *, uvloop: bool
) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_client"]
    command += ["--row", name, broker.namesrv, topic, str(count)] + ["--uvloop"] * uvloop
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
    )
    if done.returncode:
        raise RuntimeError(f"{name}:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# ------------------------------------------------------------ rows, each in its own process


def run_row(
    name: str, name_server: str, topic: str, count: int, *, uvloop: bool
) -> dict[str, float]:
    rows: dict[str, Callable[[str, str, int], Any]] = {
        "send one by one": send_one_by_one,
        "send 64 under way": send_side_by_side,
        "send 1000 under way": send_many,
        "send in batches of 100": send_batches,
        "blocking, begin_send": send_blocking,
        "consume, coroutine listener": consume_by_coroutine,
        "consume, thread listener": consume_by_threads,
        "lite pull": lite_pull,
    }
    coroutine = rows[name](name_server, topic, count)
    if uvloop:
        import uvloop as fast

        found: dict[str, float] = fast.run(coroutine)
    else:
        found = asyncio.run(coroutine)
    found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


class Stopwatch:
    """counted: the process runs under callgrind, which counts between begin and end (instructions.py)."""

    counted = False

    def __init__(self) -> None:
        self._count("on")
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def _count(self, switch: str) -> None:
        if self.counted:
            command = ["callgrind_control", "-i", switch, str(os.getpid())]
            subprocess.run(command, check=True, capture_output=True)

    def read(self, messages: int) -> dict[str, float]:
        self._count("off")
        return {
            "messages": messages,
            "seconds": time.perf_counter() - self._wall,
            "cpu_s": time.process_time() - self._cpu,
        }


async def send_one_by_one(name_server: str, topic: str, count: int) -> dict[str, float]:
    from pocketmq.client import Message, Producer

    async with Producer("bench", name_server=name_server, send_timeout_ms=PATIENCE_MS) as producer:
        await producer.send(Message(topic, BODY))
        watch = Stopwatch()
        for _ in range(count):
            await producer.send(Message(topic, BODY))
        return watch.read(count)


async def send_side_by_side(name_server: str, topic: str, count: int) -> dict[str, float]:
    """64 tasks, each of which awaits its answer before it sends again."""
    from pocketmq.client import Message, Producer

    async with Producer("bench", name_server=name_server, send_timeout_ms=PATIENCE_MS) as producer:
        await producer.send(Message(topic, BODY))
        left = iter(range(count))

        async def one_after_the_other() -> None:
            for _ in left:
                await producer.send(Message(topic, BODY))

        watch = Stopwatch()
        await asyncio.gather(*(one_after_the_other() for _ in range(64)))
        return watch.read(count)


async def send_many(name_server: str, topic: str, count: int) -> dict[str, float]:
    from pocketmq.client import Message, Producer, send_all

    async with Producer("bench", name_server=name_server) as producer:
        await producer.send(Message(topic, BODY))
        watch = Stopwatch()
        await send_all(producer, (Message(topic, BODY) for _ in range(count)), window=WINDOW)
        return watch.read(count)


async def send_batches(name_server: str, topic: str, count: int) -> dict[str, float]:
    from pocketmq.client import Message, Producer

    async with Producer("bench", name_server=name_server) as producer:
        await producer.send(Message(topic, BODY))
        watch = Stopwatch()
        for _ in range(count // 100):
            await producer.send_batch([Message(topic, BODY) for _ in range(100)])
        return watch.read(count)


async def send_blocking(name_server: str, topic: str, count: int) -> dict[str, float]:
    """Called in a thread of its own, as a program without an event loop would."""
    from pocketmq.client import Message
    from pocketmq.client.sync import Producer

    def work() -> dict[str, float]:
        with Producer("bench", name_server=name_server) as producer:
            producer.send(Message(topic, BODY))
            watch = Stopwatch()
            futures = [producer.begin_send(Message(topic, BODY)) for _ in range(count)]
            for future in futures:
                future.result()
            return watch.read(count)

    return await asyncio.to_thread(work)


async def consume(
    name_server: str,
    topic: str,
    count: int,
    listener: Any,
    ended: asyncio.Event,
    begun: asyncio.Event,
) -> dict[str, float]:
    from pocketmq.client import ConsumeFromWhere, PushConsumer

    consumer = PushConsumer(
        f"bench{time.time_ns()}",
        listener=listener,
        name_server=name_server,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    async with consumer:
        await begun.wait()
        watch = Stopwatch()
        async with asyncio.timeout(300):
            await ended.wait()
        return watch.read(count)


async def consume_by_coroutine(name_server: str, topic: str, count: int) -> dict[str, float]:
    begun, ended = asyncio.Event(), asyncio.Event()
    got = 0

    async def listener(messages: list[Any], context: object) -> None:
        nonlocal got
        got += len(messages)
        if got == 1:
            begun.set()
        if got >= count:
            ended.set()

    return await consume(name_server, topic, count, listener, ended, begun)


async def consume_by_threads(name_server: str, topic: str, count: int) -> dict[str, float]:
    begun, ended = asyncio.Event(), asyncio.Event()
    loop, lock = asyncio.get_running_loop(), threading.Lock()
    got = 0

    def listener(messages: list[Any], context: object) -> None:
        nonlocal got
        with lock:
            got += len(messages)
            now = got
        if now == 1:
            loop.call_soon_threadsafe(begun.set)
        if now == count:
            loop.call_soon_threadsafe(ended.set)

    return await consume(name_server, topic, count, listener, ended, begun)


async def lite_pull(name_server: str, topic: str, count: int) -> dict[str, float]:
    from pocketmq.client import ConsumeFromWhere, LitePullConsumer

    consumer = LitePullConsumer(
        f"bench{time.time_ns()}",
        name_server=name_server,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    async with consumer:
        got = len(await consumer.poll(30_000))
        watch = Stopwatch()
        while got < count:
            got += len(await consumer.poll(30_000))
        return watch.read(count)


# ------------------------------------------------------------ the official Java client


class JavaCpu:
    """Processor time of the generator from `begin` to its end; it is the newest child of this process."""

    def __init__(self) -> None:
        self._before = self._children()
        self._at_begin = 0.0

    @staticmethod
    def _children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def begin(self) -> None:
        me = Path("/proc/self").resolve().name
        pids = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii").split()
        self._at_begin = cpu_seconds(int(pids[-1]))

    def read(self) -> float:
        """After the generator has ended and was waited for."""
        return self._children() - self._before - self._at_begin


def java_rows(broker: RunningBroker, folder: Path, share: int) -> None:
    cpu = JavaCpu()
    window_s = max(3, 10 // share)
    sent = official_load.produce(
        folder,
        broker.namesrv,
        "SendBench",
        threads=JAVA_THREADS,
        body_size=len(BODY),
        warmup_s=5,
        window_s=window_s,
        begins=cpu.begin,
    )
    row = {"messages": sent.requests, "seconds": sent.seconds, "cpu_s": cpu.read()}
    show(f"Java 5.5.0, send by {JAVA_THREADS} threads", row)
    cpu = JavaCpu()
    got, seconds = official_load.consume(
        folder,
        broker.namesrv,
        "Backlog",
        f"java{time.time_ns()}",
        messages=BACKLOG // share,
        begins=cpu.begin,
    )
    show(
        "Java 5.5.0, consume by 20 threads",
        {"messages": got, "seconds": seconds, "cpu_s": cpu.read()},
    )


if __name__ == "__main__":
    sys.exit(main())
