"""mqadmin's output: columns of fixed widths, times as RocketMQ's tools write them."""

import sys
from collections.abc import Iterable
from datetime import datetime

from pocketmq.cli.exits import CannotBegin, one_line


def say(text: str) -> None:
    """Print one line, with control characters and ends of lines from peers made visible."""
    sys.stdout.write(one_line(text).rstrip() + "\n")


def say_lines(*lines: str) -> None:
    """Print lines."""
    for line in lines:
        say(line)


def print_columns(heading: str, form: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Print a heading and rows; a row of one cell is printed as a line."""
    say(heading)
    for row in rows:
        say(str(row[0]) if len(row) == 1 else form % row)


def moment(ms: int) -> str:
    """Format `2026-11-21 12:00:00,123`; empty for none. Source: UtilAll.timeMillisToHumanString2.

    >>> moment(0)
    ''
    """
    if ms <= 0:
        return ""
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S,") + f"{ms % 1000:03d}"


def second(ms: int) -> str:
    """Format `2026-11-21 12:00:00`; N/A for none."""
    return moment(ms).partition(",")[0] or "N/A"


def parse_time(text: str, now_ms: int) -> int:
    """Parse `now`, `yyyy-MM-dd#HH:mm:ss:SSS` or a number into ms since 1970. Raises: CannotBegin.

    >>> parse_time("now", 5), parse_time("17", 5)
    (5, 17)
    """
    if text == "now":
        return now_ms
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        day, _, millis = text.rpartition(":")
        return int(datetime.strptime(day, "%Y-%m-%d#%H:%M:%S").timestamp() * 1000) + int(millis)
    except ValueError:
        raise CannotBegin(
            f"{text!r} is not a time: give now, 2026-11-21#12:00:00:000, or milliseconds since 1970"
        ) from None
