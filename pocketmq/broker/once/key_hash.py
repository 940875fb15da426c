"""Hashes of keys: numbers below PRIME, the same whether a key comes alone or in a column.

A key, as a number of which the lowest byte comes first, plus a number of its topic, modulo PRIME. There are
2^30: of half a million keys one in two thousand has the hash of another one.
"""

PRIME = (1 << 30) - 35
# Another one in each process: no client can bring many hashes to one place of a table.
_SECRET = hash("places of keys") & 0x7FFF_FFFF | 1


def salt_of(topic: str) -> int:
    """Return the number of a topic."""
    return hash(topic) % PRIME


def hash_of(salt: int, key: bytes) -> int:
    """Return the hash of a key of a topic; once_topic.py has it written out."""
    return (int.from_bytes(key, "little") + salt) % PRIME


def place_of(number: int, size: int) -> int:
    """Return the place of a hash in a table of `size` places.

    >>> 0 <= place_of(PRIME - 1, 10) < 10
    True
    """
    return ((number * _SECRET & 0x7FFF_FFFF) * size) >> 31
