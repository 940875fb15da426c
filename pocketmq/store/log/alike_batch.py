"""Batches whose messages are alike: bodies of one size, and properties that differ only in the value of
UNIQ_KEY and in what stands behind it. A producer's batches mostly are.

Their records are columns of a table: numpy copies bodies and properties of all messages at once into records
of the batch before, which have everything else already. Only a body becomes an object, for its CRC.

1. The result is that of batch_record.batch_records, which takes what is not alike.
2. A shape is prepared when a second batch of it comes.
Imports numpy: IndexService imports it, in a thread. Owner: IndexService, whose keys these are as well.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from pocketmq.files.layout import ENTRY_FIELDS, ENTRY_SIZE
from pocketmq.model.record import (
    BATCH_MEMBER,
    BEFORE_MIDDLE,
    POSITION_AT,
    QUEUE_OFFSET_AT,
    SIZE_AND_MAGIC,
    SYS_FLAG_AT,
    numpy_fields,
)
from pocketmq.remoting.rows import row_fields
from pocketmq.store.log.batch_record import (
    RECEIPT,
    BatchRecords,
    RecordFrame,
    behind,
    check_properties,
)
from pocketmq.store.queue.tags_code import tags_code

_HEAD_SIZE = BATCH_MEMBER.size
_UNIQUE = b"UNIQ_KEY\x01"
_CRC_AT = SIZE_AND_MAGIC.size
_INT64, _UINT8 = numpy.dtype(numpy.int64), numpy.dtype(numpy.uint8)
# Fewer messages are cheaper one by one.
_COUNT_MIN = 3
_COUNT_MAX, _SIZE_MAX, _PROPERTIES_MAX = 256, 256 << 10, 512
_SEEN_MAX, _CODES_MAX = 256, 256
_MEMORY_MAX = 16 << 20

# Tags codes of the messages of a batch, and whether UNIQ_KEY is the only key of each.
_Codes = tuple[Sequence[int], bool]


class CutBatches(NamedTuple):
    """Of the messages of several batches; owns: properties from UNIQ_KEY's value on; keys: joined, if these
    are the only ones.
    """

    bodies: NDArray[Any]
    owns: NDArray[Any]
    crcs: Sequence[int]
    codes: Sequence[int]
    keys: bytes | None


class AlikeBatches:
    """The shapes that came before; all are forgotten when they take too much memory."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, bytes, bytes, int], BatchShape | None] = {}
        # The shape that a batch of this size had last.
        self._last: dict[int, BatchShape] = {}

    def records(
        self, data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
    ) -> BatchRecords | None:
        """Return the records of a batch, valid until the next call; None if they are not alike.

        Args, raises: see batch_records; struct.error where it raises RecordIllegal.
        """
        shape = self._last.get(len(data))
        if shape is not None:
            made = shape.records(data, frame, outer, position, queue_offset)
            if made is not None:
                return made
        known = self.find(data)
        if known is None or known is shape:
            return None
        self._last[len(data)] = known
        return known.records(data, frame, outer, position, queue_offset)

    def find(self, data: bytes) -> "BatchShape | None":
        """Return how to cut this batch, if one like it has come before."""
        if not _HEAD_SIZE < len(data) <= _SIZE_MAX:
            return None
        size, _, _, _, body_size = BATCH_MEMBER.unpack_from(data)
        body_end = _HEAD_SIZE + body_size
        if body_size <= 0 or not body_end + 2 < size <= len(data) // _COUNT_MIN or len(data) % size:
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
        if not key_size or count > _COUNT_MAX or size - body_end > _PROPERTIES_MAX:
            return None
        seen = self._seen
        if data.find(RECEIPT, body_end + 2, key_at) >= 0:
            # It is left out when the batch is taken one by one.
            return None
        name = count, key_size, data[:_HEAD_SIZE], data[body_end:key_at], data[size - 1]
        if seen.get(name) is None:
            memory = sum(shape.memory for shape in seen.values() if shape is not None)
            if len(seen) >= _SEEN_MAX or memory > _MEMORY_MAX:
                seen.clear()
                self._last.clear()
            shape = BatchShape(data, count, body_size, key_at, key_size) if name in seen else None
            seen[name] = shape
        return seen[name]


