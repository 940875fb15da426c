"""Metrics of replication: roles, slaves in sync, lag of slaves. Ours: RocketMQ 5.5 shows none of it on a
broker's port.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pocketmq.broker.figures.metric import Metric, Sample
from pocketmq.broker.ha.slaves import Slave

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker


def _slaves(broker: "Broker") -> list[Slave]:
    slaves = broker.parts.messages.durability.replicas.slaves
    return [each for each in slaves.connected if each.served]


def _lag_bytes(broker: "Broker") -> Iterator[Sample]:
    end = broker.parts.messages.store.commit_log_max_position
    for each in _slaves(broker):
        yield (each.address,), max(0, end - each.acked)


def _lag_seconds(broker: "Broker") -> Iterator[Sample]:
    slaves, now_ms = broker.parts.messages.durability.replicas.slaves, broker.clock.monotonic_ms()
    for each in _slaves(broker):
        yield (each.address,), slaves.lag_ms(each, now_ms) / 1000


def _following(broker: "Broker") -> Iterator[Sample]:
    """Yield whether a follower is connected; nothing while the broker leads."""
    follower = broker.parts.services.replication.follower
    if follower is not None:
        yield (), int(follower.state.connected)


def _metadata_age(broker: "Broker") -> Iterator[Sample]:
    metadata = broker.parts.services.replication.metadata
    if metadata is not None and metadata.rounds:
        yield (), (broker.clock.monotonic_ms() - metadata.round_ms) / 1000


def _election(broker: "Broker", key: str) -> Iterator[Sample]:
    """Yield one figure of a broker whose role a controller decides."""
    found = broker.parts.services.replication.election_figures()
    if found is not None:
        yield (), found[key]


REPLICA_METRICS: tuple[Metric, ...] = (
    Metric(
        "pocketmq_election_epoch",
        "gauge",
        "Under a controller: number of the election by which this broker's master leads",
        (),
        lambda broker: _election(broker, "epoch"),
    ),
    Metric(
        "pocketmq_elections_total",
        "counter",
        "Under a controller: elections since this broker started",
        (),
        lambda broker: _election(broker, "elections"),
    ),
    Metric(
        "pocketmq_brokers_in_sync",
        "gauge",
        "Under a controller: brokers in sync, this one included",
        (),
        lambda broker: _election(broker, "in_sync"),
    ),
    Metric(
        "pocketmq_unconfirmed_bytes",
        "gauge",
        "Under a controller: bytes at the log's end that not every broker in sync has; nothing reads them",
        (),
        lambda broker: _election(broker, "unconfirmed"),
    ),
    Metric(
        "pocketmq_controller_reachable",
        "gauge",
        "Under a controller: 1 while it answers and a broker leads",
        (),
        lambda broker: _election(broker, "reachable"),
    ),
    Metric(
        "pocketmq_broker_role",
        "gauge",
        "1; the label says which role the broker has",
        ("role", "id"),
        lambda broker: [((broker.config.broker_role, str(broker.config.broker_id)), 1)],
    ),
    Metric(
        "pocketmq_replicas_wanted",
        "gauge",
        "Slaves that a successful send waits for; 0: none",
        (),
        lambda broker: [
            (
                (),
                broker.config.in_sync_replicas - 1
                if broker.parts.messages.durability.replicas.wanted
                else 0,
            )
        ],
    ),
    Metric(
        "pocketmq_replicas_in_sync",
        "gauge",
        "Slaves that are in sync with this master",
        (),
        lambda broker: [((), broker.parts.messages.durability.replicas.slaves.in_sync_count)],
    ),
    Metric(
        "pocketmq_replicas_refused",
        "gauge",
        "Slaves that are sent nothing, because their log differs",
        (),
        lambda broker: [((), len(broker.parts.messages.durability.replicas.slaves.refused))],
    ),
    Metric(
        "pocketmq_replica_lag_bytes",
        "gauge",
        "Bytes of the log that a slave has not acknowledged",
        ("replica",),
        _lag_bytes,
    ),
    Metric(
        "pocketmq_replica_lag_seconds",
        "gauge",
        "Time since a slave last had everything",
        ("replica",),
        _lag_seconds,
    ),
    Metric(
        "pocketmq_replica_following",
        "gauge",
        "Slave: 1 while it follows its master",
        (),
        _following,
    ),
    Metric(
        "pocketmq_replica_metadata_age_seconds",
        "gauge",
        "Slave: age of its copy of the master's tables",
        (),
        _metadata_age,
    ),
)
