"""Machine: the operating system of a run, put in the place of the real one while it lasts.

    with Machine(seed) as machine: machine.run(main)

The product is not changed and knows nothing of it: time, chance, sockets, threads and the calls that
change files are those of this module; reading and mapping files are the real ones, in memory. Calls that
concern other folders than those of the machine's disks go through as they are.
"""

import asyncio
import builtins
import contextlib
import contextvars
import gc
import io
import itertools
import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor as _Executor
from typing import Any, Self

from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import store_lock
from pocketmq.testing.folders import MEMORY, RunFolder
from tests.simulation.disk import Disk
from tests.simulation.loop import Fiber, SimulatedLoop
from tests.simulation.network import HOST, Host, SimulatedSocket

START_MS = 1_700_000_000_000
_PID = 4_711
_WRITING = os.O_WRONLY | os.O_RDWR


class Machine:
    """loop: the run's. disks: by the folder of their present process."""

    def __init__(self, seed: object) -> None:
        self.seed = seed
        self.loop = SimulatedLoop()
        self.disks: list[Disk] = []
        self._chance = random.Random(f"{seed} machine")
        self._stack = contextlib.ExitStack()

    def chance(self, name: str) -> random.Random:
        """A source of chance of its own, so that what one part draws changes nothing for another."""
        return random.Random(f"{self.seed} {name}")

    def disk(self, name: str) -> Disk:
        disk = Disk(os.path.join(self._folder, name), self.chance(f"disk {name}"))
        self.disks.append(disk)
        return disk

    # ------------------------------------------------------------ life

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = RunFolder(MEMORY, "simulation")
            stack.callback(folder.remove)
            self._folder = folder.path
            stack.callback(random.setstate, random.getstate())
            random.seed(f"{self.seed} product")
            # Who is collected when would differ from run to run.
            if gc.isenabled():
                gc.disable()
                stack.callback(gc.enable)
            # What is there already is not of the run: looking at it at the end would cost most of that.
            gc.freeze()
            for where, name, value in self._replacements():
                stack.callback(setattr, where, name, getattr(where, name))
                setattr(where, name, value)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if not self.loop.is_closed():
            self.loop.close()
        self.loop.end_threads()
        gc.collect()
        gc.unfreeze()

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The value of main(). The loop is closed afterwards."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            return runner.run(main())

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        loop = self.loop
        found: list[tuple[Any, str, Any]] = [
            (time, "time_ns", lambda: START_MS * 1_000_000 + int(loop.now_s * 1e9)),
            (time, "time", lambda: START_MS / 1000 + loop.now_s),
            (time, "monotonic_ns", lambda: int(loop.now_s * 1e9)),
            (time, "monotonic", loop.time),
            (os, "getpid", lambda: _PID),
            (os, "urandom", self._chance.randbytes),
            (socket, "socket", SimulatedSocket),
            (shutil, "disk_usage", self._disk_usage),
            (_Executor, "submit", lambda pool, work, *args: loop.submit(pool, work, *args)),
            (_Executor, "shutdown", lambda pool, **_: loop.drain(pool)),
            (Connection, "__hash__", _numbered(itertools.count(1))),
            (store_lock, "memory_of", self._memory_of),
        ]
        found += [(os, call, self._wrapped(call)) for call in _CALLS]
        opened = self._open(io.open)
        return [*found, (builtins, "open", opened), (io, "open", opened)]

    def _memory_of(self, descriptor: int) -> str:
        """A killed process left its writes in it; a power cut took it away."""
        disk = self._disk_of(_path_of(descriptor))
        return "" if disk is None else f"boot {disk.boots}"

    def _disk_usage(self, path: str) -> Any:
        disk = self._disk_of(os.fspath(path))
        used = 100 if disk is not None and disk.full else 10
        return shutil._ntuple_diskusage(100 << 30, used << 30, 100 - used << 30)

    @staticmethod
    def context_of(host: Host) -> contextvars.Context:
        """A context for code that is to run on that host."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        return context

    # ------------------------------------------------------------ files

    def _disk_of(self, path: str) -> Disk | None:
        if not path.startswith(self._folder):
            return None
        for disk in self.disks:
            if path.startswith(disk.root) and path[len(disk.root) : len(disk.root) + 1] in (
                "",
                "/",
            ):
                return disk
        return None

    def _asked(self, call: str, path: str) -> Disk | None:
        """The disk that the call is for, after what may happen before it."""
        disk = self._disk_of(path)
        if disk is not None and disk.on_call is not None:
            disk.on_call(call, path)
            disk = self._disk_of(path)
        if disk is not None:
            disk.check(call, path)
        return disk

    def _wait(self, low_s: float, high_s: float, disk: Disk) -> None:
        fiber = Fiber.current()
        if fiber is not None:
            fiber.pause(self._chance.uniform(low_s, high_s) * disk.slow)

    def _wrapped(self, call: str) -> Callable[..., Any]:
        real = getattr(os, call)
        do = getattr(self, f"_do_{_CALLS[call]}")

        def wrapped(*args: Any, **named: Any) -> Any:
            return do(real, *args, **named)

        return wrapped

    def _open(self, real: Any) -> Any:
        def opened(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            if not isinstance(file, str | os.PathLike) or not set(mode) & set("wax+"):
                return real(file, mode, *args, **named)
            path = os.fspath(file)
            disk = self._asked("open", path)
            is_new = not os.path.exists(path)
            found = real(file, mode, *args, **named)
            if disk is not None and is_new:
                disk.named((path, os.fstat(found.fileno()).st_ino))
            elif disk is not None and "w" in mode:
                disk.emptied(os.fstat(found.fileno()).st_ino)
            return found

        return opened

    def _do_open(
        self, real: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> Any:
        name = os.fspath(path)
        if dir_fd is not None or not flags & _WRITING:
            return real(path, flags, mode, dir_fd=dir_fd)
        is_new = not os.path.exists(name)
        disk = self._asked("open" if is_new else "reopen", name)
        descriptor = real(path, flags, mode)
        if disk is not None and is_new:
            disk.named((name, os.fstat(descriptor).st_ino))
        return descriptor

    def _do_sync(self, real: Any, descriptor: int) -> None:
        path = _path_of(descriptor)
        disk = self._disk_of(path)
        if disk is None:
            real(descriptor)
            return
        if disk.on_call is not None:
            disk.on_call("sync", path)
        if os.path.isdir(path):
            self._wait(0.0002, 0.004, disk)
            if self._disk_of(path) is disk:
                disk.sync_folder(path)
            return
        if self._disk_of(path) is disk:
            finish = disk.begin_sync(
                f"/proc/self/fd/{descriptor}", path, os.fstat(descriptor).st_ino
            )
            self._wait(0.0005, 0.012, disk)
            if self._disk_of(path) is disk:
                finish()

    def _do_allocate(self, real: Any, descriptor: int, *args: Any) -> Any:
        disk = self._asked("allocate", _path_of(descriptor))
        if disk is not None:
            self._wait(0.0, 0.001, disk)
        return real(descriptor, *args)

    def _do_resize(self, real: Any, file: Any, size: int) -> None:
        path = _path_of(file) if isinstance(file, int) else os.fspath(file)
        # Less than before needs no room.
        disk = self._asked("allocate" if size > os.stat(file).st_size else "shrink", path)
        real(file, size)
        if disk is not None:
            disk.resized(os.stat(file).st_ino, size)

    def _do_write(self, real: Any, descriptor: int, *args: Any) -> Any:
        disk = self._asked("write", _path_of(descriptor))
        if disk is not None and len(args) == 2:
            disk.written(os.fstat(descriptor).st_ino, args[1], len(args[0]))
        return real(descriptor, *args)

    def _do_rename(self, real: Any, source: Any, target: Any) -> None:
        source, target = os.fspath(source), os.fspath(target)
        disk = self._asked("rename", target)
        if disk is not None:
            self._wait(0.0, 0.001, disk)
            disk.leaving(target)
        real(source, target)
        if disk is not None and self._disk_of(target) is disk:
            disk.named((target, os.stat(target).st_ino), (source, None))

    def _do_link(self, real: Any, source: Any, target: Any) -> None:
        disk = self._asked("rename", os.fspath(target))
        real(source, target)
        if disk is not None:
            disk.named((os.fspath(target), os.stat(target).st_ino))

    def _do_unlink(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        name = os.fspath(path)
        if dir_fd is not None:
            name = os.path.join(_path_of(dir_fd), name)
        disk = self._asked("unlink", name)
        if disk is not None:
            disk.leaving(name)
        real(path, dir_fd=dir_fd)
        if disk is not None:
            disk.named((name, None))


_CALLS = {
    "open": "open",
    "fsync": "sync",
    "fdatasync": "sync",
    "posix_fallocate": "allocate",
    "ftruncate": "resize",
    "truncate": "resize",
    "pwrite": "write",
    "write": "write",
    "rename": "rename",
    "replace": "rename",
    "link": "link",
    "unlink": "unlink",
    "remove": "unlink",
}
"""What is replaced in `os`, and by which of the methods."""


def _numbered(numbers: Iterator[int]) -> Callable[[Any], int]:
    """A hash by which sets of connections are walked in the same order in every run."""

    def number_of(connection: Any) -> int:
        # Not in its __dict__: the compiled form has none.
        kept: dict[str, Any] = connection.tags
        if "simulated number" not in kept:
            kept["simulated number"] = next(numbers)
        number: int = kept["simulated number"]
        return number

    return number_of


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
