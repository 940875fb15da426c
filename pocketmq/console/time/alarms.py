"""Alarms: rules about groups, from a TOML file, and which of them are active. No I/O here.

    [[alarm]]
    name = "orders are late"                  # its name; the group's pattern unless given
    group = "orders-*"                        # * and ? stand for any characters
    lag = 10_000                              # the lag is greater than this
    waiting_s = 300                           # the next message has waited longer than this
    members = 2                               # fewer members online than this
    symptoms = ["DEAD_LETTERS", "FAILING"]    # what `pocketmq group doctor` finds; ["*"] is any of it
    for_s = 60                                # must hold that long first; 0 unless given
    again_s = 3600                            # repeated that often while it holds; 0, never, unless given
    url = "https://hooks.example/pocketmq"    # where a POST of JSON goes (alarm_hook)
    headers = { Authorization = "Bearer ..." }

1. An alarm is raised when one of its figures is beyond the limit for `for_s`, and resolved when none is; both
   are notified. Unknown figures (a member count that no broker reported) neither raise nor resolve.
2. A deleted group resolves its alarms. A sample in which no broker answered changes nothing.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from pocketmq.remoting.errors import IllegalArgument

RULES_MAX = 100
ANY = "*"
_LIMITS = ("lag", "waiting_s", "members")


@dataclass(frozen=True, slots=True)
class Rule:
    """One table of the file. None: this figure is not checked."""

    name: str
    group: str
    url: str = field(repr=False)
    lag: int | None = None
    waiting_s: int | None = None
    members: int | None = None
    symptoms: tuple[str, ...] = ()
    for_s: int = 0
    again_s: int = 0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def reasons(self, facts: "AlarmFacts") -> list[dict[str, Any]] | None:
        """Return what is beyond its limit; None if nothing is, and not everything needed is known."""
        found: list[dict[str, Any]] = []
        unknown = False
        waiting_s = None if facts.waiting_ms is None else facts.waiting_ms // 1_000
        for figure, value, limit, sign in (
            ("lag", facts.lag, self.lag, 1),
            ("waiting_s", waiting_s, self.waiting_s, 1),
            ("members", facts.members, self.members, -1),
        ):
            if limit is None:
                continue
            if value is None:
                unknown = True
            elif sign * value > sign * limit:
                found.append({"figure": figure, "value": value, "limit": limit})
        if self.symptoms:
            unknown |= facts.symptoms is None
            found += [
                {"figure": "symptom", "value": each, "limit": None}
                for each in facts.symptoms or ()
                if ANY in self.symptoms or each in self.symptoms
            ]
        return found or (None if unknown else [])


@dataclass(frozen=True, slots=True)
class AlarmFacts:
    """What is known of a group. None: not known."""

    lag: int | None = None
    waiting_ms: int | None = None
    members: int | None = None
    symptoms: Sequence[str] | None = None


@dataclass(slots=True)
class Alarm:
    """A rule that holds for a group. since_ms, told_ms: wall time; told_ms None: not raised yet."""

    rule: Rule
    group: str
    since_ms: int
    reasons: list[dict[str, Any]]
    told_ms: int | None = None

    def notice(self, status: str, at_ms: int) -> dict[str, Any]:
        """Return the notice to send. status: raised, again or resolved."""
        return {
            "status": status,
            "alarm": self.rule.name,
            "group": self.group,
            "since": self.since_ms,
            "at": at_ms,
            "reasons": self.reasons,
        }


class Alarms:
    """Owner of the state of all rules."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._held: dict[tuple[str, str], Alarm] = {}

    def replace(self, rules: Iterable[Rule]) -> None:
        """Replace the rules; alarms of unchanged rules stay raised."""
        self.rules = tuple(rules)
        kept = {each.name: each for each in self.rules}
        self._held = {
            key: alarm for key, alarm in self._held.items() if kept.get(key[0]) == alarm.rule
        }

    @property
    def held(self) -> list[Alarm]:
        return sorted(self._held.values(), key=lambda each: (each.since_ms, each.group))

    def look(
        self, at_ms: int, groups: Mapping[str, AlarmFacts]
    ) -> list[tuple[Rule, dict[str, Any]]]:
        """Return the notices due now, with their rules."""
        told: list[tuple[Rule, dict[str, Any]]] = []
        for rule in self.rules:
            names = {name for name in groups if fnmatchcase(name, rule.group)}
            names.update(group for name, group in self._held if name == rule.name)
            for group in sorted(names):
                facts = groups.get(group)
                reasons = [] if facts is None else rule.reasons(facts)
                status = None if reasons is None else self._step(rule, group, reasons, at_ms)
                if status is not None:
                    alarm = self._held[rule.name, group]
                    told.append((rule, alarm.notice(status, at_ms)))
                    if status == "resolved":
                        del self._held[rule.name, group]
        return told

    def _step(
        self, rule: Rule, group: str, reasons: list[dict[str, Any]], at_ms: int
    ) -> str | None:
        """Process one sample (invariant 1); return the notice's status, if any."""
        alarm = self._held.get((rule.name, group))
        if not reasons:
            if alarm is not None and alarm.told_ms is None:
                del self._held[rule.name, group]
            return "resolved" if alarm is not None and alarm.told_ms is not None else None
        if alarm is None:
            alarm = self._held[rule.name, group] = Alarm(rule, group, at_ms, reasons)
        alarm.reasons = reasons
        # A clock that went back must not hold an alarm up.
        alarm.since_ms = min(alarm.since_ms, at_ms)
        if alarm.told_ms is None:
            if at_ms - alarm.since_ms < rule.for_s * 1_000:
                return None
            alarm.told_ms = at_ms
            return "raised"
        alarm.told_ms = min(alarm.told_ms, at_ms)
        if not rule.again_s or at_ms - alarm.told_ms < rule.again_s * 1_000:
            return None
        alarm.told_ms = at_ms
        return "again"


