"""History: rates and lag of the last hour, for the charts. Bounded: rings of 4-byte floats.

1. All rings have the same times: a name that has no value at a sample has NaN there (None outside).
2. At most SERIES_MAX names of a kind are kept; the one that was longest without activity makes room.
"""

import math
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

SPAN_MS = 3_600_000
SERIES_MAX = 64


class Kind(StrEnum):
    """What a series is about."""

    CLUSTER = "cluster"
    BROKERS = "brokers"
    TOPICS = "topics"
    GROUPS = "groups"


FIGURES: Mapping[Kind, tuple[str, ...]] = {
    Kind.CLUSTER: ("in", "out", "lag"),
    Kind.BROKERS: ("in", "out"),
    Kind.TOPICS: ("in", "out"),
    Kind.GROUPS: ("lag", "out"),
}


class History:
    """Owner of the rings."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._points_max = max(2, SPAN_MS // interval_ms)
        self._times: deque[int] = deque(maxlen=self._points_max)
        self._count = 0
        self._series: dict[Kind, OrderedDict[str, dict[str, array[float]]]] = {
            kind: OrderedDict() for kind in Kind
        }

    def add(self, at_ms: int, values: Mapping[Kind, Mapping[str, Mapping[str, float]]]) -> None:
        """One sample: kind -> name -> figure -> value."""
        slot = self._count % self._points_max
        self._times.append(at_ms)
        self._count += 1
        for kind, table in self._series.items():
            new = values.get(kind, {})
            for name, figures in new.items():
                self._keep(table, kind, name, active=any(figures.values()))
            for name, rings in table.items():
                found = new.get(name, {})
                for figure, ring in rings.items():
                    ring[slot] = found.get(figure, math.nan)

    def _keep(
        self,
        table: OrderedDict[str, dict[str, "array[float]"]],
        kind: Kind,
        name: str,
        *,
        active: bool,
    ) -> None:
        if name in table:
            if active:
                table.move_to_end(name)
            return
        if len(table) >= SERIES_MAX:
            if not active:
                return
            table.popitem(last=False)
        table[name] = {
            figure: array("f", [math.nan]) * self._points_max for figure in FIGURES[kind]
        }

    def view(self, kind: Kind, name: str | None, since_ms: int, count_max: int) -> dict[str, Any]:
        """As API.md describes it; without a name the `count_max` most recently active ones."""
        times = [at for at in self._times if at > since_ms]
        table = self._series[kind]
        names = [name] if name is not None else list(table)[-count_max:]
        return {
            "intervalMs": self.interval_ms,
            "times": times,
            "series": [
                {
                    "name": each,
                    "values": {
                        figure: self._last(ring, len(times)) for figure, ring in table[each].items()
                    },
                }
                for each in names
                if each in table
            ],
        }

    def _last(self, ring: "array[float]", count: int) -> list[float | None]:
        found: list[float | None] = []
        for index in range(self._count - count, self._count):
            value = ring[index % self._points_max]
            found.append(None if math.isnan(value) else round(value, 3))
        return found
