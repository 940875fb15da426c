"""The column `tags` by the codes of the index, with one look at each record.

A topic has few tags, and its records hold them in few places, counted from a record's end. So properties need
not be split: the code of an entry says which text to expect, and the record must have these bytes there:

    0x02 TAGS 0x01 text, then 0x02 or the record's end;
    before the first pair, in place of 0x02: the size of all properties, two bytes

The code alone proves nothing, since two tags may have one hash. Records that fail are decoded as any other,
and a few of them teach new texts and places.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.decode import IndexedRecords, decode
from pocketmq.bulk.columns.gather import windows
from pocketmq.bulk.columns.schema import COLUMNS, schema_of
from pocketmq.bulk.rows import Read, needed

_NAME = b"TAGS\x01"
_TEXT_MAX = 96
_TEXTS_MAX = 4096
_PLACES_MAX = 8
# Codes that are learned at once.
_LESSON = 1024
# Batches of which most failed, one after the other: then looking is given up.
_PATIENCE = 4

Int32s = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]


class _Expected(NamedTuple):
    """What records have in one place. begin: where, counted from a record's end. words: of eight bytes, one
    after the other: of each text, and which of their bits count.
    """

    begin: int
    words: tuple[tuple[Words, Words], ...]


def can_be_coded(read: Read) -> bool:
    """Whether tags are all that is wanted of the records."""
    if read.verify_crc or read.filters.any:
        return False
    of_records = [c for c in needed(read) if COLUMNS[c].part != "queue"]
    return of_records == ["tags"]


class CodedTags:
    """What was learned in one read: texts by their codes, and places."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        # (bytes behind the text, whether the pair is the first).
        self._places: list[tuple[int, bool]] = []
        self._codes = pa.array([], pa.int64())
        self._tables: dict[tuple[int, bool], _Expected] = {}
        self._patience = _PATIENCE

    def batch(
        self,
        data: pa.Buffer,
        starts: Int64s,
        known: IndexedRecords,
        columns: Sequence[str],
        broker: str,
    ) -> pa.RecordBatch | None:
        """Columns of the index and `tags`; None if decode() has to report an error, or is as quick."""
        if not self._patience:
            return None
        ends = starts + known.sizes
        codes = known.table["code"].astype(np.int64)
        found = self._find(data, ends, codes)
        left = np.flatnonzero(found < 0)
        lesson = left[_one_of_each(codes[left])]
        if 0 < 4 * len(lesson) < len(left):
            texts = _decoded(data, starts, known, lesson)
            if texts is None:
                return None
            self._learn(data, starts[lesson], ends[lesson], codes[lesson], texts)
            found[left] = self._find(data, ends[left], codes[left])
            left = np.flatnonzero(found < 0)
        self._patience = _PATIENCE if 2 * len(left) < len(starts) else self._patience - 1
        choice = pa.array(list(self._texts.values()), pa.binary()).cast(pa.string())
        if len(left):
            texts = _decoded(data, starts, known, left)
            if texts is None:
                return None
            self._learn(data, starts[left], ends[left], codes[left], texts)
            found[left] = np.arange(len(choice), len(choice) + len(left))
            choice = pa.concat_arrays([choice, texts])
        tags = pc.take(choice, pa.array(found), boundscheck=False)
        arrays = {"tags": tags}
        others = [c for c in columns if c != "tags"]
        if others:
            rows = decode(data, starts, others, on_bad=_never, broker_name=broker, known=known)
            arrays |= zip(others, rows.columns, strict=True)
        return pa.RecordBatch.from_arrays([arrays[c] for c in columns], schema=schema_of(columns))

    def _find(self, data: pa.Buffer, ends: Int64s, codes: Int64s) -> Int32s:
        """The number of each record's text, -1 for none. ends: of the records in data."""
        number = pc.index_in(pa.array(codes), self._codes).fill_null(-1).to_numpy()
        rows = np.flatnonzero((number >= 0) & (ends <= data.size))
        if len(rows) == len(ends):
            return self._found(data, ends, number, self._places)
        found = np.full(len(ends), -1, np.int32)
        found[rows] = self._found(data, ends[rows], number[rows], self._places)
        return found

    def _found(
        self, data: pa.Buffer, ends: Int64s, number: Int32s, places: Sequence[tuple[int, bool]]
    ) -> Int32s:
        """The numbers of the texts that are in one of these places, else -1. Nothing is copied if all are."""
        if not places:
            return np.full(len(ends), -1, np.int32)
        good = self._has_text(data, ends, number, places[0])
        if good.all():
            return number
        found = np.where(good, number, np.int32(-1))
        rows = np.flatnonzero(~good)
        found[rows] = self._found(data, ends[rows], number[rows], places[1:])
        return found

    def _has_text(
        self, data: pa.Buffer, ends: Int64s, number: Int32s, place: tuple[int, bool]
    ) -> Bools:
        """Whether the records have their text in this place there: whole words, bytes before it masked."""
        begin, words = self._expected(place)
        at = ends + begin
        seen = windows(data, np.maximum(at, 0), 8 * len(words)).view(np.uint64)
        different = np.zeros(len(at), np.uint64)
        for row, (wanted, mask) in zip(seen.reshape(len(at), -1).T, words, strict=True):
            found = row ^ wanted.take(number)
            # One mask for all texts, or one for each.
            different |= found & (mask.take(number) if mask.ndim else mask)
        good: Bools = (different == 0) & (at >= 0)
        return good

    def _expected(self, place: tuple[int, bool]) -> "_Expected":
        if place not in self._tables:
            behind, first = place
            closed = b"\x02" if behind else b""
            pairs = [_NAME + text + closed for text in self._texts.values()]
            heads = [
                (len(p) - len(closed) + behind).to_bytes(2, "big") if first else b"\x02"
                for p in pairs
            ]
            rows = [head + pair for head, pair in zip(heads, pairs, strict=True)]
            width = -(-max(map(len, rows)) // 8) * 8
            wanted = _words([r.rjust(width, b"\0") for r in rows], width)
            masks = _words([(b"\xff" * len(r)).rjust(width, b"\0") for r in rows], width)
            alike = [mask[0] if (mask == mask[0]).all() else mask for mask in masks]
            self._tables[place] = _Expected(
                len(closed) - behind - width, tuple(zip(wanted, alike, strict=True))
            )
        return self._tables[place]

    def _learn(
        self, data: pa.Buffer, starts: Int64s, ends: Int64s, codes: Int64s, texts: pa.StringArray
    ) -> None:
        """Takes texts and places from one record of each code."""
        for row in _one_of_each(codes).tolist():
            text = texts[row].as_py()
            if not text or len(self._texts) >= _TEXTS_MAX:
                continue
            raw = text.encode()
            record = bytes(data.slice(int(starts[row]), int(ends[row] - starts[row])))
            place = _place_of(raw, record)
            if place is None or self._texts.setdefault(int(codes[row]), raw) != raw:
                continue
            if place not in self._places and len(self._places) < _PLACES_MAX:
                self._places.append(place)
        self._codes = pa.array(list(self._texts), pa.int64())
        self._tables.clear()


def _place_of(text: bytes, record: bytes) -> tuple[int, bool] | None:
    """Where the text stands, counted from the record's end; None where a look would not find it there."""
    at = record.rfind(_NAME + text)
    behind = len(record) - at - len(_NAME + text)
    if at < 2 or len(text) > _TEXT_MAX or (behind and record[-behind] != 2):
        return None
    if record[at - 1] == 2:
        return behind, False
    is_first = record[at - 2 : at] == (len(record) - at).to_bytes(2, "big")
    return (behind, True) if is_first else None


def _one_of_each(codes: Int64s) -> Int64s:
    """A row of each code; of so many codes as are learned at once."""
    rows: Int64s = np.unique(codes, return_index=True)[1]
    return rows[:_LESSON]


def _words(rows: list[bytes], width: int) -> Words:
    return np.frombuffer(b"".join(rows), np.uint64).reshape(-1, width // 8).T.copy()


def _decoded(
    data: pa.Buffer, starts: Int64s, known: IndexedRecords, rows: Int64s
) -> pa.StringArray | None:
    """The tags of some records; None when one is damaged or holds several messages."""
    bad: list[int] = []
    order = np.argsort(starts[rows], kind="stable")
    rows = rows[order]
    batch = decode(
        data,
        starts[rows],
        ["tags"],
        on_bad=lambda place, _: bad.append(place),
        known=known.take(rows),
    )
    if bad or batch.num_rows != len(rows):
        return None
    return batch.column("tags").take(pa.array(np.argsort(order)))


def _never(place: int, reason: str) -> None:
    raise AssertionError(f"{reason} at {place}")
