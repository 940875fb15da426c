"""ScheduleRow: what is sent when, and the next time of it. No I/O.

1. `next_ms` is the arming: the schedule comes then. A firing is one record, which holds its own time and the
   arming that follows (SCHEDULE_TIME, SCHEDULE_NEXT): so either both are in the log, or none is.
2. A time counts as missed if a later one is over, too, or more than GRACE_MS passed. `missed` says what is
   done then: "once": all that is over is one message, however late; "all": each has its own, as far as
   ALL_REACH_MS back; "skip": none.
Owner of schedules: ScheduleTable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pocketmq.broker.schedules.cron import Cron
from pocketmq.model.schedule import (
    MS_MAX,
    Schedule,
    ScheduleIllegal,
    optional_number,
    optional_text,
)

GRACE_MS = 60_000
ALL_REACH_MS = 7 * 86_400_000
ONCE, ALL, SKIP = "once", "all", "skip"
NAME_LENGTH_MAX = 255
_OF_BROKER = ("TAGS", "KEYS", "DELAY", "UNIQ_KEY", "__LITE_TOPIC")


class FiringDecision(NamedTuple):
    """What is done about a time that is over; next_ms: the arming that follows, None if it was the last."""

    fires: bool
    next_ms: int | None


@dataclass(frozen=True)
class Plan:
    """The times of a schedule."""

    schedule: Schedule

    @classmethod
    def checked(cls, schedule: Schedule) -> "Plan":
        """Raises: ScheduleIllegal, if it can have no times or no message."""
        plan = cls(schedule)
        plan._check()
        return plan

    def _check(self) -> None:
        plan = self.schedule
        if sum(each is not None for each in (plan.cron, plan.interval_ms, plan.at_ms)) != 1:
            raise ScheduleIllegal("a schedule has one of cron, intervalMs and atMs")
        if plan.missed not in (ONCE, ALL, SKIP):
            raise ScheduleIllegal(f"missed is once, all or skip, not {plan.missed[:40]!r}")
        for text in (plan.tags, plan.keys, *plan.properties, *plan.properties.values()):
            if text is not None and any(each in text for each in "\x01\x02"):
                raise ScheduleIllegal("tags, keys and properties have no characters 1 and 2")
        for name in plan.properties:
            if name in _OF_BROKER or name.startswith(("TIMER_", "SCHEDULE_", "INNER_MULTI_")):
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
            return ZoneInfo(self.schedule.time_zone)
        except (LookupError, OSError, ValueError) as error:
            raise ScheduleIllegal(
                f"the time zone {self.schedule.time_zone[:100]!r} is not known to the broker: use a name as "
                "Europe/Berlin. If its machine has no database of zones, it needs the package tzdata"
            ) from error

    @cached_property
    def parsed(self) -> Cron | None:
        """Raises: CronIllegal."""
        plan = self.schedule
        return None if plan.cron is None else Cron.parse(plan.cron, both_days=plan.all_match)

    def next_after(self, ms: int) -> int | None:
        """Return the first time after `ms`; None if it never comes again."""
        plan = self.schedule
        found: int | None
        if plan.at_ms is not None:
            found = plan.at_ms if plan.at_ms > ms else None
        elif plan.interval_ms is not None:
            start = plan.start_ms or 0
            found = start if ms < start else ms + plan.interval_ms - (ms - start) % plan.interval_ms
        else:
            assert self.parsed is not None
            found = self.parsed.next_after(max(ms, (plan.start_ms or 0) - 1), self.zone)
        if found is None or found > MS_MAX or (plan.until_ms is not None and found > plan.until_ms):
            return None
        return found

    def decide(self, time_ms: int, now_ms: int) -> FiringDecision:
        """Return what is done about `time_ms`, which is over (2)."""
        missed = self.schedule.missed
        following = self.next_after(time_ms)
        if following is None or following > now_ms:
            is_late = now_ms - time_ms > GRACE_MS
            return FiringDecision(not (is_late and missed == SKIP), following)
        if missed == ONCE:
            return FiringDecision(True, self.next_after(now_ms))
        back_ms = GRACE_MS if missed == SKIP else ALL_REACH_MS
        if time_ms < now_ms - back_ms:
            return FiringDecision(False, self._within(now_ms - back_ms, following, now_ms))
        return FiringDecision(missed == ALL, following)

    def _within(self, since_ms: int, following: int, now_ms: int) -> int | None:
        """Return the first time from `since_ms` on; of `all` the last that is over, if it was before that."""
        found = self.next_after(since_ms - 1)
        if self.schedule.missed == ALL and (found is None or found > now_ms):
            while (later := self.next_after(following)) is not None and later <= now_ms:
                following = later
            return following
        return found


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A plan, and how far it is. next_ms: None while it is paused.

    last_ms: the time of the last firing, None before the first; fired: how many there were.
    """

    plan: Plan
    created_ms: int
    next_ms: int | None
    last_ms: int | None = None
    fired: int = 0

    @property
    def schedule(self) -> Schedule:
        return self.plan.schedule

    @property
    def name(self) -> str:
        return self.plan.schedule.name

    @property
    def is_paused(self) -> bool:
        return self.next_ms is None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.schedule.to_json(),
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
        name, topic = optional_text(row, "name"), optional_text(row, "topic")
        created_ms = optional_number(row, "createdMs")
        if not name or not topic or created_ms is None:
            raise ScheduleIllegal("a row lacks name, topic or createdMs")
        return cls(
            Plan.checked(Schedule.from_json(name, topic, row)),
            created_ms,
            optional_number(row, "nextMs"),
            optional_number(row, "lastMs"),
            optional_number(row, "fired") or 0,
        )

    def moved(self, next_ms: int, fired_ms: int | None) -> "ScheduleRow":
        """Return it as it is after a time that is over; fired_ms: that time, None if nothing was sent."""
        if fired_ms is None:
            return replace(self, next_ms=next_ms)
        return replace(self, next_ms=next_ms, last_ms=fired_ms, fired=self.fired + 1)
