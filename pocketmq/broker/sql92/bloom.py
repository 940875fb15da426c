"""The Bloom filter of ConsumeQueueExt: which groups' expressions a record satisfies, in m bits.

Source: BloomFilter, BitsArray, BloomFilterData, RocketMQ 4.9.7; disk.md 5. The hash is Guava's
murmur3_128 with seed 0, of which RocketMQ takes the first 64 bits; position i of k is made of its two
halves in 32-bit arithmetic. Bit p is byte p / 8, counted from the least significant side.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import mmh3

from pocketmq.remoting.errors import IllegalArgument


@dataclass(slots=True, frozen=True)
class BloomFilterData:
    """The bits of one group and topic: what consumerFilter.json keeps as bloomFilterData."""

    bit_pos: tuple[int, ...]
    bit_num: int


class BloomFilter:
    """Positions for names, given how many names one map may hold at which error.

    Attributes: k (bits of a name), m (bits of a map, a multiple of 8).

    >>> BloomFilter(20, 32).positions("group1#TopicTest")
    (79, 5, 68)
    """

    def __init__(self, error_rate: int = 20, consumers: int = 32) -> None:
        """Args: error_rate in percent (maxErrorRateOfBloomFilter); consumers (expectConsumerNumUseFilter).

        Raises: IllegalArgument.
        """
        if not 1 <= error_rate < 100:
            raise IllegalArgument(
                f"maxErrorRateOfBloomFilter={error_rate} is not allowed: it must be 1 to 99 (percent)"
            )
        if consumers < 1:
            raise IllegalArgument(
                f"expectConsumerNumUseFilter={consumers} is not allowed: it must be at least 1"
            )
        rate = error_rate / 100.0
        self.k = math.ceil(_log(0.5, rate))
        bits = math.ceil(consumers * _log(2, 1 / rate) * _log(2, math.e))
        self.m = 8 * math.ceil(bits / 8)

    def positions(self, name: str) -> tuple[int, ...]:
        """The k bits of `name`, which is `GROUP#TOPIC`."""
        first = mmh3.hash64(name.encode("utf-8"), 0, x64arch=True, signed=False)[0]
        low, high = first & 0xFFFF_FFFF, first >> 32
        found: list[int] = []
        for i in range(1, self.k + 1):
            combined = (low + i * high) & 0xFFFF_FFFF
            if combined & 0x8000_0000:
                combined ^= 0xFFFF_FFFF
            found.append(combined % self.m)
        return tuple(found)

    def data(self, group: str, topic: str) -> BloomFilterData:
        """Return the bits of a group's expression for a topic."""
        return BloomFilterData(self.positions(f"{group}#{topic}"), self.m)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Return True if `data` was made by a filter of this size."""
        return data is not None and data.bit_num == self.m and len(data.bit_pos) == self.k

    def bit_map(self, members: Iterable[BloomFilterData]) -> bytes:
        """Return a map with the bits of all members."""
        bits = bytearray(self.m // 8)
        for member in members:
            for position in member.bit_pos:
                bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)


def is_hit(data: BloomFilterData, bit_map: bytes) -> bool:
    """Return True if the map may contain the member; False is certain."""
    return all(bit_map[position >> 3] >> (position & 7) & 1 for position in data.bit_pos)


def _log(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
