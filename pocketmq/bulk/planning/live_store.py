"""Live stores inspected repeatedly, as by a stream: what has not changed is kept.

1. A record is in the log before its queue points to it. So the log is followed from a position that it had
   reached before the queues were inspected: its records name the queues to inspect again.
2. A queue that does not point to its new record yet is inspected each time until it does.
3. Topics come and go with their folders: a folder whose inode or time has changed is inspected again. A
   folder that changed within the last seconds may change once more at the same time, so it is not trusted.
4. Everything is inspected again if the log begins elsewhere, if the last record seen was deleted, if the log
   grew by more than a look can follow, and if a crashed store changes, which no broker indexes.
"""

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from pocketmq.bulk.fetch import LocalFolders
from pocketmq.bulk.offsets import LossRule, QueueKey
from pocketmq.bulk.partition import MIB, Topics
from pocketmq.bulk.planning.bounds import FileBounds
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.records import Entry, check_record, ends_here
from pocketmq.files.store_files import TopicFolder
from pocketmq.model.record import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, SIZE_AND_MAGIC
from pocketmq.remoting.flags import TRANSACTION_MASK, MessageSysFlag

# What one look follows of a log; where it grew by more, looking into the queues is not much dearer.
_FOLLOWED_MAX = 64 * MIB
_PIECE = MIB
_SETTLED_NS = 2_000_000_000
_UNINDEXED = (int(MessageSysFlag.TRANSACTION_PREPARED), int(MessageSysFlag.TRANSACTION_ROLLBACK))


class LiveStore:
    """The wanted queues of one store, and the position up to which its log was seen."""

    def __init__(self, store: StoreSnapshot, topics: Topics) -> None:
        self.store = store
        self.bounds: dict[QueueKey, FileBounds] = {}
        self._topics = topics
        self._folders: dict[TopicFolder, _Folder] = {}
        self._log: _FollowedLog | None = None
        self._awaited: dict[QueueKey, int] = {}
        # The last record that was seen, and the bytes that it begins with.
        self._last = (-1, b"")
        self._unattended = False

    def look(self, loss: LossRule) -> None:
        """Inspect every wanted queue."""
        self.store.close()
        self.bounds, self._folders = {}, {}
        for folder in self.store.topic_folders(self._topics.has):
            self._look_into(folder, loss)
        self._unattended = self._is_unattended()
        if self._unattended:
            self._look_behind_the_index(loss)
        self._remember_last([] if self._log is None else [self._log.last])

    def _remember_last(self, positions: list[int]) -> None:
        positions += [one.last_position for one in self.bounds.values()]
        position = max([*positions, self._last[0]])
        if position > self._last[0]:
            self._last = (position, self.store.head_at(position) or b"")

    def look_again(self, loss: LossRule) -> None:
        """Inspect what may have changed since the last look. Raises: NotAStore."""
        store = self.store
        log_start, files = store.log_start, len(store.log_files)
        store.close()
        store.list_again()
        position, head = self._last
        same = (
            isinstance(store.folders, LocalFolders)
            and (log_start, self._unattended) == (store.log_start, self._is_unattended())
            and len(store.log_files) >= files
            and (position < 0 or store.head_at(position) == head)
        )
        if not same or self._log is None or self._log.is_lost:
            # The queues of the look before ended no later than the log does now.
            self._log = _FollowedLog(store, self.bounds.values()) if same else None
            self._awaited = {}
            self._last = (-1, b"")
            self.look(loss)
            return
        found = self._log.advance()
        for entry in found:
            key = QueueKey(
                entry.topic.decode(errors="replace"), store.root.broker_name, entry.queue_id
            )
            indexed = entry.sys_flag & TRANSACTION_MASK not in _UNINDEXED
            if indexed and self._topics.has_queue(key):
                self._awaited[key] = entry.queue_offset
        gone, changed = self._changed_folders()
        followed = self._log.is_at_end and not self._log.is_lost
        if not followed or (self._unattended and (found or gone or changed)):
            self.look(loss)
        else:
            for folder in gone + changed:
                known = self._folders.pop(folder, None)
                for key in known.keys if known is not None else ():
                    del self.bounds[key]
            for folder in changed:
                self._look_into(folder, loss)
            if not self._unattended:
                # Else the log itself was read: no broker indexes it.
                self._look_into_awaited(loss)
            self._remember_last([found[-1].position] if found else [])

    def _look_into_awaited(self, loss: LossRule) -> None:
        for key, offset in list(self._awaited.items()):
            known = self.bounds.get(key)
            if known is None:
                continue
            if known.indexed_end <= offset:
                queue = self.store.queue(key.topic, key.queue_id, batch=known.queue.batch)
                known = self.bounds[key] = FileBounds(self.store, queue, loss)
            if known.indexed_end > offset:
                del self._awaited[key]

    def _look_into(self, folder: TopicFolder, loss: LossRule) -> None:
        """Inspect all queues of a topic."""
        # Before the look, so that what changes meanwhile is seen the next time.
        stamp = _stamp_of(folder.path) if isinstance(self.store.folders, LocalFolders) else None
        keys: list[QueueKey] = []
        for queue in self.store.queues_in(folder):
            key = QueueKey(queue.topic, self.store.root.broker_name, queue.queue_id)
            if self._topics.has_queue(key):
                self.bounds[key] = FileBounds(self.store, queue, loss)
                keys.append(key)
        self._folders[folder] = _Folder(stamp, keys)

    def _changed_folders(self) -> tuple[list[TopicFolder], list[TopicFolder]]:
        """Return the folders of deleted topics, and those that are new or changed."""
        there = list(self.store.topic_folders(self._topics.has))
        known = self._folders
        changed = [
            folder
            for folder in there
            for stamp in (_stamp_of(folder.path),)
            if folder not in known or stamp is None or stamp != known[folder].stamp
        ]
        return [*(known.keys() - set(there))], changed

    def _is_unattended(self) -> bool:
        if not self.store.was_not_stopped:
            return False
        # Imports the decoder, which no other plan needs.
        from pocketmq.bulk.planning.tail_records import is_held

        return not is_held(self.store)

    def _look_behind_the_index(self, loss: LossRule) -> None:
        from pocketmq.bulk.planning.tail_records import find_tails

        name = self.store.root.broker_name
        found = {(key.topic, key.queue_id): one for key, one in self.bounds.items()}

        def wanted(topic: str, queue_id: int) -> bool:
            return self._topics.has_queue(QueueKey(topic, name, queue_id))

        find_tails(self.store, found, wanted, loss)
        self.bounds = {one.key: one for one in found.values()}


