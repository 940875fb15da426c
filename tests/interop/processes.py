"""Processes of the peers: free ports, start, wait for a line, stop by their own id."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kit.disk import ANY_DISK_JAVA
from tests.kit.jvm import SHORT_LIVED_JVM
from tests.kit.nursery import Forked, Nursery
from tests.kit.waiting import PATIENCE_S

QUICK_JVM = (
    "-Xms32m",
    "-Xmx256m",
    *SHORT_LIVED_JVM,
    "-Xshare:auto",
)
"""JVM flags for a quick start where no speed is measured."""


def quiet_jvm(home: Path) -> list[str]:
    """System properties that keep RocketMQ's logs inside `home` instead of the user's home folder."""
    home.mkdir(parents=True, exist_ok=True)
    return [
        *ANY_DISK_JAVA,
        f"-Duser.home={home}",
        f"-Drocketmq.client.logRoot={home}/logs/rocketmqlogs",
        f"-Drocketmq.home.dir={home}",
        f"-Djava.io.tmpdir={home}",
    ]


class Process:
    """One child process; its standard output and error go to LOG.

    Leaving the context stops it: SIGTERM, and SIGKILL after `stop_within_s`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        """nursery: forks it; the command is `pocketmq`, and the environment this one's."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.command = list(command)
        self.log_path = log
        self._from = log.stat().st_size if log.exists() else 0
        self._popen: subprocess.Popen[bytes] | Forked
        if nursery is not None:
            self._popen = nursery.start(self.command[1:], log, cwd)
            return
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def printed(self) -> str:
        """What this process has printed since it was started."""
        with self.log_path.open("rb") as log:
            log.seek(self._from)
            return log.read().decode("utf-8", "replace")

    def wait_for_line(self, start: str, within_s: float = PATIENCE_S) -> str:
        """The first printed line that begins with `start`.

        Raises: RuntimeError when the process ends first, TimeoutError; both with the end of its log.
        """
        end = time.monotonic() + within_s
        while True:
            over = self.returncode is not None
            for line in self.printed().splitlines(keepends=True):
                # A line without its end may still be growing.
                if line.startswith(start) and line.endswith("\n"):
                    return line.rstrip()
            if over:
                raise RuntimeError(f"{self._name} ended with {self.returncode}:\n{self._tail()}")
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{self._name}: no line {start!r} in {within_s} s:\n{self._tail()}"
                )
            time.sleep(0.02)

    def stop(self, within_s: float = PATIENCE_S) -> int:
        """Stop by SIGTERM and return the exit code; SIGKILL and TimeoutError when that takes too long."""
        if self.returncode is None:
            self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(
                f"{self._name} did not stop in {within_s} s after SIGTERM:\n{self._tail()}"
            ) from None

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self.returncode is None:
            self._popen.kill()
        self._popen.wait()

    def freeze(self) -> None:
        self._popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    @property
    def _name(self) -> str:
        main = [word for word in self.command if word.startswith(("org.apache", "io.pocketmq"))]
        return main[0] if main else Path(self.command[0]).name

    def _tail(self) -> str:
        return self.printed()[-3000:]


def wait_for_port(port: int, process: Process | None = None, within_s: float = PATIENCE_S) -> None:
    """Wait until 127.0.0.1:port accepts a connection."""
    end = time.monotonic() + within_s
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError as refused:
            if process is not None and process.returncode is not None:
                raise RuntimeError(
                    f"ended with {process.returncode}: {process.printed()[-3000:]}"
                ) from None
            if time.monotonic() > end:
                raise TimeoutError(f"no program listens on 127.0.0.1:{port}") from refused
            time.sleep(0.02)
