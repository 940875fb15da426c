"""IndexService: the sequence of index files; filled behind the log, queried by queryMessage.

    index/yyyyMMddHHmmssSSS      named by the local time of its creation

1. The keys of a record: see record_keys. Rolled-back transaction records have none.
2. A record at or before the end position of the newest file is in the index already.
3. None of this is on the append path: append leaves (hash, position, time, properties) in `pending`, and many
   records are indexed at once, with numpy. One step handles at most STEP records and about KEYS_STEP keys: a
   message may have 16,000. While only a few come, numpy is not even imported: it takes 8 MB.
4. If `pending` was full, or after a restart, the records are read from the log again: everything before
   `position` is in the index. That may take minutes, of which clients get the larger part.
One noun: a row of files behind one position in the log.
Owner: MessageStore. Source: IndexService, RocketMQ 4.9.7; disk.md 7.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from pocketmq.files.records import Entry
from pocketmq.model.java_hash import string_hash
from pocketmq.remoting.clock import Clock
from pocketmq.store.index.index_round import index_round
from pocketmq.store.index.record_keys import rows_of
from pocketmq.store.log.batch_record import BatchToIndex, Pending
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.side_tasks import SideTasks
from pocketmq.store.store_config import StoreConfig

if TYPE_CHECKING:
    from pocketmq.store.index.index_file import IndexFile, Row
    from pocketmq.store.index.index_keys import Keyed
    from pocketmq.store.log.alike_batch import AlikeBatches

log = logging.getLogger(__name__)

PENDING_MAX = 65_536
# Records, and about how many keys, one step of the loop handles: some milliseconds.
STEP = 1024
KEYS_STEP = 4096
# More records, or keys, or bytes of the log, than these are worth numpy.
_FEW, _FEW_KEYS = 64, 256
_LITTLE_SIZE = 16_384
# From the log a record takes some 14 us.
LOG_STEP = 128
_QUERY_STEPS = 4
# Bytes of properties whose keys are counted together.
_TOGETHER_MAX = 1 << 20
_DRAIN_MAX = 32_768
# Less than the 10 s after which container engines kill.
_STOP_MS_MAX = 4_000
_ROLLBACK = 0xC


class IndexService:
    """All index files of a store."""

    def __init__(
        self,
        folder: str,
        config: StoreConfig,
        commit_log: CommitLog,
        clock: Clock,
        side_tasks: SideTasks,
    ) -> None:
        self._folder = folder
        self._config = config
        self._log = commit_log
        self._clock = clock
        self._side_tasks = side_tasks
        self.files: list[IndexFile] = []
        # Records that are not indexed yet, one by one and in batches; how many the batches hold.
        self.pending: list[Pending | BatchToIndex] = []
        self._batched = 0
        # Set once numpy is imported.
        self.alike: AlikeBatches | None = None
        # While behind: everything before this position is in the index, `pending` does not count.
        self.position = 0
        self._behind = False
        # Keys taken from `pending` but not yet written.
        self._rest: Keyed | None = None
        # The same, of a few records.
        self._rows: list[Row] = []
        self.has_numpy = False
        self._hashes: dict[bytes, int] = {}
        self.woken = asyncio.Event()
        self._synced: set[str] = set()
        self._unsure: list[IndexFile] = []

    # ------------------------------------------------------------ opening

    def load(self, *, clean: bool, checkpoint_index_ms: int) -> None:
        """Find the files; after an unclean stop, note those that may not be completely on disk for repair."""
        if not os.path.lexists(self._folder):
            return
        from pocketmq.store.index.index_file import open_files

        slots, entries = self._config.max_hash_slot_num, self._config.max_index_num
        self.files = open_files(self._folder, slots, entries)
        if not clean:
            # The header may be older than its file: the last one is always looked at.
            self._unsure = [
                file
                for file in self.files
                if file.end_ms > checkpoint_index_ms or file.empty or file is self.files[-1]
            ]

    def write_again(self) -> None:
        """Rewrite files that may not be on disk: the kernel may take them for written. Raises: OSError."""
        for file in self._unsure:
            file.write_again()

    def recover(self, *, checked_from: int, known_position: int, known_ms: int) -> None:
        """Decide, after the log's recovery, from where on to index records, and begin.

        checked_from: where the log was walked from; known_position, known_ms: up to where the index is on
        disk according to the checkpoint, 0 if unknown.
        """
        if self.files and self.files[-1].end_position >= self._log.end and not self._unsure:
            # The log is older than its index: what is stored there next has other keys.
            log.warning("rebuilding index files that are ahead of the log end=%d", self._log.end)
            self.cut(self._log.end)
            self.drain()
            return
        if self._unsure:
            resume = self._repair(known_position, known_ms)
        elif self.files:
            newest = self.files[-1]
            if known_ms > newest.end_ms:
                # Newer files, which the checkpoint knows of, are lost.
                resume = self._trim()
            else:
                resume = max(newest.end_position, checked_from)
                # A clean stop may have left more of the log than recovery looks at.
                resume = min(resume, known_position or resume)
        else:
            # Files that the checkpoint knows of are lost: all is indexed again.
            resume = self._log.min_position if known_ms else max(checked_from, known_position)
        self._unsure = []
        self.position = max(resume, self._log.min_position)
        self._behind = self.position < self._log.end
        self.drain()

    def _repair(self, known_position: int, known_ms: int) -> int:
        """Repair the files that may be incomplete. Returns: the position to continue from."""
        from pocketmq.store.index.index_columns import IndexColumns

        while self._unsure:
            file = self._unsure.pop(0)
            again = IndexColumns(file).repair(
                self._log.end,
                is_last=file is self.files[-1],
                known_position=known_position,
                known_ms=known_ms,
                store_ms_at=self._store_ms_at,
            )
            if again is None:
                continue
            place = self.files.index(file)
            # Files behind one with a gap would be out of order: they are rebuilt from the log.
            for later in self.files[place + (again >= 0) :]:
                log.warning("rebuilding an index file from the log name=%s", later.name)
                later.delete()
            del self.files[place + (again >= 0) :]
            return again if again >= 0 else self._trim()
        return self.files[-1].end_position

    def _trim(self) -> int:
        """Drop the last record's entries: a file that is deleted may have had others of its keys.

        Returns: the position of that record, to continue from.
        """
        from pocketmq.store.index.index_columns import IndexColumns

        while self.files:
            again = IndexColumns(self.files[-1]).repair(
                self._log.end,
                is_last=True,
                known_position=0,
                known_ms=0,
                store_ms_at=self._store_ms_at,
            )
            if again is not None and again >= 0:
                return again
            self.files.pop().delete()
        return self._log.min_position

    def _store_ms_at(self, position: int) -> int:
        found = self._log.entry_at(position, check_crc=False)
        return found.store_ms if isinstance(found, Entry) else -1

    # ------------------------------------------------------------ feeding

    def wake(self) -> None:
        """Wake the task: there is something in `pending`."""
        self.woken.set()

    def add_batch(self, batch: BatchToIndex) -> None:
        """Queue the records of a batch."""
        if not self.pending:
            self.woken.set()
        self.pending.append(batch)
        self._batched += len(batch.made.positions)

    @property
    def has_enough(self) -> bool:
        """Return True if a step is worth it."""
        waiting = len(self.pending) + self._batched
        return self._behind or waiting >= STEP or self._has_rest

    @property
    def reads_log(self) -> bool:
        """Return True if the records come from the log again (invariant 4)."""
        return self._behind

    @property
    def wants_numpy(self) -> bool:
        """Return True if numpy is still to be imported: more waits than a few single messages."""
        if self.has_numpy or not (self._config.message_index_enable or self._batched):
            return False
        if self._behind:
            return self._log.end - self.position > _LITTLE_SIZE
        return bool(self._batched) or not self._are_few

    @property
    def _are_few(self) -> bool:
        """Return True if what waits has few keys; it may be one by one only."""
        pending = self.pending
        if len(pending) > _FEW:
            return False
        keys = 0
        for waiting in pending:
            keys += 1 if isinstance(waiting, BatchToIndex) else _key_count(waiting)
        return keys <= _FEW_KEYS

    def round(self) -> Coroutine[Any, Any, None]:
        """Index some of what was appended, once there is enough of it."""
        return index_round(self, self.woken, self._clock)

    def drain(self) -> None:
        """Bring the index up to date now, up to a bound; the rest follows in the background."""
        self._do(_DRAIN_MAX)

    def _do(self, keys_max: int) -> None:
        done = 0
        with self._side_tasks.attempt("index"):
            while self.behind and done < keys_max:
                done += self.step()

    def finish(self) -> None:
        """Bring the index up to date before a stop, which must not take minutes; the next start resumes."""
        end_ms = self._clock.monotonic_ms() + _STOP_MS_MAX
        with self._side_tasks.attempt("index"):
            while self.behind and self._clock.monotonic_ms() < end_ms:
                self.step()
        if self.behind:
            left = self._log.end - self.indexed_position
            log.warning("the next start of PocketMQ indexes the rest of the log size=%d", left)

    def step(self) -> int:
        """Index the next records. Returns: about how many keys that took, at least LOG_STEP.

        Raises: OSError, StoreError; the rest is written by the next step.
        """
        pending = self.pending
        if self.alike is None and (self.has_numpy or self.wants_numpy):
            from pocketmq.store.log.alike_batch import AlikeBatches

            self.has_numpy = True
            self.alike = AlikeBatches()
        if not self._config.message_index_enable:
            self._forget_pending()
            self._rest, self._rows = None, []
            self._behind = False
            return STEP
        self._write_rest()
        if not self._behind and len(pending) + self._batched > PENDING_MAX:
            self.position = _position_of(pending[0])
            self._behind = True
        cost = 0
        if self._behind:
            # These are in the log too, behind what is read from it now.
            self._forget_pending()
            records, end, cost = self._read_log()
            self._take(records)
            self.position = end
            self._behind = end < self._log.end
        elif pending:
            cost = self._take_pending()
        self._write_rest()
        return max(LOG_STEP, cost)

    @property
    def _has_rest(self) -> bool:
        return self._rest is not None or bool(self._rows)

    def _forget_pending(self) -> None:
        self.pending.clear()
        self._batched = 0

    def _take_pending(self) -> int:
        """Take the keys of what has waited longest. Returns: about how many."""
        pending = self.pending
        if not self.has_numpy:
            # Nothing but a few single messages: step() has seen to it.
            few = [waiting for waiting in pending if not isinstance(waiting, BatchToIndex)]
            self._take(few)
            pending.clear()
            return len(self._rows)
        if isinstance(pending[0], BatchToIndex):
            size = self._take_batches()
            if size:
                return size
        batch: list[Pending] = []
        for waiting in pending[:STEP]:
            if isinstance(waiting, BatchToIndex):
                break
            batch.append(waiting)
        # Looked at together: hardly ever has a message more than a key or two.
        properties = [record[3] for record in batch]
        cost = KEYS_STEP + 1
        if sum(map(len, properties)) <= _TOGETHER_MAX:
            cost = len(batch) + b"".join(properties).count(b" ")
        if cost > KEYS_STEP:
            cost = count = 0
            for record in batch:
                cost += _key_count(record)
                count += 1
                if cost > KEYS_STEP:
                    break
            del batch[count:]
        self._take(batch)
        del pending[: len(batch)]
        return cost

    def _take_batches(self) -> int:
        """Take the keys of the batches in front. Returns: how many; 0: they wait as single messages now."""
        from pocketmq.store.index.index_keys import keys_of_batches

        batches: list[BatchToIndex] = []
        size = 0
        for waiting in self.pending:
            if size >= STEP or not isinstance(waiting, BatchToIndex):
                break
            if batches and (waiting.made.keys is None) != (batches[0].made.keys is None):
                break
            batches.append(waiting)
            size += len(waiting.made.positions)
        if not self._config.message_index_tags:
            self._rest = keys_of_batches(batches, self._end_position)
        self._batched -= size
        if self._rest is not None:
            del self.pending[: len(batches)]
            return size
        self.pending[: len(batches)] = [one for batch in batches for one in batch.one_by_one()]
        return 0

    @property
    def behind(self) -> bool:
        """Return True if records wait to be indexed."""
        return self._behind or bool(self.pending) or self._has_rest

    @property
    def indexed_position(self) -> int:
        """Return the position before which every record is in the index."""
        if self._rows:
            return self._rows[0][1]
        if self._rest is not None:
            return int(self._rest.positions[0])
        if self._behind:
            return self.position
        return _position_of(self.pending[0]) if self.pending else self._log.end

    def note(self, record: Entry) -> Pending:
        """Convert a record of the log to the form of `pending`."""
        return self.topic_hash(record.topic), record.position, record.store_ms, record.properties

    def topic_hash(self, topic: bytes) -> int:
        """Return Java's hash of "TOPIC#", from which the hash of "TOPIC#KEY" continues."""
        known = self._hashes.get(topic)
        if known is None:
            text = topic.decode("utf-8", "replace") + "#"
            known = self._hashes[topic] = string_hash(text) & 0xFFFF_FFFF
        return known

    def _read_log(self) -> tuple[list[Pending], int, int]:
        """Return records, the position behind them, and about how many keys they have."""
        batch: list[Pending] = []
        position = max(self.position, self._log.min_position)
        end = self._log.end
        cost = 0
        for found in self._log.walk(position, end, check_crc=False):
            if not isinstance(found, Entry):
                # Damage was reported by recovery; continue behind it if its size is known.
                return batch, found.position + found.size if found.size > 0 else end, cost
            position = found.position + found.size
            if found.sys_flag & _ROLLBACK != _ROLLBACK:
                batch.append(self.note(found))
                cost += _key_count(batch[-1])
            if len(batch) >= LOG_STEP or cost > KEYS_STEP:
                return batch, position, cost
        return batch, end, cost

    @property
    def _end_position(self) -> int:
        """Return the end position of the last indexed record; -1 without one."""
        return self.files[-1].end_position if self.files else -1

    def _take(self, batch: list[Pending]) -> None:
        """Take the keys of a batch for writing."""
        tags = self._config.message_index_tags
        if not self.has_numpy:
            self._rows = rows_of(batch, self._end_position, tags=tags)
            return
        from pocketmq.store.index.index_keys import key_hashes

        self._rest = key_hashes(batch, self._end_position, tags=tags)

    def _write_rest(self) -> None:
        """Write what was taken. Raises: OSError, StoreError; then the rest of it stays."""
        while self._has_rest:
            if not self.files or self.files[-1].full:
                self._add_file()
            file = self.files[-1]
            if self._rest is None:
                del self._rows[: file.put(self._rows)]
            else:
                from pocketmq.store.index.index_columns import IndexColumns

                self._rest = self._rest.behind(IndexColumns(file).put_many(*self._rest))

    def _add_file(self) -> None:
        from pocketmq.store.index.index_file import IndexFile, file_name

        last = self.files[-1] if self.files else None
        name = file_name(self._clock.now_ms(), after=last.name if last else "")
        self.files.append(
            IndexFile.create(
                self._folder,
                name,
                self._config.max_hash_slot_num,
                self._config.max_index_num,
                last.end_ms if last else 0,
                last.end_position if last else 0,
            )
        )

    # ------------------------------------------------------------ asking

    def positions(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the positions of records that have the key's hash, newest first (IndexFile.find).

        A message that names a key twice has two entries.
        """
        self._do(_QUERY_STEPS * LOG_STEP if self._behind else _DRAIN_MAX)
        key_hash = index_hash(f"{topic}#{key}")
        for file in reversed(self.files):
            if file.matches_time(begin_ms, end_ms):
                yield from file.find(key_hash, begin_ms, end_ms)
            if file.begin_ms < begin_ms:
                return

    # ------------------------------------------------------------ looking after

    def sync(self) -> int:
        """Sync the files, in the pool. Returns: the store time up to which they are on disk."""
        files = list(self.files)
        end_ms = files[-1].end_ms if files else 0
        for file in files:
            if file.name not in self._synced:
                full = file.full
                file.sync()
                if full:
                    self._synced.add(file.name)
        return end_ms

    def delete_before(self, log_min: int) -> int:
        """Delete files whose last record the log no longer holds; never the last file. Returns: how many."""
        deleted = 0
        while len(self.files) > 1 and self.files[0].end_position < log_min:
            self.files[0].delete()
            self.files.pop(0)
            deleted += 1
        return deleted

    def cut(self, end: int) -> None:
        """Delete files with records behind `end`, where the log was truncated, to build them again."""
        self._forget_pending()
        self._rest, self._rows = None, []
        while self.files and self.files[-1].end_position >= end:
            self.files.pop().delete()
        self.position = max(self._trim(), self._log.min_position)
        self._behind = self.position < self._log.end

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files = []


def _position_of(waiting: "Pending | BatchToIndex") -> int:
    return waiting.made.positions[0] if isinstance(waiting, BatchToIndex) else waiting[1]


def _key_count(record: Pending) -> int:
    """Estimate the number of a record's keys: they are separated by spaces."""
    return 1 + record[3].count(b" ")


def index_hash(text: str) -> int:
    """Return abs(hashCode), or 0 where abs stays negative.

    >>> index_hash("polygenelubricants"), index_hash("T#a") == abs(string_hash("T#a"))
    (0, True)
    """
    value = abs(string_hash(text))
    return 0 if value > 0x7FFF_FFFF else value
