"""ServerProcess: `pocketmq up` in a separate process, for programs in any language, and to be killed.

It uses two free ports; kill() is kill -9; another start() keeps ports and store, as after a crash.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pocketmq.testing.external import External
from pocketmq.testing.folders import MEMORY, RunFolder
from pocketmq.testing.in_process import SETTINGS, STORES
from pocketmq.testing.settings import check_settings

# Settings that stand on the command line, or that this process does not use.
_NOT_IN_FILE = frozenset({"listenPort", "bindAddress"})
_READY_WITHIN_S = 60
_STOP_WITHIN_S = 60


class ServerProcess(External):
    """A server in a child process. pid; printed(): its log; ready: the parts of its ready line."""

    def __init__(
        self, config: Mapping[str, object] | None = None, *, store: str = "memory"
    ) -> None:
        """config: keys of broker.conf. store: "memory", "temporary", or a folder that is kept.

        Raises: IllegalArgument for a key that does not exist.
        """
        check_settings(config or ())
        super().__init__("")
        self._config = {
            name: value
            for name, value in {
                "consolePort": -1,
                "grpcServerPort": 0,
                **SETTINGS,
                **(config or {}),
            }.items()
            if name not in _NOT_IN_FILE
        }
        self._kept = None if store in STORES else Path(store)
        self._kind = store
        self._folder: Path | None = None
        self._ports = ("0", "0")
        self.ready: dict[str, str] = {}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(
                "this server was not started: use it in a with block, or call start()"
            )
        return self._process.pid

    def printed(self) -> str:
        """Return what it has logged."""
        return "" if self._folder is None else (self._folder / "log").read_text(encoding="utf-8")

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it. Raises: RuntimeError with its log if it ends before it serves, or does not in a minute;
        what a client that connects to it raises. Then it is ended, and of a first start nothing is left.
        """
        # If entering a with block fails, its exit is not called.
        undo = self.stop if self._folder is None else self._end
        try:
            return self._started()
        except BaseException:
            undo()
            raise

    def _started(self) -> Self:
        if self._folder is None:
            self._run = RunFolder(self._kind if self._kept is None else MEMORY)
            self._folder = Path(self._run.path)
        lines = [f"{name}={value}" for name, value in self._config.items()]
        conf = self._folder / "broker.conf"
        conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        namesrv_port, broker_port = self._ports
        words = ["--host", "127.0.0.1", "--namesrv-port", namesrv_port]
        words += ["--broker-port", broker_port, "-c", str(conf)]
        words += ["--data", str(self._kept or self._folder / "store")]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pocketmq.cli", "up", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                # It holds the folder, too: it may outlive a test run that is killed.
                pass_fds=(self._run.lock,),
            )
        self._wait_until_ready(self._process)
        return super().start()

    def _wait_until_ready(self, process: "subprocess.Popen[str]") -> None:
        """Read its one line on standard output, which says where it serves."""
        assert process.stdout is not None
        too_late = threading.Timer(_READY_WITHIN_S, process.kill)
        too_late.start()
        try:
            line = process.stdout.readline()
        finally:
            too_late.cancel()
        if not line.startswith("ready "):
            log = self.printed() + line
            self._end()
            raise RuntimeError(f"`pocketmq up` ended with {process.returncode}:\n{log}")
        self.ready = dict(word.partition("=")[::2] for word in line.split()[1:])
        self.namesrv = self.ready["namesrv"]
        self.broker = self.ready["broker"]
        self.grpc = self.ready.get("grpc", "")
        self._config["grpcServerPort"] = self.grpc.rpartition(":")[2] or -1
        self._ports = (self.namesrv.rpartition(":")[2], self.broker.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it with kill -9: it gets no chance to write anything."""
        if self._process is not None:
            self._process.kill()
        self._end()

    def stop(self) -> None:
        self._end()
        folder, self._folder = self._folder, None
        if folder is not None:
            self._run.remove()

    def restart(self) -> None:
        """Stop cleanly and start again with the same store and ports."""
        self._end()
        self.start()

    def _end(self) -> None:
        """Terminate it and wait; kill it if that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        super().stop()
        # Nothing happens to one that was killed.
        process.terminate()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
