"""The records of messages that are alike but in queue, time, body and a few properties of known sizes, as a
producer's messages of one read mostly are: columns of a table, which numpy fills at once.

The result is that of MessageStore.append for one after the other, or of append_batch for one batch after the
other; `MessageStore.append_run` writes it.
Imports numpy: callers check first that it is installed (`MessageStore.has_numpy`).
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from pocketmq.files.layout import ENTRY_FIELDS
from pocketmq.model.record import (
    BEFORE_MIDDLE,
    BORN_HOST_AT,
    HOST_SIZE,
    POSITION_AT,
    QUEUE_OFFSET_AT,
    SIZE_AND_MAGIC,
    SYS_FLAG_AT,
    numpy_fields,
)
from pocketmq.remoting.rows import row_fields
from pocketmq.store.log.batch_record import BatchRecords, RecordFrame

_BORN_MS_AT = SYS_FLAG_AT + 4
_STORE_MS_AT = BORN_HOST_AT + HOST_SIZE
_CRC_AT = SIZE_AND_MAGIC.size
_QUEUE_ID_AT = _CRC_AT + 4
_ENTRY = numpy.dtype(numpy_fields(ENTRY_FIELDS))
_CRC_BITS = numpy.uint32(0x7FFF_FFFF)


class AlikeRun(NamedTuple):
    """What differs between the messages of a run: a value for each of them.

    queue_ids, born_ms: of each send, which has `each` messages. values: of the properties at
    `AlikeRecords.places`, as columns; codes: tags codes, or one of all; keys: where UNIQ_KEY is the only key
    of each, these, joined.
    """

    queue_ids: Sequence[int]
    born_ms: NDArray[Any]
    bodies: NDArray[Any]
    crcs: Sequence[int]
    values: Sequence[NDArray[Any]]
    codes: Sequence[int] | int
    keys: bytes | None
    each: int = 1


class AlikeRecords:
    """What the messages have in common.

    flag, sys_flag: as in append; places: where the values that differ begin in `properties`, and their sizes;
    sent_size: of the body that each send has, 0: its message's.
    """

    def __init__(
        self,
        flag: int,
        sys_flag: int,
        body_size: int,
        properties: bytes,
        places: Sequence[tuple[int, int]],
        sent_size: int = 0,
    ) -> None:
        self.flag = flag
        self.sys_flag = sys_flag
        self.body_size = body_size
        self.sent_size = sent_size or body_size
        # Of a record, without what is the same in all of a topic.
        self.own_size = body_size + len(properties)
        self._properties = properties
        self._places = places
        self._frame: RecordFrame | None = None
        self._row = b""
        self._type = numpy.dtype([])

    def _prepare(self, frame: RecordFrame) -> None:
        """Make the record that all are written over."""
        properties, body_size = self._properties, self.body_size
        size = frame.overhead + self.own_size
        before = b"".join(
            (
                BEFORE_MIDDLE.pack(size, frame.magic, 0, 0, self.flag, 0, 0),
                frame.middle,
                struct.pack(">i", body_size),
            )
        )
        tail = frame.topic + len(properties).to_bytes(2, "big") + properties
        self._row = before + bytes(body_size) + tail
        assert len(self._row) == size
        fields = {
            "crc": (_CRC_AT, ">u4"),
            "queue_id": (_QUEUE_ID_AT, ">i4"),
            "offset": (QUEUE_OFFSET_AT, ">i8"),
            "position": (POSITION_AT, ">i8"),
            "born_ms": (_BORN_MS_AT, ">i8"),
            "store_ms": (_STORE_MS_AT, ">i8"),
            "body": (len(before), f"V{body_size}"),
            "properties": (size - len(properties), f"V{len(properties)}"),
        }
        for number, (start, width) in enumerate(self._places):
            fields[f"value{number}"] = (size - len(properties) + start, f"V{width}")
        self._type = numpy.dtype(row_fields(size, fields))
        self._frame = frame

    def records(
        self,
        frame: RecordFrame,
        run: AlikeRun,
        offsets: Sequence[int],
        position: int,
        store_ms: int,
    ) -> BatchRecords:
        """Return the records and entries of a run, the first at `position`; offsets: where sends begin.

        frame: its queue id and the times of its middle do not count.
        """
        if self._frame != frame:
            self._prepare(frame)
        each = run.each
        count, size = len(offsets) * each, len(self._row)
        records = bytearray(self._row * count)
        rows: Any = numpy.frombuffer(records, self._type)
        positions = _arange(position, position + count * size, size, numpy.int64)
        rows["crc"] = numpy.array(run.crcs, numpy.uint32) & _CRC_BITS
        rows["position"] = positions
        # A row of messages for each send.
        sends: Any = rows.reshape(-1, each)
        sends["queue_id"] = numpy.array(run.queue_ids)[:, None]
        sends["offset"] = numpy.array(offsets)[:, None] + _arange(each)
        sends["born_ms"] = run.born_ms[:, None]
        rows["store_ms"] = store_ms
        rows["body"] = run.bodies
        for number, values in enumerate(run.values):
            rows[f"value{number}"] = values
        entries: Any = numpy.empty(count, _ENTRY)
        entries["position"] = positions
        entries["size"] = size
        entries["code"] = run.codes
        codes = run.codes
        properties, width = rows["properties"].tobytes(), len(self._properties)
        return BatchRecords(
            records,
            entries.tobytes(),
            range(position, position + count * size, size),
            [codes] * count if isinstance(codes, int) else codes,
            lambda place: properties[place * width : (place + 1) * width],
            b"",
            run.keys,
        )


# By place, which the annotations of numpy do not know.
_arange: Any = numpy.arange
