"""ScheduleRow: what is sent when, and the next time of it. No I/O.

1. `next_ms` is the arming: the schedule comes then. A firing is one record, which holds its own time and the
   arming that follows (SCHEDULE_TIME, SCHEDULE_NEXT): so either both are in the log, or none is.
2. A time counts as missed if a later one is over, too, or more than GRACE_MS passed. `missed` says what is
   done then: "once": all that is over is one message, however late; "all": each has its own, as far as
   ALL_REACH_MS back; "skip": none.
Owner of schedules: ScheduleTable.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import cached_property
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pocketmq.broker.schedules.cron import Cron

GRACE_MS = 60_000
ALL_REACH_MS = 7 * 86_400_000
ONCE, ALL, SKIP = "once", "all", "skip"
NAME_LENGTH_MAX = 255
_INTERVAL_MS_MIN = 1_000
_MS_MAX = 253_370_764_800_000  # in the year 9999


class ScheduleIllegal(ValueError):
    """A schedule that cannot be; the text says why, for its maker."""


class FiringDecision(NamedTuple):
    """What is done about a time that is over; next_ms: the arming that follows, None if it was the last."""

    fires: bool
    next_ms: int | None


@dataclass(frozen=True)
class Plan:
    """When, and what is sent. One of cron, interval_ms and at_ms is set; times are ms since 1970.

    time_zone: of cron, by its IANA name. all_match: days of month and week must both match. start_ms: nothing
    before; intervals are counted from there, else from 1970. until_ms: nothing after. missed: see the module.
    owner: free text, by which a program finds what it made.
    """

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
    missed: str = ONCE
    owner: str | None = None

    @classmethod
    def from_json(cls, topic: str, data: Any) -> "Plan":
        """Raises: ScheduleIllegal."""
        if not isinstance(data, Mapping):
            raise ScheduleIllegal("a schedule is a JSON object")
        try:
            body = base64.b64decode(_text(data, "body") or "", validate=True)
        except binascii.Error:
            raise ScheduleIllegal("body is not base64") from None
        properties = data.get("properties") or {}
        if not isinstance(properties, Mapping) or not all(
            isinstance(each, str) for pair in properties.items() for each in pair
        ):
            raise ScheduleIllegal("properties are not texts by name")
        plan = cls(
            topic,
            body,
            _text(data, "tags"),
            _text(data, "keys"),
            dict(properties),
            _text(data, "cron"),
            bool(data.get("allMatch")),
            _number(data, "intervalMs", _INTERVAL_MS_MIN),
            _number(data, "atMs"),
            _text(data, "timeZone") or "UTC",
            _number(data, "startMs"),
            _number(data, "untilMs"),
            _text(data, "missed") or ONCE,
            _text(data, "owner"),
        )
        plan.check()
        return plan

    def to_json(self) -> dict[str, Any]:
        """Return it without what is not set."""
        row = {
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

    def check(self) -> None:
        """Raises: ScheduleIllegal."""
        if sum(each is not None for each in (self.cron, self.interval_ms, self.at_ms)) != 1:
            raise ScheduleIllegal("a schedule has one of cron, intervalMs and atMs")
        if self.missed not in (ONCE, ALL, SKIP):
            raise ScheduleIllegal(f"missed is once, all or skip, not {self.missed[:40]!r}")
        for text in (self.tags, self.keys, *self.properties, *self.properties.values()):
            if text is not None and any(each in text for each in "\x01\x02"):
                raise ScheduleIllegal("tags, keys and properties have no characters 1 and 2")
        for name in self.properties:
            if name in ("TAGS", "KEYS", "DELAY", "UNIQ_KEY") or name.startswith(
                ("TIMER_", "SCHEDULE_")
            ):
                raise ScheduleIllegal(f"the property {name[:40]} is the broker's own")
        try:
            _ = self.zone
            _ = self.parsed
        except ScheduleIllegal:
            raise
        except ValueError as error:
            raise ScheduleIllegal(str(error)) from error

    @cached_property
    def zone(self) -> tzinfo:
        """Raises: ScheduleIllegal."""
        try:
            return ZoneInfo(self.time_zone)
        except (LookupError, OSError, ValueError) as error:
            raise ScheduleIllegal(
                f"the time zone {self.time_zone[:100]!r} is not known to the broker: use a name as "
                "Europe/Berlin. If its machine has no database of zones, it needs the package tzdata"
            ) from error

    @cached_property
    def parsed(self) -> Cron | None:
        """Raises: CronIllegal."""
        return None if self.cron is None else Cron.parse(self.cron, both_days=self.all_match)

    def next_after(self, ms: int) -> int | None:
        """Return the first time after `ms`; None if it never comes again."""
        found: int | None
        if self.at_ms is not None:
            found = self.at_ms if self.at_ms > ms else None
        elif self.interval_ms is not None:
            start = self.start_ms or 0
            found = start if ms < start else ms + self.interval_ms - (ms - start) % self.interval_ms
        else:
            assert self.parsed is not None
            found = self.parsed.next_after(max(ms, (self.start_ms or 0) - 1), self.zone)
        if (
            found is None
            or found > _MS_MAX
            or (self.until_ms is not None and found > self.until_ms)
        ):
            return None
        return found

    def decide(self, time_ms: int, now_ms: int) -> FiringDecision:
        """Return what is done about `time_ms`, which is over (2)."""
        following = self.next_after(time_ms)
        if following is None or following > now_ms:
            is_late = now_ms - time_ms > GRACE_MS
            return FiringDecision(not (is_late and self.missed == SKIP), following)
        if self.missed == ONCE:
            return FiringDecision(True, self.next_after(now_ms))
        back_ms = GRACE_MS if self.missed == SKIP else ALL_REACH_MS
        if time_ms < now_ms - back_ms:
            return FiringDecision(False, self._within(now_ms - back_ms, following, now_ms))
        return FiringDecision(self.missed == ALL, following)

    def _within(self, since_ms: int, following: int, now_ms: int) -> int | None:
        """Return the first time from `since_ms` on; of `all` the last that is over, if it was before that."""
        found = self.next_after(since_ms - 1)
        if self.missed == ALL and (found is None or found > now_ms):
            while (later := self.next_after(following)) is not None and later <= now_ms:
                following = later
            return following
        return found


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A plan by its name, and how far it is. next_ms: None while it is paused.

    last_ms: the time of the last firing, None before the first; fired: how many there were.
    """

    name: str
    plan: Plan
    created_ms: int
    next_ms: int | None
    last_ms: int | None = None
    fired: int = 0

    @property
    def is_paused(self) -> bool:
        return self.next_ms is None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self.plan.to_json(),
            "createdMs": self.created_ms,
            "nextMs": self.next_ms,
            "lastMs": self.last_ms,
            "fired": self.fired,
        }

    @classmethod
    def from_json(cls, row: Any) -> "ScheduleRow":
        """Raises: ScheduleIllegal."""
        if not isinstance(row, Mapping):
            raise ScheduleIllegal("a row is a JSON object")
        name, topic = _text(row, "name"), _text(row, "topic")
        created_ms = _number(row, "createdMs")
        if not name or not topic or created_ms is None:
            raise ScheduleIllegal("a row lacks name, topic or createdMs")
        return cls(
            name,
            Plan.from_json(topic, row),
            created_ms,
            _number(row, "nextMs"),
            _number(row, "lastMs"),
            _number(row, "fired") or 0,
        )

    def moved(self, next_ms: int, fired_ms: int | None) -> "ScheduleRow":
        """Return it as it is after a time that is over; fired_ms: that time, None if nothing was sent."""
        if fired_ms is None:
            return replace(self, next_ms=next_ms)
        return replace(self, next_ms=next_ms, last_ms=fired_ms, fired=self.fired + 1)


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise ScheduleIllegal(f"{name} is not a text")
    return value or None


def _number(data: Mapping[str, Any], name: str, low: int = 0) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if type(value) is not int or not low <= value <= _MS_MAX:
        raise ScheduleIllegal(
            f"{name} is a whole number of at least {low}, not {str(value)[:40]!r}"
        )
    return value
