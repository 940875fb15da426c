"""Schedules as rows of the command line."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pocketmq.bulk.moments import AGO, UNITS_MS
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.moments import show_moment

if TYPE_CHECKING:
    from pocketmq.admin.schedules import KeptSchedule

_TIMES = ("next", "last", "start", "until")


def interval(text: str) -> int:
    """Parse an interval into ms. Raises: CannotBegin."""
    found = AGO.fullmatch(text.strip())
    if found is None:
        raise CannotBegin(f"{text!r} is no interval: write 30s, 10m, 2h or 1d")
    ms = int(found[1]) * UNITS_MS[found[2]]
    if ms < 1_000:
        raise CannotBegin(f"{text!r} is too short: an interval is at least 1s")
    return ms


def row(kept: "KeptSchedule") -> dict[str, Any]:
    """Return what lists show."""
    plan = kept.schedule
    every = f"every {timedelta(milliseconds=plan.interval_ms)}" if plan.interval_ms else "once"
    return {
        "name": plan.name,
        "topic": plan.topic,
        "when": every if plan.cron is None else f"{plan.cron} {plan.time_zone}",
        "state": _state(kept),
        "next": kept.next_ms,
        "last": kept.last_ms,
        "fired": kept.fired,
        "broker": kept.broker,
    }


def _state(kept: "KeptSchedule") -> str:
    if kept.fails:
        return "its topic takes no messages"
    return "paused" if kept.is_paused else "active"


def shown(row: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Return a row as it is printed: programs get ms since 1970, people local times."""
    if as_json:
        return row
    return {key: show_moment(value or 0) if key in _TIMES else value for key, value in row.items()}
