"""Tracks: what became of one message in each group, by RocketMQ's rules (remoting.track)."""

from dataclasses import dataclass

from pocketmq.admin.groups import GroupAdmin
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.model.message import MessageExt
from pocketmq.model.track import TrackType, track_type
from pocketmq.remoting.errors import PocketMQError


@dataclass(frozen=True, slots=True)
class Track:
    """One group's verdict; detail: why it is UNKNOWN or NOT_ONLINE."""

    group: str
    type: TrackType
    detail: str = ""


async def track(groups: GroupAdmin, message: MessageExt, group: str) -> Track:
    """Return what became of `message` in `group`; never raises for a broker's answer."""
    try:
        connection = await groups.connection(group)
    except ConsumerNotOnline as error:
        return Track(group, TrackType.NOT_ONLINE, str(error))
    except PocketMQError as error:
        return Track(group, TrackType.UNKNOWN, str(error))
    rows, failure = [], ""
    try:
        rows = await groups.progress(group, message.topic)
    except PocketMQError as error:
        failure = str(error)
    is_passed = any(
        row.queue.queue_id == message.queue_id
        and row.queue.broker_name == (message.broker_name or row.queue.broker_name)
        and row.consumer_offset > message.queue_offset
        for row in rows
    )
    found = track_type(
        connection.consume_type,
        connection.message_model,
        connection.subscriptions.get(message.topic),
        message.tags,
        is_passed=is_passed,
    )
    if failure and found is TrackType.NOT_CONSUME_YET:
        return Track(group, TrackType.UNKNOWN, failure)
    return Track(group, found)
