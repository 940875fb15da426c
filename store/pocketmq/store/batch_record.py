"""The records of a batch: from the body of a SEND_BATCH_MESSAGE to the bytes of log and queue.

    per message of the body: int32 size, magic 0, crc 0, flag, int32 n + body, int16 n + properties

A pure function over bytes. MessageStore.append_batch writes its result.

1. The messages of a batch are mostly alike: bodies of one size, and properties that differ in the value of
   UNIQ_KEY and what follows it. One call cuts such a batch, one call writes its records. A batch is handled
   this way if one like it has come before.
2. Any other batch is processed message by message, with the same result.
Source: CommitLog.DefaultAppendMessageCallback for MessageExtBatch, RocketMQ 4.9.7.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pocketmq.files.layout import ENTRY, ENTRY_FIELDS
from pocketmq.remoting.record import (
    BATCH_COUNT_MAX,
    BATCH_MEMBER,
    BEFORE_MIDDLE,
    PROPERTIES_SIZE_MAX,
    SIZE_AND_MAGIC,
)
from pocketmq.store.errors import MessageIllegal, MessageTooLarge
from pocketmq.store.tags_code import tags_code

_SIZE = struct.Struct(">i")
_QUEUE_AND_FLAG = struct.Struct(">ii")
_ENTRY_CODES = "".join(code for _, code in ENTRY_FIELDS)
_HEAD_SIZE = BATCH_MEMBER.size
_UNIQUE = b"UNIQ_KEY\x01"


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

    The properties of a message, as received: before + values[n] + tails[n]; outer: appended to these in
    each record. values_are_keys: values are the only keys to index.
    """

    records: bytes
    entries: bytes
    positions: Sequence[int]
    codes: Sequence[int]
    before: bytes
    values: Sequence[bytes]
    tails: Sequence[bytes]
    outer: bytes
    values_are_keys: bool

    def properties(self, place: int) -> bytes:
        """Return the properties of one record."""
        own = self.before + self.values[place] + self.tails[place]
        return own + _behind(own, self.outer)


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
    data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
) -> BatchRecords:
    """Build the records of the batch `data`, the first at `position` with `queue_offset`.

    outer: properties that every message gets behind its own. Raises: MessageIllegal where the lengths do
    not add up or a field is out of its range, MessageTooLarge for properties.
    """
    alike = _alike(data)
    try:
        if alike is not None:
            made = alike.records(data, frame, outer, position, queue_offset)
            if made is not None:
                return made
        return _walked(data, frame, outer, position, queue_offset)
    except struct.error as error:
        raise MessageIllegal(f"a field of the batch is out of range: {error}") from error


def _behind(own: bytes, outer: bytes) -> bytes:
    """Return what follows a message's own properties."""
    return b"\x02" + outer if outer and own and own[-1] != 2 else outer


def _check_properties(size: int) -> None:
    if size > PROPERTIES_SIZE_MAX:
        raise MessageTooLarge("properties", size, PROPERTIES_SIZE_MAX)


# ---------------------------------------------------------------- any batch


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
            raise MessageIllegal(f"the batch ends within message {len(owns)}")
        size, _, _, flag, body_size = unpack(data, at)
        body_end = at + _HEAD_SIZE + body_size
        following = at + size
        if (
            body_size < 0
            or following > end
            or body_end + 2 > end
            or body_end + 2 + (data[body_end] << 8 | data[body_end + 1]) != following
        ):
            raise MessageIllegal(f"the lengths of message {len(owns)} of the batch do not add up")
        body, own = data[at + _HEAD_SIZE : body_end], data[body_end + 2 : following]
        at = following
        behind = _behind(own, outer)
        own_size = len(own) + len(behind)
        _check_properties(own_size)
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
            behind,
        )
        code = tags_code(own + behind if outer_has_tag else own)
        entries.append(ENTRY.pack(position, record_size, code))
        codes.append(code)
        owns.append(own)
        positions.append(position)
        position += record_size
        queue_offset += 1
        if len(owns) > BATCH_COUNT_MAX:
            raise MessageIllegal(f"the batch has more than {BATCH_COUNT_MAX} messages")
    if not owns:
        raise MessageIllegal("the batch has no message")
    records, nothing = b"".join(parts), [b""] * len(owns)
    return BatchRecords(
        records, b"".join(entries), positions, codes, b"", owns, nothing, outer, False
    )


# ---------------------------------------------------------------- a batch of messages that are alike


