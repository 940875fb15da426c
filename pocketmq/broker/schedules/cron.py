"""Cron: the times of an expression of five fields, in a time zone. No I/O.

    minute 0-59, hour 0-23, day of month 1-31, month 1-12 or JAN-DEC, weekday 0-7 or SUN-SAT (0, 7: Sunday)
    each: *, a number, a-b, any of them with /step (not a single number), or several with commas
    @hourly @daily @midnight @weekly @monthly @yearly @annually

1. If both days are restricted (neither begins with *), a day matches if either does, as in Vixie's cron;
   with `both_days` only if both do, as in Celery.
2. Daylight saving, as in Debian's cron. An expression whose minute or hour begins with * follows elapsed
   time: what a day lacks does not come, what it has twice comes twice. Any other one has fixed times: one
   that a day lacks comes at the first minute behind the gap, one that it has twice comes the first time.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple


class CronIllegal(ValueError):
    """An expression that cannot be read; the text names the field."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_PART = re.compile(r"(?P<from>\*|\w+)(?:-(?P<to>\w+))?(?:/(?P<step>\d{1,4}))?\Z", re.ASCII)
_LENGTH_MAX = 1_000
# A 29 February of a given weekday may be 40 years away.
_YEARS_MAX = 41
_MINUTE = timedelta(minutes=1)
# No change of a clock is larger, so that no time behind it is one of before it.
_NEAR_S = 3 * 3600


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression; sorted values of each field."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    all_match: bool
    is_fixed: bool

    @classmethod
    def parse(cls, text: str, *, both_days: bool = False) -> "Cron":
        """Raises: CronIllegal.

        >>> Cron.parse("0 9 * * MON-FRI").weekdays == frozenset({1, 2, 3, 4, 5})
        True
        >>> Cron.parse("0 25 * * *")
        Traceback (most recent call last):
        pocketmq.broker.schedules.cron.CronIllegal: hour: 25 is not within 0-23
        """
        if len(text) > _LENGTH_MAX:
            raise CronIllegal(f"a cron expression has at most {_LENGTH_MAX} characters")
        words = _MACROS.get(text.strip().lower(), text).split()
        if len(words) != len(_FIELDS):
            raise CronIllegal(
                f"{text[:100]!r} is no cron expression: five fields are needed (minute, hour, day of month, "
                f"month, day of week), or one of {', '.join(_MACROS)}"
            )
        minutes, hours, days, months, weekdays = (
            _values(field, word.upper()) for field, word in zip(_FIELDS, words, strict=True)
        )
        stars = [word.startswith("*") for word in words]
        return cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            frozenset(days),
            frozenset(months),
            frozenset(each % 7 for each in weekdays),
            both_days or stars[2] or stars[4],
            not (stars[0] or stars[1]),
        )

    def next_after(self, ms: int, zone: tzinfo) -> int | None:
        """Return the first time after `ms`; both in ms since 1970. None if it never comes."""
        second = ms // 60_000 * 60 + 60
        found = (
            self._fixed(ms // 1000, second, zone) if self.is_fixed else self._passed(second, zone)
        )
        return None if found is None else found * 1000

    def _fixed(self, after: int, second: int, zone: tzinfo) -> int | None:
        """Return the next fixed time as seconds since 1970 (2)."""
        local: datetime | None = _local(second, zone)
        while local is not None and (local := self._local_from(local)) is not None:
            real = local
            while _local(found := _instant(real, zone), zone) != real:
                real += _MINUTE
            if found > after:
                return found
            local += _MINUTE
        return None

    def _passed(self, second: int, zone: tzinfo) -> int | None:
        """Return the next time from `second` on, by elapsed time (2)."""
        while True:
            now = _local(second, zone)
            local = self._local_from(now)
            if local is None:
                return None
            found = second + int((local - now).total_seconds())
            near = min(found, second + _NEAR_S)
            if _offset(near, zone) != _offset(second, zone):
                second = _change(second, near, zone)
            elif _offset(found, zone) != _offset(second, zone):
                second = _change(second, found, zone)
            else:
                # Of two such times the first has another offset, if the clock changes twice until then.
                first = _instant(local, zone)
                return first if second <= first < found else found

    def _local_from(self, local: datetime) -> datetime | None:
        """Return the first time on the calendar, not before `local`; None if it never comes."""
        for day in self._days_from(local):
            first = (local.hour, local.minute) if day.date() == local.date() else (0, 0)
            at = bisect_left(self.hours, first[0])
            for hour in self.hours[at : at + 2]:
                minute = bisect_left(self.minutes, first[1]) if hour == first[0] else 0
                if minute < len(self.minutes):
                    return day.replace(hour=hour, minute=self.minutes[minute])
        return None

    def _days_from(self, local: datetime) -> Iterator[datetime]:
        day = local.replace(hour=0, minute=0)
        last = min(day.year + _YEARS_MAX, 9_998)
        while day.year <= last:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
            if (in_month and in_week) if self.all_match else (in_month or in_week):
                yield day
            day += timedelta(days=1)


def _values(field: _Field, text: str) -> set[int]:
    """Return the values of one field. Raises: CronIllegal."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part)
        if match is None or (match["from"] == "*" and match["to"]):
            raise CronIllegal(
                f"{field.name}: {part[:40]!r} is not understood: write *, 5, 1-5, */15 or 1,3"
            )
        step = int(match["step"] or 1)
        if match["step"] and match["from"] != "*" and not match["to"]:
            raise CronIllegal(
                f"{field.name}: a step needs a range: {match['from']}-{field.high}/{step} instead of {part}"
            )
        if not step:
            raise CronIllegal(f"{field.name}: a step of 0 comes to nothing")
        if match["from"] == "*":
            low, high = field.low, field.high
        else:
            low = _number(field, match["from"])
            high = _number(field, match["to"]) if match["to"] else low
        if high < low and field.words[:1] == ("SUN",) and not high:
            high = 7
        if high < low:
            raise CronIllegal(f"{field.name}: the range {part} ends before it begins")
        found.update(range(low, high + 1, step))
    return found


def _number(field: _Field, text: str) -> int:
    if text in field.words:
        return field.words.index(text) + field.low
    if not text.isdigit() or len(text) > 4:
        raise CronIllegal(f"{field.name}: {text[:40]!r} is not a number or a name of this field")
    if not field.low <= int(text) <= field.high:
        raise CronIllegal(f"{field.name}: {int(text)} is not within {field.low}-{field.high}")
    return int(text)


def _local(second: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(second, zone).replace(tzinfo=None, fold=0)


def _instant(local: datetime, zone: tzinfo) -> int:
    """Return seconds since 1970, of the first of two such times."""
    return int(local.replace(tzinfo=zone).timestamp())


def _offset(second: int, zone: tzinfo) -> timedelta | None:
    return datetime.fromtimestamp(second, zone).utcoffset()


def _change(low: int, high: int, zone: tzinfo) -> int:
    """Return the first minute of another offset than that of `low`, which `high` has."""
    before = _offset(low, zone)
    while high - low > 60:
        middle = (low + high) // 120 * 60
        if _offset(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high
