"""Records of one buffer -> one Arrow RecordBatch with the wanted columns; nothing per message in Python.

    data     a commit log file (mapped), a piece of one, or the joined bodies of pull replies
    starts   where records begin in data, in the order of the rows
    known    what a ConsumeQueue said of them (queue, offset, size, code), if it was read

Only what the columns need is read: columns of part "queue" read no byte of the log if `known` is given. A bad
record is passed to `on_bad`, which raises or has the row left out.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.body import INNER as _INNER
from pocketmq.bulk.columns.body import BadBody, open_batches, unpack_bodies, wrong_crcs
from pocketmq.bulk.columns.gather import constant_text, gather, integers, to_text
from pocketmq.bulk.columns.ids import host_texts, offset_ids
from pocketmq.bulk.columns.properties import PropertyTable
from pocketmq.bulk.columns.property_shapes import ShapedProperties
from pocketmq.bulk.columns.record import FixedPart, VariableParts
from pocketmq.bulk.columns.schema import COLUMNS, parts_of, schema_of
from pocketmq.model.java_hash import tag_code
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.record import RECORD_SIZE_MIN

# Spark and Python show the years 1 to 9999; a producer's clock may claim anything.
_MS_MIN = -62_135_596_800_000
_MS_MAX = 253_402_300_799_999

# Columns that need the whole text of the properties.
_OF_ALL = frozenset({"properties", "propertiesRaw"})
_PROPERTY_OF = {"tags": "TAGS", "keys": "KEYS", "uniqKey": "UNIQ_KEY"}
_FIELD_OF = {
    "flag": "flag",
    "sysFlag": "sys_flag",
    "reconsumeTimes": "reconsume_times",
    "bodyCrc": "body_crc",
    "preparedTransactionOffset": "prepared_offset",
    "storeSize": "size",
    "commitLogOffset": "position",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
}
_TIME_OF = {"bornTimestamp": "born_ms", "storeTimestamp": "store_ms"}


class IndexedRecords(NamedTuple):
    """What a ConsumeQueue says about the records, row by row.

    queue: index into topics and queue_ids. table: entries, dtype ENTRY. offsets: queue offsets.
    """

    topics: tuple[str, ...]
    queue_ids: npt.NDArray[np.int32]
    queue: npt.NDArray[np.int32]
    table: npt.NDArray[Any]
    offsets: Int64s

    def take(self, rows: Any) -> "IndexedRecords":
        """Return the same for some rows: a slice, a mask or indices."""
        if isinstance(rows, slice):
            table = self.table[rows]
        else:
            # Entries as opaque 20 bytes: numpy copies records field by field, 30 times slower.
            if rows.dtype == np.bool_:
                rows = np.flatnonzero(rows)
            raw = np.ascontiguousarray(self.table).view(f"V{self.table.itemsize}")
            table = np.take(raw, rows).view(self.table.dtype)
        return self._replace(queue=self.queue[rows], table=table, offsets=self.offsets[rows])

    @property
    def positions(self) -> Int64s:
        """Positions in the commit log."""
        return self.table["position"].astype(np.int64)

    @property
    def sizes(self) -> Int64s:
        """Record sizes, bytes."""
        return self.table["size"].astype(np.int64)


BadRecord = Callable[[int, str], None]
"""(place of the record in data, reason): raises, or returns to leave the record out."""


def decode(
    data: pa.Buffer,
    starts: Int64s,
    columns: Sequence[str],
    *,
    on_bad: BadRecord,
    broker_name: str = "",
    known: IndexedRecords | None = None,
    may_hold_batches: bool = False,
    unpack: bool = True,
    verify_crc: bool = False,
) -> pa.RecordBatch:
    """Decode the wanted columns of the records at `starts`.

    may_hold_batches: also look at sysFlag for inner batches when only "queue" columns are wanted.
    verify_crc: compare every body with its checksum (per record, so slower).
    Returns: at most one row a record, but as many as there are messages for an inner batch.
    """
    return _Decoder(
        data, starts, columns, on_bad, broker_name, known, may_hold_batches, unpack, verify_crc
    ).batch()


def records_with(
    data: pa.Buffer,
    starts: Int64s,
    has: Callable[[pa.BinaryArray], Bools],
    *,
    on_bad: BadRecord,
    known: IndexedRecords | None,
    verify_crc: bool,
) -> tuple[Int64s, IndexedRecords | None]:
    """Return the records, among those at `starts`, with a message whose stored properties `has` chooses.

    has: given the properties of many messages, which need not be valid UTF-8.
    """
    columns = ("propertiesRaw",)
    decoder = _Decoder(data, starts, columns, on_bad, "", known, False, True, verify_crc)
    return decoder.with_properties(has)


def _fields_of(columns: Sequence[str], parts: frozenset[str], verify_crc: bool) -> list[str] | None:
    """Return the fields of the fixed part that the columns need; None for all: lengths are needed too."""
    if verify_crc or parts & {"body", "props"}:
        return None
    fields = [_FIELD_OF.get(c) or _TIME_OF.get(c) for c in columns]
    fields += ["store_host" for c in columns if c in ("bornHost", "storeHost", "msgId")]
    return [f for f in fields if f is not None]


class _Decoder:
    """One call of decode()."""

    def __init__(
        self,
        data: pa.Buffer,
        starts: Int64s,
        columns: Sequence[str],
        on_bad: BadRecord,
        broker_name: str,
        known: IndexedRecords | None,
        may_hold_batches: bool,
        unpack: bool,
        verify_crc: bool,
    ) -> None:
        self._data = data
        self._columns = columns
        self._on_bad = on_bad
        self._broker_name = broker_name
        self._unpack = unpack
        self._known = known
        self._starts = starts
        self._fixed: FixedPart | None = None
        self._variable: VariableParts | None = None
        self._texts: pa.StringArray | None = None
        self._table: PropertyTable | None = None
        self._single: ShapedProperties | PropertyTable | None = None
        # Rows of inner batches: None as long as row = record.
        self._record_of: Int64s | None = None
        self._inner: Any = None
        parts = parts_of(columns)
        if known is None and "tagsCode" in columns:
            # Without an index, the code is computed from the tag.
            parts |= {"props"}
        reads_log = known is None or may_hold_batches or verify_crc or parts != {"queue"}
        self._fields = _fields_of(columns, parts, verify_crc)
        if reads_log and len(starts):
            self._read_fixed()
            needs_variable = self._fields is None or (known is None and "topic" in columns)
            if self._has_inner():
                needs_variable = True
            if needs_variable:
                if self._fields is not None:
                    self._fields = None
                    self._fixed = FixedPart(data, self._starts)
                self._read_variable(verify_crc)
            if self._has_inner() and unpack:
                self._open_inner()

    # ---- rows that are no records are dropped before anything is decoded

    def _read_fixed(self) -> None:
        known = self._known
        inside = self._starts <= self._data.size - RECORD_SIZE_MIN
        if not inside.all():
            self._drop(~inside, "the file ends inside a record")
        self._fixed = FixedPart(self._data, self._starts, self._fields)
        good = self._fixed.sound(
            None if self._known is None else self._known.table["size"],
            None if self._known is None else self._known.table["position"],
        )
        if known is not None:
            assert self._known is not None
            same = self._fixed.column("queue_id") == self._known.queue_ids[self._known.queue]
            good &= same & (self._fixed.column("queue_offset") == self._known.offsets)
        if not good.all():
            self._drop(
                ~good, "there is no record where the ConsumeQueue or the previous record points"
            )
            self._fixed = FixedPart(self._data, self._starts, self._fields)

    def _read_variable(self, verify_crc: bool) -> None:
        assert self._fixed is not None
        self._variable = VariableParts(self._fixed)
        bad = ~self._variable.good
        reason = "the lengths inside a record do not add up to its size"
        if verify_crc and not bad.any():
            bad = wrong_crcs(
                self._data,
                self._variable.body_start,
                self._variable.body_end,
                self._fixed.column("body_crc"),
            )
            reason = "the body does not match its checksum"
        if bad.any():
            self._drop(bad, reason)
            self._fixed = FixedPart(self._data, self._starts, self._fields)
            self._read_variable(verify_crc)

    def _drop(self, bad: Bools, reason: str) -> None:
        for place in np.sort(self._starts[bad]).tolist():
            self._on_bad(place, reason)
        keep = ~bad
        self._starts = self._starts[keep]
        if self._known is not None:
            self._known = self._known.take(keep)

    def _drop_bodies(self, bad: list[BadBody]) -> None:
        mask = np.zeros(len(self._starts), np.bool_)
        for row, reason in bad:
            mask[row] = True
            self._on_bad(int(self._starts[row]), reason)
        keep = ~mask
        self._starts = self._starts[keep]
        if self._known is not None:
            self._known = self._known.take(keep)
        self._fixed = FixedPart(self._data, self._starts, self._fields)
        self._variable = VariableParts(self._fixed)
        self._texts = self._table = self._single = None

    def _has_inner(self) -> bool:
        assert self._fixed is not None
        flags = self._fixed.column("sys_flag")
        return bool(((flags & _INNER) == _INNER).any())

    def _open_inner(self) -> None:
        assert self._fixed is not None
        assert self._variable is not None
        inner = open_batches(
            self._data,
            self._variable.body_start,
            self._variable.body_end,
            self._fixed.column("sys_flag"),
        )
        if inner.bad:
            self._drop_bodies(inner.bad)
            self._open_inner()
            return
        self._inner = inner
        self._record_of = inner.record

    # ---- columns

    def with_properties(
        self, has: Callable[[pa.BinaryArray], Bools]
    ) -> tuple[Int64s, IndexedRecords | None]:
        if not len(self._starts):
            return self._starts, self._known
        chosen = has(self._stored_properties())
        if self._record_of is not None:
            chosen = np.isin(np.arange(len(self._starts)), self._record_of[chosen])
        known = None if self._known is None else self._known.take(chosen)
        return self._starts[chosen], known

    def batch(self) -> pa.RecordBatch:
        if "body" in self._columns and self._variable is not None:
            bodies, bad = self._bodies()
            if bad:
                # Rare: read again without the rows whose body cannot be unpacked.
                self._drop_bodies(bad)
                if self._inner is not None:
                    self._open_inner()
                bodies, _ = self._bodies()
        arrays = [
            bodies if name == "body" and self._variable is not None else self._array(name)
            for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(self._columns))

    def _bodies(self) -> tuple[pa.BinaryArray, list[BadBody]]:
        assert self._fixed is not None
        assert self._variable is not None
        bodies = gather(self._data, self._variable.body_start, self._variable.body_end)
        bad: list[BadBody] = []
        if self._unpack:
            flags = self._fixed.column("sys_flag")
            if self._inner is not None:
                flags = np.where((flags & _INNER) == _INNER, 0, flags)
            bodies, bad = unpack_bodies(bodies, flags)
        return self._rows(bodies, None if self._inner is None else self._inner.bodies), bad

    def _rows(self, of_records: pa.Array, of_inner: Sequence[Any] | None = None) -> pa.Array:
        """Turn values of records into values of rows; rows of opened batches take theirs from of_inner."""
        if self._record_of is None:
            return of_records
        if of_inner is None:
            return of_records.take(pa.array(self._record_of))
        order = self._record_of.copy()
        opened = self._inner.opened
        order[opened] = len(of_records) + np.arange(int(opened.sum()))
        both = pa.concat_arrays([of_records, pa.array(of_inner, of_records.type)])
        return both.take(pa.array(order))

    def _array(self, name: str) -> pa.Array:
        if not len(self._starts):
            return pa.array([], COLUMNS[name].type)
        if name == "brokerName":
            return constant_text(self._broker_name, self._row_count())
        if name == "topic":
            return self._rows(self._topics())
        if name == "propertiesRaw":
            return self._raw_properties()
        if name == "properties":
            return self._properties().maps()
        if name in _PROPERTY_OF:
            return self._single_properties().get(_PROPERTY_OF[name])
        if name in _TIME_OF:
            return self._rows(self._times(_TIME_OF[name]))
        if name in ("bornHost", "storeHost"):
            assert self._fixed is not None
            which = "born_host" if name == "bornHost" else "store_host"
            return self._rows(host_texts(*self._fixed.hosts(which)))
        if name == "msgId":
            assert self._fixed is not None
            ids = offset_ids(self._fixed.column("position"), *self._fixed.hosts("store_host"))
            return self._rows(ids)
        return self._integers(name)

    def _row_count(self) -> int:
        return len(self._starts) if self._record_of is None else len(self._record_of)

    def _integers(self, name: str) -> pa.Array:
        type_ = COLUMNS[name].type
        known = self._known
        if name == "tagsCode":
            if known is None:
                return self._rows(self._computed_codes())
            return self._rows(integers(known.table["code"], type_))
        if name == "flag" and self._inner is not None:
            assert self._fixed is not None
            return self._rows(integers(self._fixed.column("flag"), type_), self._inner.flags)
        values: Any
        if known is not None and name == "queueId":
            values = known.queue_ids[known.queue]
        elif known is not None and name == "queueOffset":
            values = known.offsets
        elif known is not None and name == "commitLogOffset":
            values = known.table["position"]
        elif known is not None and name == "storeSize":
            values = known.table["size"]
        else:
            assert self._fixed is not None
            values = self._fixed.column(_FIELD_OF[name])
        rows = self._rows(integers(values, type_))
        if name == "queueOffset" and self._inner is not None:
            return pc.add(rows, pa.array(self._inner.place, type_))
        return rows

    def _computed_codes(self) -> pa.Array:
        """Return the codes that an index has for the records; null in SCHEDULE_TOPIC_XXXX, where they are
        delivery times.
        """
        assert self._variable is not None
        if self._record_of is None:
            tags = self._single_properties().get("TAGS")
        else:
            ends = (self._variable.properties_start, self._variable.properties_end)
            tags = PropertyTable(to_text(gather(self._data, *ends))).get("TAGS")
        coded = tags.dictionary_encode()
        of_tags = pa.array([tag_code(tag) for tag in coded.dictionary.to_pylist()], pa.int64())
        codes = pc.fill_null(of_tags.take(coded.indices), 0)
        return pc.if_else(
            pc.equal(self._topics(), SCHEDULE_TOPIC), pa.scalar(None, pa.int64()), codes
        )

    def _times(self, field: str) -> pa.Array:
        assert self._fixed is not None
        ms = self._fixed.column(field)
        type_ = COLUMNS["storeTimestamp"].type
        strange = (ms < _MS_MIN) | (ms > _MS_MAX)
        if strange.any():
            return pa.array(np.where(strange, 0, ms) * 1000, pa.int64(), mask=strange).cast(type_)
        return pa.array(ms * 1000, pa.int64()).view(type_)

    def _topics(self) -> pa.Array:
        if self._known is not None:
            first = self._known.topics[0]
            if all(topic == first for topic in self._known.topics):
                return constant_text(first, len(self._starts))
            names = pa.array(self._known.topics, pa.string())
            return names.take(pa.array(self._known.queue))
        assert self._variable is not None
        return to_text(gather(self._data, self._variable.topic_start, self._variable.topic_end))

    def _raw_properties(self) -> pa.StringArray:
        if self._texts is None:
            self._texts = to_text(self._stored_properties())
        return self._texts

    def _stored_properties(self) -> pa.BinaryArray:
        """Of each message, as bytes."""
        assert self._variable is not None
        raw = gather(self._data, self._variable.properties_start, self._variable.properties_end)
        return self._rows(raw, None if self._inner is None else self._inner.properties)

    def _single_properties(self) -> ShapedProperties | PropertyTable:
        """Return what has single properties at the least cost."""
        variable = self._variable
        needs_all = not _OF_ALL.isdisjoint(self._columns)
        if needs_all or self._record_of is not None or variable is None:
            return self._properties()
        if self._single is None:
            shaped = ShapedProperties.of(
                self._data, variable.properties_start, variable.properties_end
            )
            self._single = shaped if shaped is not None else self._properties()
        return self._single

    def _properties(self) -> PropertyTable:
        if self._table is None:
            self._table = PropertyTable(self._raw_properties())
            if sum(c in _PROPERTY_OF or c == "properties" for c in self._columns) > 1:
                self._table.find_layout()
        return self._table
