"""Query filters that the index answers, so that less is read.

They come from Spark itself (PySpark 4.1 and newer), or from `pocketmq.spark.read` by option `conditions`; in
the latter case Spark applies them as well.

Spark drops a filter from the plan if the source does not return it, so only those that are applied exactly
are accepted: equality and IN on topic, brokerName, queueId and tags, ranges of queueOffset and
storeTimestamp.

A reader that simply defines `pushFilters` makes every query fail while
spark.sql.python.filterPushdown.enabled is false, which is the default: Spark compares
`reader.pushFilters.__func__` with the base class's method. `Pushable` carries the base's function under that
name, so Spark takes the reader for one without push-down while the setting is off, and calls it when
it is on.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from pocketmq.bulk.offsets import Bounds
from pocketmq.remoting.errors import IllegalArgument

#: Kinds of conditions that can be answered.
KINDS = (
    "EqualTo", "In", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual",
)  # fmt: skip
_NAMES = ("topic", "brokerName", "queueId", "tags")
_NEVER_NULL = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")
_KAFKA = {
    "topic": "topic",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
}


class Pushable:
    """The value of a reader's `pushFilters` attribute; see the head of the file."""

    def __init__(self, accept: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._accept = accept
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._accept(filters)


@dataclass(frozen=True)
class Pushed:
    """What the accepted filters leave. None: everything. Offsets: low <= o < high; times in ms.

    keys: every wanted message has one of these, but not every message with one is wanted.
    """

    topic: frozenset[Any] | None = None
    brokerName: frozenset[Any] | None = None
    queueId: frozenset[Any] | None = None
    tags: frozenset[Any] | None = None
    keys: frozenset[Any] | None = None
    offset_low: int | None = None
    offset_high: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    def __str__(self) -> str:
        """Return what the index answers, for the log; `none` if nothing."""
        parts = [
            f"{f.name}={sorted(v) if isinstance(v, frozenset) else v}"
            for f in fields(self)
            if (v := getattr(self, f.name)) is not None
        ]
        return " ".join(parts) or "none"

    def as_text(self) -> str:
        """Return it as text for option `conditions`."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps({n: v for n, v in given.items() if v is not None}, default=sorted)

    @classmethod
    def of_text(cls, text: str) -> "Pushed":
        """Parse what as_text() made; an empty text means nothing. Raises: IllegalArgument."""
        try:
            given: dict[str, Any] = dict(json.loads(text or "{}"))
            for name, value in given.items():
                given[name] = frozenset(value) if isinstance(value, list) else value
            return cls(**given)
        except (TypeError, ValueError) as error:
            raise IllegalArgument(
                f"option 'conditions' is set by pocketmq.spark.read alone: use where(), not {text!r}"
            ) from error

    def has(self, topic: str, broker_name: str, queue_id: int) -> bool:
        """Return True if the queue can hold wanted rows."""
        return (
            (self.topic is None or topic in self.topic)
            and (self.brokerName is None or broker_name in self.brokerName)
            and (self.queueId is None or queue_id in self.queueId)
        )

    def narrow(self, bounds: Bounds, start: int, end: int, slack_ms: int) -> tuple[int, int]:
        """Narrow the offsets start <= o < end of a queue.

        slack_ms: how far store times may have gone back in the queue.
        """
        if self.offset_low is not None:
            start = max(start, self.offset_low)
        if self.offset_high is not None:
            end = min(end, self.offset_high)
        if self.start_ms is not None and start < end:
            first = bounds.at_time(self.start_ms - slack_ms)
            start = max(start, bounds.max_offset if first is None else first)
        if self.end_ms is not None and start < end:
            last = bounds.at_time(self.end_ms + slack_ms)
            end = end if last is None else min(end, last)
        return start, end


def accept(
    filters: list[Any], pushed: Pushed, *, kafka: bool, by_index: bool
) -> tuple[Pushed, list[Any]]:
    """Return what can be applied, and the filters that Spark must apply itself.

    pushed: accepted before. by_index: False if queues are unknown before rows are read (stores without
    ConsumeQueue).
    """
    rest: list[Any] = []
    not_null: list[Any] = []
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""
        column = _KAFKA.get(column, "") if kafka else column
        if type(one).__name__ == "IsNotNull":
            not_null.append(one)
            continue
        if not by_index and column not in ("tags", "keys", "storeTimestamp"):
            column = ""
        narrowed = narrow(pushed, type(one).__name__, column, getattr(one, "value", None))
        if narrowed is None or column == "keys":
            rest.append(one)
        pushed = narrowed or pushed
    for one in not_null:
        column = one.attribute[0] if len(one.attribute) == 1 else ""
        column = _KAFKA.get(column, "") if kafka else column
        if column not in _NEVER_NULL and not (column == "tags" and pushed.tags is not None):
            rest.append(one)
    return pushed, rest


def narrow(pushed: Pushed, kind: str, column: str, value: Any) -> Pushed | None:
    """Add a condition `column` `kind` `value`; None if it does not narrow anything."""
    if column == "keys" and kind in ("EqualTo", "In"):
        # The column is all keys of a message, spaces in between.
        texts = [str(v).split(" ") for v in (value if kind == "In" else (value,)) if v is not None]
        keys = frozenset(max(words, key=len) for words in texts)
        if "" in keys or pushed.keys is not None:
            return None
        return replace(pushed, keys=keys)
    if column in _NAMES and kind in ("EqualTo", "In"):
        values = frozenset(value if kind == "In" else (value,)) - {None}
        before = getattr(pushed, column)
        narrowed: dict[str, Any] = {column: values if before is None else before & values}
        return replace(pushed, **narrowed)
    if value is None:
        return None
    if column == "queueOffset" and isinstance(value, int):
        return _bounded(pushed, kind, value, "offset_low", "offset_high")
    if column == "storeTimestamp" and isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone()
        us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
        ms, part = divmod(us, 1000)
        if part and kind == "EqualTo":
            return replace(pushed, start_ms=0, end_ms=0)
        # Stored times are whole milliseconds: a bound inside one moves to the next.
        if part and kind in ("GreaterThanOrEqual", "LessThan"):
            ms += 1
        return _bounded(pushed, kind, ms, "start_ms", "end_ms")
    return None


_MICROSECOND = datetime(1, 1, 1, 0, 0, 0, 1) - datetime(1, 1, 1)


def _bounded(pushed: Pushed, kind: str, value: int, low: str, high: str) -> Pushed | None:
    bounds = {
        "EqualTo": (value, value + 1),
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value + 1),
    }.get(kind)
    if bounds is None:
        return None
    begin, end = bounds
    old_begin, old_end = getattr(pushed, low), getattr(pushed, high)
    if begin is not None and old_begin is not None:
        begin = max(begin, old_begin)
    if end is not None and old_end is not None:
        end = min(end, old_end)
    narrowed: dict[str, Any] = {
        low: old_begin if begin is None else begin,
        high: old_end if end is None else end,
    }
    return replace(pushed, **narrowed)
