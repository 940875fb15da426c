"""Times as people write them: `now`, `2h` (ago), `2026-11-21`, `2026-11-21T12:00`, or ms since 1970."""

import re
import time
from datetime import datetime

from pocketmq.remoting.errors import IllegalArgument

AGO = re.compile(r"(\d+)\s*(ms|s|m|h|d)", re.ASCII)
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# As seconds these are the years 2001 to 5138, as ms some weeks of 1970 to 1973, when no message was stored.
_SECONDS = range(10**9, 10**11)


def checked_ms(value: int) -> int:
    """Return ms since 1970 as they are. Raises: IllegalArgument for what can only be seconds, with the ms."""
    if value in _SECONDS:
        raise IllegalArgument(
            f"{value} would be seconds since 1970: in milliseconds it is {value * 1000}"
        )
    return value


def moment_ms(text: str, now_ms: int | None = None) -> int:
    """Parse into ms since 1970; a time without a zone is local.

    Raises: IllegalArgument, also for seconds since 1970, with the milliseconds.

    >>> moment_ms("2h", now_ms=10_000_000), moment_ms("1970-01-02T00:00Z")
    (2800000, 86400000)
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    text = text.strip()
    if text == "now":
        return now
    ago = AGO.fullmatch(text.removeprefix("-").removesuffix(" ago").strip())
    if ago is not None:
        return now - int(ago[1]) * UNITS_MS[ago[2]]
    if text.isascii() and text.isdigit():
        return checked_ms(int(text))
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise IllegalArgument(
            f"{text!r} is not a time: give 'now', '2h' for two hours ago, '2026-11-21T12:00', or "
            "milliseconds since 1970"
        ) from None
