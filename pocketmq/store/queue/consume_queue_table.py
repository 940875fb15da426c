"""ConsumeQueueTable: every queue of the store by (topic, queue id).

    consumequeue/{topic}/{queue_id}/...
    consumequeue_ext/{topic}/{queue_id}/...        only where addresses into it were written
    batchconsumequeue/{topic}/{queue_id}/...       topics of RocketMQ 5.x with queue.type BatchCQ

1. load() reads the names of the topics. A queue is opened on demand: some reads of its last file. Its files
   are mapped when they are read or written.
2. `queues` are the open ones. An idle queue drops its maps; beyond OPEN_KEPT queues it is closed, unless it
   has entries that are not on disk yet.
3. All entries of a closed queue are on disk, except for queues that Recovery opens.
Owner: MessageStore.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

from pocketmq.files.layout import LOST_FOUND
from pocketmq.model.java_hash import string_hash
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.record import HOST_SIZE, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from pocketmq.store.errors import RecordIllegal, StoreUnreadable
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.queue.batch_consume_queue import BatchConsumeQueue
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExt
from pocketmq.store.queue.deleted_queues import DeletedQueues

# Attribute of a topic of RocketMQ 5.x, and its values.
QUEUE_TYPE, SIMPLE_QUEUE, BATCH_QUEUE = "queue.type", "SimpleCQ", "BatchCQ"
_TOPIC_V1_MAX = 127
TOPIC_SIZE_MAX = 255
# Together they bound maps and memory: each open queue costs 1 KB, and one of 65,530 maps when it is in use.
OPEN_KEPT = 16_384
_OPENED_MAX = 8_192
_NONE: list[int] = []


class ConsumeQueueTable:
    """The queues of one folder."""

    def __init__(
        self,
        root: str,
        file_size: int,
        *,
        batch_file_size: int,
        ext_file_size: int | None,
        store_host_size: int,
        long_topics: bool,
    ) -> None:
        """ext_file_size: None if new entries get no unit in consumequeue_ext."""
        self.folder = os.path.join(root, "consumequeue")
        self._batch_folder = os.path.join(root, "batchconsumequeue")
        self._ext_folder = os.path.join(root, "consumequeue_ext")
        self.file_size = file_size
        self._batch_file_size = batch_file_size
        self._ext_file_size = ext_file_size
        self.batch_topics: set[str] = set()
        self.deleted = DeletedQueues(root)
        self._exts: dict[tuple[str, int], ConsumeQueueExt | None] = {}
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        # The queues of each topic, open or not; None: not looked for yet.
        self._ids: dict[str, list[int] | None] = {}
        self._file_size_known: int | None = None
        # Since the last look for idle ones.
        self._opened = 0
        # How often a queue was closed: one that is not open is as it was while this stays.
        self.closings = 0
        self._in_use = False
        self._record_overhead = RECORD_SIZE_MIN + store_host_size - HOST_SIZE
        self._long_topics = long_topics

    def load(self, file_size: int | None = None) -> None:
        """Find the topics; file_size, if given, is that of all plain queues.

        A queue's format is its folder's, whatever the topic's configuration says. Source: ConsumeQueue
        loading, RocketMQ 4.9.7. Raises: StoreUnreadable.
        """
        self._file_size_known = file_size
        self.deleted.load()
        for topic in _folders(self.folder):
            self._ids[topic] = None
        self.batch_topics.difference_update(self._ids)
        for topic in _folders(self._batch_folder):
            if topic not in self._ids:
                self.batch_topics.add(topic)
                self._ids[topic] = None

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, opening it if needed; None if absent. Raises: StoreForeign, StoreUnreadable."""
        queue = self.queues.get((topic, queue_id))
        if queue is None and queue_id in (known := self._known(topic)):
            queue = self._new(topic, queue_id)
            queue.load(self._file_size_known)
            if queue.files.files:
                self._has_opened(queue)
            else:
                known.remove(queue_id)
                queue = None
        return queue

    def look(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue for a single look; one that is closed stays so. Raises: as get."""
        queue = self.queues.get((topic, queue_id))
        if queue is None and queue_id in self._known(topic):
            queue = self._new(topic, queue_id)
            queue.load(self._file_size_known)
        return queue

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, creating it if absent. Raises: RecordIllegal for names that no file may have."""
        queue = self.get(topic, queue_id)
        if queue is None:
            if queue_id < 0:
                raise RecordIllegal(f"queue id {queue_id} is negative")
            self._check_length(topic)
            queue = self._new(topic, queue_id)
            self._ids.setdefault(topic, [])
            self._known(topic).append(queue_id)
            self._has_opened(queue)
        return queue

    def open_all(self) -> None:
        """Open every queue."""
        for topic, queue_id in self.names(self.topics()):
            self.get(topic, queue_id)

    def use(self) -> None:
        """Close idle queues from now on: recovery is over."""
        self._in_use = True
        for _ in range(2):
            self.release_idle()

    def topics(self) -> list[str]:
        """Return the topics that have queues."""
        return list(self._ids)

    def ids(self, topic: str) -> list[int]:
        """Return the queues of a topic; empty for a topic without queues."""
        return sorted(self._known(topic))

    def names(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        """Return (topic, queue id) of the queues of these topics."""
        return [(topic, queue_id) for topic in topics for queue_id in self.ids(topic)]

    def _known(self, topic: str) -> list[int]:
        """Return a topic's queues, unsorted and mutable; read from the folder on first use."""
        known = self._ids.get(topic, _NONE)
        if known is None:
            known = self._ids[topic] = self._listed(topic)
        return known

    def _listed(self, topic: str) -> list[int]:
        names = _folders(os.path.join(self._root_of(topic), topic))
        return [int(name) for name in names if name.isdecimal() and str(int(name)) == name]

    def _has_opened(self, queue: ConsumeQueue) -> None:
        self.queues[queue.topic, queue.queue_id] = queue
        if queue.files.files:
            if isinstance(queue, BatchConsumeQueue):
                self._batch_file_size = queue.files.file_size
            else:
                self.file_size = queue.files.file_size
        self._opened += 1
        if self._opened >= _OPENED_MAX:
            self.release_idle()
            queue.used = True

    def _close(self, queue: ConsumeQueue) -> bool:
        """Drop everything of a queue but its name. Returns: False while its last entries are not on disk."""
        if queue.flushed_offset < queue.max_offset:
            queue.release()
            return False
        key = (queue.topic, queue.queue_id)
        queue.close()
        self.closings += 1
        del self.queues[key]
        ext = self._exts.pop(key, None)
        if ext is not None:
            ext.close()
        if not queue.files.files:
            self._known(queue.topic).remove(queue.queue_id)
        return True

    def rows(self) -> list[tuple[str, int]]:
        """Return closed queues with several files. For the pool: it only reads folders."""
        found = []
        for topic, known in list(self._ids.items()):
            for queue_id in self._listed(topic) if known is None else tuple(known):
                if (topic, queue_id) not in self.queues:
                    with contextlib.suppress(FileNotFoundError):
                        if len(os.listdir(self._folder_of(topic, queue_id))) > 1:
                            found.append((topic, queue_id))
        return found

    @property
    def openings(self) -> int:
        """Return how often a queue was opened."""
        return len(self.queues) + self.closings

    @property
    def topic_size_max(self) -> int:
        """Return the maximum size of a topic's name, bytes."""
        return TOPIC_SIZE_MAX if self._long_topics else _TOPIC_V1_MAX

    def _check_length(self, topic: str) -> None:
        size = len(topic.encode("utf-8", "surrogateescape"))
        limit = self.topic_size_max
        if size > limit:
            raise RecordIllegal(
                f"topic {topic[:40]!r}... has {size} bytes; at most {limit} are stored"
                + ("" if self._long_topics else " unless autoMessageVersionOnTopicLen is true")
            )

    def _root_of(self, topic: str) -> str:
        return self._batch_folder if topic in self.batch_topics else self.folder

    def _folder_of(self, topic: str, queue_id: int) -> str:
        return os.path.join(self._root_of(topic), topic, str(queue_id))

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        name = topic.encode("utf-8", "surrogateescape")
        if not name or b"/" in name or b"\0" in name or topic in (".", ".."):
            raise RecordIllegal(f"{topic!r} is not a valid topic name")
        folder = self._folder_of(topic, queue_id)
        if topic in self.batch_topics:
            queue: ConsumeQueue = BatchConsumeQueue(folder, self._batch_file_size, topic, queue_id)
        else:
            queue = ConsumeQueue(folder, self.file_size, topic, queue_id)
        prefix = 1 if len(name) <= _TOPIC_V1_MAX else 2
        queue.magic = MAGIC_V1 if prefix == 1 else MAGIC_V2
        queue.topic_part = len(name).to_bytes(prefix, "big") + name
        queue.overhead = self._record_overhead + len(queue.topic_part) - 1
        queue.special = self._is_special(topic)
        # Java's hash of "TOPIC#"; the index continues it with a key.
        queue.key_hash = string_hash(topic + "#") & 0xFFFF_FFFF
        return queue

    @property
    def has_ext(self) -> bool:
        """Return True if any queue may have an extension."""
        return os.path.isdir(self._ext_folder)

    def ext(self, queue: ConsumeQueue, *, make: bool = False) -> ConsumeQueueExt | None:
        """Return the queue's extension; None if it has none (unless `make`)."""
        key = (queue.topic, queue.queue_id)
        if key not in self._exts or (make and self._exts[key] is None):
            folder = os.path.join(self._ext_folder, queue.topic, str(queue.queue_id))
            found = ConsumeQueueExt(folder, self._ext_file_size or 48 << 20)
            found.load()
            self._exts[key] = found if found.files.files else None
            if make:
                self._exts[key] = found
        return self._exts[key]

    def dirty_files(self, queue: ConsumeQueue) -> list[MappedFile]:
        """Return the files of the queue and its extension that may not be on disk yet."""
        ext = self._exts.get((queue.topic, queue.queue_id))
        first = None if ext is None else queue.entry(queue.flushed_offset)
        if ext is None or first is None:
            return queue.dirty_files()
        return [*queue.dirty_files(), *ext.dirty_files(first[2])]

    def _is_special(self, topic: str) -> bool:
        return topic == SCHEDULE_TOPIC or topic in self.batch_topics or self.keeps_ext

    def keep_ext(self, file_size: int | None) -> None:
        """Begin to write units, in files of that size, or stop; those that are there stay readable."""
        self._ext_file_size = file_size
        for queue in self.queues.values():
            queue.special = self._is_special(queue.topic)

    @property
    def keeps_ext(self) -> bool:
        """Return True if new entries get a unit in consumequeue_ext."""
        return self._ext_file_size is not None

    @property
    def max_position(self) -> int:
        """Return the end of the last record that any open queue points to; 0 without a record."""
        return max((queue.max_position for queue in self.queues.values()), default=0)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return [queue for each in self.ids(topic) if (queue := self.get(topic, each))]

    def remove(self, queues: Sequence[ConsumeQueue]) -> None:
        """Delete queues and their files; the records stay in the commit log. Raises: OSError."""
        self.deleted.note(queues)
        for queue in queues:
            self._remove(queue)

    def remove_topic(self, topic: str, log_end: int) -> int:
        """Delete all queues of a topic, as remove does. Returns: how many. Raises: OSError."""
        self.deleted.note_topic(topic, log_end)
        queues = self.of_topic(topic)
        self.remove(queues)
        return len(queues)

    def finish_removals(self) -> None:
        """Remove what is left of queues whose deletion did not come to its end."""
        for topic, queue_id in self.deleted.names():
            queue = self.get(topic, queue_id)
            end = 0 if queue is None else queue.max_position
            if queue is not None and end and self.deleted.has(topic, queue_id, end - 1):
                with contextlib.suppress(OSError):
                    self._remove(queue)

    def _remove(self, queue: ConsumeQueue) -> None:
        topic, queue_id = queue.topic, queue.queue_id
        ext = self.ext(queue)
        if ext is not None:
            ext.destroy()
        self._exts.pop((topic, queue_id), None)
        queue.destroy()
        del self.queues[topic, queue_id]
        self._known(topic).remove(queue_id)
        if not self._known(topic):
            del self._ids[topic]
            for root in (self.folder, self._batch_folder, self._ext_folder):
                import shutil

                shutil.rmtree(os.path.join(root, topic), ignore_errors=True)

    def release_idle(self) -> None:
        """Unmap the queues not used since the last call, and close some (invariant 2)."""
        self._opened = 0
        spare = len(self.queues) - OPEN_KEPT if self._in_use else 0
        for queue in list(self.queues.values()):
            if queue.used:
                queue.used = False
            elif spare > 0:
                spare -= self._close(queue)
            else:
                queue.release()

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()
        for ext in self._exts.values():
            if ext is not None:
                ext.close()


def _folders(root: str) -> Iterator[str]:
    """Yield the names of the folders in a folder; none if it is missing."""
    try:
        with os.scandir(root) as entries:
            names = [each.name for each in entries if each.is_dir() and each.name != LOST_FOUND]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnreadable(root, error) from error
    yield from sorted(names)
