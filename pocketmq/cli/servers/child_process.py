"""Child: a process of this command, held by two pipes. Forked at the start, spawned anew later.

1. Its standard input is a pipe that only the parent holds open. Its end tells the child to stop, or that the
   parent died, so a killed parent leaves no children behind.
2. Its standard output is a pipe whose end means that the child died, however.
3. It has its own process group: Ctrl-C reaches only the parent, which stops its children in order.

A fork shares with the parent what both have imported, so N brokers start in the time of one and share
its memory. It is safe only while the parent has neither threads nor an event loop; after that, `spawned`.
"""

import gc
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from pocketmq.cli.exits import CannotBegin, ExitCode, complain

_POLL_S = 0.02


class Child:
    """One child process. input, output: the parent's ends of its pipes, unbuffered."""

    def __init__(self, pid: int, given: io.FileIO, output: io.FileIO) -> None:
        self.pid = pid
        self.input = given
        self.output = output
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, -N for signal N, None while it lives."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # Other code of this process has collected it; its exit code is lost.
                self.returncode = int(ExitCode.FAILED)
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, seconds: float) -> bool:
        """Return True if it ends within that time."""
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; does nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close_input(self) -> None:
        """Close its input, which stops it (invariant 1)."""
        with suppress(BrokenPipeError):
            self.input.close()

    def end(self, seconds: float) -> bool:
        """Ask it to stop, wait, and finally kill it. Returns whether it stopped by itself."""
        self.close_input()
        self.signal(signal.SIGTERM)
        if self.wait(seconds):
            return True
        self.signal(signal.SIGKILL)
        self.wait(seconds)
        return False


def spawned(arguments: Sequence[str]) -> Child:
    """Start a new interpreter with `pocketmq ARGUMENTS`."""
    with _Pipes() as pipes:
        process = subprocess.Popen(
            [sys.executable, "-m", "pocketmq.cli", *arguments],
            stdin=pipes.child_input,
            stdout=pipes.child_output,
            process_group=0,
        )
        # Child collects it by its id.
        process.returncode = 0
        return pipes.child(process.pid)


def forked(life: Callable[[], ExitCode], others: Sequence[Child]) -> Child:
    """Fork this process to run `life` and end. others: children whose pipes it must not keep."""
    assert threading.active_count() == 1, "a fork copies one thread only"
    with _Pipes() as pipes:
        # Objects that the collector never touches stay on pages that all processes share.
        gc.freeze()
        pid = os.fork()
        if pid:
            return pipes.child(pid)
        _become(life, pipes, others)


def _become(life: Callable[[], ExitCode], pipes: "_Pipes", others: Sequence[Child]) -> NoReturn:
    """Run the child's side of the fork; never returns into the parent's frames."""
    code = int(ExitCode.FAILED)
    try:
        os.setpgid(0, 0)
        os.dup2(pipes.child_input, 0)
        os.dup2(pipes.child_output, 1)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        pipes.close()
        for other in others:
            other.input.close()
            other.output.close()
        code = int(life())
    except CannotBegin as error:
        complain(error)
        code = int(ExitCode.USAGE)
    except BaseException:  # noqa: BLE001 - the last frame of this process
        traceback.print_exc()
    finally:
        logging.shutdown()
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class _Pipes:
    """Two pipes with an end each for the child; leftovers of a failed start are closed."""

    def __init__(self) -> None:
        self.child_input, self._input = os.pipe()
        self._output, self.child_output = os.pipe()
        self._open = {self.child_input, self._input, self._output, self.child_output}

    def __enter__(self) -> "_Pipes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for number in self._open:
            # The standard ones are in use: they became the child's own.
            if number > 2:
                os.close(number)
        self._open.clear()

    def child(self, pid: int) -> Child:
        """Return the parent's ends, which leave this object."""
        self._open -= {self._input, self._output}
        return Child(pid, io.FileIO(self._input, "w"), io.FileIO(self._output, "r"))
