"""Backs up or restores again and again, and kills each run at a step.

    killed_child.py backup|restore FROM TO

Reads the number of a step from each line of standard input, forks, and lets the fork work until it has come
to that step, where it kills itself with -9; 0: it is not killed. A step is a call that opens, renames, makes
or removes something. Answers with the number of steps that the run made, or -9.
"""

import os
import signal
import sys
from pathlib import Path

from tests.backup.stores import restored, take

STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}


def work(what: str, source: str, dest: str, last: int) -> int:
    """Do it, and return how many steps it made."""
    made = 0

    def step(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal made
        if event in STEPS:
            made += 1
            if made == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
    if what == "backup":
        take(Path(source), dest, 2, keep=1)
    else:
        restored(source, Path(dest))
    return made


def main(what: str, source: str, dest: str) -> None:
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, b"%d" % work(what, source, dest, int(line)))
            os._exit(0)
        os.close(write)
        _, status = os.waitpid(child, 0)
        steps = os.read(read, 20).decode()
        os.close(read)
        sys.stdout.write(f"{steps or -os.WTERMSIG(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
