"""A schedule as its maker sees it, and as a broker keeps it."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is sent when: one of cron, interval_ms and at_ms is set.

    time_zone: of cron. all_match: days of month and week must both match, not either. start_ms: nothing
    before; intervals are counted from there, else from 1970. until_ms: nothing after. missed: what is done
    about times that passed while the broker was down: "once", "all" or "skip". owner: a text by which a
    program finds its schedules.
    """

    name: str
    topic: str
    body: bytes = b""
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    cron: str | None = None
    all_match: bool = False
    interval_ms: int | None = None
    at_ms: int | None = None
    time_zone: str = "UTC"
    start_ms: int | None = None
    until_ms: int | None = None
    missed: str = "once"
    owner: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the broker takes it."""
        plan = {
            "body": base64.b64encode(self.body).decode(),
            "tags": self.tags,
            "keys": self.keys,
            "properties": dict(self.properties),
            "cron": self.cron,
            "allMatch": self.all_match,
            "intervalMs": self.interval_ms,
            "atMs": self.at_ms,
            "timeZone": self.time_zone,
            "startMs": self.start_ms,
            "untilMs": self.until_ms,
            "missed": self.missed,
            "owner": self.owner,
        }
        return {name: value for name, value in plan.items() if value is not None}


@dataclass(frozen=True, slots=True)
class KeptSchedule:
    """A schedule at its broker. next_ms: None while it is paused; last_ms: None before the first message.

    schedule.body is empty in lists; body_size says how large it is. fired: how often it was sent.
    """

    broker: str
    schedule: Schedule
    created_ms: int
    next_ms: int | None
    last_ms: int | None
    fired: int
    body_size: int

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def is_paused(self) -> bool:
        return self.next_ms is None


def kept(broker: str, row: Mapping[str, Any]) -> KeptSchedule:
    """Return a schedule from a broker's row."""
    body = base64.b64decode(row.get("body") or "")
    return KeptSchedule(
        broker,
        Schedule(
            row["name"],
            row["topic"],
            body,
            row.get("tags"),
            row.get("keys"),
            row.get("properties") or {},
            row.get("cron"),
            bool(row.get("allMatch")),
            row.get("intervalMs"),
            row.get("atMs"),
            row["timeZone"],
            row.get("startMs"),
            row.get("untilMs"),
            row["missed"],
            row.get("owner"),
        ),
        row["createdMs"],
        row.get("nextMs"),
        row.get("lastMs"),
        row["fired"],
        row.get("bodySize", len(body)),
    )
