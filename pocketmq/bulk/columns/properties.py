"""Properties of many records: locates names and values, then extracts single properties or whole maps.

Text: `name 0x01 value 0x02 ...`; 4.9 leaves out the last 0x02, 5.x writes it. All properties of a batch are
one run of bytes; both separators are found at once. As long as they alternate within every record, pair i
is (start, 0x01, end) by arithmetic. Anything else (a value that contains 0x01, an empty name or value)
takes the whole batch through Java's rules record by record: pairs end at 0x02, the first 0x01 divides,
a pair without name or value is dropped, the last of two equal names wins.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Int64s
from pocketmq.bulk.columns.gather import gather, gather_at, offsets_and_data
from pocketmq.bulk.columns.schema import STRING_MAP


class PropertyTable:
    """Pairs of a batch: names data[name_start:name_end], values data[value_start:value_end].

    first_pair: (n + 1,) the first pair of each record.
    """

    def __init__(self, texts: pa.StringArray) -> None:
        """texts: properties of each record, valid UTF-8 (see gather.to_text), none null."""
        self.count = len(texts)
        self._layout: list[bytes] | None = None
        offsets, self.data = offsets_and_data(texts)
        self._ends = offsets.astype(np.int64)
        if not self._split():
            self._split_each(texts)

    def _split(self) -> bool:
        """Split the fast way; False if the separators do not alternate."""
        raw = np.frombuffer(self.data, np.uint8)[: int(self._ends[-1])]
        begin = int(self._ends[0])
        # Of the two kinds each on its own: whether they alternate is seen by their places alone.
        divided = np.flatnonzero(raw[begin:] == 1)
        closed = np.flatnonzero(raw[begin:] == 2)
        if begin:
            divided += begin
            closed += begin
        ends = self._ends[1:]
        filled = ends > self._ends[:-1]
        # Records whose last pair is not closed get a virtual 0x02 at their end; it has no width.
        last = raw[np.maximum(ends - 1, 0)] if len(raw) else np.empty(0, np.uint8)
        opened = ends[filled & (last != 2)] if len(raw) else ends[:0]
        virtual: npt.NDArray[np.bool_] | None = None
        if len(opened):
            at = np.searchsorted(closed, opened)
            closed = np.insert(closed, at, opened)
            virtual = np.zeros(len(closed), np.bool_)
            virtual[at + np.arange(len(opened))] = True
        if len(divided) != len(closed):
            return False
        self.name_end: Int64s = divided
        self.value_end: Int64s = closed
        self.value_start: Int64s = divided + 1
        self.name_start: Int64s = np.empty_like(divided)
        if len(closed):
            self.name_start[0] = begin
            np.add(closed[:-1], 1, out=self.name_start[1:])
            if virtual is not None:
                self.name_start[1:] -= virtual[:-1]
        if (self.name_start >= self.name_end).any() or (self.value_start >= self.value_end).any():
            return False
        self.first_pair: Int64s = self._first_pairs(ends)
        return True

    def _first_pairs(self, ends: Int64s) -> Int64s:
        """Assign each pair to the record in which it ends; a virtual 0x02 is at the record's end."""
        pairs = len(self.value_end)
        if self.count and pairs and pairs % self.count == 0:
            # Messages of one kind have the same number of pairs: then no search is needed.
            each = pairs // self.count
            if ((ends - self.value_end[each - 1 :: each]) >> 1 == 0).all():
                return np.arange(0, pairs + 1, each)
        first_pair = np.zeros(self.count + 1, np.int64)
        first_pair[1:] = np.searchsorted(self.value_end, ends, side="right")
        return first_pair

    def _split_each(self, texts: pa.StringArray) -> None:
        """Split by Java's rules, one record at a time."""
        pieces: list[bytes] = []
        sizes: list[int] = []
        first_pair = np.zeros(self.count + 1, np.int64)
        for row, text in enumerate(texts.cast(pa.binary()).to_pylist()):
            for pair in text.split(b"\x02"):
                name, separator, value = pair.partition(b"\x01")
                if separator and name and value:
                    pieces += (name, value)
                    sizes += (len(name), len(value))
            first_pair[row + 1] = len(pieces) // 2
        places = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))).astype(np.int64)
        self.data = pa.py_buffer(b"".join(pieces))
        self.name_start, self.name_end = places[:-1:2], places[1::2]
        self.value_start, self.value_end = places[1:-1:2], places[2::2]
        self.first_pair = first_pair

    def rows(self) -> Int64s:
        """Return the record of each pair."""
        return np.repeat(np.arange(self.count), np.diff(self.first_pair))

    def find_layout(self) -> bool:
        """Check whether all records have the same names in the same order, as one producer's do.

        Names then need no search. Worth its cost if more than one property is read.
        """
        pairs = len(self.name_start)
        if not self.count or not pairs or pairs % self.count:
            return False
        each = pairs // self.count
        if not (np.diff(self.first_pair) == each).all():
            return False
        sizes = (self.name_end - self.name_start).reshape(self.count, each)
        if not (sizes == sizes[0]).all():
            return False
        raw = memoryview(self.data)
        layout: list[bytes] = []
        for place, size in enumerate(sizes[0].tolist()):
            starts = self.name_start[place::each]
            name = bytes(raw[int(starts[0]) : int(starts[0]) + size])
            if name in layout or not (self._words(starts, size) == _word(name)).all():
                return False
            layout.append(name)
        self._layout = layout
        return True

    def _words(self, starts: Int64s, size: int) -> npt.NDArray[Any]:
        """Return `size` bytes at each start, in a form that compares quickly with _word()."""
        places = self.data.size - size + 1
        view: npt.NDArray[Any] = np.ndarray((places,), _kind(size), self.data, strides=(1,))
        return view[starts]

    def get(self, name: str) -> pa.StringArray:
        """Return one property of every record, null if missing; no strings are made of other names."""
        wanted = name.encode()
        if self._layout is not None:
            if wanted not in self._layout:
                return pa.nulls(self.count, pa.string())
            place, each = self._layout.index(wanted), len(self._layout)
            values = gather(self.data, self.value_start[place::each], self.value_end[place::each])
            return values.view(pa.string())
        pairs = np.flatnonzero(self.name_end - self.name_start == len(wanted))
        if len(pairs):
            found = self._words(self.name_start[pairs], len(wanted)) == _word(wanted)
            pairs = pairs[found]
        rows = self._rows_of(pairs)
        values = gather_at(
            self.data, self.value_start[pairs], self.value_end[pairs], rows, self.count
        )
        return values.view(pa.string())

    def _rows_of(self, pairs: Int64s) -> Int64s:
        """Return the records of some pairs, given in order."""
        first = self.first_pair
        if len(pairs) == self.count and bool(((pairs >= first[:-1]) & (pairs < first[1:])).all()):
            return np.arange(self.count)
        return np.searchsorted(first, pairs, side="right") - 1

    def maps(self) -> pa.MapArray:
        """Return all properties of every record as a map; of equal names the last one stays."""
        pairs = len(self.name_start)
        if not pairs:
            empty = pa.array([], pa.string())
            return pa.MapArray.from_arrays(pa.array(self.first_pair, pa.int32()), empty, empty)
        # name, 0x01, value, gap, name ...: names are elements 4i, values 4i + 2.
        offsets = np.empty(4 * pairs, np.int32)
        offsets[0::4] = self.name_start
        offsets[1::4] = self.name_end
        offsets[2::4] = self.value_start
        offsets[3::4] = self.value_end
        whole = pa.StringArray.from_buffers(4 * pairs - 1, pa.py_buffer(offsets), self.data)
        fours = pa.array(np.arange(0, 4 * pairs, 4, dtype=np.int32))
        first_pair = self.first_pair
        if self._layout is not None:
            names = self._tiled_names()
        else:
            names = pc.take(whole, fours, boundscheck=False)
            keep = self._last_of_equals(names)
            if keep is not None:
                names = names.take(keep)
                fours = fours.take(keep)
                kept = np.searchsorted(keep.to_numpy(), first_pair, side="left")
                first_pair = kept.astype(np.int64)
        values = pc.take(whole, pa.array(fours.to_numpy() + np.int32(2)), boundscheck=False)
        array = pa.MapArray.from_arrays(pa.array(first_pair.astype(np.int32)), names, values)
        return array if array.type == STRING_MAP else array.cast(STRING_MAP)

    def _tiled_names(self) -> pa.StringArray:
        """Return the names of the layout, once for each record."""
        assert self._layout is not None
        sizes = np.array([len(n) for n in self._layout], np.int32)
        offsets = np.zeros(self.count * len(sizes) + 1, np.int32)
        np.cumsum(np.tile(sizes, self.count), out=offsets[1:])
        text = np.tile(np.frombuffer(b"".join(self._layout), np.uint8), self.count)
        return pa.StringArray.from_buffers(
            self.count * len(sizes), pa.py_buffer(offsets), pa.py_buffer(text)
        )

    def _last_of_equals(self, names: pa.StringArray) -> pa.Array | None:
        """Return the pairs to keep, or None if no record has a name twice.

        Each name is a bit: a record without repeats has the same sum and union of its bits.
        """
        coded = names.dictionary_encode()
        codes = coded.indices.to_numpy()
        if len(coded.dictionary) <= 62:
            starts = self.first_pair[:-1]
            starts = starts[np.diff(self.first_pair) > 0]
            bits = np.left_shift(np.int64(1), codes.astype(np.int64))
            if (np.bitwise_or.reduceat(bits, starts) == np.add.reduceat(bits, starts)).all():
                return None
        identity = self.rows() * np.int64(len(coded.dictionary)) + codes
        # unique() reports the first place of each value: looked at backwards, that is the last one.
        _, backwards = np.unique(identity[::-1], return_index=True)
        if len(backwards) == len(identity):
            return None
        return pa.array(np.sort(len(identity) - 1 - backwards).astype(np.int64))


def _kind(size: int) -> str:
    """Return the dtype for a name: numbers compare faster than strings, and most names have 4 or 8 bytes."""
    return {2: "<u2", 4: "<u4", 8: "<u8"}.get(size, f"S{size}")


def _word(name: bytes) -> Any:
    """Return the name in the form of PropertyTable._words."""
    return np.frombuffer(name, _kind(len(name)))[0]
