"""A disk that refuses: every call of this process that writes below one folder can be counted and failed.

    disk = FaultyDisk(tmp_path, monkeypatch)
    disk.fail(7, errno.ENOSPC)                 the seventh call from now on, once
    disk.fail(7, errno.EROFS, lasting=True)    it and all that follow, until disk.heal()
    disk.fail_call(call, errno.EIO)            the next one like a call of an earlier run

Making a map for writing is such a call ("mmap"), and so is making a hole ("punch"). What goes through a map
is no call and cannot fail as one: torn_maps.py.
"""

import builtins
import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pocketmq.store.log import mapped_file

BY_PATH = ("mkdir", "unlink", "remove", "rename", "replace", "link", "truncate", "rmdir")
BY_DESCRIPTOR = ("ftruncate", "posix_fallocate", "pwrite", "fsync", "fdatasync")
_ALL = (*BY_PATH, *BY_DESCRIPTOR, "open", "mmap", "punch")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Call(NamedTuple):
    """What was called, for which kind of file, from where in the product."""

    name: str
    kind: str
    site: str


class FaultyDisk:
    """os.* and open, with a count; calls of other folders are not looked at."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = str(root)
        self._lock = threading.Lock()
        self.calls: list[Call] = []
        self.hit: Call | None = None
        # Said by the test: the broker does not serve yet, or not any more.
        self.starting = False
        self._countdown = 0
        self._like: Call | None = None
        self._errno = 0
        self._names: Container[str] = _ALL
        self._lasting = False
        for name in BY_PATH:
            monkeypatch.setattr(os, name, self._by_path(name, getattr(os, name)))
        for name in BY_DESCRIPTOR:
            monkeypatch.setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        monkeypatch.setattr(mmap, "mmap", self._map(mmap.mmap))
        punch = mapped_file._punch
        monkeypatch.setattr(mapped_file, "_punch", self._by_descriptor("punch", punch))
        monkeypatch.setattr(os, "open", self._open(os.open))
        monkeypatch.setattr(builtins, "open", self._builtin(builtins.open))

    def fail(
        self, number: int, error: int, *, lasting: bool = False, names: Container[str] = _ALL
    ) -> None:
        """The call with this number, 1 is the next one, gets the error; names: calls that may fail."""
        with self._lock:
            self._names = names
            self.calls.clear()
            self.hit = None
            self._countdown, self._errno, self._lasting = number, error, lasting
            self._like = None

    def fail_call(self, call: Call, error: int, *, lasting: bool = False) -> None:
        """The next call like this one gets the error."""
        self.fail(1, error, lasting=lasting)
        self._like = call

    def heal(self) -> None:
        """From now on everything goes well; the calls are counted on."""
        with self._lock:
            self._countdown, self._lasting = 0, False

    def _look(self, name: str, path: str) -> None:
        """Count a call. Raises: OSError, when it is the one."""
        if not path.startswith(self._root):
            return
        with self._lock:
            call = Call(name, _kind(path[len(self._root) :]), site())
            if not call.site:
                # The test itself.
                return
            self.calls.append(call)
            if name not in self._names or (self.hit is None and self._like not in (None, call)):
                return
            if self._countdown == 0 and not (self._lasting and self.hit is not None):
                return
            if self._countdown > 1:
                self._countdown -= 1
                return
            self._countdown = 0
            self.hit = self.hit or call
        raise OSError(self._errno, os.strerror(self._errno), path)

    def _by_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            self._look(name, os.fspath(path) if not isinstance(path, int) else "")
            return real(path, *args, **kwargs)

        return call

    def _by_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *args: Any) -> Any:
            self._look(name, os.readlink(f"/proc/self/fd/{descriptor}"))
            return real(descriptor, *args)

        return call

    def _map(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *args: Any, **how: Any) -> Any:
            # With `how` it is for reading only, without a descriptor it is no file.
            if descriptor >= 0 and not how:
                self._look("mmap", os.readlink(f"/proc/self/fd/{descriptor}"))
            return real(descriptor, *args, **how)

        return call

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & _WRITES or self._errno in (errno.EMFILE, errno.ENFILE):
                self._look("open", str(path))
            return real(path, flags, *args, **kwargs)

        return call

    def _builtin(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            # With an opener it is os.open that is counted.
            if set(mode) & set("wax+") and "opener" not in kwargs:
                self._look("open", str(file))
            return real(file, mode, *args, **kwargs)

        return call


def _kind(path: str) -> str:
    """The part of the store that a path below its root belongs to.

    >>> _kind("/store/config/topics.json.tmp"), _kind("/store/commitlog/00000000000000000000")
    ('config/topics.json', 'commitlog')
    """
    parts = path.strip("/").split("/")[1:]
    if not parts:
        return ""
    if parts[0] == "config" and len(parts) > 1:
        return f"config/{parts[1].removesuffix('.tmp').removesuffix('.bak')}"
    return parts[0]


def site() -> str:
    """Which functions of the product have led here, innermost first."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < 4:
        file = frame.f_code.co_filename
        if "/pocketmq/" in file:
            found.append(f"{Path(file).stem}.{frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(found)
