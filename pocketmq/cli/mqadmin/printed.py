"""mqadmin's output: templates of lines and of columns, times as RocketMQ's tools write them."""

import re
import string
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pocketmq.cli.exits import CannotBegin, one_line
from pocketmq.remoting.codes import version_name


def say(text: str) -> None:
    """Print one line, with control characters and ends of lines from peers made visible."""
    sys.stdout.write(one_line(text).rstrip() + "\n")


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


def java(value: object) -> str:
    """Return a value as Java prints it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


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


# How a field is shown, named before the width: {last_ms:second:<20}.
_CONVERSIONS: dict[str, Callable[[Any], str]] = {
    "moment": moment,
    "second": second,
    "release": version_name,
    "bracketed": lambda text: f"[{text or 'null'}]",
    "kilo": lambda size: f"{size / 1024:.2f}",
    "host": lambda client_id: (client_id or "N/A").partition("@")[0],
}


class _Fields(string.Formatter):
    """`{queue.topic:<20}`: a way through attributes and keys; `{:<20}`: the next of a tuple; absent: ""."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        value = args[0]
        for step in field_name.split("."):
            if isinstance(value, Mapping):
                value = value.get(step)
            else:
                value = value[int(step)] if step.isdigit() else getattr(value, step)
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        how, _, rest = format_spec.partition(":")
        if how == "if":
            return rest if value is not None else ""
        if how in _CONVERSIONS:
            value, format_spec = _CONVERSIONS[how](value), rest
        return format(java(value), format_spec)


_FIELDS = _Fields()
_COLUMN = re.compile(r"( *)(\{[^}]*?((?:[<>]\d+)?)\}) #(.*)")


@dataclass(frozen=True, slots=True)
class Template:
    """How a line or a row is printed; a row of a table has a heading."""

    text: str
    heading: str = ""

    @classmethod
    def of_columns(cls, text: str) -> "Template":
        """Parse columns, each with its width, which the heading has, too.

        >>> Template.of_columns("{id:<4} #QID|  {last_ms:second} #Last Time")
        Template(text='{id:<4}  {last_ms:second}', heading='#QID  #Last Time')
        """
        columns = [_COLUMN.fullmatch(each) for each in text.split("|")]
        parts = [each.groups() for each in columns if each is not None]
        assert len(parts) == len(columns), text
        return cls(
            "".join(blanks + shown for blanks, shown, *_ in parts),
            "".join(f"{blanks}{'#' + head:{width}}" for blanks, _, width, head in parts),
        )

    def __add__(self, other: "Template") -> "Template":
        return Template(self.text + other.text, self.heading + other.heading)

    def of(self, row: Any) -> str:
        """Format a row: a tuple, or an object or a mapping whose fields the template names."""
        return _FIELDS.vformat(self.text, (row,), {})
