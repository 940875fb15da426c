"""LiteIndex: where the messages of lite topics are: two files in store/lite beside the chains.

    parents.json    {"next": number, "parents": {NUMBER: TOPIC}, "counted": how many lite topics each had when
                    the table was saved}
    table           a PackedTable: key -> number of the topic's last entry; and how many entries it knows

1. Everything here is made from the log: from the records in the parents' queues, by the offsets in their
   INNER_MULTI_QUEUE_OFFSET. A record is taken if it lies behind the topic's last entry, so reading again what
   is there already changes nothing.
2. A key is a hash of the parent's number and the name. A parent that is deleted and made again has another
   number, so no lite topic of the old one comes back; their rows are swept in turns.
   Without parents.json nothing in the folder has a meaning, and all is made anew; groups begin anew, too.
3. A lite topic costs 16 to 32 bytes of the table and 32 a message in the chains: no file and no object.
Owner: LiteTopics. Blocks on the disk only to open, to save, and for a new file of entries.
"""

import contextlib
import heapq
import logging
import shutil
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pocketmq.broker.lite.chains import ChainEntry, Chains
from pocketmq.broker.lite.names import DISPATCH, LITE_TOPIC, OFFSETS, light_queue
from pocketmq.broker.lite.packed import PARTS, PackedTable, load_table, save_table
from pocketmq.model.message_codec import get_property
from pocketmq.model.record import Record, read_record
from pocketmq.model.tables import TopicConfig
from pocketmq.store import ConfigFile, MessageStore

log = logging.getLogger(__name__)

_PARENTS_MAX = 0xFFFF
_READ_AT_ONCE = 1_000
# Entries that a start after a kill has to look at, at most.
_SAVE_EVERY = 200_000


