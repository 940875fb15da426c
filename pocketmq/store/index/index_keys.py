"""The keys of many records and their hashes, for the index: a record costs half a microsecond here.

record_keys.py says which keys a record has.

1. Keys of one length are hashed together: h("TOPIC#KEY") = h("TOPIC#") * 31**len + h(KEY), modulo 2**32.
2. Most records have one key, their UNIQ_KEY: it is found without a call per record. A producer's properties
   often have the same shape, with the key at the same place: those are cut out all at once. Everything else
   takes the path through `keys_of`, with the same result.
Imports numpy: see IndexService for when.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from pocketmq.store.index.record_keys import continued_hash, keys_of
from pocketmq.store.log.batch_record import BatchToIndex, Pending

_UNIQUE = b"UNIQ_KEY\x01"
_UNIQUE_SIZE = len(_UNIQUE)
# Fewer keys of one length are hashed one by one.
_VECTOR_MIN = 8
_powers: dict[int, NDArray[Any]] = {}


class Keyed(NamedTuple):
    """One row per key, int64, in the order of the log: hash (abs of Java's, 0 where that stays negative)."""

    hashes: NDArray[Any]
    positions: NDArray[Any]
    store_ms: NDArray[Any]

    def behind(self, count: int) -> "Keyed | None":
        """Return it without the first rows; None if no row is left."""
        if count >= len(self.hashes):
            return None
        return Keyed(self.hashes[count:], self.positions[count:], self.store_ms[count:])


def key_hashes(batch: Sequence[Pending], after: int, *, tags: bool) -> Keyed | None:
    """Return the keys of the records behind position `after`; None if they have no key.

    batch: in the order of the log.
    """
    if batch and batch[0][1] <= after:
        batch = [record for record in batch if record[1] > after]
    if not batch:
        return None
    starts, positions, store_ms, properties = zip(*batch, strict=True)
    units = None if tags else _keys_of_one_shape(properties)
    if units is not None:
        length = units.shape[1]
        values = _continued(numpy.array(starts, numpy.uint32), length, _hash_rows(units))
    else:
        keys = None if tags else _unique_keys(properties)
        if keys is None:
            keys = []
            owned: list[Pending] = []
            for record in batch:
                of_record = keys_of(record[3], tags=tags)
                keys += of_record
                owned += [record] * len(of_record)
            if not keys:
                return None
            starts, positions, store_ms, _ = zip(*owned, strict=True)
        values = _string_hashes(keys, numpy.array(starts, numpy.uint32))
    return _keyed(values, numpy.array(positions, numpy.int64), numpy.array(store_ms, numpy.int64))


def keys_of_batches(batches: Sequence[BatchToIndex], after: int) -> Keyed | None:
    """Like key_hashes, for whole batches with one key per record, all of one length; None for others."""
    made = [batch.made for batch in batches]
    keys = [each.keys for each in made]
    length = len(keys[0] or b"") // len(made[0].positions)
    joined = b"".join(filter(None, keys))
    if (
        not length
        or made[0].positions[0] <= after
        or not joined.isascii()
        or [len(each.positions) * length for each in made] != [len(key or b"") for key in keys]
    ):
        return None
    counts = numpy.array([len(each.positions) for each in made])
    starts = numpy.array([batch.start for batch in batches], numpy.uint32).repeat(counts)
    positions = numpy.concatenate([_array(each.positions) for each in made])
    store_ms = numpy.array([batch.store_ms for batch in batches], numpy.int64).repeat(counts)
    return _keyed(_continued(starts, length, _hash_equal(joined, length)), positions, store_ms)


def _array(positions: Sequence[int]) -> NDArray[Any]:
    if isinstance(positions, range):
        # Without an object for each.
        return numpy.arange(positions.start, positions.stop, positions.step, dtype=numpy.int64)
    return numpy.array(positions, numpy.int64)


def _keyed(values: NDArray[Any], positions: NDArray[Any], store_ms: NDArray[Any]) -> Keyed:
    hashes = numpy.abs(values.view(numpy.int32).astype(numpy.int64))
    hashes[hashes == 0x8000_0000] = 0
    return Keyed(hashes, positions, store_ms)


def _keys_of_one_shape(records: Sequence[bytes]) -> NDArray[Any] | None:
    """Return UNIQ_KEY of records that have it at the same place, as rows of bytes; None for others."""
    first = records[0]
    at = first.find(_UNIQUE)
    start = at + _UNIQUE_SIZE
    count, size = len(records), len(first)
    if at < 0 or count < _VECTOR_MIN:
        return None
    joined = b"".join(records)
    # A name that two neighbours only make together sends all the slow way, which is right as well.
    if (
        len(joined) != count * size
        or set(map(len, records)) != {size}
        or joined.count(_UNIQUE) != count
        or b"KEYS\x01" in joined
    ):
        return None
    end = first.find(b"\x02", start)
    end = size if end < 0 else end
    rows = numpy.frombuffer(joined, numpy.uint8).reshape(count, size)
    # The name with the separators around the property is the same text in every row.
    head, tail = max(0, at - 1), min(size, end + 1)
    if (
        end == start
        or (at and first[at - 1] != 2)
        or (rows[:, head:start] != rows[0, head:start]).any()
        or (rows[:, end:tail] != rows[0, end:tail]).any()
    ):
        return None
    units = rows[:, start:end]
    return None if (units == 2).any() or (units > 127).any() else units


def _unique_keys(records: Sequence[bytes]) -> list[bytes] | None:
    """Return UNIQ_KEY of each record; None if one has another number of keys or an unusual text."""
    keys: list[bytes] = []
    add = keys.append
    for properties in records:
        at = properties.rfind(_UNIQUE)
        if at < 0 or (at and properties[at - 1] != 2) or b"KEYS\x01" in properties:
            return None
        start = at + _UNIQUE_SIZE
        end = properties.find(b"\x02", start)
        key = properties[start:end] if end >= 0 else properties[start:]
        if not key:
            return None
        add(key)
    return keys


def _string_hashes(keys: list[bytes], starts: NDArray[Any]) -> NDArray[Any]:
    """Apply invariant 1; return uint32."""
    length = len(keys[0])
    joined = b"".join(keys)
    lengths = set(map(len, keys))
    if len(lengths) == 1 and len(keys) >= _VECTOR_MIN and joined.isascii():
        return _continued(starts, length, _hash_equal(joined, length))
    hashes = numpy.empty(len(keys), numpy.uint32)
    sizes = numpy.fromiter(map(len, keys), numpy.int64, len(keys))
    for length in lengths:
        places = numpy.flatnonzero(sizes == length)
        some = [keys[place] for place in places.tolist()]
        joined = b"".join(some)
        if joined.isascii() and len(some) >= _VECTOR_MIN:
            hashes[places] = _continued(starts[places], length, _hash_equal(joined, length))
            continue
        for place, key in zip(places.tolist(), some, strict=True):
            hashes[place] = continued_hash(int(starts[place]), key)
    return hashes


def _continued(starts: NDArray[Any], length: int, values: NDArray[Any]) -> NDArray[Any]:
    result: NDArray[Any] = starts * numpy.uint32(pow(31, length, 1 << 32)) + values
    return result


def _hash_equal(joined: bytes, length: int) -> NDArray[Any]:
    """Return Java's hash of each `length` bytes of ASCII."""
    return _hash_rows(numpy.frombuffer(joined, numpy.uint8).reshape(-1, length))


def _hash_rows(units: NDArray[Any]) -> NDArray[Any]:
    """Return Java's hash of each row of ASCII."""
    length = units.shape[1]
    powers = _powers.get(length)
    if powers is None:
        values = [pow(31, length - 1 - unit, 1 << 32) for unit in range(length)]
        powers = _powers[length] = numpy.array(values, numpy.uint32)
    # uint32 arithmetic wraps as Java's int does.
    result: NDArray[Any] = (units.astype(numpy.uint32) * powers).sum(axis=1, dtype=numpy.uint32)
    return result
