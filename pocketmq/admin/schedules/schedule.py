"""A schedule as a broker keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.model.schedule import Schedule


@dataclass(frozen=True, slots=True)
class KeptSchedule:
    """A schedule at its broker. next_ms: None while it is paused; last_ms: None before the first message.

    schedule.body is empty in lists; body_size says how large it is. fired: how often it was sent. fails: its
    topic took the last message not.
    """

    broker: str
    schedule: Schedule
    created_ms: int
    next_ms: int | None
    last_ms: int | None
    fired: int
    body_size: int
    fails: bool = False

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def is_paused(self) -> bool:
        return self.next_ms is None


def kept(broker: str, row: Mapping[str, Any]) -> KeptSchedule:
    """Return a schedule from a broker's row. Raises: ScheduleIllegal."""
    schedule = Schedule.from_json(row["name"], row["topic"], row)
    return KeptSchedule(
        broker,
        schedule,
        row["createdMs"],
        row.get("nextMs"),
        row.get("lastMs"),
        row["fired"],
        row.get("bodySize", len(schedule.body)),
        bool(row.get("fails")),
    )
