"""Keys of many messages at once. Imports numpy: callers check first that the store has it."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy
from numpy.typing import NDArray

from pocketmq.broker.once.key_hash import PRIME, hash_of, place_of

# Products and sums of such a row are whole numbers of 53 bits at most.
_DIGITS_MAX = 128


@cache
def _powers(count: int) -> NDArray[Any]:
    """Return what the digits of a key, of two bytes each, count."""
    powers: NDArray[Any] = numpy.array(
        [pow(1 << 16, place, PRIME) for place in range(count)], float
    )
    return powers


def hashes_of(keys: bytes, size: int, salt: int) -> NDArray[Any]:
    """Return the hashes (key_hash.py) of a topic's keys, which stand one behind the other. size: of each."""
    if size % 2 or size > 2 * _DIGITS_MAX:
        parts = [keys[at : at + size] for at in range(0, len(keys), size)]
        return numpy.array([hash_of(salt, key) for key in parts], numpy.int64)
    digits: Any = numpy.frombuffer(keys, "<u2").reshape(-1, size // 2)
    sums: Any = digits.astype(float) @ _powers(size // 2)
    found: NDArray[Any] = (sums.astype(numpy.int64) + salt) % PRIME
    return found


def ascend(keys: bytes, size: int) -> bool:
    """Return True if each of the keys, of `size` bytes each, is greater than the one before."""
    rows: Any = numpy.frombuffer(keys, f"S{size}")
    return bool((rows[1:] > rows[:-1]).all())


def enter(
    hashes: "memoryview[int]",
    positions: "memoryview[int]",
    keys: NDArray[Any],
    stored: Sequence[int],
    seen: bytearray,
    number: int,
) -> None:
    """Enter positions by hash into the table of a Generation, and a number for each into `seen`."""
    size = len(hashes)
    table, values = numpy.frombuffer(hashes, numpy.int32), numpy.frombuffer(positions, numpy.int64)
    numpy.frombuffer(seen, numpy.uint8)[keys % len(seen)] = number
    wanted = numpy.array(stored, numpy.int64)
    at: Any = place_of(keys, size)  # type: ignore[arg-type]
    while len(keys):
        free = numpy.flatnonzero(table[at] == 0)
        # Of several keys for one place one gets it, the others look on; no two positions are the same.
        values[at[free]] = wanted[free]
        won = free[values[at[free]] == wanted[free]]
        table[at[won]] = keys[won] + 1
        left = numpy.ones(len(keys), bool)
        left[won] = False
        keys, wanted, at = keys[left], wanted[left], (at[left] + 1) % size
