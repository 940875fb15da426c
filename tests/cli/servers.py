"""Server commands as their own processes, for tests of the command line and end to end."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kit.disk import ANY_DISK

COMMAND = [sys.executable, "-m", "pocketmq.cli"]


class Server:
    """A started command; its log goes to a file."""

    def __init__(
        self, folder: Path, *words: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log_path = folder / f"{words[0]}-{len(list(folder.glob('*.log')))}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("POCKETMQ_")}
        clean.pop("NAMESRV_ADDR", None)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**clean, **ANY_DISK, **(environment or {})},
            )

    def ready(self) -> dict[str, str]:
        """The parts of the ready line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), self.log_path.read_text()
        return dict(word.split("=", 1) for word in line.split()[1:])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """The exit code; standard output must hold nothing more."""
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait(60)
        assert rest == ""
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def last_line(self) -> str:
        """What standard error ends with."""
        return self.log_path.read_text().rstrip().splitlines()[-1]
