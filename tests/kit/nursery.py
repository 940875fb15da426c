"""Processes of `pocketmq` that are forked with a broker's modules imported: most of a start's time.

For a test that kills and starts again and again. Each is a process as any other, by the same words.

    to the nursery, a line of JSON                    its answer, a line of JSON
    {"words": [...], "log": path, "folder": path}     the id of a process: `pocketmq` with these words
    {"of": id}                                        its exit code, as of Popen.poll()

When its standard input ends, the nursery kills what is left, and ends.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class Nursery:
    """Owner of the process that forks the others."""

    def __enter__(self) -> Self:
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process:
            pass

    def start(self, words: Sequence[str], log: Path, folder: Path | None) -> "Forked":
        """Run `pocketmq` with these words; its output is appended to the log."""
        # A caller that waits for a line of it may be quicker than the new process.
        log.touch()
        asked = {"words": list(words), "log": str(log), "folder": str(folder or Path.cwd())}
        born = self.ask(asked)
        assert born is not None
        return Forked(self, born)

    def ask(self, question: Mapping[str, object]) -> int | None:
        """Ask for what the head of this file says."""
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        with self._one_at_a_time:
            given.write(json.dumps(question) + "\n")
            given.flush()
            found = json.loads(answers.readline())
        assert found is None or isinstance(found, int)
        return found


class Forked:
    """What Popen can do of a process of the nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._nursery.ask({"of": self.pid})

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises: subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("pocketmq", timeout or 0)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal; a process that has ended is not reaped before poll() has said so."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _fork(question: dict[str, str], ended: dict[int, int | None]) -> int:
    """Return the id of a new process, and 0 in it."""
    born = os.fork()
    if born:
        ended[born] = None
        return born
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(question["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for mine, theirs in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(mine, theirs)
    os.close(nothing)
    os.close(log)
    os.chdir(question["folder"])
    return 0


def _exit_code(pid: int, ended: dict[int, int | None]) -> int | None:
    if ended[pid] is None:
        found, status = os.waitpid(pid, os.WNOHANG)
        ended[pid] = os.waitstatus_to_exitcode(status) if found else None
    return ended[pid]


def main() -> int:
    """Answer until the input ends; in a new process, be `pocketmq`."""
    import pocketmq.cli.servers.broker_server
    from pocketmq.cli.__main__ import main as pocketmq_main

    assert pocketmq.cli.servers.broker_server
    # What is there stays: a collection would copy its pages in each new process.
    gc.collect()
    gc.freeze()
    ended: dict[int, int | None] = {}
    # Unbuffered: a new process would inherit what was read ahead.
    given = os.fdopen(0, "rb", buffering=0, closefd=False)
    while line := given.readline():
        question = json.loads(line)
        answer = _exit_code(question["of"], ended) if "of" in question else _fork(question, ended)
        if answer == 0 and "words" in question:
            return pocketmq_main(question["words"])
        print(json.dumps(answer), flush=True)  # noqa: T201
    for pid in ended:
        if _exit_code(pid, ended) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
