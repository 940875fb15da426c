"""Schedule: what is sent when, as its maker, the wire and the broker's table have it. No I/O.

JSON: camelCase keys; body in base64; what is not set is left out.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_INTERVAL_MS_MIN = 1_000
MS_MAX = 253_370_764_800_000  # in the year 9999


class ScheduleIllegal(ValueError):
    """A schedule that cannot be; the text says why, for its maker."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is sent when: one of cron, interval_ms and at_ms is set. Times are ms since 1970.

    time_zone: of cron, by its IANA name. all_match: days of month and week must both match, not either.
    start_ms: nothing before; intervals are counted from there, else from 1970. until_ms: nothing after.
    missed: what is done about times that passed while the broker was down: "once", "all" or "skip".
    owner: a text by which a program finds its schedules.
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

    @classmethod
    def from_json(cls, name: str, topic: str, data: Any) -> "Schedule":
        """Raises: ScheduleIllegal for values of wrong types."""
        if not isinstance(data, Mapping):
            raise ScheduleIllegal("a schedule is a JSON object")
        try:
            body = base64.b64decode(optional_text(data, "body") or "", validate=True)
        except binascii.Error:
            raise ScheduleIllegal("body is not base64") from None
        properties = data.get("properties") or {}
        if not isinstance(properties, Mapping) or not all(
            isinstance(each, str) for pair in properties.items() for each in pair
        ):
            raise ScheduleIllegal("properties are not texts by name")
        return cls(
            name,
            topic,
            body,
            optional_text(data, "tags"),
            optional_text(data, "keys"),
            dict(properties),
            optional_text(data, "cron"),
            bool(data.get("allMatch")),
            optional_number(data, "intervalMs", _INTERVAL_MS_MIN),
            optional_number(data, "atMs"),
            optional_text(data, "timeZone") or "UTC",
            optional_number(data, "startMs"),
            optional_number(data, "untilMs"),
            optional_text(data, "missed") or "once",
            optional_text(data, "owner"),
        )

    def to_json(self) -> dict[str, Any]:
        row = {
            "name": self.name,
            "topic": self.topic,
            "body": base64.b64encode(self.body).decode(),
            "tags": self.tags,
            "keys": self.keys,
            "properties": dict(self.properties) or None,
            "cron": self.cron,
            "allMatch": self.all_match or None,
            "intervalMs": self.interval_ms,
            "atMs": self.at_ms,
            "timeZone": self.time_zone,
            "startMs": self.start_ms,
            "untilMs": self.until_ms,
            "missed": self.missed,
            "owner": self.owner,
        }
        return {name: value for name, value in row.items() if value is not None}

    @property
    def size(self) -> int:
        """Return the bytes of its message and texts, about."""
        texts = (self.tags, self.keys, self.owner, *self.properties, *self.properties.values())
        return len(self.body) + sum(len(each.encode()) for each in texts if each)


def optional_text(data: Mapping[str, Any], name: str) -> str | None:
    """Return a text, None if it is left out or empty. Raises: ScheduleIllegal."""
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise ScheduleIllegal(f"{name} is not a text")
    return value or None


def optional_number(data: Mapping[str, Any], name: str, low: int = 0) -> int | None:
    """Return a whole number, None if it is left out. Raises: ScheduleIllegal."""
    value = data.get(name)
    if value is None:
        return None
    if type(value) is not int or not low <= value <= MS_MAX:
        raise ScheduleIllegal(
            f"{name} is a whole number of at least {low}, not {str(value)[:40]!r}"
        )
    return value
