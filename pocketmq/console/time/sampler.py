"""Sampler: samples the cluster every few seconds, for the overview and the charts.

1. Brokers are queried in every sample. Topics and groups, of which there may be thousands, take turns: at
   most LOOKS_MAX of each per sample, and only every IDLE_STEPS samples without a watcher.
2. Rates are those of admin.rates, and a broker's is the sum of its topics'. Where brokers do not count what a
   group has consumed, its rate is the difference of offsets between two looks, never below 0: an offset that
   went back was reset; a queue that was not seen the last time does not count.
3. Groups are examined (admin.checkup) beside the samples, CHECKS_MAX at a time in turns: this asks members,
   and a hanging one must not delay the figures.
4. A missing answer is a finding, not a failure: a sample is always made.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any

from pocketmq.admin import Admin, ClusterBroker
from pocketmq.admin.checkup import check_group, thresholds
from pocketmq.admin.rates import consumed_rate, stored_rate
from pocketmq.admin.views.broker import broker_view
from pocketmq.admin.views.group import lag_of
from pocketmq.admin.views.topic import count_of, kind_of_topic, mean_size, own_names
from pocketmq.admin.waiting import waiting_ms
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.console.errors import in_words
from pocketmq.console.time.figures import Counter, GroupFigures, Sample, TopicFigures, totals_of
from pocketmq.console.time.history import History, SeriesKind
from pocketmq.console.time.today import Today
from pocketmq.model.diagnosis import Symptom, Thresholds
from pocketmq.model.names import is_system_group
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

LOOKS_MAX = 40
CHECKS_MAX = 4
IDLE_STEPS = 5
SIZE_STEPS = 50
STALE_INTERVALS = 10
_WATCHED_MS = 60_000
_BREATH_MS = 100
_CLUSTER = "cluster"

_LOSE = frozenset(("GROUP_DIFFERS", "MESSAGES_LOST"))


class Sampler:
    """Owner of the last sample, the figures of topics and groups, and the history."""

    def __init__(self, admin: Admin, clock: Clock, history: History) -> None:
        self._admin = admin
        self._clock = clock
        self.interval_ms = history.interval_ms
        self.history = history
        self.today = Today(admin, clock)
        self.last = Sample()
        self.topics: dict[str, TopicFigures] = {}
        self.groups: dict[str, GroupFigures] = {}
        self.symptoms: dict[str, list[Symptom]] = {}
        # Groups whose members differed, or whose balance someone looked at. A broker keeps a balance from the
        # first question on, so it is not asked about others.
        self.may_lose: set[str] = set()
        self._turns: dict[str, OrderedDict[str, None]] = {
            "topics": OrderedDict(),
            "groups": OrderedDict(),
            "checks": OrderedDict(),
        }
        self._step = 0
        self._watched_ms: int | None = None
        self._lock = asyncio.Lock()
        self._sampled = asyncio.Event()

    # ------------------------------------------------------------ being asked

    async def run(self) -> None:
        """Sample and examine until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again(self.sample, self.interval_ms), name="samples")
            tasks.create_task(self._again(self._check, _BREATH_MS), name="checkups")

    async def _again(self, look: Callable[[], Awaitable[None]], pause_ms: int) -> None:
        """Repeat `look`; an unexpected error is logged, and the next look follows."""
        while True:
            try:
                await look()
            except Exception:
                log.exception("cannot sample the cluster; the next round tries again")
            await asyncio.sleep(pause_ms / 1_000)

    async def fresh(self) -> Sample:
        """Return the last sample, or a new one if that is old or was not watched; marks it as watched.

        While a broker hangs, a sample takes as long as its time-outs: watchers get the last one meanwhile
        instead of waiting.
        """
        was_watched = self._is_watched()
        self._watched_ms = self._clock.monotonic_ms()
        age_ms = self._clock.now_ms() - self.last.at_ms
        if not was_watched or not 0 <= age_ms <= STALE_INTERVALS * self.interval_ms:
            await self.sample()
        return self.last

    async def next(self) -> Sample:
        """Wait for the next sample; marks it as watched."""
        self._watched_ms = self._clock.monotonic_ms()
        await self._sampled.wait()
        return self.last

    async def sampled(self) -> None:
        """Wait for the next sample, without counting as a watcher."""
        await self._sampled.wait()

    def wake(self) -> None:
        """End every wait for the next sample: the console closes."""
        self._sampled.set()

    def _is_watched(self) -> bool:
        return (
            self._watched_ms is not None
            and self._clock.monotonic_ms() - self._watched_ms < _WATCHED_MS
        )

    # ------------------------------------------------------------ sampling

    async def sample(self) -> None:
        """Sample once (invariant 4); a concurrent caller waits for the first one's sample."""
        before = self.last.at_ms
        async with self._lock:
            if self.last.at_ms != before:
                return
            self.last = await self._look()
            self._remember()
        event, self._sampled = self._sampled, asyncio.Event()
        event.set()

    async def _look(self) -> Sample:
        sample = Sample(self._clock.now_ms())
        try:
            brokers = await self._admin.brokers()
            names = await self._admin.topics.names()
        except PocketMQError as error:
            sample.failure = str(error)
            return sample
        async with asyncio.TaskGroup() as tasks:
            looks = [tasks.create_task(self._broker(each)) for each in brokers]
            findings = tasks.create_task(self._findings(brokers))
        sample.findings = findings.result()
        sample.brokers = [each.result() for each in looks]
        for summary in sample.brokers:
            summary["isPocketMq"] = summary["broker"] in sample.findings
        own = own_names(brokers)
        sample.topic_count = sum(kind_of_topic(each, None, own) == "NORMAL" for each in names)
        sample.group_count = self.last.group_count
        broad = self._is_watched() or self._step % IDLE_STEPS == 0
        self._step += 1
        if broad and brokers:
            sample.group_count = await self._look_at_groups(brokers)
            await self._look_at_topics(set(names) - own)
        for summary in sample.brokers:
            name = summary["broker"]
            summary["inToday"] = self._today(name, sample) if summary["reachable"] else None
        return sample

    def _today(self, broker: str, sample: Sample) -> int | None:
        """Return what a broker's topics have stored since midnight; None before each has been looked at."""
        counts = [each.today for each in self.topics.values() if each.today is not None]
        if len(counts) < sample.topic_count:
            return None
        return sum(each.get(broker, 0) for each in counts)

    async def _findings(self, brokers: Sequence[ClusterBroker]) -> dict[str, list[dict[str, Any]]]:
        try:
            return await self._admin.doctor.groups() if brokers else {}
        except PocketMQError:
            return {}

    async def _broker(self, broker: ClusterBroker) -> dict[str, Any]:
        """Return BrokerSummary of API.md, except for isPocketMq."""
        summary: dict[str, Any] = {
            "cluster": broker.cluster,
            "broker": broker.name,
            "brokerId": broker.broker_id,
            "address": broker.address,
            "role": "SLAVE" if broker.broker_id else "MASTER",
            "reachable": True,
            "error": None,
        }
        asked_ms = self._clock.monotonic_ms()
        view = await broker_view(self._admin, broker)
        summary.update(view.figures, latencyMs=self._clock.monotonic_ms() - asked_ms)
        if view.failure is not None:
            summary.update(latencyMs=None, reachable=False, error=in_words(view.failure))
            return summary
        for figure in ("in", "delivered"):
            summary[figure] = round(summary[figure], 2)
        return summary

    async def _look_at_groups(self, brokers: Iterable[ClusterBroker]) -> int:
        names: set[str] = set()
        for broker in brokers:
            if broker.broker_id == 0:
                try:
                    found = await self._admin.groups.configs(broker=broker.name)
                except PocketMQError:
                    continue
                names.update(*found.values())
        wanted = {name for name in names if not is_system_group(name)}
        for name in self.groups.keys() - wanted:
            del self.groups[name]
        for name in self._turn("groups", wanted):
            await self._group(name)
        return len(wanted)

    async def _group(self, name: str) -> None:
        try:
            rows = await self._admin.groups.progress(name, partial=True)
        except PocketMQError:
            return
        now_ms = self._clock.monotonic_ms()
        figures = self.groups.setdefault(name, GroupFigures())
        figures.lag = lag_of(rows)
        figures.latency_ms = await waiting_ms(self._admin, rows)
        consumed: dict[str, dict[Hashable, int]] = {}
        figures.lag_of = {}
        for row in rows:
            topic = row.queue.topic
            consumed.setdefault(topic, {})[row.queue] = row.consumer_offset
            figures.lag_of[topic] = figures.lag_of.get(topic, 0) + row.lag
        rates = await asyncio.gather(
            *(consumed_rate(self._admin, name, topic) for topic in consumed)
        )
        counters, figures.counters, figures.out = figures.counters, {}, {}
        for (topic, values), rate in zip(consumed.items(), rates, strict=True):
            counter = figures.counters[topic] = counters.get(topic) or Counter(now_ms, values)
            counter.look(now_ms, values)
            figures.out[topic] = (counter.rate or 0.0) if rate is None else rate
        try:
            members = (await self._admin.groups.connection(name)).members
            figures.members = len(members)
            figures.clients = tuple(each.client_id for each in members)
        except ConsumerNotOnline:
            figures.members, figures.clients = 0, ()
        except PocketMQError:
            figures.members = None

    async def _check(self) -> None:
        """After a sample, examine the groups whose turn it is (invariant 3)."""
        await self._sampled.wait()
        names = set(self.groups)
        for name in self.symptoms.keys() - names:
            del self.symptoms[name]
        self.may_lose &= names
        chosen = self._turn("checks", names, CHECKS_MAX)
        if not chosen:
            return
        try:
            limits = await thresholds(self._admin)
        except PocketMQError:
            return
        await asyncio.gather(*(self._check_one(name, limits) for name in chosen))

    async def _check_one(self, name: str, limits: Thresholds) -> None:
        try:
            found = await check_group(self._admin, name, limits, with_lost=name in self.may_lose)
        except PocketMQError:
            self.symptoms.pop(name, None)
            return
        self.saw(name, found.symptoms)

    def saw(self, name: str, symptoms: list[Symptom]) -> None:
        """Keep what was found of a group."""
        self.symptoms[name] = symptoms
        if any(each.kind in _LOSE for each in symptoms):
            self.may_lose.add(name)

    async def _look_at_topics(self, names: Iterable[str]) -> None:
        wanted = {name for name in names if kind_of_topic(name) == "NORMAL"}
        for name in self.topics.keys() - wanted:
            del self.topics[name]
        for name in self._turn("topics", wanted):
            try:
                rows = await self._admin.topics.status(name, partial=True)
            except PocketMQError:
                continue
            rate = await stored_rate(self._admin, name)
            count = count_of(rows)
            old = self.topics.get(name)
            mean = old.size / old.messages if old and old.size and old.messages else None
            # Asked again now and then: messages change slowly, and so does their mean size.
            if mean is None or self._step % SIZE_STEPS == 0:
                mean = await mean_size(self._admin, rows)
            size = None if mean is None else round(mean * count)
            today = await self.today.by_broker(name, rows)
            self.topics[name] = TopicFigures(rate or 0.0, count, len(rows), size, today)

    def _turn(self, what: str, names: set[str], count: int = LOOKS_MAX) -> list[str]:
        """Return whose turn it is (invariant 1): those that waited longest."""
        turns = self._turns[what]
        for name in turns.keys() - names:
            del turns[name]
        for name in sorted(names - turns.keys()):
            turns[name] = None
        chosen = list(turns)[:count]
        for name in chosen:
            turns.move_to_end(name)
        return chosen

    # ------------------------------------------------------------ what came of it

    def totals(self) -> dict[str, Any]:
        """Return `rates` and `totals` of the overview: sums over the masters that answered."""
        return totals_of(self.last, self.topics, self.groups, is_whole=True)

    def topic_figures(self) -> dict[str, dict[str, float | None]]:
        """Return all figures of each sampled topic."""
        return {
            name: {**rates, **_held(self.topics[name])}
            for name, rates in self.topic_rates().items()
        }

    def topic_rates(self) -> dict[str, dict[str, float]]:
        """Return in, out and lag (over all groups) of each sampled topic."""
        out: dict[str, float] = {}
        lag: dict[str, int] = {}
        for group in self.groups.values():
            for topic, rate in group.out.items():
                out[topic] = out.get(topic, 0.0) + rate
                lag[topic] = lag.get(topic, 0) + group.lag_of.get(topic, 0)
        return {
            topic: {
                "in": round(figures.rate, 2),
                "out": round(out.get(topic, 0.0), 2),
                "lag": lag.get(topic, 0),
            }
            for topic, figures in self.topics.items()
        }

    def _remember(self) -> None:
        sums = self.totals()
        lag, latency = sums["totals"]["lag"], sums["totals"]["latencyMs"]
        self.history.add(
            self.last.at_ms,
            {
                SeriesKind.CLUSTER: {_CLUSTER: {**sums["rates"], "lag": lag, "latency": latency}},
                SeriesKind.BROKERS: {
                    each["broker"]: {
                        "in": each["in"],
                        "out": each["delivered"],
                        "latency": each["latencyMs"],
                    }
                    for each in self.last.brokers
                    if each["brokerId"] == 0 and each["reachable"]
                },
                SeriesKind.TOPICS: self.topic_rates(),
                SeriesKind.GROUPS: {
                    name: {
                        "lag": figures.lag,
                        "out": figures.rate,
                        "latency": math.nan if figures.latency_ms is None else figures.latency_ms,
                    }
                    for name, figures in self.groups.items()
                },
            },
        )


def _held(figures: TopicFigures) -> dict[str, float | None]:
    return {"messages": figures.messages, "bytes": figures.size, "queues": figures.queues}
