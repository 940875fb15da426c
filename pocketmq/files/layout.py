"""The layout of a store's folders and of queue entries.

    commitlog/%020d                             the number is the position of the file's first byte
    consumequeue/{topic}/{queue id}/%020d       ENTRY, 20 bytes; so do the two below
    batchconsumequeue/{topic}/{queue id}/%020d  BATCH_ENTRY, 46 bytes: RocketMQ 5.x, queue.type BatchCQ
    consumequeue_ext/{topic}/{queue id}/%020d   what does not fit into an entry
    archived.json                               ours: {"position": where in the log an archive of it ends}
    broker.json                                 ours: broker_name.py

    ENTRY                                BATCH_ENTRY, as ENTRY and then
    0   8  position in the commit log    20  8  store time, ms
    8   4  size of the record, bytes     28  8  base: queue offset of the record's first message
    12  8  tags code                     36  2  messages in the record
                                         38  8  compact offset (always -1), reserved

1. Entry i of a ConsumeQueue has queue offset i; of a batch queue base .. base + messages - 1.
2. Used entries are a prefix of the files; the first one with size 0 is the end.
3. Entries without a record are (0, 2147483647, 0): the queue began at an offset > 0, or lost records.
4. Positions grow along a queue.
5. A code <= EXT_ADDRESS_MAX is the address of a unit in consumequeue_ext, less EXT_ADDRESS_BASE.
Source: ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt, StoreCheckpoint, RocketMQ 4.9.7 and 5.5.0.
"""

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

ENTRY_FIELDS = (("position", "q"), ("size", "i"), ("code", "q"))
BATCH_ENTRY_FIELDS = (
    *ENTRY_FIELDS,
    ("store_ms", "q"),
    ("base", "q"),
    ("count", "h"),
    ("compact", "i"),
    ("reserved", "i"),
)
ENTRY = struct.Struct(">" + "".join(code for _, code in ENTRY_FIELDS))
BATCH_ENTRY = struct.Struct(">" + "".join(code for _, code in BATCH_ENTRY_FIELDS))
ENTRY_SIZE, BATCH_ENTRY_SIZE = 20, 46
BLANK_SIZE = 0x7FFF_FFFF
# PocketMQ only: the blank of a message that its topic keeps no more. A start leaves it as it is.
EXPIRED_ENTRY = (0, BLANK_SIZE, 1)
ARCHIVED = "archived.json"
# A file system's own folder, at its root, for what a check finds: any folder of a store may be that root.
LOST_FOUND = "lost+found"
# The file by which a folder is a RocksDB database.
DATABASE = "CURRENT"
EXT_ADDRESS_BASE = -(1 << 63)
EXT_ADDRESS_MAX = -0x8000_0001
# At the begin of `checkpoint`: store times of the last record and the last queue entry that were flushed.
CHECKPOINT_TIMES = struct.Struct(">qq")
_SLACK_MS = 3000

assert (ENTRY.size, BATCH_ENTRY.size) == (ENTRY_SIZE, BATCH_ENTRY_SIZE)


class Listed(NamedTuple):
    """One name in a folder; size is bytes, -1 for a folder."""

    name: str
    size: int


class FileSpan(NamedTuple):
    """One file of a sequence: position of its first byte, size in bytes, path."""

    first: int
    size: int
    path: str

    @property
    def end(self) -> int:
        return self.first + self.size


def is_file_name(name: str) -> bool:
    """Return True if this is the name of a file of a sequence; other files are not ours."""
    return len(name) == 20 and name.isascii() and name.isdecimal()


def row_of_files(listed: Iterable[Listed], folder: str) -> list[FileSpan]:
    """Return the non-empty files of a sorted folder, in order."""
    return [
        FileSpan(int(name), size, f"{folder}/{name}")
        for name, size in listed
        if is_file_name(name) and size > 0
    ]


def surely_indexed_ms(log_ms: int, queue_ms: int) -> int:
    """Return the time before which everything stored is on disk in log and queues, by a checkpoint's times.

    Source: StoreCheckpoint.getMinTimestamp, RocketMQ 4.9.7.
    """
    return min(log_ms, queue_ms) - _SLACK_MS


def partition(low: int, high: int, reached: Callable[[int], bool]) -> int:
    """Return the first index in [low, high) from which on `reached` is true; else `high`."""
    while low < high:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle + 1
    return low
