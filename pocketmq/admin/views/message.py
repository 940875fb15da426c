"""Views: messages for all user interfaces: look-up by id, tracks, waiting messages."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pocketmq.admin.admin import Admin
from pocketmq.admin.delays import DelayLevel
from pocketmq.admin.types import ClusterBroker
from pocketmq.client.errors import BrokerFailed, NoPermission, NoRoute, QueryNotFound, Unauthorised
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.model.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    is_group_topic,
)
from pocketmq.model.track import Verdict
from pocketmq.remoting.errors import MessageCodecError

_WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)


@dataclass(slots=True)
class TrackView:
    """A message's track in one group. verdict: PocketMQ's, None from an Apache broker, which only has
    RocketMQ's track type, computed from offsets; deliveries: the broker's JSON, see GET_MESSAGE_TRACK.
    """

    group: str
    verdict: Verdict | None
    track_type: str
    text: str
    deliveries: list[dict[str, Any]]


@dataclass(slots=True)
class TracksView:
    """Tracks by group. recorded_since: ms since 1970 of the first recorded delivery; None without one."""

    recorded_since: int | None
    tracks: list[TrackView]


async def tracks_view(admin: Admin, message: MessageExt, group: str | None = None) -> TracksView:
    """Track a message in each group of its topic, or in one."""
    told = await admin.doctor.track(
        topic=message.topic,
        broker=message.broker_name or None,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        group=group,
    )
    if told is not None:
        return TracksView(
            told["recordedSince"],
            [
                TrackView(
                    each["group"],
                    Verdict.of(each["verdict"]),
                    each["trackType"],
                    each["text"],
                    each["deliveries"],
                )
                for each in told["tracks"]
            ],
        )
    computed = await admin.messages.track(message, group=group)
    return TracksView(
        None, [TrackView(each.group, None, str(each.type), each.detail, []) for each in computed]
    )


@dataclass(slots=True)
class WaitingRoom:
    """Why no group gets this record: the broker stores another one in `topic` when its time has come.

    kind: TIME, or TRANSACTION, which its producer has to commit; due_ms: ms since 1970, None if unknown.
    """

    kind: str
    topic: str
    due_ms: int | None


async def waiting_room(admin: Admin, message: MessageExt) -> WaitingRoom | None:
    """Return what a message waits for that stands in a topic of the system; None for any other."""
    topic = message.properties.get("REAL_TOPIC", "")
    if not topic or message.topic not in _WAITING_TOPICS:
        return None
    if message.topic == TRANS_HALF_TOPIC:
        return WaitingRoom("TRANSACTION", topic, None)
    due_ms: int | None = None
    if message.topic == TIMER_TOPIC:
        told = message.properties.get("TIMER_OUT_MS", "")
        due_ms = int(told) if told.isdecimal() else None
    else:
        [master, *_] = await admin.site.masters(None, message.broker_name or None)
        levels = await admin.delays.levels(master.address)
        if message.queue_id < len(levels):
            due_ms = message.store_timestamp + levels[message.queue_id].delay_ms
    return WaitingRoom("TIME", topic, due_ms)


async def found_by_id(admin: Admin, msg_id: str, topic: str) -> MessageExt:
    """Return the message of an id of either kind, or what waits to become it.

    Raises: QueryNotFound, NoRoute, MessageCodecError, BrokerFailed.
    """
    try:
        return await admin.messages.by_id(msg_id, topic)
    except QueryNotFound:
        waiting = None
        # Users whose policies show a topic need not see what waits for others.
        with suppress(NoPermission, Unauthorised):
            waiting = await _waiting(admin, msg_id)
        if waiting is None or waiting.properties.get("REAL_TOPIC") != topic:
            raise
        return waiting


async def found_anywhere(admin: Admin, msg_id: str) -> MessageExt | None:
    """Return the message of an id of either kind; a client's id is searched in all topics."""
    try:
        address, _ = parse_offset_msg_id(msg_id)
        # Both kinds of ids are 32 hex digits: only one that names a broker of this site is an offset id.
        if any(broker.address == address for broker in await admin.brokers()):
            return await admin.messages.by_offset_id(msg_id)
    except (MessageCodecError, BrokerFailed, QueryNotFound):
        pass
    for name in await admin.topics.names():
        # A copy that waits for its retry or lies in the dead letters has the same id.
        if is_group_topic(name) or name in _WAITING_TOPICS:
            continue
        try:
            found = await admin.messages.by_unique_key(name, msg_id)
        except NoRoute:
            continue
        if found:
            return found[-1]
    return await _waiting(admin, msg_id)


async def _waiting(admin: Admin, msg_id: str) -> MessageExt | None:
    """Return what waits in a topic of the system under a client's id; a retry that waits is another copy."""
    for name in _WAITING_TOPICS:
        for message in reversed(await admin.messages.by_unique_key(name, msg_id)):
            if not is_group_topic(message.properties.get("REAL_TOPIC", "")):
                return message
    return None


def waiting_in(
    admin: Admin, master: ClusterBroker, level: DelayLevel, begin: int | None = None
) -> AsyncIterator[MessageExt]:
    """Yield what waits in a delay level of one broker, next due first. begin: offset to start at, or None."""
    queue = MessageQueue(SCHEDULE_TOPIC, master.name, level.number - 1)
    at = level.begin if begin is None else begin
    return admin.messages.within(queue, at, level.end, address=master.address)


async def first_of(messages: AsyncIterator[MessageExt], count: int) -> list[MessageExt]:
    """Return at most `count` of them."""
    found: list[MessageExt] = []
    if count > 0:
        async for message in messages:
            found.append(message)
            if len(found) == count:
                break
    return found
