"""Metrics of unhealthy groups: the symptoms of `pocketmq group doctor`, as far as a broker knows.

The rules and the words are those of model.diagnosis. Facts that only members know (their queues, whether they
are stuck) are as of their last reports (groups.member_reports), which a scrape requests.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from pocketmq.broker.figures.lags import GroupLag
from pocketmq.broker.figures.metric import PIECE, Metric, Sample
from pocketmq.broker.figures.stats import SNDBCK_PUT_NUMS
from pocketmq.broker.groups.member_reports import Report
from pocketmq.model.balance import State
from pocketmq.model.diagnosis import GroupFacts, MemberFacts, TopicFacts, diagnose
from pocketmq.model.names import dlq_topic, is_group_topic, is_system_group, retry_topic

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker


# Groups, or topics of one, that are looked at in one turn of the event loop.
_PIECE = 64


def symptoms(broker: "Broker") -> Iterator[Sample | None]:
    """Yield 1 for each current symptom of a group."""
    broker.parts.reports.want()
    limits = broker.config.thresholds
    lags: dict[str, dict[str, GroupLag]] = {}
    rows = broker.parts.lags.rows
    for number, (group, topic) in enumerate(list(rows)):
        if not number % PIECE:
            yield None
        row = rows.get((group, topic))
        if row is not None:
            lags.setdefault(group, {})[topic] = row
    for number, group in enumerate(list(broker.parts.tables.groups.groups)):
        # What is left of a piece does not add up over groups.
        if group in lags or not number % _PIECE:
            yield None
        if not is_system_group(group):
            facts = yield from _facts(broker, group, lags.get(group, {}))
            for each in diagnose(facts, limits):
                yield (group, each.topic or "", each.kind, each.severity.value), 1


def _facts(
    broker: "Broker", group: str, lags: dict[str, GroupLag]
) -> Generator[None, None, GroupFacts]:
    online = broker.parts.members.consumers.get(group)
    config = broker.parts.tables.groups.get(group)
    topics = [name for name in sorted(lags) if not is_group_topic(name)]
    here = [broker.config.broker_name]
    members = online.client_ids() if online is not None else []
    is_shared = online is not None and online.is_shared
    reports = broker.parts.reports.by_group.get(group, {})
    dead, retries = dlq_topic(group), retry_topic(group)
    found, sent_back, in_hour = [], 0, 0
    for number, name in enumerate(topics, 1):
        found.append(_topic(broker, group, name, lags[name].count, here))
        stats, key = broker.parts.messages.stats, f"{name}@{group}"
        sent_back += stats.minute(SNDBCK_PUT_NUMS, key).sum
        in_hour += stats.hour_sum(SNDBCK_PUT_NUMS, key)
        if not number % _PIECE:
            yield
    return GroupFacts(
        group,
        [reports[each].facts if each in reports else MemberFacts(each) for each in members],
        not is_shared and (online is None or online.message_model != "BROADCASTING"),
        found,
        broker.parts.members.guard.findings(group),
        sent_back,
        in_hour,
        _count(broker, dead),
        here if config is not None and not config.consume_enable else [],
        _unread(lags, reports.values()) if not is_shared and reports.keys() == set(members) else 0,
        lags[retries].count if retries in lags else 0,
        None if members else _offline_ms(broker, group, lags),
        max((row.age_ms(broker.clock.now_ms()) for row in lags.values()), default=0),
        config is not None and config.reads_batches,
        {row.topic: row.of(State.LOST) for row in broker.parts.balances.rows.get(group, ())},
    )


def _offline_ms(broker: "Broker", group: str, lags: dict[str, GroupLag]) -> int | None:
    """Return for how long a group has had no member; as far as is known, None if nothing is.

    Before a start of the broker the newest message that it has consumed tells.
    """
    since_ms = broker.parts.members.consumers.offline_since.get(group, 0)
    store = broker.parts.messages.store
    for topic, row in lags.items():
        for queue_id, offset in row.offsets.items():
            if not since_ms and offset > 0 and store.is_open(topic, queue_id):
                since_ms = max(since_ms, store.store_time_at(topic, queue_id, offset - 1))
    return max(0, broker.clock.now_ms() - since_ms) if since_ms > 0 else None


def _unread(lags: dict[str, GroupLag], reports: Iterable[Report]) -> int:
    """Return the number of queues with messages that no member reports as its own."""
    own = frozenset[tuple[str, int]]().union(*(each.own for each in reports))
    return sum((topic, queue) not in own for topic, row in lags.items() for queue in row.behind)


def _topic(broker: "Broker", group: str, topic: str, lag: int, here: list[str]) -> TopicFacts:
    facts = TopicFacts(topic)
    facts.lag = lag
    facts.in_rate = broker.parts.messages.stats.topic_put_tps(topic)
    facts.out_rate = broker.parts.tables.offsets.consumed.rate(f"{topic}@{group}")
    config = broker.parts.tables.topics.get(topic)
    if config is not None:
        facts.queues = config.read_queues
        facts.closed_on = [] if config.readable else here
        facts.read_only_on = here if config.readable and not config.writable else []
    return facts


def _count(broker: "Broker", topic: str) -> int:
    """Return the number of messages in a topic."""
    config = broker.parts.tables.topics.get(topic)
    return sum(
        broker.parts.messages.store.max_offset(topic, queue_id)
        - broker.parts.messages.store.min_offset(topic, queue_id)
        for queue_id in range(0 if config is None else config.read_queues)
    )


def balances(broker: "Broker") -> Iterator[Sample | None]:
    """Yield the messages of each group whose balance is watched, by topic and state."""
    watch = broker.parts.balances
    watch.want()
    for number, (group, rows) in enumerate(watch.rows.items(), 1):
        for row in rows:
            for state in State:
                yield (group, row.topic, state.value), row.of(state)
        if not number % _PIECE:
            yield None


GROUP_METRICS = (
    Metric(
        "pocketmq_group_symptoms",
        "gauge",
        "What is wrong with a group, as pocketmq group doctor words it",
        ("consumer_group", "topic", "symptom", "severity"),
        symptoms,
    ),
    Metric(
        "pocketmq_group_messages",
        "gauge",
        "Messages of a group by what became of them, as pocketmq group balance counts them",
        ("consumer_group", "topic", "state"),
        balances,
    ),
)
