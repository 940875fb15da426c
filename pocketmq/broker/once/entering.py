"""Enters many keys into a table of KeyWindow. Imports numpy: callers check first that the store has it."""

from array import array
from collections.abc import Mapping

import numpy


def enter(places: "array[int]", mask: int, positions: Mapping[int, int]) -> None:
    """Enter positions by hash; a hash that is there stays as it is. places, mask: of a table half full."""
    count = len(positions)
    table = numpy.frombuffer(places, numpy.int64).reshape(-1, 2)
    keys = numpy.fromiter(positions.keys(), numpy.int64, count)
    values = numpy.fromiter(positions.values(), numpy.int64, count)
    at = keys & mask
    while len(keys):
        free = numpy.flatnonzero(table[at, 0] == 0)
        # Of several keys for one place one gets it; the others look on.
        table[at[free], 0] = keys[free]
        won = free[table[at[free], 0] == keys[free]]
        table[at[won], 1] = values[won]
        left = numpy.flatnonzero(table[at, 0] != keys)
        keys, values, at = keys[left], values[left], (at[left] + 1) & mask
