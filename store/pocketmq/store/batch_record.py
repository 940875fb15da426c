"""The records of a batch, from the body of a SEND_BATCH_MESSAGE to what the log and the queue hold.

    per message of the body: int32 size, magic 0, crc 0, flag, int32 n + body, int16 n + properties

A pure function over bytes: one pass, about a microsecond a message. MessageStore.append_batch writes it.
Source: CommitLog.DefaultAppendMessageCallback for MessageExtBatch, RocketMQ 4.9.7.
"""

import struct
import zlib
from typing import NamedTuple

from pocketmq.files.layout import ENTRY
from pocketmq.remoting.record import (
    BATCH_COUNT_MAX,
    BATCH_MEMBER,
    BEFORE_MIDDLE,
    PROPERTIES_SIZE_MAX,
)
from pocketmq.store.errors import MessageIllegal, MessageTooLarge
from pocketmq.store.tags_code import tags_code

_SIZE = struct.Struct(">i")
_SHORT_SIZES = [size.to_bytes(2, "big") for size in range(4096)]


class RecordFrame(NamedTuple):
    """What all records of a batch share: fields of one queue, one producer and one moment.

    middle: sysFlag up to the prepared offset, packed; overhead: bytes of a record besides body and
    properties; topic: its length and name; key_hash: for the index.
    """

    magic: int
    queue_id: int
    middle: bytes
    topic: bytes
    overhead: int
    key_hash: int
    store_ms: int


class BatchRecords(NamedTuple):
    """records: to be written as they are, one after the other; the lists have one item a message.

    entries: packed, for the queue; unindexed: (key hash, position, store time, properties).
    """

    records: bytes
    entries: list[bytes]
    positions: list[int]
    codes: list[int]
    unindexed: list[tuple[int, int, int, bytes]]


def batch_records(
    data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
) -> BatchRecords:
    """The records of the batch `data` when the first goes to `position` and gets `queue_offset`.

    outer: properties that every message gets behind its own. Raises: MessageIllegal where the lengths do
    not add up or a field is out of its range, MessageTooLarge for properties.
    """
    magic, queue_id, middle, topic, overhead, key_hash, store_ms = frame
    unpack, pack_head, pack_size, pack_entry = (
        BATCH_MEMBER.unpack_from,
        BEFORE_MIDDLE.pack,
        _SIZE.pack,
        ENTRY.pack,
    )
    crc32, sizes, member_size = zlib.crc32, _SHORT_SIZES, BATCH_MEMBER.size
    separated = b"\x02" + outer if outer else b""
    parts: list[bytes] = []
    entries: list[bytes] = []
    positions: list[int] = []
    codes: list[int] = []
    unindexed: list[tuple[int, int, int, bytes]] = []
    end = len(data)
    at = 0
    try:
        while at < end:
            size, _, _, flag, body_size = unpack(data, at)
            body_end = at + member_size + body_size
            own_at = body_end + 2
            following = at + size
            if (
                body_size < 0
                or following > end
                or own_at + (data[body_end] << 8 | data[body_end + 1]) != following
            ):
                raise MessageIllegal(
                    f"the lengths of message {len(positions)} of the batch do not add up"
                )
            body = data[at + member_size : body_end]
            own = data[own_at:following]
            own += outer if not own or own[-1] == 2 else separated
            own_size = len(own)
            if own_size > PROPERTIES_SIZE_MAX:
                raise MessageTooLarge("properties", own_size, PROPERTIES_SIZE_MAX)
            record_size = overhead + body_size + own_size
            code = tags_code(own)
            parts += (
                pack_head(
                    record_size,
                    magic,
                    crc32(body) & 0x7FFF_FFFF,
                    queue_id,
                    flag,
                    queue_offset,
                    position,
                ),
                middle,
                pack_size(body_size),
                body,
                topic,
                sizes[own_size] if own_size < 4096 else own_size.to_bytes(2, "big"),
                own,
            )
            entries.append(pack_entry(position, record_size, code))
            positions.append(position)
            if len(positions) > BATCH_COUNT_MAX:
                raise MessageIllegal(f"the batch has more than {BATCH_COUNT_MAX} messages")
            codes.append(code)
            unindexed.append((key_hash, position, store_ms, own))
            position += record_size
            queue_offset += 1
            at = following
    except IndexError as error:
        raise MessageIllegal(f"the batch ends within message {len(positions)}") from error
    except struct.error as error:
        raise MessageIllegal(
            f"the batch ends within message {len(positions)}, or a field is out of range: {error}"
        ) from error
    if not positions:
        raise MessageIllegal("the batch has no message")
    return BatchRecords(b"".join(parts), entries, positions, codes, unindexed)
