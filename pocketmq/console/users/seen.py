"""SeenFigures: the sampler's figures without what a user's policies do not show."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pocketmq.console.time.figures import (
    Figures,
    GroupFigures,
    Sample,
    TopicFigures,
    totals_of,
)
from pocketmq.console.time.history import History
from pocketmq.console.users.sight import Sight
from pocketmq.model.diagnosis import Symptom


class SeenFigures:
    """As Figures, for one sight."""

    def __init__(self, whole: Figures, sight: Sight) -> None:
        self._whole = whole
        self._sight = sight

    @property
    def history(self) -> History:
        return self._whole.history

    @property
    def may_lose(self) -> set[str]:
        return self._whole.may_lose

    @property
    def last(self) -> Sample:
        last = self._whole.last
        if not self._sight.cluster:
            last = replace(last, brokers=[], topic_count=len(self.topics))
        findings = {
            broker: [each for each in found if self._sight.group(each["group"])]
            for broker, found in last.findings.items()
        }
        return replace(last, findings=findings, group_count=len(self.groups))

    @property
    def topics(self) -> dict[str, TopicFigures]:
        return {name: each for name, each in self._whole.topics.items() if self._sight.topic(name)}

    @property
    def groups(self) -> dict[str, GroupFigures]:
        """Return those of the groups that are seen, with the topics that are."""
        return {
            name: _of_topics(each, {topic for topic in each.lag_of if self._sight.topic(topic)})
            for name, each in self._whole.groups.items()
            if self._sight.group(name)
        }

    @property
    def symptoms(self) -> dict[str, list[Symptom]]:
        return {
            name: each for name, each in self._whole.symptoms.items() if self._sight.group(name)
        }

    async def fresh(self) -> Sample:
        """See Sampler.fresh."""
        await self._whole.fresh()
        return self.last

    async def next(self) -> Sample:
        """See Sampler.next."""
        await self._whole.next()
        return self.last

    async def sample(self) -> None:
        """See Sampler.sample."""
        await self._whole.sample()

    def saw(self, name: str, symptoms: list[Symptom]) -> None:
        """See Sampler.saw; what a user may not see whole is not kept for the others."""

    def totals(self) -> dict[str, Any]:
        """See Sampler.totals."""
        return totals_of(self.last, self.topics, self.groups)

    def topic_figures(self) -> dict[str, dict[str, float | None]]:
        """See Sampler.topic_figures."""
        seen = self.topics
        return {name: each for name, each in self._whole.topic_figures().items() if name in seen}

    def topic_rates(self) -> dict[str, dict[str, float]]:
        """See Sampler.topic_rates."""
        seen = self.topics
        return {name: each for name, each in self._whole.topic_rates().items() if name in seen}


def _of_topics(figures: GroupFigures, seen: Collection[str]) -> GroupFigures:
    """Return a group's figures; its lag in topics that are not seen is still its lag."""
    return replace(
        figures,
        lag_of={name: lag for name, lag in figures.lag_of.items() if name in seen},
        out={name: rate for name, rate in figures.out.items() if name in seen},
    )
