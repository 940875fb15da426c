"""The records of a batch, from the body of a SEND_BATCH_MESSAGE to what the log and the queue hold.

    per message of the body: int32 size, magic 0, crc 0, flag, int32 n + body, int16 n + properties

A pure function over bytes: about a microsecond a message. MessageStore.append_batch writes it.
Source: CommitLog.DefaultAppendMessageCallback for MessageExtBatch, RocketMQ 4.9.7.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

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


class RecordFrame(NamedTuple):
    """What all records of a batch share: fields of one queue, one producer and one moment.

    middle: sysFlag up to the prepared offset, packed; overhead: bytes of a record besides body and
    properties; topic: its length and name.
    """

    magic: int
    queue_id: int
    middle: bytes
    topic: bytes
    overhead: int


class BatchRecords(NamedTuple):
    """records, entries: to be written as they are, one after the other; the lists have one item a message.

    own: its properties as they came; outer: what stands behind these in each record.
    """

    records: bytes
    entries: list[bytes]
    positions: list[int]
    codes: list[int]
    own: Sequence[bytes]
    outer: bytes

    def properties(self, place: int) -> bytes:
        """Those of one record."""
        own = self.own[place]
        return own + _behind(own, self.outer)

    def to_index(self, key_hash: int, store_ms: int) -> "zip[tuple[int, int, int, bytes]]":
        """What IndexService.pending is to hold."""
        own = self.own
        if b"KEY" in self.outer or b"TAGS" in self.outer:
            own = [self.properties(place) for place in range(len(own))]
        return zip(repeat(key_hash), self.positions, repeat(store_ms), own)


class _Members(NamedTuple):
    """The messages of a batch, field by field."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    own: Sequence[bytes]


def batch_records(
    data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
) -> BatchRecords:
    """The records of the batch `data` when the first goes to `position` and gets `queue_offset`.

    outer: properties that every message gets behind its own. Raises: MessageIllegal where the lengths do
    not add up or a field is out of its range, MessageTooLarge for properties.
    """
    magic, queue_id, middle, topic, overhead = frame
    pack_head, pack_entry, crc32 = BEFORE_MIDDLE.pack, ENTRY.pack, zlib.crc32
    flags, bodies, own = _members(data)
    codes = _codes(own, outer)
    parts: list[bytes] = []
    entries: list[bytes] = []
    positions: list[int] = []
    body_size = own_size = -1
    between = before_own = behind = b""
    try:
        for body, properties, flag, code in zip(bodies, own, flags, codes, strict=True):
            if len(body) != body_size or len(properties) != own_size or properties[-1:] != b"\x02":
                # What most messages of a batch have in common is made once.
                body_size, own_size = len(body), len(properties)
                behind = _behind(properties, outer)
                size = own_size + len(behind)
                if size > PROPERTIES_SIZE_MAX:
                    raise MessageTooLarge("properties", size, PROPERTIES_SIZE_MAX)
                record_size = overhead + body_size + size
                between = middle + _SIZE.pack(body_size)
                before_own = topic + size.to_bytes(2, "big")
                if properties[-1:] != b"\x02":
                    own_size = -1
            crc = crc32(body) & 0x7FFF_FFFF
            parts += (
                pack_head(record_size, magic, crc, queue_id, flag, queue_offset, position),
                between,
                body,
                before_own,
                properties,
                behind,
            )
            entries.append(pack_entry(position, record_size, code))
            positions.append(position)
            position += record_size
            queue_offset += 1
    except struct.error as error:
        raise MessageIllegal(f"a field of the batch is out of range: {error}") from error
    return BatchRecords(b"".join(parts), entries, positions, codes, own, outer)


def _behind(own: bytes, outer: bytes) -> bytes:
    """What stands behind a message's own properties."""
    return b"\x02" + outer if outer and own and own[-1] != 2 else outer


def _codes(own: Sequence[bytes], outer: bytes) -> list[int]:
    """The tags code of each message. Most batches have one tag."""
    first = own[0]
    begin = first.find(b"\x02TAGS\x01")
    end = first.find(b"\x02", begin + 1) + 1
    if begin >= 0 and end > begin + 7 and b"TAGS\x01" not in outer:
        alike = [properties[begin:end] for properties in own].count(first[begin:end])
        if alike == len(own) == b"".join(own).count(b"TAGS\x01"):
            return [tags_code(first)] * alike
    return [tags_code(properties + _behind(properties, outer)) for properties in own]


def _members(data: bytes) -> _Members:
    """Cut a batch. Raises: MessageIllegal where the lengths do not add up."""
    alike = _members_alike(data)
    if alike is not None:
        return alike
    unpack, head_size = BATCH_MEMBER.unpack_from, BATCH_MEMBER.size
    flags: list[int] = []
    bodies: list[bytes] = []
    own: list[bytes] = []
    at, end = 0, len(data)
    try:
        while at < end:
            size, _, _, flag, body_size = unpack(data, at)
            body_end = at + head_size + body_size
            following = at + size
            own_size = data[body_end] << 8 | data[body_end + 1]
            if body_size < 0 or following > end or body_end + 2 + own_size != following:
                raise MessageIllegal(
                    f"the lengths of message {len(flags)} of the batch do not add up"
                )
            flags.append(flag)
            bodies.append(data[at + head_size : body_end])
            own.append(data[body_end + 2 : following])
            at = following
            if len(flags) > BATCH_COUNT_MAX:
                raise MessageIllegal(f"the batch has more than {BATCH_COUNT_MAX} messages")
    except (IndexError, struct.error) as error:
        raise MessageIllegal(f"the batch ends within message {len(flags)}") from error
    if not flags:
        raise MessageIllegal("the batch has no message")
    return _Members(flags, bodies, own)


def _members_alike(data: bytes) -> _Members | None:
    """The members of a batch whose bodies have one size, and their properties too: one call cuts them all.

    None for any other batch.
    """
    if len(data) < BATCH_MEMBER.size:
        return None
    size, _, _, _, body_size = BATCH_MEMBER.unpack_from(data)
    own_size = size - BATCH_MEMBER.size - body_size - 2
    count = len(data) // size if size > 0 else 0
    if not 1 < count <= _ALIKE_MAX or count * size != len(data) or body_size < 0 or own_size <= 0:
        return None
    key = count, body_size, own_size
    cut = _cuts.get(key)
    if cut is None:
        if len(_cuts) >= _CUTS_MAX:
            _cuts.clear()
        cut = _cuts[key] = struct.Struct(f">{f'12si4s{body_size}s2s{own_size}s' * count}").unpack
    parts = cut(data)
    sizes = own_size.to_bytes(2, "big")
    if (
        parts[::6].count(parts[0]) == count
        and parts[2::6].count(parts[2]) == count
        and parts[4::6].count(sizes) == count
    ):
        return _Members(parts[1::6], parts[3::6], parts[5::6])
    return None


# How batches were cut that came before; emptied when there are too many to be a client's habit.
_cuts: dict[tuple[int, int, int], Callable[[bytes], tuple[Any, ...]]] = {}
_CUTS_MAX = 256
_ALIKE_MAX = 256
