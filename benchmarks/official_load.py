"""The official load generators of RocketMQ 5.5.0 (rocketmq-example), with a stopwatch in their client.

The stopwatch is an RPCHook of ours that the generators install by their own option -a; see
tests/interop/peers/java/benchmark-5.5.0. It times each request from the call of the remoting client to the
arrival of the answer.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop import toolchain
from tests.interop.processes import Process, quiet_jvm

_NUMBER = re.compile(r"(\w+)=(\d+)")
_JVM = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")


@dataclass(frozen=True)
class Sent:
    """Requests answered within the window, percentiles in microseconds."""

    requests: int
    failures: int
    seconds: float
    p50_us: float
    p99_us: float


def produce(
    folder: Path,
    namesrv: str,
    topic: str,
    *,
    threads: int,
    body_size: int,
    warmup_s: int,
    window_s: int,
    batch: int = 0,
    begins: Callable[[], None],
) -> Sent:
    """benchmark.Producer, or BatchProducer with `batch` messages a request.

    `begins` is called when the warm-up is over.
    """
    main = "BatchProducer" if batch else "Producer"
    words = ["-n", namesrv, "-t", topic, "-w", str(threads), "-s", str(body_size)]
    words += ["-b", str(batch)] if batch else []
    flags = (f"-Dstopwatch.warmup={warmup_s}", f"-Dstopwatch.window={window_s}")
    with _Generator(folder, main, flags, words) as process:
        process.wait_for_line("window begins", within_s=60 + warmup_s)
        begins()
        line = process.wait_for_line("window ends", within_s=60 + window_s)
    said = {name: int(value) for name, value in _NUMBER.findall(line)}
    return Sent(said["sends"], said["failures"], window_s, said["p50"], said["p99"])


def consume(
    folder: Path,
    namesrv: str,
    topic: str,
    group: str,
    *,
    messages: int,
    begins: Callable[[], None],
) -> tuple[int, float]:
    """benchmark.Consumer on a backlog: (messages, seconds) from the first message that arrives to the last.

    The group must be new: it then starts at the first message.
    """
    words = ["-n", namesrv, "-t", topic, "-g", group, "-w", "20"]
    flags = (f"-Dstopwatch.messages={messages}",)
    with _Generator(folder, "Consumer", flags, words) as process:
        process.wait_for_line("pulls begin", within_s=90)
        begins()
        line = process.wait_for_line("pulls end", within_s=300)
    said = {name: int(value) for name, value in _NUMBER.findall(line)}
    return said["messages"], max(said["millis"], 1) / 1_000


class _Generator:
    def __init__(self, folder: Path, main: str, flags: tuple[str, ...], words: list[str]) -> None:
        self._command = [
            toolchain.java(),
            *_JVM,
            *quiet_jvm(folder / "generator-home"),
            *flags,
            "-cp",
            toolchain.class_path(f"benchmark-{toolchain.BENCHMARK_VERSION}"),
            f"org.apache.rocketmq.example.benchmark.{main}",
            "-a",
            "true",
            *words,
        ]
        self._log = folder / "generator.out"
        self._process: Process | None = None

    def __enter__(self) -> Process:
        self._process = Process(self._command, self._log)
        return self._process

    def __exit__(self, *_: object) -> None:
        # The generators run until they are ended; their clean end takes seconds and measures nothing.
        if self._process is not None:
            self._process.kill()
