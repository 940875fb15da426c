"""--watch SECONDS: a command that shows something, again and again, until Ctrl-C."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol

import typer

from pocketmq.cli.exits import CannotBegin, ExitCode

HELP = "Repeat list, show, numbers or doctor every so many seconds (2 at the end of a command), until Ctrl-C."
# The last word of a command that shows and changes nothing.
_SHOW = {"list", "show", "numbers", "doctor", "ls", "producers"}
# Seconds, where none are given.
_USUAL = "2"
_CLEAR = "\x1b[H\x1b[J"


class Command(Protocol):
    """A click command."""

    def main(self, args: list[str], prog_name: str, *, standalone_mode: bool) -> Any: ...


def taken_out(words: Sequence[str]) -> tuple[list[str], float | None]:
    """The words without --watch, wherever it stands, and its seconds. Raises: CannotBegin.

    >>> taken_out(["group", "list", "--watch", "2"])
    (['group', 'list'], 2.0)
    >>> taken_out(["--watch=0.5", "topic", "show", "T"])
    (['topic', 'show', 'T'], 0.5)
    >>> taken_out(["topic", "list", "--watch", "--json"])
    (['topic', 'list', '--json'], 2.0)
    """
    rest: list[str] = []
    seconds: str | None = None
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        if name != "--watch":
            rest.append(word)
        elif equals:
            seconds = value
        else:
            alone = not remaining or remaining[0].startswith("-")
            seconds = _USUAL if alone else remaining.pop(0)
    if seconds is None:
        return rest, None
    if not _SHOW & set(rest):
        raise CannotBegin(f"--watch works only with: {', '.join(sorted(_SHOW))}")
    try:
        every_s = float(seconds)
    except ValueError:
        every_s = 0.0
    if not 0 < every_s < 86_400:
        raise CannotBegin(f"--watch takes a number of seconds (2 without one), not {seconds!r}")
    return rest, every_s


def again_and_again(show: Callable[[], int], every_s: float) -> int:
    """Call `show` until Ctrl-C, on a terminal in the place of what it showed before; 0."""
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        # A command may take the interruption for its own, and end as it does when it is done.
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        while not stopped:
            if sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            show()
            sys.stdout.flush()
            time.sleep(every_s)
    # The second is what typer makes of the first, when it comes within a command.
    except (KeyboardInterrupt, typer.Abort):
        pass
    finally:
        signal.signal(signal.SIGINT, before)
    return int(ExitCode.OK)
