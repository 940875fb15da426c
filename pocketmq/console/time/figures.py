"""Figures: what came of the sampler's samples, and how handlers see it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pocketmq.console.time.history import History
from pocketmq.model.diagnosis import Symptom


@dataclass(slots=True)
class Counter:
    """Counters of one thing (e.g. its queues') at the last look, and their rate since the look before.

    Only those in both looks count: a broker that comes back causes no jump.
    """

    at_ms: int
    values: dict[Hashable, int]
    rate: float | None = None

    def look(self, at_ms: int, values: dict[Hashable, int]) -> None:
        if at_ms > self.at_ms:
            old = self.values
            more = sum(max(0, new - old[key]) for key, new in values.items() if key in old)
            self.rate = more * 1_000 / (at_ms - self.at_ms)
            self.at_ms, self.values = at_ms, values


@dataclass(slots=True)
class GroupFigures:
    """The last look at a group.

    members: None if that was not queried. lag_of: by topic. latency_ms: how long the next message has
    waited in the queue with the greatest lag; None if unknown. out: consumed per second, by topic.
    """

    lag: int = 0
    members: int | None = None
    clients: tuple[str, ...] = ()
    lag_of: dict[str, int] = field(default_factory=dict)
    latency_ms: int | None = 0
    out: dict[str, float] = field(default_factory=dict)
    counters: dict[str, Counter] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return sum(self.out.values())


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The last look at a topic. rate: messages a second; size: about how many bytes its messages take; today:
    messages stored since midnight, by broker.
    """

    rate: float
    messages: int
    queues: int
    size: int | None
    today: Mapping[str, int] | None


@dataclass(slots=True)
class Sample:
    """The result of one sample. at_ms: wall time; failure: why the name servers did not answer."""

    at_ms: int = 0
    brokers: list[dict[str, Any]] = field(default_factory=list)
    findings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    topic_count: int = 0
    group_count: int = 0
    failure: str | None = None


class Figures(Protocol):
    """What came of the samples, for handlers: all of it, or what one user may see."""

    @property
    def last(self) -> Sample: ...
    @property
    def topics(self) -> dict[str, TopicFigures]: ...
    @property
    def groups(self) -> dict[str, GroupFigures]: ...
    @property
    def symptoms(self) -> dict[str, list[Symptom]]: ...
    @property
    def history(self) -> History: ...
    @property
    def may_lose(self) -> set[str]: ...
    async def fresh(self) -> Sample:
        """See Sampler."""
        ...

    async def next(self) -> Sample:
        """See Sampler."""
        ...

    async def sample(self) -> None:
        """See Sampler."""
        ...

    def saw(self, name: str, symptoms: list[Symptom]) -> None:
        """See Sampler."""
        ...

    def totals(self) -> dict[str, Any]:
        """See Sampler."""
        ...

    def topic_figures(self) -> dict[str, dict[str, float | None]]:
        """See Sampler."""
        ...

    def topic_rates(self) -> dict[str, dict[str, float]]:
        """See Sampler."""
        ...


def totals_of(
    last: Sample,
    topics: Mapping[str, TopicFigures],
    groups: Mapping[str, GroupFigures],
    *,
    is_whole: bool = False,
) -> dict[str, Any]:
    """Return `rates` and `totals` of the overview for these topics and groups.

    is_whole: they are all that there are, so that the sums are those of the brokers' own figures.
    """
    masters = [each for each in last.brokers if each["brokerId"] == 0]
    went = sum(each.rate for each in groups.values())
    came = sum(each.rate for each in topics.values())
    today = [None if each.today is None else sum(each.today.values()) for each in topics.values()]
    if is_whole:
        came = sum(each["in"] or 0 for each in masters)
        today = [each["inToday"] for each in masters if each["reachable"]]

    def total(figure: str) -> float:
        return sum(each[figure] or 0 for each in masters)

    return {
        "rates": {"in": round(came, 2), "out": round(went, 2)},
        "totals": {
            "inToday": None if None in today else sum(each or 0 for each in today),
            "deliveredToday": total("deliveredToday"),
            "lag": sum(each.lag for each in groups.values()),
            "latencyMs": max((each.latency_ms or 0 for each in groups.values()), default=0),
        },
    }
