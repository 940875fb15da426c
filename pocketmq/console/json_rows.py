"""Rows of the API's answers, with API.md's field names, from the results of administration."""

from collections.abc import Iterable
from typing import Any

from pocketmq.admin import GroupConfig, OffsetReset, QueueProgress, QueueStatus, TopicConfig
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.model.subscription import SubscriptionData


def queue_row(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id}


def status_row(status: QueueStatus) -> dict[str, Any]:
    return {
        "broker": status.queue.broker_name,
        "queueId": status.queue.queue_id,
        "minOffset": status.min_offset,
        "maxOffset": status.max_offset,
        "lastUpdate": status.last_update_ms or None,
    }


def progress_row(row: QueueProgress) -> dict[str, Any]:
    return {
        **queue_row(row.queue),
        "brokerOffset": row.broker_offset,
        "consumerOffset": row.consumer_offset,
        "lag": row.lag,
        "lastTimestamp": row.last_ms or None,
        "owner": row.owner,
        "shared": row.shared,
    }


def step_row(step: OffsetReset) -> dict[str, Any]:
    return {**queue_row(step.queue), "from": step.old_offset, "to": step.new_offset}


def topic_config_row(broker: str, config: TopicConfig) -> dict[str, Any]:
    return {
        "broker": broker,
        "readQueues": config.read_queues,
        "writeQueues": config.write_queues,
        "perm": config.perm,
        "order": config.order,
        "filterType": config.filter_type,
        "attributes": dict(config.attributes),
    }


def group_config_row(broker: str, config: GroupConfig) -> dict[str, Any]:
    return {
        "broker": broker,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "retryQueues": config.retry_queues,
        "retryMaxTimes": config.retry_max_times,
        "brokerId": config.broker_id,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
    }


def subscription_row(subscription: SubscriptionData) -> dict[str, Any]:
    return {
        "topic": subscription.topic,
        "expression": subscription.sub_string,
        "expressionType": subscription.expression_type,
        "tags": sorted(subscription.tags_set),
        "version": subscription.sub_version,
    }


def subscription_rows(subscriptions: Iterable[SubscriptionData]) -> list[dict[str, Any]]:
    """Return them sorted by topic; a group's retry topic, which every member subscribes, comes last."""
    return [
        subscription_row(each)
        for each in sorted(
            subscriptions, key=lambda each: (each.topic.startswith(RETRY_PREFIX), each.topic)
        )
    ]
