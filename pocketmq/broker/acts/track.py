"""Trace what became of one message, for `pocketmq message track` and the console. Ours."""

import asyncio
from typing import Any

from pocketmq.broker.delivery.track import MessagePlace, MessageTracks
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.broker.services import Parts
from pocketmq.model.message_codec import get_property, parse_offset_msg_id
from pocketmq.model.record import read_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import HeaderError, IllegalArgument
from pocketmq.remoting.requests import GetMessageTrackHeader


class TrackActs:
    """Locates the message; MessageTracks judges it from the delivery record, which a thread reads."""

    def __init__(self, parts: Parts) -> None:
        members, state = parts.members, parts.services.pop.log.state

        def popped_until_ms(group: str, topic: str, queue_id: int, offset: int) -> int:
            return state.out_until_ms(GroupQueue(group, topic, queue_id), offset)

        self._store = parts.messages.store
        self._deliveries = parts.messages.deliveries
        self._tracks = MessageTracks(
            self._store,
            members.consumers,
            parts.tables.offsets,
            members.guard,
            parts.node.clock.now_ms,
            popped_until_ms,
        )

    async def track(self, ask: GetMessageTrackHeader) -> dict[str, Any]:
        """Track a message by id (offset id, or unique key with its topic), or by topic, queue and offset.

        Raises: Refused when there is no such message, HeaderError when `ask` names none.
        """
        place = self._place(ask)
        if place is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "no such message is stored here; an expired one can be found only by topic, queueId and "
                "queueOffset",
            )
        self._deliveries.settle()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            None, self._deliveries.find, place.topic, place.queue_id, place.offset
        )
        since_ms = await loop.run_in_executor(None, self._deliveries.since_ms)
        groups = [ask.group] if ask.group else self._tracks.groups(place.topic, found)
        return {
            "queueId": place.queue_id,
            "queueOffset": place.offset,
            "recordedSince": since_ms,
            "topic": place.topic,
            "tracks": [
                self._tracks.track(place, group, found.get(group), since_ms).to_json()
                for group in groups
            ],
        }

    def _place(self, ask: GetMessageTrackHeader) -> MessagePlace | None:
        if ask.msg_id is not None:
            data = self._by_id(ask.msg_id, ask.topic)
            if data is None:
                return None
            record = read_record(data)
            return MessagePlace(record.topic, record.queue_id, record.queue_offset, record)
        if ask.topic is None or ask.queue_id is None or ask.queue_offset is None:
            raise HeaderError("name the message by msgId, or by topic, queueId and queueOffset")
        entries = self._store.entries(ask.topic, ask.queue_id, ask.queue_offset, 1)
        found = self._store.record_at(*entries[0][:2]) if entries else None
        if found is None and ask.queue_offset >= self._store.max_offset(ask.topic, ask.queue_id):
            return None
        known = None if found is None else read_record(bytes(found))
        return MessagePlace(ask.topic, ask.queue_id, ask.queue_offset, known)

    def _by_id(self, msg_id: str, topic: str | None) -> bytes | None:
        if topic is not None:
            key = msg_id.encode()
            for each in self._store.query_by_key(topic, msg_id, 32, 0, 1 << 62).records:
                record = read_record(each, check_crc=False)
                if record.topic == topic and get_property(record.properties, b"UNIQ_KEY") == key:
                    return bytes(each)
        try:
            _, position = parse_offset_msg_id(msg_id)
        except (IllegalArgument, ValueError):
            return None
        found = self._store.message_at(position)
        return None if found is None else bytes(found)
