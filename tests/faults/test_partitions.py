"""Broker and clients on two hosts whose network is cut, in one direction or both, and heals again.

What the broker has acknowledged is consumed, the group continues soon after the network heals, and the
client's process keeps no task or thread of it. `--partition-rounds N` for more rounds, `--partition-seconds`
for longer cuts.
"""

import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.namespaces import CUTS, TwoHosts, skip_without_namespaces
from tests.interop.processes import Process

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
RESUMES_WITHIN_S = 30.0


class Client:
    """The client's process and what it has said; a thread reads it."""

    def __init__(self, command: list[str]) -> None:
        self.begun = 0
        self.acked: set[int] = set()
        self.got: set[int] = set()
        self.failures = 0
        self.counts: dict[str, list[int]] = {"tasks": [], "threads": []}
        self.words: set[str] = set()
        self.last_got = 0.0
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "sends":
                self.begun = int(rest)
            elif word == "acked":
                self.acked.add(int(rest))
            elif word == "got" and rest != "first":
                self.got.add(int(rest))
                self.last_got = time.monotonic()
            elif word == "failed":
                self.failures += 1
            elif word in self.counts:
                self.counts[word].append(int(rest))
            self.words.add(line.strip())

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self, state: Callable[[], bool], what: str, within_s: float) -> float:
        """Seconds until the state holds. Raises: AssertionError."""
        begin = time.monotonic()
        while not state():
            assert self._process.poll() is None, f"the client ended while it waited for {what}"
            assert time.monotonic() - begin < within_s, f"not within {within_s} s: {what}"
            time.sleep(0.02)
        return time.monotonic() - begin

    def end(self) -> int:
        self.tell()
        code = self._process.wait(60)
        self._reader.join()
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def client(command: list[str]) -> Iterator[Client]:
    made = Client(command)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_consumption_resumes_without_loss_after_a_cut(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    skip_without_namespaces()
    rounds = int(request.config.getoption("--partition-rounds"))
    seconds = float(request.config.getoption("--partition-seconds"))
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    chance = random.Random(seed)
    resumed: list[float] = []
    with TwoHosts(os.getpid() % 200) as hosts:
        pocketmq = str(Path(sys.executable).parent / "pocketmq")
        words = [
            "up",
            "--host",
            hosts.broker_ip,
            "--namesrv-port",
            "9876",
            "--broker-port",
            "10911",
        ]
        command = [pocketmq, *words, "--data", str(tmp_path / "store")]
        broker = Process(hosts.within(hosts.broker, command), tmp_path / "broker.out", cwd=tmp_path)
        try:
            broker.wait_for_line("ready")
            program = [sys.executable, "-m", "tests.faults.client_program"]
            arguments = [f"{hosts.broker_ip}:9876", "Cut", "cut_group", "2"]
            with client(hosts.within(hosts.client, [*program, *arguments])) as clients:
                clients.wait(lambda: len(clients.got) > 20, "the first messages", 60)
                for number in range(rounds):
                    kind = CUTS[number % len(CUTS)] if number < len(CUTS) else chance.choice(CUTS)
                    hosts.cut(kind)
                    time.sleep(chance.uniform(0.2, 1.8) * seconds)
                    hosts.heal()
                    begun = clients.begun
                    took = clients.wait(
                        lambda begun=begun: any(each > begun for each in clients.got),  # type: ignore[misc]
                        f"a message sent after the cut {number} ({kind}), seed {seed}",
                        60,
                    )
                    resumed.append(took)
                clients.tell()
                clients.wait(lambda: "stopped sending" in clients.words, "the end of sending", 60)
                clients.wait(
                    lambda: clients.acked <= clients.got,
                    f"all that was acknowledged is consumed, seed {seed}",
                    90,
                )
                assert clients.end() == 0
                log.warning(
                    "rounds=%d acked=%d failed=%d resumed p50=%.1f s max=%.1f s tasks=%s threads=%s",
                    rounds,
                    len(clients.acked),
                    clients.failures,
                    sorted(resumed)[len(resumed) // 2],
                    max(resumed),
                    clients.counts["tasks"],
                    clients.counts["threads"],
                )
                assert clients.counts["tasks"][0] == clients.counts["tasks"][1]
                assert max(resumed) < RESUMES_WITHIN_S
        finally:
            broker.stop()