class _Alike:
    """Cuts batches of one shape and writes their records."""

    def __init__(self, data: bytes, count: int, body_size: int, key_at: int, key_size: int) -> None:
        """key_at: where the value of UNIQ_KEY begins in a member."""
        size = len(data) // count
        body_end = _HEAD_SIZE + body_size
        self._count = count
        self._body_size = body_size
        self._before = data[body_end + 2 : key_at]
        self._own_size = size - body_end - 2
        self._tail_size = size - key_at - key_size
        self._key_size = key_size
        # What must be the same in each: the head, and the properties with their size up to the value.
        self._same = [data[:_HEAD_SIZE]] * count, [data[body_end:key_at]] * count
        self._flag = int(BATCH_MEMBER.unpack_from(data)[3])
        member = f"{_HEAD_SIZE}s{body_size}s{key_at - body_end}s{key_size}s{self._tail_size}s"
        self._cut = struct.Struct(">" + member * count).unpack
        # By size of what the records share.
        self._packs: dict[tuple[int, int, int], Callable[..., bytes]] = {}
        self._entries = struct.Struct(">" + _ENTRY_CODES * count).pack
        # The last byte of all properties: whether a separator has to follow.
        self._last = data[size - 1]
        self._codes: dict[bytes, int] = {}
        self._more_keys = self._before.count(b"KEY") > 1

    def records(
        self, data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
    ) -> BatchRecords | None:
        """Return the records; None if they are not alike after all. Raises: MessageTooLarge, struct.error."""
        parts = self._cut(data)
        heads, befores = self._same
        keys, tails = list(parts[3::5]), parts[4::5]
        joined = b"".join(keys)
        if (
            list(parts[::5]) != heads
            or list(parts[2::5]) != befores
            # As numbers: to ask whether bytes hold others costs an exception that is made and dropped.
            or 2 in joined
            or 1 in joined
        ):
            return None
        codes = self._codes_of(tails)
        if codes is None or outer.find(b"TAGS\x01") >= 0:
            return None
        count = self._count
        behind = b"\x02" + outer if outer and self._last != 2 else outer
        own_size = self._own_size + len(behind)
        _check_properties(own_size)
        magic, queue_id, middle, topic, overhead = frame
        size = overhead + self._body_size + own_size
        middle += _SIZE.pack(self._body_size)
        start = SIZE_AND_MAGIC.pack(size, magic)
        before = topic + own_size.to_bytes(2, "big") + self._before
        flags, following = _QUEUE_AND_FLAG.pack(queue_id, self._flag), behind + start
        positions = range(position, position + count * size, size)
        bodies = parts[1::5]
        # In the order of a record: crc, queue and flag, offset, position, the rest.
        values: list[Any] = [0, flags, 0, 0, middle, b"", before, b"", b"", following] * count
        values[::10] = [crc & 0x7FFF_FFFF for crc in map(zlib.crc32, bodies)]
        values[2::10] = range(queue_offset, queue_offset + count)
        values[3::10] = positions
        values[5::10] = bodies
        values[7::10] = keys
        values[8::10] = tails
        records = self._pack(len(middle), len(before), len(following))(start, *values)
        entries: list[int] = [0, size, 0] * count
        entries[::3] = positions
        entries[2::3] = codes
        return BatchRecords(
            records,
            self._entries(*entries),
            positions,
            codes,
            self._before,
            keys,
            tails,
            outer,
            not self._more_keys and outer.find(b"KEY") < 0,
        )

    def _pack(self, middle: int, before: int, following: int) -> Callable[..., bytes]:
        pack = self._packs.get((middle, before, following))
        if pack is None:
            if len(self._packs) >= _PACKS_MAX:
                self._packs.clear()
            one = f"I8sqq{middle}s{self._body_size}s{before}s{self._key_size}s{self._tail_size}s"
            many = f"{one}{following}s" * (self._count - 1)
            # Behind the last record no other begins: the packing cuts it off.
            last = f"{one}{following - SIZE_AND_MAGIC.size}s"
            pack = struct.Struct(f">{SIZE_AND_MAGIC.size}s{many}{last}").pack
            self._packs[middle, before, following] = pack
        return pack

    def _codes_of(self, tails: Sequence[bytes]) -> list[int] | None:
        """Return the tags code of each message, from what follows its key; None if that does not tell it."""
        codes = self._codes
        try:
            first = codes[tails[0]]
            if tails.count(tails[0]) == len(tails):
                return [first] * len(tails)
            return [codes[tail] for tail in tails]
        except KeyError:
            pass
        if len(codes) + len(tails) > _CODES_MAX:
            codes.clear()
        for tail in set(tails):
            whole = self._before + b"K" + tail
            if tail[:1] not in (b"", b"\x02") or (whole[-1] == 2) != (self._last == 2):
                return None
            codes[tail] = tags_code(whole)
            # UNIQ_KEY once more, or KEYS.
            self._more_keys = self._more_keys or b"KEY" in tail
        return [codes[tail] for tail in tails]


def _alike(data: bytes) -> _Alike | None:
    """Return how to cut this batch, if one like it has come before."""
    if len(data) < _HEAD_SIZE:
        return None
    size, _, _, _, body_size = BATCH_MEMBER.unpack_from(data)
    body_end = _HEAD_SIZE + body_size
    if body_size < 0 or not body_end + 2 < size <= len(data) // 2 or len(data) % size:
        return None
    if body_end + 2 + (data[body_end] << 8 | data[body_end + 1]) != size:
        return None
    begin = data.find(_UNIQUE, body_end + 2, size)
    if begin < 0 or (begin > body_end + 2 and data[begin - 1] != 2):
        return None
    key_at = begin + len(_UNIQUE)
    key_end = data.find(b"\x02", key_at, size)
    key_size = (key_end if key_end >= 0 else size) - key_at
    count = len(data) // size
    if not key_size or count > _ALIKE_MAX or size - body_end > _ALIKE_PROPERTIES_MAX:
        return None
    shape = count, key_size, data[:_HEAD_SIZE], data[body_end:key_at], data[size - 1]
    known = _shapes.get(shape)
    if known is None:
        if shape in _shapes:
            # Seen once: now it is worth the work.
            known = _shapes[shape] = _Alike(data, count, body_size, key_at, key_size)
        else:
            if len(_shapes) >= _SHAPES_MAX:
                _shapes.clear()
            _shapes[shape] = None
    return known


# Shapes of batches that came before; emptied when there are too many to be a client's habit.
_shapes: dict[tuple[int, int, bytes, bytes, int], _Alike | None] = {}
_SHAPES_MAX, _PACKS_MAX, _CODES_MAX = 256, 16, 256
_ALIKE_MAX, _ALIKE_PROPERTIES_MAX = 256, 512