class _Folder(NamedTuple):
    stamp: tuple[int, int] | None
    keys: list[QueueKey]


def _stamp_of(path: str) -> tuple[int, int] | None:
    """Return inode and time of a folder; None if it was deleted, or changed just now (invariant 3)."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
    return (status.st_ino, status.st_mtime_ns) if settled else None


class _FollowedLog:
    """A log, followed from the end of its last indexed record on."""

    def __init__(self, store: StoreSnapshot, bounds: Iterable[FileBounds]) -> None:
        """bounds: of the queues, at a time before now."""
        self._store = store
        # A file begins with a record, too, so that no more than two are ever walked: one may have been begun
        # before the queues point to the end of the one before. Files are also made before they are used.
        used = [f.first for f in store.log_files[-4:] if any(store.head(f) or b"")]
        self._next = max([store.log_start, *used[-2:-1], *(one.last_end for one in bounds)])
        #: Position of the last record that advance() found; -1 for none.
        self.last = -1
        #: Whether what is there cannot be followed.
        self.is_lost = False
        #: Whether the last advance() saw all there is.
        self.is_at_end = False

    def advance(self) -> list[Entry]:
        """Return the new records, up to a limit."""
        self.is_at_end = False
        found: list[Entry] = []
        begin = self._next
        while not self.is_lost and not self.is_at_end and self._next - begin < _FOLLOWED_MAX:
            count = len(found)
            self.is_lost = not self._read_piece(found)
            self.is_at_end = len(found) == count and not self._has_next_file()
        if found:
            self.last = found[-1].position
        return found

    def _has_next_file(self) -> bool:
        """Step from the end of a file to the next one, if it exists."""
        file = self._store.log_file_of(self._next)
        if file is None or self._next == file.first:
            return False
        at = self._next - file.first
        rest = self._store.peek(file, at, min(at + SIZE_AND_MAGIC.size, file.size))
        if not ends_here(memoryview(rest), 0, rest.size):
            return False
        self._next = file.end
        return self._store.log_file_of(self._next) is not None

    def _read_piece(self, found: list[Entry]) -> bool:
        """Append the next records; False if the bytes are not the expected log."""
        file = self._store.log_file_of(self._next)
        if file is None:
            return self._next == self._store.log_end
        size = _PIECE
        begin = self._next
        while True:
            low = begin - file.first
            view = memoryview(self._store.peek(file, low, min(low + size, file.size)))
            at = 0
            while not ends_here(view, at, len(view)):
                length, magic = SIZE_AND_MAGIC.unpack_from(view, at)
                is_record = magic in (MAGIC_V1, MAGIC_V2) and length >= RECORD_SIZE_MIN
                if is_record and at + length > len(view) and low + len(view) < file.size:
                    break  # the rest of it is in the next piece
                entry = check_record(view, at, len(view), begin + at, check_crc=False)
                if not isinstance(entry, Entry):
                    return entry is None
                found.append(entry)
                at += entry.size
                self._next = begin + at
            else:
                return True
            if at:
                return True
            size = max(2 * size, length)
