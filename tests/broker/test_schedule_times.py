"""When schedules come: cron expressions, daylight saving, intervals, what is missed. Ten years, no clock."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pycron
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.schedules.cron import Cron, CronIllegal
from pocketmq.broker.schedules.schedule import FiringDecision, Plan
from pocketmq.model.schedule import Schedule, ScheduleIllegal

DATA = Path(__file__).parent / "data" / "cron_times.json"
CASES = json.loads(DATA.read_text())["rows"]
BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000


def ms(text: str, zone: ZoneInfo | None = None) -> int:
    at = datetime.fromisoformat(text)
    return int((at.replace(tzinfo=zone) if zone else at).timestamp() * 1000)


def times(cron: str, zone: str, since: str, until: str) -> list[int]:
    """The seconds of an expression's times between two local times."""
    place, parsed = ZoneInfo(zone), Cron.parse(cron)
    at: int | None = ms(since, place) - 1
    found = []
    while at is not None and (at := parsed.next_after(at, place)) is not None:
        if at >= ms(until, place):
            break
        found.append(at // 1000)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['cron']} {case['zone']}")
def test_ten_years_are_those_of_another_implementation(case: dict[str, Any]) -> None:
    found = times(case["cron"], case["zone"], "2026-01-01", "2036-01-01")
    # Cronsim begins behind its start.
    start = ms("2026-01-01", ZoneInfo(case["zone"])) // 1000
    found = [each for each in found if each > start]
    assert len(found) == case["count"]
    assert hashlib.sha256(",".join(map(str, found)).encode()).hexdigest() == case["sha256"]


def test_each_day_of_ten_years_has_its_one_fixed_time() -> None:
    """02:30 is lacking on ten days, and comes at 03:00; on ten days it is there twice, and comes once."""
    days = [
        datetime.fromtimestamp(each, BERLIN)
        for each in times("30 2 * * *", "Europe/Berlin", "2026-01-01", "2036-01-01")
    ]
    assert all(b.date() - a.date() == timedelta(days=1) for a, b in pairwise(days))
    moved = [each for each in days if (each.hour, each.minute) != (2, 30)]
    assert [(each.hour, each.minute, each.month) for each in moved] == [(3, 0, 3)] * 10
    doubled = [each for each in days if each.replace(fold=1).utcoffset() != each.utcoffset()]
    assert [each.month for each in doubled if each.hour == 2] == [10] * 10


@pytest.mark.parametrize(
    ("cron", "since", "until", "expected"),
    [
        ("*/30 * * * *", "2026-03-29T01:00", "2026-03-29T04:00", "0:00 0:30 1:00 1:30"),
        ("*/30 2 * * *", "2026-03-29T00:00", "2026-03-30T00:00", ""),
        ("*/30 2 * * *", "2026-10-25T00:00", "2026-10-26T00:00", "0:00 0:30 1:00 1:30"),
        ("15,45 2 * * *", "2026-03-29T00:00", "2026-03-30T00:00", "1:00"),
        ("15,45 2 * * *", "2026-10-25T00:00", "2026-10-26T00:00", "0:15 0:45"),
        ("@hourly", "2026-10-25T01:00", "2026-10-25T04:00", "23:00 0:00 1:00 2:00"),
    ],
)
def test_rules_of_daylight_saving(cron: str, since: str, until: str, expected: str) -> None:
    """In UTC: what follows elapsed time lacks and repeats an hour; what is fixed comes once."""
    found = [
        datetime.fromtimestamp(each, UTC) for each in times(cron, "Europe/Berlin", since, until)
    ]
    assert " ".join(f"{each.hour}:{each.minute:02d}" for each in found) == expected


def test_a_change_of_half_an_hour() -> None:
    """Lord Howe has 01:30 to 02:00 twice; libraries pass over the second one."""
    found = times("30 * * * *", "Australia/Lord_Howe", "2026-04-05T00:45", "2026-04-05T03:00")
    assert [each - found[0] for each in found] == [0, 1800, 5400]


def values(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(sorted).map(lambda both: f"{both[0]}-{both[1]}")
    steps = st.integers(1, 20).map(lambda step: f"*/{step}")
    listed = st.lists(number, min_size=1, max_size=3).map(lambda some: ",".join(map(str, some)))
    return st.one_of(st.just("*"), number.map(str), spans, steps, listed)


@settings(max_examples=40, deadline=None)
@given(
    # Pycron knows no rule for days that are both restricted: one of them is free.
    st.tuples(values(0, 59), values(0, 23), values(1, 28), values(1, 12), st.just("*")),
    st.integers(0, 4_000),
)
def test_the_next_time_matches_and_none_before_it_does(fields: tuple[str, ...], day: int) -> None:
    text = " ".join(fields)
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, minutes=7 * day)
    found = Cron.parse(text).next_after(int(start.timestamp() * 1000), ZoneInfo("UTC"))
    assert found is not None
    at = datetime.fromtimestamp(found / 1000, UTC)
    assert pycron.is_now(text, at)
    minutes = min(int((at - start).total_seconds() // 60), 300)
    between = [at - timedelta(minutes=each) for each in range(1, minutes)]
    assert not any(pycron.is_now(text, each) for each in between)


def test_restricted_days_match_either_or_both() -> None:
    since = ms("2026-01-01T00:00+00:00")
    either, both = (Cron.parse("0 0 13 * FRI", both_days=each) for each in (False, True))
    found = datetime.fromtimestamp((either.next_after(since, UTC) or 0) / 1000, UTC)
    assert found.day == 2
    found = datetime.fromtimestamp((both.next_after(since, UTC) or 0) / 1000, UTC)
    assert (found.day, found.month, found.isoweekday()) == (13, 2, 5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("60 * * * *", "minute: 60 is not within 0-59"),
        ("* 5-99 * * *", "hour: 99 is not within 0-23"),
        ("* * 0 * *", "day of month: 0 is not within 1-31"),
        ("* * * FOO *", "month: 'FOO' is not a number or a name of this field"),
        ("* * * * MON-X", "day of week: 'X' is not"),
        ("* * * 5-2 *", "month: the range 5-2 ends before it begins"),
        ("*/0 * * * *", "minute: a step of 0"),
        ("5/15 * * * *", "minute: a step needs a range: 5-59/15 instead of 5/15"),
        ("1,,2 * * * *", "minute: '' is not understood"),
        ("*-5 * * * *", "minute: '\\*-5' is not understood"),
        ("* * * *", "five fields are needed"),
        ("@often", "@hourly, @daily"),
        ("", "five fields"),
    ],
)
def test_a_bad_expression_is_refused_by_its_field(text: str, why: str) -> None:
    with pytest.raises(CronIllegal, match=why):
        Cron.parse(text)


def test_a_day_that_never_is_has_no_time() -> None:
    assert Cron.parse("0 0 30 2 *").next_after(0, UTC) is None
    leap = Cron.parse("0 0 29 2 MON", both_days=True).next_after(ms("2072-03-01T00:00+00:00"), UTC)
    assert leap == ms("2112-02-29T00:00+00:00")


def plan(**given: Any) -> Plan:
    return Plan.checked(Schedule("S", "T", **given))


def test_intervals_count_from_their_start() -> None:
    every = plan(interval_ms=600_000)
    assert every.next_after(ms("2026-01-01T00:03+00:00")) == ms("2026-01-01T00:10+00:00")
    start, until = ms("2026-01-01T00:07+00:00"), ms("2026-01-01T00:27+00:00")
    every = plan(interval_ms=600_000, start_ms=start, until_ms=until)
    assert every.next_after(0) == start
    assert every.next_after(start) == start + 600_000
    assert every.next_after(until - 1) == until
    assert every.next_after(until) is None


def test_once_at_a_time_and_until() -> None:
    assert plan(at_ms=5_000).next_after(4_999) == 5_000
    assert plan(at_ms=5_000).next_after(5_000) is None
    daily = plan(cron="0 0 * * *", start_ms=10 * DAY_MS, until_ms=11 * DAY_MS)
    assert [daily.next_after(at * DAY_MS) for at in (0, 10, 11)] == [10 * DAY_MS, 11 * DAY_MS, None]


def decided(missed: str, late_ms: int, cron: str = "0 0 * * *") -> FiringDecision:
    """The decision about midnight of the eleventh day, so much later."""
    return plan(cron=cron, missed=missed).decide(10 * DAY_MS, 10 * DAY_MS + late_ms)


@pytest.mark.parametrize(
    ("missed", "late", "fires", "next_day"),
    [
        ("once", 0, True, 11),
        ("all", 0, True, 11),
        ("skip", 0, True, 11),
        ("skip", 60_001, False, 11),
        ("once", 60_001, True, 11),
        ("once", 3 * DAY_MS, True, 14),
        ("all", 3 * DAY_MS, True, 11),
        ("all", 30 * DAY_MS, False, 33),
        ("skip", 3 * DAY_MS, False, 13),
        ("skip", 3 * DAY_MS + 60_001, False, 14),
    ],
)
def test_what_is_done_about_missed_times(
    missed: str, late: int, fires: bool, next_day: int
) -> None:
    assert decided(missed, late) == FiringDecision(fires, next_day * DAY_MS)


def test_all_keeps_the_last_time_however_late() -> None:
    """Of months that were missed the last one comes, though it is more than seven days back."""
    assert decided("all", 100 * DAY_MS, "0 0 11 * *") == FiringDecision(
        False, ms("1970-04-11T00:00+00:00")
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "one of cron, intervalMs and atMs"),
        ({"cron": "* * * * *", "intervalMs": 1_000}, "one of cron"),
        ({"intervalMs": 10}, "intervalMs is a whole number of at least 1000"),
        ({"intervalMs": "soon"}, "intervalMs"),
        ({"cron": "* * * * *", "timeZone": "Mars/Base"}, "time zone 'Mars/Base' is not known"),
        ({"cron": "* * * * *", "timeZone": "../../etc/passwd"}, "time zone"),
        ({"cron": "* * 99 * *"}, "day of month: 99"),
        ({"cron": 5}, "cron is not a text"),
        ({"atMs": 1, "missed": "never"}, "missed is once, all or skip"),
        ({"atMs": 1, "body": "%"}, "body is not base64"),
        ({"atMs": 1, "properties": {"A": 1}}, "properties are not texts"),
        ({"atMs": 1, "properties": {"TIMER_DELAY_SEC": "1"}}, "broker's own"),
        ({"atMs": 1, "tags": "a\x02b"}, "characters 1 and 2"),
        ([], "JSON object"),
    ],
)
def test_a_bad_plan_is_refused(given: Any, why: str) -> None:
    with pytest.raises(ScheduleIllegal, match=why):
        Plan.checked(Schedule.from_json("S", "T", given))


def test_a_plan_is_read_back_as_it_was_written() -> None:
    whole = Schedule(
        "S", "T",
        body=b"\x00x", tags="a", keys="k", properties={"a": "b"}, cron="0 0 * * *", all_match=True,
        time_zone="Europe/Berlin", start_ms=1, until_ms=2, missed="all", owner="me",
    )  # fmt: skip
    assert Schedule.from_json("S", "T", whole.to_json()) == whole
