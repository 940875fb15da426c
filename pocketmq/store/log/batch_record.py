"""The records of a batch: from the body of a SEND_BATCH_MESSAGE to the bytes of log and queue.

    per message of the body: int32 size, magic 0, crc 0, flag, int32 n + body, int16 n + properties

MessageStore.append_batch writes the result. Batches whose messages are alike, as most are, take a shorter way
with the same result (alike_batch.py).
Source: CommitLog.DefaultAppendMessageCallback for MessageExtBatch, RocketMQ 4.9.7.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from pocketmq.files.layout import ENTRY
from pocketmq.model.message_codec import remove_property
from pocketmq.model.record import (
    BATCH_COUNT_MAX,
    BATCH_MEMBER,
    BEFORE_MIDDLE,
    PROPERTIES_SIZE_MAX,
)
from pocketmq.store.errors import RecordIllegal, RecordTooLarge
from pocketmq.store.queue.tags_code import tags_code

# The name of a popped message's receipt, as it begins a property. No receipt is stored: a popped message that
# is sent on would bring the one of the message it was.
RECEIPT = b"POP_CK\x01"
_SIZE = struct.Struct(">i")
_HEAD_SIZE = BATCH_MEMBER.size


class RecordFrame(NamedTuple):
    """The fields common to all records of a batch: of one queue, one producer and one moment.

    middle: sysFlag up to the prepared offset, packed; overhead: bytes of a record besides body and
    properties; topic: its length and name.
    """

    magic: int
    queue_id: int
    middle: bytes
    topic: bytes
    overhead: int


class BatchRecords(NamedTuple):
    """records, entries: to be written as they are; positions, codes: one per message.

    own(n): the properties of message n, as received; outer: appended to these in each record. keys: where the
    messages have one key each to index, all of one size, these keys, joined.
    """

    records: bytes | bytearray
    entries: bytes | bytearray
    positions: Sequence[int]
    codes: Sequence[int]
    own: Callable[[int], bytes]
    outer: bytes
    keys: bytes | None

    def properties(self, place: int) -> bytes:
        """Return the properties of one record."""
        own = self.own(place)
        return own + behind(own, self.outer)


class BatchBuilder(Protocol):
    """Builds the records of batches whose messages are alike, many at once: alike_batch.AlikeBatches."""

    def records(
        self, data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
    ) -> BatchRecords | None:
        """Return the records, or None for a batch that it leaves to others."""
        ...


# A message that waits for the index: hash of "TOPIC#", position, store time, properties.
Pending = tuple[int, int, int, bytes]


class BatchToIndex(NamedTuple):
    """A batch that waits for the index; start: as in Pending."""

    start: int
    made: BatchRecords
    store_ms: int

    def one_by_one(self) -> list[Pending]:
        """Return the batch as single messages waiting for the index."""
        start, made, store_ms = self
        return [
            (start, position, store_ms, made.properties(place))
            for place, position in enumerate(made.positions)
        ]


def batch_records(
    data: bytes,
    frame: RecordFrame,
    outer: bytes,
    position: int,
    queue_offset: int,
    alike: "BatchBuilder | None" = None,
) -> BatchRecords:
    """Build the records of the batch `data`, the first at `position` with `queue_offset`.

    outer: properties that every message gets behind its own. alike: takes what it can; its records are valid
    until the next batch. Raises: RecordIllegal where the lengths do not add up or a field is out of its
    range, RecordTooLarge for properties.
    """
    try:
        if alike is not None:
            made = alike.records(data, frame, outer, position, queue_offset)
            if made is not None:
                return made
        return _walked(data, frame, outer, position, queue_offset)
    except struct.error as error:
        raise RecordIllegal(f"a field of the batch is out of range: {error}") from error


def behind(own: bytes, outer: bytes) -> bytes:
    """Return what follows a message's own properties, of which the end is enough."""
    return b"\x02" + outer if outer and own and own[-1] != 2 else outer


def check_properties(size: int) -> None:
    """Raises: RecordTooLarge."""
    if size > PROPERTIES_SIZE_MAX:
        raise RecordTooLarge("properties", size, PROPERTIES_SIZE_MAX)


def _walked(
    data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
) -> BatchRecords:
    magic, queue_id, middle, topic, overhead = frame
    unpack, pack_head, crc32 = BATCH_MEMBER.unpack_from, BEFORE_MIDDLE.pack, zlib.crc32
    outer_has_tag = b"TAGS\x01" in outer
    parts: list[bytes] = []
    entries: list[bytes] = []
    positions: list[int] = []
    codes: list[int] = []
    owns: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        if end - at < _HEAD_SIZE:
            raise RecordIllegal(f"the batch ends inside message {len(owns)}")
        size, _, _, flag, body_size = unpack(data, at)
        body_end = at + _HEAD_SIZE + body_size
        following = at + size
        if (
            body_size < 0
            or following > end
            or body_end + 2 > end
            or body_end + 2 + (data[body_end] << 8 | data[body_end + 1]) != following
        ):
            raise RecordIllegal(f"the lengths of message {len(owns)} of the batch do not add up")
        body, own = data[at + _HEAD_SIZE : body_end], data[body_end + 2 : following]
        at = following
        if own.find(RECEIPT) >= 0:
            own = remove_property(own, RECEIPT[:-1])
        after = behind(own, outer)
        own_size = len(own) + len(after)
        check_properties(own_size)
        record_size = overhead + body_size + own_size
        crc = crc32(body) & 0x7FFF_FFFF
        parts += (
            pack_head(record_size, magic, crc, queue_id, flag, queue_offset, position),
            middle,
            _SIZE.pack(body_size),
            body,
            topic,
            own_size.to_bytes(2, "big"),
            own,
            after,
        )
        code = tags_code(own + after if outer_has_tag else own)
        entries.append(ENTRY.pack(position, record_size, code))
        codes.append(code)
        owns.append(own)
        positions.append(position)
        position += record_size
        queue_offset += 1
        if len(owns) > BATCH_COUNT_MAX:
            raise RecordIllegal(f"the batch has more than {BATCH_COUNT_MAX} messages")
    if not owns:
        raise RecordIllegal("the batch has no message")
    own_of = owns.__getitem__
    return BatchRecords(b"".join(parts), b"".join(entries), positions, codes, own_of, outer, None)