class BatchShape:
    """Batches of one count, with heads and sizes of one kind."""

    def __init__(self, data: bytes, count: int, body_size: int, key_at: int, key_size: int) -> None:
        """key_at: where the value of UNIQ_KEY begins in a member."""
        size = len(data) // count
        body_end = _HEAD_SIZE + body_size
        key_end = key_at + key_size
        self.count, self.body_size, self._key_size = count, body_size, key_size
        self.size = len(data)
        self.flag = int(BATCH_MEMBER.unpack_from(data)[3])
        self.before = data[body_end + 2 : key_at]
        self.own_size = size - key_at
        # The last byte of all properties: whether a separator has to follow.
        self.last = data[size - 1 : size]
        self._only_key = self.before.count(b"KEY") == 1
        fields = {
            "body": (_HEAD_SIZE, f"V{body_size}"),
            "key": (key_at, f"V{key_size}"),
            "tail": (key_end, f"V{size - key_end}"),
            "own": (key_at, f"V{self.own_size}"),
        }
        self._member = numpy.dtype(row_fields(size, fields))
        varies = bytearray(b"\xff" * len(data))
        cut: Any = numpy.frombuffer(varies, self._member)
        cut["body"] = cut["own"] = b""
        self._mask = numpy.frombuffer(varies, _UINT8)
        self._same = (numpy.frombuffer(data[:size] * count, _UINT8) & self._mask).tobytes()
        self._masked = bytearray(len(data))
        self._masked_array = numpy.frombuffer(self._masked, _UINT8)
        self._bodies = struct.Struct(
            f"{_HEAD_SIZE}x{body_size}s{size - body_end}x" * count
        ).unpack_from
        self._pack_crcs = struct.Struct(f">{count}I").pack
        self._crc_bits = int.from_bytes(b"\x7f\xff\xff\xff" * count, "big")
        self._codes: dict[bytes, _Codes | None] = {}
        self._tables: dict[tuple[int, int, bytes, bytes, int], _Table] = {}

    @property
    def memory(self) -> int:
        """Return the bytes that it takes, about."""
        return 3 * len(self._same) + sum(2 * len(each.records) for each in self._tables.values())

    def records(
        self, data: bytes, frame: RecordFrame, outer: bytes, position: int, queue_offset: int
    ) -> BatchRecords | None:
        """See AlikeBatches.records."""
        numpy.bitwise_and(numpy.frombuffer(data, _UINT8), self._mask, self._masked_array)
        if self._masked != self._same:
            return None
        members: Any = numpy.frombuffer(data, self._member)
        keys: bytes = members["key"].tobytes()
        tails: bytes = members["tail"].tobytes()
        # As numbers: to ask whether bytes hold others costs an exception that is made and dropped.
        if 2 in keys or 1 in keys:
            return None
        known = self._codes.get(tails) or self._codes_of(tails)
        if known is None:
            return None
        magic, queue_id, middle, topic, _ = frame
        name = queue_id, magic, topic, outer, len(middle)
        table = self._tables.get(name) or self._new_table(name, frame, outer)
        if table is None:
            return None
        codes, only_key = known
        count = self.count
        crcs = int.from_bytes(self._pack_crcs(*map(zlib.crc32, self._bodies(data))), "big")
        table.crcs[:] = numpy.frombuffer((crcs & self._crc_bits).to_bytes(4 * count, "big"), "V4")
        table.bodies[:] = members["body"]
        table.owns[:] = members["own"]
        if table.middle != middle:
            table.middle = middle
            table.middles[:] = middle
        end = position + count * table.size
        positions = _arange(position, end, table.size, _INT64)
        table.positions[:] = positions
        table.entry_positions[:] = positions
        table.offsets[:] = _arange(queue_offset, queue_offset + count, 1, _INT64)
        if table.codes is not codes:
            table.codes = codes
            table.entry_codes[:] = codes
        result: BatchRecords = _new_tuple(
            BatchRecords,
            (
                table.records,
                table.entries,
                range(position, end, table.size),
                codes,
                partial(self._own, keys, tails),
                outer,
                keys if only_key and table.has_no_key else None,
            ),
        )
        return result

    def cut(self, data: bytes) -> "CutBatches | None":
        """Return what differs between the messages of joined batches; None if they are not alike."""
        size, count = self.size, self.count
        table = numpy.frombuffer(data, _UINT8).reshape(-1, size) & self._mask
        if table.tobytes() != self._same * len(table):
            return None
        members: Any = numpy.frombuffer(data, self._member)
        keys: bytes = members["key"].tobytes()
        tails: bytes = members["tail"].tobytes()
        if 2 in keys or 1 in keys:
            return None
        codes: list[int] = []
        only_key = True
        width = count * (self.own_size - self._key_size)
        for place in range(len(table)):
            tail = tails[place * width : (place + 1) * width]
            known = self._codes.get(tail) or self._codes_of(tail)
            if known is None:
                return None
            codes += known[0]
            only_key = only_key and known[1]
        crcs = array("I")
        bodies = self._bodies
        for at in range(0, len(data), size):
            crcs.extend(map(zlib.crc32, bodies(data, at)))
        return CutBatches(members["body"], members["own"], crcs, codes, keys if only_key else None)

    def _own(self, keys: bytes, tails: bytes, place: int) -> bytes:
        """Return the properties of one message, as received."""
        key_size, tail_size = self._key_size, self.own_size - self._key_size
        key, tail = place * key_size, place * tail_size
        return self.before + keys[key : key + key_size] + tails[tail : tail + tail_size]

    def _codes_of(self, tails: bytes) -> _Codes | None:
        """Return what the ends of the properties tell; None if they do not tell it alone."""
        count = self.count
        size = len(tails) // count
        codes: list[int] = []
        for place in range(count):
            tail = tails[place * size : (place + 1) * size]
            whole = self.before + b"K" + tail
            ends_alike = (whole[-1:] == b"\x02") == (self.last == b"\x02")
            if tail[:1] not in (b"", b"\x02") or not ends_alike or RECEIPT in tail:
                return None
            codes.append(tags_code(whole))
        if len(self._codes) >= _CODES_MAX:
            self._codes.clear()
        # UNIQ_KEY once more, or KEYS.
        found = self._codes[tails] = codes, self._only_key and b"KEY" not in tails
        return found

    def _new_table(
        self, name: tuple[int, int, bytes, bytes, int], frame: RecordFrame, outer: bytes
    ) -> "_Table | None":
        """Make the records that all of a queue's are written over. Raises: RecordTooLarge, struct.error."""
        if b"TAGS\x01" in outer:
            return None
        following = behind(self.last, outer)
        own_size = len(self.before) + self.own_size + len(following)
        check_properties(own_size)
        size = frame.overhead + self.body_size + own_size
        row = b"".join(
            (
                BEFORE_MIDDLE.pack(size, frame.magic, 0, frame.queue_id, self.flag, 0, 0),
                frame.middle,
                struct.pack(">i", self.body_size),
                bytes(self.body_size),
                frame.topic,
                own_size.to_bytes(2, "big"),
                self.before,
                bytes(self.own_size),
                following,
            )
        )
        assert len(row) == size
        sizes = self.body_size, self.own_size
        table = self._tables[name] = _Table(row, self.count, frame, sizes, following)
        table.has_no_key = b"KEY" not in outer
        return table


