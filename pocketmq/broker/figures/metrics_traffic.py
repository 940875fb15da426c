"""Metrics of messages, clients and groups. Source: BrokerMetricsManager, ConsumerLagCalculator, 5.3.3.

Figures come from BrokerStats, the offsets and the connected clients. message_type is the topic's attribute
message.type, else normal: the type of single messages is not counted. Lag is reported for every group that
has offsets, online or not; RocketMQ 5 reports online groups only.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from pocketmq.broker.figures.latencies import BOUNDS_MS
from pocketmq.broker.figures.metric import PIECE, Metric, Sample, Spread
from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.model.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from pocketmq.remoting.codes import RequestCode, ResponseCode, version_name

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.broker.figures.stats import PutCounter
    from pocketmq.broker.groups.client_channel import ClientChannel

_Key = TypeVar("_Key", str, tuple[str, str])
_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
# Histograms that are made in one turn of the event loop.
_SPREADS = 128
# 1, 4, 512 KiB, 1, 2, 4 MiB.
_SIZE_POWERS = (10, 12, 19, 20, 21, 22)
_TOPIC_LABELS = ("topic", "message_type", "is_system")
_GROUP_LABELS = ("consumer_group", "topic", "is_retry", "is_system")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _is_system_group(group: str) -> bool:
    return group.lower().startswith(SYSTEM_GROUP_PREFIX.lower())


def _is_system(broker: "Broker", topic: str, group: str = "") -> str:
    return _flag(broker.parts.tables.topics.is_system(topic) or _is_system_group(group))


def _is_retry(topic: str) -> str:
    return _flag(topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))


# ---------------------------------------------------------------- messages


def _message_type(broker: "Broker", topic: str) -> str:
    found = broker.parts.tables.topics.get(topic)
    return "normal" if found is None else found.attributes.get("message.type", "normal").lower()


def _summed(figures: Iterable[tuple[_Key, int]]) -> Generator[None, None, "Counter[_Key]"]:
    """The sum for each key; yields so that others have their turn."""
    sums: Counter[_Key] = Counter()
    for number, (key, figure) in enumerate(figures, 1):
        sums[key] += figure
        if not number % PIECE:
            yield
    return sums


def _put_counters(broker: "Broker") -> "Iterator[tuple[str, PutCounter]]":
    for topic, queues in list(broker.parts.messages.stats.put.items()):
        for counter in list(queues.values()):
            yield topic, counter


def _messages_in(broker: "Broker", attribute: str) -> Iterator[Sample | None]:
    sums = yield from _summed(
        (topic, getattr(counter, attribute)) for topic, counter in _put_counters(broker)
    )
    for topic, count in sums.items():
        yield (topic, _message_type(broker, topic), _is_system(broker, topic)), count


def _messages_out(broker: "Broker", attribute: str) -> Iterator[Sample | None]:
    got = broker.parts.messages.stats.got
    sums = yield from _summed((key[:2], getattr(got[key], attribute)) for key in list(got))
    for (group, topic), count in sums.items():
        yield (group, topic, _is_retry(topic), _is_system(broker, topic, group)), count


def _sent_to_dlq(broker: "Broker") -> Iterator[Sample | None]:
    sums = yield from _summed(
        (topic, counter.nums if topic.startswith(DLQ_PREFIX) else 0)
        for topic, counter in _put_counters(broker)
    )
    for topic, count in sums.items():
        if topic.startswith(DLQ_PREFIX):
            group = topic.removeprefix(DLQ_PREFIX)
            yield (group, topic, _flag(_is_system_group(group))), count


def _sent_back(broker: "Broker") -> Iterator[Sample]:
    for (group, topic), count in list(broker.parts.messages.stats.sent_back.items()):
        yield (group, topic, _is_system(broker, topic, group)), count


def _consumed(broker: "Broker") -> Iterator[Sample | None]:
    counts = broker.parts.tables.offsets.consumed.counts
    for number, (key, count) in enumerate(list(counts.items()), 1):
        topic, _, group = key.partition(SEPARATOR)
        yield (group, topic, _is_retry(topic), _is_system(broker, topic, group)), count
        if not number % PIECE:
            yield None


# ---------------------------------------------------------------- clients


def _producers(broker: "Broker") -> Iterator[Sample]:
    channels = (channel for _, channel in broker.parts.members.producers.channels())
    yield from Counter(map(_kind, channels)).items()


def _kind(channel: "ClientChannel") -> tuple[str, str, str]:
    """Return a client's language, version and protocol."""
    version = version_name(channel.version).lower()
    return channel.language.lower(), version, channel.connection.protocol


