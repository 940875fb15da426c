"""The servers' log: lines on standard error or in a file, control characters made visible, floods limited."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.cli.exits import CannotBegin, visible
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.remoting.clock import SystemClock

LINES_AT_ONCE = 100
"""Lines that one place of the code may write without a pause."""
_FORMATS = ("text", "json")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class LineFormatter(logging.Formatter):
    """`2026-11-21 12:00:00,123 INFO pocketmq.broker: text`; further lines are indented by two blanks."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record)).replace("\n", "\n  ")


def keep_readable() -> None:
    """Make what a command's libraries warn of steer no terminal.

    A command starts no log: Python writes warnings to standard error, as they are.
    """
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter("%(message)s"))


class LineLimit(logging.Filter):
    """Lets each place of the code write LINES_AT_ONCE lines, and then one per second.

    Errors of peers must not fill the disk. A place's next line says how many were left out.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        super().__init__()
        self._monotonic_ms = monotonic_ms
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._monotonic_ms()
        key = record.pathname, record.lineno
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(now)
        seconds = (now - place.since_ms) // 1_000
        place.since_ms += seconds * 1_000
        place.room = min(place.room + seconds, LINES_AT_ONCE)
        if not place.room:
            place.left_out += 1
            return False
        place.room -= 1
        if place.left_out:
            record.msg = f"{record.msg} (and {place.left_out} similar lines left out)"
            place.left_out = 0
        return True


@dataclass(slots=True)
class _Place:
    """A place in the code that logs. room: lines that it may write now."""

    since_ms: int
    room: int = LINES_AT_ONCE
    left_out: int = 0


def start_logging(options: ServerOptions, process: str = "") -> None:
    """Send the log of this process where its options say. Raises: CannotBegin.

    process: included in each line, and in a file's name, if several processes write one log.
    """
    name = (options.log_level or "INFO").upper()
    if name not in _LEVELS:
        raise CannotBegin(f"--log-level is one of {', '.join(_LEVELS)}, not {options.log_level!r}")
    kind = options.log_format or "text"
    if kind not in _FORMATS:
        raise CannotBegin(f"--log-format is one of {', '.join(_FORMATS)}, not {kind!r}")
    if options.log_rotate and not options.log_file:
        raise CannotBegin("--log-rotate needs --log-file, the file to rotate")
    handler = _file(options, process) if options.log_file else logging.StreamHandler(sys.stderr)
    handler.addFilter(LineLimit(SystemClock().monotonic_ms))
    if kind == "json":
        from pocketmq.cli.servers.log_file import JsonFormatter

        handler.setFormatter(JsonFormatter(process))
    else:
        which = f"[{process.replace('%', '%%')}] " if process else ""
        handler.setFormatter(
            LineFormatter(f"%(asctime)s %(levelname)s {which}%(name)s: %(message)s")
        )
    # A forked process had its parent's handler until now.
    logging.basicConfig(level=name, handlers=[handler], force=True)


def _file(options: ServerOptions, process: str) -> logging.Handler:
    from pocketmq.cli.servers.log_file import LogFile

    # Two processes cannot rotate one file.
    path = f"{options.log_file}.{process}" if process else str(options.log_file)
    try:
        return LogFile(path, options.log_rotate or 0)
    except OSError as error:
        raise CannotBegin(f"cannot write the log {path}: {error.strerror or error}") from error
