"""Times as people write them: `now`, `2h` (ago), `2026-11-21T12:00`, or ms since 1970."""

import re
import time
from datetime import datetime

from pocketmq.cli.exits import CannotBegin

_AGO = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_moment(text: str, now_ms: int | None = None) -> int:
    """Parse into ms since 1970; a time without a zone is local. Raises: CannotBegin.

    >>> parse_moment("2h", now_ms=10_000_000)
    2800000
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    text = text.strip()
    if text == "now":
        return now
    ago = _AGO.fullmatch(text.removeprefix("-").removesuffix(" ago").strip())
    if ago is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise CannotBegin(
            f"{text!r} is not a time: give 'now', '2h' for two hours ago, '2026-11-21T12:00', or "
            "milliseconds since 1970"
        ) from None


def parse_coming(text: str, now_ms: int | None = None) -> int:
    """Parse a future time into ms since 1970: `+90s`, or as `parse_moment`. Raises: CannotBegin.

    >>> parse_coming("+2m", now_ms=1_000)
    121000
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    later = _AGO.fullmatch(text.strip().removeprefix("+")) if text.strip()[:1] == "+" else None
    if later is not None:
        return now + int(later[1]) * _UNITS[later[2]]
    return parse_moment(text, now)


def show_moment(ms: int) -> str:
    """Format local time to the millisecond; a dash for none.

    >>> show_moment(0)
    '-'
    """
    if ms <= 0:
        return "-"
    return datetime.fromtimestamp(ms / 1000).isoformat(" ", "milliseconds")