def _consumers(broker: "Broker") -> Iterator[Sample]:
    for name, group in list(broker.parts.members.consumers.groups.items()):
        mode = _MODES.get(group.consume_type, group.consume_type.lower())
        system = _flag(_is_system_group(name))
        kinds = Counter(map(_kind, group.channels.values()))
        for (language, version, protocol), count in kinds.items():
            yield (name, language, version, mode, protocol, system), count


# ---------------------------------------------------------------- lag


def _queue_lag(broker: "Broker") -> Iterator[Sample]:
    for (group, topic), row in list(broker.parts.lags.rows.items()):
        for queue_id in row.offsets:
            waits = row.behind.get(queue_id)
            yield (group, topic, str(queue_id)), waits.end - waits.at if waits else 0


def _group_labels(broker: "Broker", group: str, topic: str) -> tuple[str, ...]:
    return (group, topic, _is_retry(topic), _is_system(broker, topic, group))


def _lag(broker: "Broker") -> Iterator[Sample]:
    for (group, topic), row in list(broker.parts.lags.rows.items()):
        yield _group_labels(broker, group, topic), row.count


def _lag_latency(broker: "Broker") -> Iterator[Sample]:
    now_ms = broker.clock.now_ms()
    for (group, topic), row in list(broker.parts.lags.rows.items()):
        yield _group_labels(broker, group, topic), row.age_ms(now_ms)


# The record of deliveries knows what a group has pulled, while a member pulls.


def _pulled(broker: "Broker") -> Iterator[tuple[str, str, int, int, int]]:
    """Yield (group, topic, queue id, pulled up to, end) of the queues being pulled."""
    for (group, topic, queue_id), pulled in list(broker.parts.messages.deliveries.pulled_offsets()):
        if (
            broker.parts.tables.groups.get(group) is not None
            and broker.parts.tables.topics.get(topic) is not None
        ):
            end = broker.parts.messages.store.max_offset(topic, queue_id)
            yield group, topic, queue_id, min(pulled, end), end


def _inflight(broker: "Broker") -> Iterator[Sample | None]:
    query = broker.parts.tables.offsets.query
    sums = yield from _summed(
        ((group, topic), pulled - committed if 0 <= committed < pulled else 0)
        for group, topic, queue_id, pulled, _ in _pulled(broker)
        for committed in (query(group, topic, queue_id),)
    )
    for (group, topic), count in sums.items():
        yield _group_labels(broker, group, topic), count


def _ready(broker: "Broker") -> Iterator[Sample | None]:
    sums = yield from _summed(
        ((group, topic), end - pulled) for group, topic, _, pulled, end in _pulled(broker)
    )
    for (group, topic), count in sums.items():
        yield _group_labels(broker, group, topic), count


def _queueing_latency(broker: "Broker") -> Iterator[Sample | None]:
    """Yield the age of the oldest message not pulled yet; 0 if all are pulled."""
    oldest: dict[tuple[str, str], int] = {}
    now_ms = broker.clock.now_ms()
    for number, (group, topic, queue_id, offset, end) in enumerate(_pulled(broker), 1):
        if not number % PIECE:
            yield None
        age = 0
        if offset < end:
            stored_ms = broker.parts.messages.store.store_time_at(topic, queue_id, offset)
            age = max(0, now_ms - stored_ms) if stored_ms > 0 else 0
        oldest[group, topic] = max(oldest.get((group, topic), 0), age)
    for (group, topic), age in oldest.items():
        yield _group_labels(broker, group, topic), age


# ---------------------------------------------------------------- histograms


def _none(broker: "Broker") -> Iterator[Sample]:
    """Yield no samples: histograms have spreads instead."""
    return iter(())


