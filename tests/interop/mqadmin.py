"""mqadmin of one version as a server: many commands in one JVM, what they print as text and as tables."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop import toolchain
from tests.interop.driver import Driver
from tests.interop.processes import QUICK_JVM, Process, quiet_jvm


@dataclass(frozen=True)
class Printed:
    """What one command printed; errors are stack traces and log lines."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines() if line.strip()]

    @property
    def rows(self) -> list[list[str]]:
        """The lines cut at blanks, without heading lines, which begin with '#'."""
        return [line.split() for line in self.lines if not line.startswith("#")]

    def value(self, key: str) -> str:
        """The value of a line `key : value` or `key = value`. Raises: KeyError with the output."""
        found = re.search(rf"^\s*{re.escape(key)}\s*[:=]\s*(.*?)\s*$", self.out, re.MULTILINE)
        if found is None:
            raise KeyError(f"no line {key!r} in:\n{self.out}\n{self.err}")
        return found.group(1)


class Mqadmin:
    """mqadmin VERSION against one name server; `mqadmin("topicList")` runs a command."""

    def __init__(self, driver: Driver, version: str, namesrv: str) -> None:
        self.driver = driver
        self.version = version
        self.namesrv = namesrv

    def at(self, namesrv: str) -> "Mqadmin":
        """The same program at another name server."""
        return Mqadmin(self.driver, self.version, namesrv)

    def __call__(self, command: str, *words: object, within_s: float = 60) -> Printed:
        args = [command, *(str(word) for word in words), "-n", self.namesrv]
        return Printed(**self.driver.call("mqadmin", within_s=within_s, args=args))

    def close(self) -> None:
        self.driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def mqadmin(version: str, folder: Path, namesrv: str = "127.0.0.1:9876") -> Mqadmin:
    """Start mqadmin of TOOLS_VERSIONS."""
    command = [*_jvm(version, folder), "io.pocketmq.interop.Mqadmin"]
    return Mqadmin(Driver(f"mqadmin-{version}", command, folder), version, namesrv)


def mqadmin_process(version: str, folder: Path, words: list[str]) -> Process:
    """One mqadmin command in a process of its own, for a command that does not end."""
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    return Process([*_jvm(version, folder), main, *words], folder / "mqadmin.out", cwd=folder)


def _jvm(version: str, folder: Path) -> list[str]:
    home = folder / f"mqadmin-{version}-home"
    shutil.copytree(toolchain.SOURCES / "home", home, dirs_exist_ok=True)
    class_path = toolchain.class_path(f"tools-{version}")
    return [toolchain.java(), *QUICK_JVM, *quiet_jvm(home), "-cp", class_path]
