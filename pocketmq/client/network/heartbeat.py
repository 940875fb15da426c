"""The body of HEART_BEAT: this client and its groups (S38 to S40).

    {"clientID", "consumerDataSet": [{"consumeFromWhere", "consumeType", "groupName", "messageModel",
     "subscriptionDataSet": [...], "unitMode"}], "producerDataSet": [{"groupName"}]}

Source: HeartbeatData, ConsumerData, ProducerData, RocketMQ 4.9.7 (wire.md 2.3).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting import fastjson


class ConsumeType(StrEnum):
    """How a group gets its messages; the value is what travels."""

    PULL = "CONSUME_ACTIVELY"
    PUSH = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """CLUSTERING: the members of a group share the messages. BROADCASTING: each gets all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(StrEnum):
    """Where a group without a committed offset begins."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """A heartbeat's data on one consumer group."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: Sequence[SubscriptionData]
    unit_mode: bool = False


def heartbeat_body(
    client_id: str, producer_groups: Iterable[str], consumers: Iterable[ConsumerData]
) -> bytes:
    """Return the JSON of a heartbeat; groups and topics in alphabetical order."""
    return fastjson.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "consumeFromWhere": each.consume_from_where.value,
                    "consumeType": each.consume_type.value,
                    "groupName": each.group,
                    "messageModel": each.message_model.value,
                    "subscriptionDataSet": [
                        subscription.to_json()
                        for subscription in sorted(each.subscriptions, key=lambda s: s.topic)
                    ],
                    "unitMode": each.unit_mode,
                }
                for each in sorted(consumers, key=lambda consumer: consumer.group)
            ],
            "producerDataSet": [{"groupName": group} for group in sorted(producer_groups)],
        }
    )