def _latencies(broker: "Broker") -> Iterator[Spread]:
    for (code, answer), row in broker.parts.messages.stats.latencies.rows().items():
        names = (_code_name(RequestCode, code), _code_name(ResponseCode, answer))
        values = ("remoting", *names, "false", "success")
        yield Spread(values, BOUNDS_MS, tuple(row[:-1]), row[-1])


def _code_name(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name.lower()
    except ValueError:
        return str(code)


def _sizes(broker: "Broker") -> Iterator[Spread | None]:
    sums = yield from _summed((topic, counter.size) for topic, counter in _put_counters(broker))
    for number, (topic, powers) in enumerate(list(broker.parts.messages.stats.sizes.items())):
        if not number % _SPREADS:
            yield None
        counts = tuple(
            sum(powers[begin:end])
            for begin, end in pairwise((0, *(power + 1 for power in _SIZE_POWERS), len(powers)))
        )
        values = (topic, _message_type(broker, topic), _is_system(broker, topic))
        yield Spread(values, tuple(1 << power for power in _SIZE_POWERS), counts, sums[topic])


# ---------------------------------------------------------------- groups


def _findings(broker: "Broker") -> Iterator[Sample]:
    for finding in broker.parts.members.guard.findings():
        camps = len(finding.camps)
        yield (finding.group, finding.topic, _flag(finding.raised)), camps


def _findings_losing(broker: "Broker") -> Iterator[Sample]:
    for finding in broker.parts.members.guard.findings():
        queues = {queue_id for loss in finding.losses for queue_id in loss.queue_ids}
        yield (finding.group, finding.topic), len(queues)


def _modes(broker: "Broker") -> Iterator[Sample]:
    for mode, count in Counter(
        broker.parts.members.modes.mode(name) for name in broker.parts.tables.groups.groups
    ).items():
        yield (mode.value,), count


TRAFFIC_METRICS = (
    Metric(
        "rocketmq_messages_in_total",
        "counter",
        "Total number of incoming messages",
        _TOPIC_LABELS,
        lambda broker: _messages_in(broker, "nums"),
    ),
    Metric(
        "rocketmq_throughput_in_total",
        "counter",
        "Total traffic of incoming messages, bytes",
        _TOPIC_LABELS,
        lambda broker: _messages_in(broker, "size"),
    ),
    Metric(
        "rocketmq_messages_out_total",
        "counter",
        "Total number of outgoing messages",
        _GROUP_LABELS,
        lambda broker: _messages_out(broker, "nums"),
    ),
    Metric(
        "rocketmq_throughput_out_total",
        "counter",
        "Total traffic of outgoing messages, bytes",
        _GROUP_LABELS,
        lambda broker: _messages_out(broker, "size"),
    ),
    Metric(
        "pocketmq_consumed_messages_total",
        "counter",
        "Messages that a group is done with: committed, or acknowledged if it pops",
        _GROUP_LABELS,
        _consumed,
    ),
    Metric(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        "Messages moved to the dead letters of a group",
        ("consumer_group", "topic", "is_system"),
        _sent_to_dlq,
    ),
    Metric(
        "pocketmq_sends_repeated_total",
        "counter",
        "Sends that repeated an earlier one and were answered as that was (sendOnce)",
        ("topic",),
        lambda broker: (((topic,), n) for topic, n in broker.parts.messages.once.repeated.items()),
    ),
    Metric(
        "pocketmq_sent_back_messages_total",
        "counter",
        "Messages sent back by consumers to be delivered again",
        ("consumer_group", "topic", "is_system"),
        _sent_back,
    ),
    Metric(
        "rocketmq_producer_connections",
        "gauge",
        "Producer connections",
        ("language", "version", "protocol_type"),
        _producers,
    ),
    Metric(
        "rocketmq_consumer_connections",
        "gauge",
        "Consumer connections",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        _consumers,
    ),
    Metric(
        "pocketmq_connections",
        "gauge",
        "Open connections of any kind",
        (),
        lambda broker: [((), len(broker.server.connections))],
    ),
    Metric(
        "pocketmq_connections_refused_total",
        "counter",
        "Connections closed on arrival, because there were too many",
        (),
        lambda broker: [((), broker.server.shared_limits.refused_count)],
    ),
    Metric(
        "pocketmq_connections_dropped_total",
        "counter",
        "Connections closed because too many of their answers were unread",
        (),
        lambda broker: [((), broker.server.shared_limits.dropped_count)],
    ),
    Metric(
        "pocketmq_half_frames_bytes",
        "gauge",
        "Memory of frames that have not arrived completely",
        (),
        lambda broker: [((), broker.server.shared_limits.input_size)],
    ),
    Metric(
        "pocketmq_unread_bytes",
        "gauge",
        "Memory of answers that clients have not read",
        (),
        lambda broker: [((), broker.server.shared_limits.output_size)],
    ),
    Metric(
        "pocketmq_kept_requests_bytes",
        "gauge",
        "Memory of requests that wait for another client's answer",
        (),
        lambda broker: [((), broker.server.shared_limits.kept_size)],
    ),
    Metric(
        "pocketmq_long_polling_requests",
        "gauge",
        "Pulls waiting for a message",
        (),
        lambda broker: [((), broker.parts.services.long_polling.count)],
    ),
    Metric("rocketmq_consumer_lag_messages", "gauge", "Consumer lag messages", _GROUP_LABELS, _lag),
    Metric(
        "rocketmq_consumer_lag_latency",
        "gauge",
        "Consumer lag time: age of the oldest message not yet consumed",
        _GROUP_LABELS,
        _lag_latency,
        "milliseconds",
    ),
    Metric(
        "rocketmq_consumer_inflight_messages",
        "gauge",
        "Consumer inflight messages: pulled but not yet consumed",
        _GROUP_LABELS,
        _inflight,
    ),
    Metric(
        "rocketmq_consumer_ready_messages",
        "gauge",
        "Consumer ready messages: not yet pulled",
        _GROUP_LABELS,
        _ready,
    ),
    Metric(
        "rocketmq_consumer_queueing_latency",
        "gauge",
        "Consumer queueing time: age of the oldest message not yet pulled",
        _GROUP_LABELS,
        _queueing_latency,
        "milliseconds",
    ),
    Metric(
        "pocketmq_consumer_queue_lag_messages",
        "gauge",
        "Consumer lag messages by queue",
        ("consumer_group", "topic", "queue_id"),
        _queue_lag,
    ),
    Metric(
        "pocketmq_group_subscription_camps",
        "gauge",
        "Groups whose members subscribe to a topic differently: number of different subscriptions",
        ("consumer_group", "topic", "is_raised"),
        _findings,
    ),
    Metric(
        "pocketmq_group_subscription_losing_queues",
        "gauge",
        "Queues in which such a group is losing messages",
        ("consumer_group", "topic"),
        _findings_losing,
    ),
    Metric(
        "pocketmq_group_findings_total",
        "counter",
        "Findings about differing subscriptions that were reported",
        (),
        lambda broker: [((), broker.parts.members.guard.raised_count)],
    ),
    Metric("pocketmq_groups", "gauge", "Consumer groups by mode", ("mode",), _modes),
    Metric(
        "rocketmq_message_size",
        "histogram",
        "Incoming messages size",
        _TOPIC_LABELS,
        _none,
        spread=_sizes,
    ),
    Metric(
        "rocketmq_rpc_latency",
        "histogram",
        "Rpc latency; of sends, until they are stored as flushDiskType and brokerRole demand",
        ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        _none,
        "milliseconds",
        _latencies,
    ),
    Metric(
        "rocketmq_topic_number",
        "gauge",
        "Active topic number",
        (),
        lambda broker: [((), len(broker.parts.tables.topics.topics))],
    ),
    Metric(
        "rocketmq_consumer_group_number",
        "gauge",
        "Active subscription group number",
        (),
        lambda broker: [((), len(broker.parts.tables.groups.groups))],
    ),
    Metric(
        "rocketmq_broker_permission",
        "gauge",
        "Broker permission",
        (),
        lambda broker: [((), broker.config.broker_permission)],
    ),
)
