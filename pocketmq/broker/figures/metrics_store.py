"""Metrics of the store, of its backlogs and of the process. Source: DefaultStoreMetricsManager, 5.3.3."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pocketmq.broker.figures.metric import Metric, Sample
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.record import read_record
from pocketmq.remoting.codes import OUR_VERSION, version_name

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker

_STORAGE_LABELS = ("storage_type", "storage_medium")
_STORAGE = ("local", "disk")
# RocketMQ's thread pools. Here a request is run when its bytes have come: nothing queues up before it.
_PROCESSORS = (
    "ack",
    "admin",
    "async_put",
    "client_manager",
    "consumer_manager",
    "heartbeat",
    "lite_pull",
    "pull",
    "query_message",
    "reply",
    "send",
    "transaction",
)


def _size(broker: "Broker") -> Iterator[Sample]:
    try:
        # With it come three compressors, which a start would wait for.
        import shutil

        used = shutil.disk_usage(broker.store_config.store_path_root_dir).used
    except OSError:
        return
    yield _STORAGE, used


def _reserve_time(broker: "Broker") -> Iterator[Sample]:
    """Yield the age of the oldest message; nothing for an empty store."""
    oldest = broker.parts.messages.store.record_at(
        broker.parts.messages.store.commit_log_min_position
    )
    if oldest is not None:
        stored_ms = read_record(oldest, check_crc=False).store_ms
        yield _STORAGE, max(0, broker.clock.now_ms() - stored_ms)


# ---------------------------------------------------------------- what waits


def _delayed(broker: "Broker") -> Iterator[Sample]:
    names = broker.store_config.message_delay_level.split()
    for level, name in enumerate(names, 1):
        end = broker.parts.messages.store.max_offset(SCHEDULE_TOPIC, level - 1)
        begin = broker.parts.messages.store.min_offset(SCHEDULE_TOPIC, level - 1)
        at = max(broker.parts.services.delay.offsets.get(level, 0), begin)
        yield (str(level), name), max(0, end - at)


def _timing(broker: "Broker") -> Iterator[Sample]:
    for topic, count in list(broker.parts.services.timer.pending.counts.items()):
        yield (*_STORAGE, topic), count


def _ended(broker: "Broker", *, committed: bool) -> Iterator[Sample]:
    for (topic, was_committed), count in list(broker.parts.services.half.ended.items()):
        if was_committed == committed:
            yield (topic,), count


STORE_METRICS = (
    Metric(
        "rocketmq_storage_size",
        "gauge",
        "Used space of the store's disk",
        _STORAGE_LABELS,
        _size,
        "bytes",
    ),
    Metric(
        "rocketmq_storage_flush_behind_bytes",
        "gauge",
        "Bytes of the commit log not yet flushed to disk",
        _STORAGE_LABELS,
        lambda broker: [(_STORAGE, broker.parts.messages.store.flush_behind_size)],
        "bytes",
    ),
    Metric(
        "rocketmq_storage_dispatch_behind_bytes",
        "gauge",
        "Bytes of the commit log not yet in the index",
        _STORAGE_LABELS,
        lambda broker: [(_STORAGE, broker.parts.messages.store.dispatch_behind_size)],
        "bytes",
    ),
    Metric(
        "rocketmq_storage_message_reserve_time",
        "gauge",
        "Age of the oldest message",
        _STORAGE_LABELS,
        _reserve_time,
        "milliseconds",
    ),
    Metric(
        "pocketmq_commit_log_bytes",
        "gauge",
        "Bytes of the commit log, from the oldest message to the newest",
        (),
        lambda broker: [
            (
                (),
                broker.parts.messages.store.commit_log_max_position
                - broker.parts.messages.store.commit_log_min_position,
            )
        ],
    ),
    Metric(
        "pocketmq_disk_used_ratio",
        "gauge",
        "Used share of the commit log's disk, 0 to 1",
        (),
        lambda broker: [((), broker.parts.messages.store.disk_use)],
    ),
    Metric(
        "pocketmq_store_writable",
        "gauge",
        "1 while messages are taken",
        (),
        lambda broker: [((), int(broker.parts.messages.store.writable))],
    ),
    Metric(
        "pocketmq_delayed_messages",
        "gauge",
        "Messages waiting, by delay level",
        ("level", "delay"),
        _delayed,
    ),
    Metric(
        "rocketmq_timing_messages",
        "gauge",
        "Messages waiting for the time set on them",
        (*_STORAGE_LABELS, "topic"),
        _timing,
    ),
    Metric(
        "rocketmq_timer_enqueue_lag",
        "gauge",
        "Messages with a time of their own that are not yet in the timer wheel",
        _STORAGE_LABELS,
        lambda broker: [(_STORAGE, broker.parts.services.timer.offset_behind)],
    ),
    Metric(
        "rocketmq_timer_dequeue_latency",
        "gauge",
        "How far deliveries of the timer wheel are behind the clock",
        _STORAGE_LABELS,
        lambda broker: [(_STORAGE, broker.parts.services.timer.behind_ms)],
        "milliseconds",
    ),
    Metric(
        "rocketmq_timer_enqueue_total",
        "counter",
        "Messages taken by the timer wheel",
        _STORAGE_LABELS,
        lambda broker: [(_STORAGE, broker.parts.services.timer.flow.taken_count)],
    ),
    Metric(
        "rocketmq_timer_dequeue_total",
        "counter",
        "Messages delivered by the timer wheel",
        _STORAGE_LABELS,
        lambda broker: [(_STORAGE, broker.parts.services.timer.flow.delivered_count)],
    ),
    Metric(
        "pocketmq_schedules",
        "gauge",
        "Schedules kept",
        (),
        lambda broker: [((), len(broker.parts.tables.schedules.rows))],
    ),
    Metric(
        "pocketmq_schedule_messages_total",
        "counter",
        "Messages sent by schedules",
        ("topic",),
        lambda broker: [
            ((topic,), count) for topic, count in broker.parts.services.schedules.fired.items()
        ],
    ),
    Metric(
        "pocketmq_schedule_missed_total",
        "counter",
        "Times at which a schedule sent nothing: too late, or its topic took no message",
        ("topic",),
        lambda broker: [
            ((topic,), count) for topic, count in broker.parts.services.schedules.missed.items()
        ],
    ),
    Metric(
        "rocketmq_half_messages",
        "gauge",
        "Half messages of all topics",
        (),
        lambda broker: [((), broker.parts.services.half.waiting_count)],
    ),
    Metric(
        "rocketmq_commit_messages_total",
        "counter",
        "Transactions committed",
        ("topic",),
        lambda broker: _ended(broker, committed=True),
    ),
    Metric(
        "rocketmq_rollback_messages_total",
        "counter",
        "Transactions rolled back",
        ("topic",),
        lambda broker: _ended(broker, committed=False),
    ),
    Metric(
        "rocketmq_processor_watermark",
        "gauge",
        "Requests waiting for a processor: none, since each is handled as it arrives",
        ("processor",),
        lambda broker: [((name,), 0) for name in _PROCESSORS],
    ),
    Metric(
        "pocketmq_start_time_seconds",
        "gauge",
        "Time at which the broker started, seconds since 1970",
        (),
        lambda broker: [((), broker.parts.messages.stats.boot_ms / 1000)],
    ),
    Metric(
        "pocketmq_broker_info",
        "gauge",
        "1; the label says which version of RocketMQ the broker reports",
        ("version", "role"),
        lambda broker: [
            ((version_name(OUR_VERSION).lower(), broker.config.broker_role.lower()), 1)
        ],
    ),
)
