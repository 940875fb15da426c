"""GET_MESSAGE_TRACK: what became of one message, for `pocketmq message track` and the console. Ours."""

import asyncio
from typing import Any

from pocketmq.broker.delivery.record import DeliveryRecord
from pocketmq.broker.delivery.track import MessageTracks, Place
from pocketmq.broker.wire.admin_answers import json_answer
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import HeaderError, IllegalArgument
from pocketmq.remoting.message_codec import get_property, parse_offset_msg_id
from pocketmq.remoting.record import read_record
from pocketmq.remoting.requests import GetMessageTrackHeader, PocketRequestCode
from pocketmq.store import MessageStore


class MessageTrackProcessor:
    """The handler; a coroutine, because the record's files are read in a thread."""

    def __init__(
        self, store: MessageStore, deliveries: DeliveryRecord, tracks: MessageTracks
    ) -> None:
        self._store = store
        self._deliveries = deliveries
        self._tracks = tracks

    def handlers(self) -> dict[int, Handler]:
        return {PocketRequestCode.GET_MESSAGE_TRACK: self.get_track}

    async def get_track(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """By message id (offset id, or unique key with its topic), or by topic, queue and offset."""
        header = GetMessageTrackHeader.parse(request.ext)
        place = self._place(header)
        if place is None:
            return request.answer(
                ResponseCode.QUERY_NOT_FOUND,
                "no such message is stored here; one that has expired is found by topic, queueId and "
                "queueOffset only",
            )
        self._deliveries.settle()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            None, self._deliveries.find, place.topic, place.queue_id, place.offset
        )
        since_ms = await loop.run_in_executor(None, self._deliveries.since_ms)
        groups = [header.group] if header.group else self._tracks.groups(place.topic, found)
        content: dict[str, Any] = {
            "queueId": place.queue_id,
            "queueOffset": place.offset,
            "recordedSince": since_ms,
            "topic": place.topic,
            "tracks": [
                self._tracks.track(place, group, found.get(group), since_ms).to_json()
                for group in groups
            ],
        }
        return json_answer(request, content)

    def _place(self, header: GetMessageTrackHeader) -> Place | None:
        if header.msg_id is None:
            if header.topic is None or header.queue_id is None or header.queue_offset is None:
                raise HeaderError("name a message by msgId, or by topic, queueId and queueOffset")
            entries = self._store.entries(header.topic, header.queue_id, header.queue_offset, 1)
            data = self._store.record_at(entries[0][0]) if entries else None
            record = None if data is None else read_record(bytes(data))
            if record is None and header.queue_offset >= self._store.max_offset(
                header.topic, header.queue_id
            ):
                return None
            return Place(header.topic, header.queue_id, header.queue_offset, record)
        data = self._by_id(header.msg_id, header.topic)
        if data is None:
            return None
        record = read_record(bytes(data))
        return Place(record.topic, record.queue_id, record.queue_offset, record)

    def _by_id(self, msg_id: str, topic: str | None) -> memoryview | None:
        if topic is not None:
            key = msg_id.encode()
            for each in self._store.query_by_key(topic, msg_id, 32, 0, 1 << 62).records:
                record = read_record(each, check_crc=False)
                if record.topic == topic and get_property(record.properties, b"UNIQ_KEY") == key:
                    return each
        try:
            _, position = parse_offset_msg_id(msg_id)
        except (IllegalArgument, ValueError):
            return None
        return self._store.message_at(position)