class _Table:
    """Records and entries of one queue's batch, and the columns in which the next one's differ."""

    def __init__(
        self,
        row: bytes,
        count: int,
        frame: RecordFrame,
        sizes: tuple[int, int],
        following: bytes,
    ) -> None:
        """row: a record; sizes: of its body, and of what differs in its properties, before `following`."""
        body_size, own_size = sizes
        size = self.size = len(row)
        self.records = bytearray(row * count)
        self.entries = bytearray(ENTRY_SIZE * count)
        self.middle = frame.middle
        self.codes: Sequence[int] = ()
        self.has_no_key = True
        middle_size, own_at = len(frame.middle), size - len(following) - own_size
        fields = {
            "crc": (_CRC_AT, "V4"),
            "offset": (QUEUE_OFFSET_AT, ">i8"),
            "position": (POSITION_AT, ">i8"),
            "middle": (SYS_FLAG_AT, f"V{middle_size}"),
            "body": (SYS_FLAG_AT + middle_size + 4, f"V{body_size}"),
            "own": (own_at, f"V{own_size}"),
        }
        columns: Any = numpy.frombuffer(self.records, numpy.dtype(row_fields(size, fields)))
        self.crcs, self.offsets, self.positions = (
            columns["crc"],
            columns["offset"],
            columns["position"],
        )
        self.middles, self.bodies, self.owns = columns["middle"], columns["body"], columns["own"]
        entries: Any = numpy.frombuffer(self.entries, numpy.dtype(numpy_fields(ENTRY_FIELDS)))
        self.entry_positions, self.entry_codes = entries["position"], entries["code"]
        entries["size"] = size


# By place, which the annotations of numpy do not know.
_arange: Any = numpy.arange
# A named tuple without the cost of its own __new__, for every batch.
_new_tuple: Callable[..., Any] = tuple.__new__
