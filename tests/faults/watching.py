"""Watched: a running tests.faults.watched_broker, as tests ask it."""

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.remoting.codes import ResponseCode
from tests.broker.serving import Peer

ROOT = Path(__file__).parents[2]
# What others may have to wait for while one client does its worst, in ms of CPU.
TURN_MS_MAX = 50
# A machine that others use adds to a turn now and then: what a virtual processor waits for the real one is in
# its CPU time. It never takes away, and what is unbounded shows each time.
_ATTACKS_MAX = 3
_ATTACK_S_MAX = 600
_SMALL_FILES = {
    "mapped_file_size_commit_log": 1 << 26,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
}


def memory(pid: int, name: str) -> int:
    """A size of the memory of a process, in bytes, by its name in /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024


def cpu_s(pid: int) -> float:
    """CPU time of a process, all its threads, by its POSIX clock."""
    return time.clock_gettime((~pid << 3) | 2)


class Watched:
    """Attributes: listen_address, grpc_address, pid, log_path."""

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._process = process
        self.pid = process.pid
        self.log_path = log_path
        self.listen_address = self.grpc_address = ""

    async def started(self) -> None:
        """Wait for its address."""
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        assert line, self.log_path.read_text()
        self.listen_address, self.grpc_address = line.split()

    async def worst_turn_ms(self) -> float:
        """The longest turn since this was last asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"worst\n")
        line = await self._process.stdout.readline()
        assert line, self.log_path.read_text()[-2000:]
        return float(line)

    @property
    def rss(self) -> int:
        """Resident anonymous memory, in bytes: what is mapped from files does not count."""
        return memory(self.pid, "RssAnon")

    @property
    def peak(self) -> int:
        """The most resident memory so far, in bytes, files among it."""
        return memory(self.pid, "VmHWM")

    async def stop(self) -> int:
        """End it as its owner does; returns the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()


@asynccontextmanager
async def watched(
    folder: Path, *, store: dict[str, Any] | None = None, loop: str = "uvloop", **settings: Any
) -> AsyncIterator[Watched]:
    """A broker in `folder` with small files; it has ended well when this is left. loop: or "asyncio"."""
    log_path = folder / "broker.log"
    asked = {"broker": settings, "store": {**_SMALL_FILES, **(store or {})}, "loop": loop}
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.watched_broker", str(folder / "store")),
            json.dumps(asked),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
    running = Watched(process, log_path)
    try:
        await running.started()
        yield running
        assert await running.stop() == 0, log_path.read_text()[-2000:]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


Attack = Callable[[Watched, Peer], Awaitable[object]]


async def longest_turn_ms(folder: Path, attack: Attack, **how: Any) -> float:
    """The longest turn of a broker's loop under an attack; another client is served before and after.

    One above TURN_MS_MAX is tried again with a new broker, at most twice; the least counts.
    """
    least = math.inf
    for number in range(_ATTACKS_MAX):
        fresh = folder / f"attack{number}"
        fresh.mkdir()
        least = min(least, await _attacked(fresh, attack, **how))
        if least < TURN_MS_MAX:
            break
    return least


async def _attacked(folder: Path, attack: Attack, **how: Any) -> float:
    async with watched(folder, **how) as broker, await Peer.at(broker) as good:
        assert (await good.produce("T", b"before")).code == ResponseCode.SUCCESS
        await broker.worst_turn_ms()
        async with asyncio.timeout(_ATTACK_S_MAX), await Peer.at(broker) as peer:
            await attack(broker, peer)
        worst = await broker.worst_turn_ms()
        assert (await good.produce("T", b"after")).code == ResponseCode.SUCCESS
        return worst
