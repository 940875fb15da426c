"""What a process costs, read from /proc: processor time of all its threads, memory that is its own."""

import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time since the start of the process, all threads, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def anonymous_mb(pid: int) -> float:
    """Memory in MB (10**6) that no file backs: heaps and stacks, not the pages of mapped stores."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"no RssAnon in /proc/{pid}/status; the benchmark needs Linux 4.5 or newer")


class Meter:
    """Processor time of one process over a stretch."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu = self._wall = 0.0
        self.begin()

    def begin(self) -> None:
        self._cpu, self._wall = cpu_seconds(self._pid), time.perf_counter()

    @property
    def cpu_s(self) -> float:
        return cpu_seconds(self._pid) - self._cpu

    @property
    def share(self) -> float:
        """Of one core."""
        return self.cpu_s / (time.perf_counter() - self._wall)


def machine() -> str:
    """One line: processor, cores, memory, Python."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    models = [line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    python = ".".join(map(str, __import__("sys").version_info[:3]))
    return (
        f"{os.cpu_count()} cores of {models[0] if models else os.uname().machine}, "
        f"{pages / 2**30:.0f} GiB, Linux, Python {python}"
    )
