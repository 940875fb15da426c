"""Tracks: what became of one message in each group. Source: DefaultMQAdminExtImpl.messageTrackDetail.

    CONSUMED               the group's offset is beyond the message, and its tags pass the subscription
    CONSUMED_BUT_FILTERED  beyond it, but the group's subscription of now does not name its tag (E3b)
    NOT_CONSUME_YET        the group's offset is at it or before (E3c)
    NOT_ONLINE             nobody of the group is connected (E3c)
    PULL                   a pull consumer, which says nothing of what it has done
    CONSUME_BROADCASTING   every member keeps its own offset (5.x)
    UNKNOWN                the broker could not be asked

CONSUMED means no more than that: with members that subscribe different tags a message counts as CONSUMED
that nobody got (E3). Compatible with mqadmin and the dashboard on purpose.
"""

from dataclasses import dataclass

from pocketmq.admin.groups import Groups
from pocketmq.admin.types import GroupConnection
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.message import MessageExt
from pocketmq.remoting.track_type import TrackType


@dataclass(frozen=True, slots=True)
class Track:
    """One group's verdict; detail: why it is UNKNOWN or NOT_ONLINE."""

    group: str
    type: TrackType
    detail: str = ""


async def track(groups: Groups, message: MessageExt, group: str) -> Track:
    """What became of `message` in `group`; never raises for what a broker answers."""
    try:
        connection = await groups.connection(group)
    except ConsumerNotOnline as error:
        return Track(group, TrackType.NOT_ONLINE, str(error))
    except PocketMQError as error:
        return Track(group, TrackType.UNKNOWN, str(error))
    if connection.message_model == "BROADCASTING":
        return Track(group, TrackType.CONSUME_BROADCASTING)
    if connection.consume_type == "CONSUME_ACTIVELY":
        return Track(group, TrackType.PULL)
    try:
        rows = await groups.progress(group, message.topic)
    except PocketMQError as error:
        return Track(group, TrackType.UNKNOWN, str(error))
    consumed = any(
        row.queue.queue_id == message.queue_id
        and row.queue.broker_name == (message.broker_name or row.queue.broker_name)
        and row.consumer_offset > message.queue_offset
        for row in rows
    )
    return Track(group, verdict(connection, message) if consumed else TrackType.NOT_CONSUME_YET)


def verdict(connection: GroupConnection, message: MessageExt) -> TrackType:
    """Of a message that is behind the group's offset."""
    subscription = connection.subscriptions.get(message.topic)
    if subscription is None or not subscription.tags_set or "*" in subscription.tags_set:
        return TrackType.CONSUMED
    if message.tags in subscription.tags_set:
        return TrackType.CONSUMED
    return TrackType.CONSUMED_BUT_FILTERED
