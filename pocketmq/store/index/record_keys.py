"""The keys of one record and their hashes, for the index.

Keys per record, in this order: UNIQ_KEY, each part of KEYS between spaces, and (messageIndexTags) the tag as
"T#" + tag. Source: IndexService.buildIndex, RocketMQ 4.9.7; disk.md 7.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import get_property
from pocketmq.store.log.batch_record import Pending

if TYPE_CHECKING:
    from pocketmq.store.index.index_file import Row

_WRAP = 0xFFFF_FFFF


def keys_of(properties: bytes, *, tags: bool) -> list[bytes]:
    """
    >>> keys_of(b"KEYS\\x01a  b\\x02UNIQ_KEY\\x01u\\x02TAGS\\x01t", tags=True)
    [b'u', b'a', b'b', b'T#t']
    """
    keys: list[bytes] = []
    unique = get_property(properties, b"UNIQ_KEY")
    if unique is not None:
        keys.append(unique)
    several = get_property(properties, b"KEYS")
    if several is not None:
        keys += [key for key in several.split(b" ") if key]
    if tags:
        tag = get_property(properties, b"TAGS")
        if tag is not None:
            keys.append(b"T#" + tag)
    return keys


def rows_of(records: Iterable[Pending], after: int, *, tags: bool) -> "list[Row]":
    """Return the index entries of the records behind position `after`, one by one, without numpy."""
    rows: list[Row] = []
    for start, position, store_ms, properties in records:
        if position <= after:
            continue
        rows += [(value, position, store_ms) for value in hashes_of(start, properties, tags=tags)]
    return rows


def hashes_of(start: int, properties: bytes, *, tags: bool) -> list[int]:
    """Return the hashes of a record's keys; start: Java's hash of "TOPIC#", 32 bits."""
    found: list[int] = []
    for key in keys_of(properties, tags=tags):
        value = continued_hash(start, key)
        value = value if value < 0x8000_0000 else 0x1_0000_0000 - value
        # Java's abs of its least integer stays negative, for which RocketMQ takes 0.
        found.append(value if value < 0x8000_0000 else 0)
    return found


def continued_hash(start: int, key: bytes) -> int:
    """Return Java's hash of a text that ends with `key` and begins with what has the hash `start`; 32 bits.

    >>> continued_hash(string_hash("Topic#") & 0xFFFF_FFFF, b"key") == string_hash("Topic#key") & 0xFFFF_FFFF
    True
    """
    text = key.decode("utf-8", "replace")
    units = len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
    return start * pow(31, units, 1 << 32) + string_hash(text) & _WRAP