# ------------------------------------------------------------ the file


def parse_rules(text: str) -> list[Rule]:
    """Parse the file. Raises: IllegalArgument that names the alarm and what is wrong with it."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise IllegalArgument(f"it is not TOML: {error}") from error
    rows = tables.pop("alarm", [])
    if tables or not isinstance(rows, list) or len(rows) > RULES_MAX:
        raise IllegalArgument(f"it holds up to {RULES_MAX} tables [[alarm]] and nothing else")
    rules = [_rule(row, number) for number, row in enumerate(rows, 1)]
    names = [each.name for each in rules]
    for name in names:
        if names.count(name) > 1:
            raise IllegalArgument(f"two alarms are called {name!r}: give each another name")
    return rules


_TEXTS = ("name", "group", "url")
_NUMBERS = (*_LIMITS, "for_s", "again_s")


def _rule(row: Mapping[str, Any], number: int) -> Rule:
    def wrong(what: str) -> IllegalArgument:
        return IllegalArgument(f"alarm {number}: {what}")

    unknown = row.keys() - {*_TEXTS, *_NUMBERS, "symptoms", "headers"}
    if unknown:
        raise wrong(f"there is no key {min(unknown)!r}")
    for name in _TEXTS:
        if not isinstance(row.get(name, "x"), str) or row.get(name, "x") == "":
            raise wrong(f"{name} must be a text")
    for name in _NUMBERS:
        value = row.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise wrong(f"{name} must be a whole number from 0 on")
    symptoms, headers = row.get("symptoms", []), row.get("headers", {})
    if not isinstance(symptoms, list) or not all(isinstance(each, str) for each in symptoms):
        raise wrong("symptoms must be a list of texts")
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise wrong("headers must be a table of texts")
    if "group" not in row or "url" not in row:
        raise wrong("it needs a group and a url")
    if urlsplit(row["url"]).scheme not in ("http", "https") or not urlsplit(row["url"]).hostname:
        raise wrong("url must begin with http:// or https:// and name a host")
    if not symptoms and not any(name in row for name in _LIMITS):
        raise wrong(f"it watches nothing: set {', '.join(_LIMITS)} or symptoms")
    rest = {key: row[key] for key in row.keys() - {"name", "symptoms"}}
    return Rule(row.get("name", row["group"]), symptoms=tuple(symptoms), **rest)
