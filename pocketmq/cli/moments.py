"""Times as people write them: `now`, `2h` (ago), `2026-11-21T12:00`, or ms since 1970."""

import time
from datetime import datetime

from pocketmq.bulk.moments import AGO, UNITS_MS, moment_ms
from pocketmq.cli.exits import CannotBegin
from pocketmq.remoting.errors import IllegalArgument


def parse_moment(text: str, now_ms: int | None = None) -> int:
    """Parse into ms since 1970; a time without a zone is local. Raises: CannotBegin.

    >>> parse_moment("2h", now_ms=10_000_000)
    2800000
    """
    try:
        return moment_ms(text, now_ms)
    except IllegalArgument as error:
        raise CannotBegin(str(error)) from None


def parse_coming(text: str, now_ms: int | None = None) -> int:
    """Parse a future time into ms since 1970: `+90s`, or as `parse_moment`. Raises: CannotBegin.

    >>> parse_coming("+2m", now_ms=1_000)
    121000
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    later = AGO.fullmatch(text.strip().removeprefix("+")) if text.strip()[:1] == "+" else None
    if later is not None:
        return now + int(later[1]) * UNITS_MS[later[2]]
    return parse_moment(text, now)


def show_moment(ms: int) -> str:
    """Format local time to the millisecond; a dash for none.

    >>> show_moment(0)
    '-'
    """
    if ms <= 0:
        return "-"
    return datetime.fromtimestamp(ms / 1000).isoformat(" ", "milliseconds")
