"""TrackType: what administrators' tools say that became of a message in a group.

    CONSUMED               the group's offset is beyond the message, and its tags pass the subscription
    CONSUMED_BUT_FILTERED  beyond it, but the group's subscription of now does not name its tag (E3b)
    NOT_CONSUME_YET        the group's offset is at it or before (E3c)
    NOT_ONLINE             nobody of the group is connected (E3c)
    PULL                   a pull consumer, which says nothing of what it has done
    CONSUME_BROADCASTING   every member keeps its own offset (5.x)
    UNKNOWN                the broker could not be asked

CONSUMED means no more than that: with members that subscribe different tags a message counts as CONSUMED
that nobody got (E3). Compatible with mqadmin and the dashboard on purpose.
Source: TrackType, DefaultMQAdminExtImpl.messageTrackDetail, RocketMQ 4.9.7, 5.3.3.
"""

from enum import StrEnum

from pocketmq.remoting.subscription import ALL, SubscriptionData


class TrackType(StrEnum):
    """RocketMQ's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


def track_type(
    consume_type: str,
    message_model: str,
    stored: SubscriptionData | None,
    tags: str | None,
    *,
    is_passed: bool,
) -> TrackType:
    """Of a message with these tags, in a group that is online.

    stored: what the broker keeps for the group and the message's topic; is_passed: whether the group's offset
    is beyond the message.
    """
    if consume_type == "CONSUME_ACTIVELY":
        return TrackType.PULL
    if message_model == "BROADCASTING":
        return TrackType.CONSUME_BROADCASTING
    if not is_passed:
        return TrackType.NOT_CONSUME_YET
    if stored is None or not stored.tags_set or ALL in stored.tags_set or tags in stored.tags_set:
        return TrackType.CONSUMED
    return TrackType.CONSUMED_BUT_FILTERED