class LiteIndex:
    """See the head of the file."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.folder = Path(store.config.store_path_root_dir, "lite")
        self._parents_file = ConfigFile(str(self.folder / "parents.json"))
        self._chains = Chains(self.folder / "entries")
        self._table = PackedTable()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next = 1
        self._saved_end = 0
        # By number of the parent.
        self.counts: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of lite topics."""
        return len(self._table)

    # ------------------------------------------------------------ start

    def open(self, parents: Iterable[TopicConfig]) -> None:
        """Load what is there, and read from the log what is missing. Raises: OSError, StoreError."""
        data = self._parents_file.load()
        if data is None:
            # Without the parents' numbers the rest tells of other lite topics than it did.
            data = {}
            self._begin_anew()
        self._names = {int(number): str(name) for number, name in data.get("parents", {}).items()}
        self._numbers = {name: number for number, name in self._names.items()}
        self._next = int(data.get("next") or 1)
        end = load_table(self.folder / "table", self._table)
        self._chains.open(max(end, 0))
        self._cut_to_log()
        counted = data.get("counted") or {}
        if not 0 <= end <= self._chains.end:
            end, self._table = 0, PackedTable()
        for number, entry in self._chains.since(end):
            self._table.put(entry.key, number)
        self._saved_end = end
        if (counted.get("end"), counted.get("first")) == (self._chains.end, self._chains.first):
            self.counts = {int(number): int(count) for number, count in counted["of"].items()}
        else:
            self._count()
        self.catch_up(parents)

    def _begin_anew(self) -> None:
        if self.folder.exists():
            log.warning("lite/parents.json is missing: lite topics are read from the log anew")
            shutil.rmtree(self.folder)

    def _cut_to_log(self) -> None:
        """Drop the entries of records that the log does not have any more."""
        chains, log_end = self._chains, self._store.commit_log_max_position
        end = chains.end
        while end > chains.first and chains.get(end - 1).position >= log_end:
            end -= 1
        if end < chains.end:
            chains.cut(end)

    def _count(self) -> None:
        self.counts.clear()
        first = self._chains.first
        for part in range(PARTS):
            for key, last in self._table.rows(part):
                if last < first:
                    self._table.remove(key)
                    continue
                parent = self._chains.get(last).parent
                self.counts[parent] = self.counts.get(parent, 0) + 1

    def catch_up(self, parents: Iterable[TopicConfig]) -> None:
        """Read what is behind the last entry from the parents' queues. Raises: OSError, StoreError."""
        chains = self._chains
        begin = chains.get(chains.end - 1).position + 1 if chains.end > chains.first else 0
        queues = [
            self._positions(topic.topic, queue_id, begin)
            for topic in parents
            for queue_id in range(max(topic.read_queues, topic.write_queues))
        ]
        for position, size in heapq.merge(*queues):
            data = self._store.record_at(position, size)
            if data is not None:
                self._take(read_record(data, check_crc=False))

    def _positions(self, topic: str, queue_id: int, begin: int) -> Iterator[tuple[int, int]]:
        """Yield position and size of a queue's records from a position on."""
        reads = self._store.reads
        low, high = reads.min_offset(topic, queue_id), reads.max_offset(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            found = reads.entries(topic, queue_id, middle, 1)
            if found and found[0][0] < begin:
                low = middle + 1
            else:
                high = middle
        while entries := reads.entries(topic, queue_id, low, _READ_AT_ONCE):
            low += len(entries)
            yield from ((position, size) for position, size, _ in entries)

    def _take(self, record: Record) -> None:
        """Take a record of a parent into the index, if it is of a lite topic (invariant 1).

        What names another lite topic than its own would block that one's groups: it was forged.
        """
        names = (get_property(record.properties, DISPATCH) or b"").split(b",")
        offsets = (get_property(record.properties, OFFSETS) or b"").split(b",")
        prefix = light_queue(record.topic, "").encode()
        own = get_property(record.properties, LITE_TOPIC)
        for name, offset in zip(names, offsets, strict=False):
            lite = name.removeprefix(prefix)
            if lite == own and lite and lite != name and offset.isdigit() and len(offset) < 10:
                key = self.key(record.topic, lite.decode("utf-8", "replace"))
                last = self.last(key)
                if last is None or last.position < record.position:
                    self._chains.reserve()
                    self.note(key, record.topic, record.position, int(offset), record.store_ms)

    # ------------------------------------------------------------ lite topics

    def key(self, parent: str, name: str) -> int:
        """Return the key of a lite topic. Raises: OSError for a new parent that cannot be saved."""
        number = self._numbers.get(parent) or self._new_parent(parent)
        digest = blake2b(b"%d$%b" % (number, name.encode()), digest_size=8).digest()
        return int.from_bytes(digest) or 1

    def _new_parent(self, parent: str) -> int:
        number = self._next
        if number > _PARENTS_MAX:
            raise OSError(
                f"there were {_PARENTS_MAX} topics with lite topics: no more are possible"
            )
        self._next, self._numbers[parent], self._names[number] = number + 1, number, parent
        self._save_parents()
        return number

    def _save_parents(self) -> None:
        counted = {"end": self._saved_end, "first": self._chains.first, "of": self.counts}
        saved = {"next": self._next, "parents": self._names, "counted": counted}
        self._parents_file.save(saved)

    def remove_parent(self, parent: str) -> None:
        """Forget all lite topics of a deleted topic (invariant 2)."""
        number = self._numbers.pop(parent, None)
        if number is not None:
            del self._names[number]
            self.counts.pop(number, None)
            with contextlib.suppress(OSError):
                # Not written, its lite topics come back with a topic of that name.
                self._save_parents()

    def keep_parents(self, parents: set[str]) -> None:
        """Forget the lite topics of all other parents."""
        for parent in self._numbers.keys() - parents:
            self.remove_parent(parent)

    def count(self, parent: str) -> int:
        """Return the number of a parent's lite topics."""
        return self.counts.get(self._numbers.get(parent, 0), 0)

    def last(self, key: int) -> ChainEntry | None:
        """Return the entry of the last message; None for a lite topic that does not exist."""
        last = self._table.get(key)
        return None if last < self._chains.first else self._chains.get(last)

    def next_offset(self, key: int) -> int:
        """Return the offset of the next message; 0 for a lite topic that does not exist."""
        last = self.last(key)
        return 0 if last is None else last.offset + 1

    def min_offset(self, key: int) -> int:
        """Return the offset of the first message that the log still has."""
        last, least = self._table.get(key), self._store.commit_log_min_position
        if last < self._chains.first:
            return 0
        first = self._chains.get(self._chains.earliest(last, least))
        return first.offset + (first.position < least)

    def last_ms(self, key: int) -> int:
        """Return when the last message was stored; 0 for a lite topic that does not exist."""
        last = self.last(key)
        return 0 if last is None else last.store_s * 1_000

    def stored_ms(self, key: int, offset: int) -> int:
        """Return when a message was stored, by the second; 0 if it is not there."""
        last = self._table.get(key)
        if offset < 0 or last < self._chains.first:
            return 0
        at = self._chains.up_to(last, offset)
        entry = None if at < 0 else self._chains.get(at)
        return entry.store_s * 1_000 if entry is not None and entry.offset == offset else 0

    def reserve(self) -> None:
        """Make room for another message. Raises: OSError."""
        self._chains.reserve()

    def note(self, key: int, parent: str, position: int, offset: int, store_ms: int) -> None:
        """Note a message, for which `reserve` has made room."""
        previous, number = self._table.get(key), self._numbers[parent]
        if previous < self._chains.first:
            previous = -1
            self.counts[number] = self.counts.get(number, 0) + 1
        elif offset != self._chains.get(previous).offset + 1:
            # It was deleted, and begins anew.
            previous = -1
        place, store_s = position << 16 | number, store_ms // 1_000
        self._table.put(key, self._chains.append(key, place, offset, previous, store_s))

    def positions(self, key: int, offset: int, count: int) -> list[tuple[int, int]]:
        """Return (offset, position) of up to `count` messages from an offset on."""
        last = self._table.get(key)
        if last < self._chains.first:
            return []
        least = self._store.commit_log_min_position
        at, found = self._chains.up_to(last, offset + count - 1), []
        while at >= 0:
            entry = self._chains.get(at)
            if entry.offset < offset or entry.position < least:
                break
            found.append((entry.offset, entry.position))
            if not entry.back or at - entry.back < self._chains.first:
                break
            at -= entry.back
        return found[::-1]

    def rows(self, part: int) -> Iterator[tuple[int, ChainEntry, str | None]]:
        """Yield key, last entry and parent (None: deleted) of one of PARTS of all lite topics."""
        first = self._chains.first
        for key, last in self._table.rows(part):
            if last < first:
                # Its messages went with the log.
                self._table.remove(key)
                continue
            entry = self._chains.get(last)
            yield key, entry, self._names.get(entry.parent)

    def remove(self, key: int) -> None:
        """Remove a lite topic; its next message is its first again."""
        last = self.last(key)
        self._table.remove(key)
        if last is not None and last.parent in self.counts:
            self.counts[last.parent] -= 1

    # ------------------------------------------------------------ saving

    def tick(self) -> None:
        """Drop what the log has dropped, and save the table if much is new. Raises: OSError."""
        before = self._chains.first
        self._chains.drop_before(self._store.commit_log_min_position)
        if self._chains.first > before:
            self._count()
        if self._chains.end - self._saved_end >= _SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Save the table; a start looks at later entries only. Raises: OSError."""
        if self._chains.end == self._saved_end or not self.folder.exists():
            return
        self._chains.flush()
        save_table(self.folder / "table", self._table, self._chains.end)
        self._saved_end = self._chains.end
        self._save_parents()

    def close(self) -> None:
        self._chains.close()

    def figures(self) -> dict[str, Any]:
        """Return what takes room here."""
        return {"liteTopics": len(self._table), "entries": self._chains.end - self._chains.first}
