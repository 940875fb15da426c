"""What one run of the comparison found, before it is printed."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.rows import Row, Sample


@dataclass
class Measured:
    """Samples of one row by broker name, one a round. load: of the machine before the row began."""

    row: Row
    samples: dict[str, list[Sample]]
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def median(self, name: str, value: Callable[[Sample], float | None]) -> float | None:
        """The median over the rounds; None when the row does not have this value."""
        found = [value(sample) for sample in self.samples.get(name, [])]
        known = [each for each in found if each is not None]
        return statistics.median(known) if known else None

    def ratios(
        self, name: str, value: Callable[[Sample], float | None], to: str = "java"
    ) -> list[float]:
        """Each round's ratio to `to`, smallest first: a round's samples lie side by side."""
        pairs = zip(self.samples.get(name, []), self.samples.get(to, []), strict=False)
        ratios: list[float] = []
        for ours, theirs in pairs:
            a, b = value(ours), value(theirs)
            if a is not None and b:
                ratios.append(a / b)
        return sorted(ratios)


@dataclass
class Footprint:
    """What a broker costs at rest: MB of 10**6 bytes, anonymous memory only."""

    start_s: list[float] = field(default_factory=list)
    idle_mb: float = float("nan")
    idle_cpu_share: float = float("nan")
    loaded_mb: float = float("nan")

    @property
    def median_start_s(self) -> float:
        return statistics.median(self.start_s) if self.start_s else float("nan")


@dataclass(frozen=True)
class Growth:
    """PocketMQ with some messages stored. CPU seconds of the broker: to the first acknowledged message, and
    for 100,000 messages."""

    messages: int
    start_s: float
    send_rate: float
    pull_rate: float
    memory_mb: float
    start_cpu: float
    send_cpu: float
    pull_cpu: float


@dataclass
class Results:
    """Everything that the report prints."""

    footprints: dict[str, Footprint]
    java: str = "4.9.7"
    measured: list[Measured] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    # Of the machine when the run began.
    load: float = field(default_factory=lambda: os.getloadavg()[0])
