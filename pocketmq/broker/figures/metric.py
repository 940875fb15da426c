"""Metric: one row of the tables of metrics, and its samples."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker

# Samples, or counters to sum, that are looked at in one turn of the event loop.
PIECE = 1_024

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, in their order, and the figure."""


class Spread(NamedTuple):
    """A histogram sample. bounds: the upper bound of each count; counts has one more, for the rest."""

    values: tuple[str, ...]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the tables.

    name: as exported: counters with _total. unit: RocketMQ's word for it ("milliseconds", "bytes").
    RocketMQ's Prometheus text carries the unit in the name from 5.3 on, and did not before: both names are
    exported. read: the samples, labels in the order of `labels`; spread: those of a histogram.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...]
    read: "Callable[[Broker], Iterable[Sample | None]]"
    unit: str = ""
    spread: "Callable[[Broker], Iterable[Spread | None]] | None" = None

    @property
    def shown_names(self) -> tuple[str, ...]:
        """Return its names in Prometheus' text."""
        if not self.unit or self.name.endswith(f"_{self.unit}"):
            return (self.name,)
        return (self.name, f"{self.name}_{self.unit}")
