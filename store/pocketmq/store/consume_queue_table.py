"""ConsumeQueueTable: every queue of the store by (topic, queue id).

    consumequeue/{topic}/{queue_id}/...
    consumequeue_ext/{topic}/{queue_id}/...        only where addresses into it were written
    batchconsumequeue/{topic}/{queue_id}/...       topics of RocketMQ 5.x with queue.type BatchCQ

Opening reads the folders and a few bytes of each queue's last file; a queue's files are mapped when it is
used for the first time, and are let go again when it is idle, so that memory follows the queues in use.
Owner: MessageStore.
"""

import os
import shutil
from collections.abc import Iterator

from pocketmq.remoting.java_hash import string_hash
from pocketmq.remoting.names import SCHEDULE_TOPIC
from pocketmq.remoting.record import HOST_SIZE, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from pocketmq.store.batch_consume_queue import BatchConsumeQueue
from pocketmq.store.consume_queue import ConsumeQueue
from pocketmq.store.consume_queue_ext import ConsumeQueueExt
from pocketmq.store.errors import MessageIllegal, StoreUnreadable

# Attribute of a topic of RocketMQ 5.x, and its values.
QUEUE_TYPE, SIMPLE_QUEUE, BATCH_QUEUE = "queue.type", "SimpleCQ", "BatchCQ"
_TOPIC_V1_MAX = 127
TOPIC_SIZE_MAX = 255


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
        """ext_file_size: None when new entries get no unit in consumequeue_ext."""
        self.folder = os.path.join(root, "consumequeue")
        self._batch_folder = os.path.join(root, "batchconsumequeue")
        self._ext_folder = os.path.join(root, "consumequeue_ext")
        self.file_size = file_size
        self._batch_file_size = batch_file_size
        self._ext_file_size = ext_file_size
        self.batch_topics: set[str] = set()
        self._exts: dict[tuple[str, int], ConsumeQueueExt | None] = {}
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._record_overhead = RECORD_SIZE_MIN + store_host_size - HOST_SIZE
        self._long_topics = long_topics

    def load(self, file_size: int | None = None) -> None:
        """Open every queue that has a folder, whose format is the folder's whatever the topic is said to be.

        Source: ConsumeQueue loading, RocketMQ 4.9.7.
        """
        self.batch_topics.difference_update(topic for topic, _, _ in _folders(self.folder))
        for topic, queue_id, folder in _folders(self.folder):
            queue = self._new(folder, topic, queue_id)
            queue.load(file_size)
            if queue.files.files:
                self.file_size = queue.files.file_size
                self.queues[topic, queue_id] = queue
        for topic, queue_id, folder in _folders(self._batch_folder):
            self.batch_topics.add(topic)
            batch_queue = self._new(folder, topic, queue_id)
            batch_queue.load()
            if batch_queue.files.files:
                self._batch_file_size = batch_queue.files.file_size
                self.queues[topic, queue_id] = batch_queue

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when there is none. Raises: MessageIllegal for names no file may have."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            if queue_id < 0:
                raise MessageIllegal(f"queue id {queue_id} is negative")
            self._check_length(topic)
            root = self._batch_folder if topic in self.batch_topics else self.folder
            folder = os.path.join(root, topic, str(queue_id))
            queue = self._new(folder, topic, queue_id)
            self.queues[topic, queue_id] = queue
        return queue

    @property
    def topic_size_max(self) -> int:
        """Bytes that a topic's name may have."""
        return TOPIC_SIZE_MAX if self._long_topics else _TOPIC_V1_MAX

    def _check_length(self, topic: str) -> None:
        size = len(topic.encode("utf-8", "surrogateescape"))
        limit = self.topic_size_max
        if size > limit:
            raise MessageIllegal(
                f"topic {topic[:40]!r}... has {size} bytes; at most {limit} are stored"
                + ("" if self._long_topics else " unless autoMessageVersionOnTopicLen is true")
            )

    def _new(self, folder: str, topic: str, queue_id: int) -> ConsumeQueue:
        name = topic.encode("utf-8", "surrogateescape")
        if not name or b"/" in name or b"\0" in name or topic in (".", ".."):
            raise MessageIllegal(f"{topic!r} is no name for a topic")
        if topic in self.batch_topics:
            queue: ConsumeQueue = BatchConsumeQueue(folder, self._batch_file_size, topic, queue_id)
        else:
            queue = ConsumeQueue(folder, self.file_size, topic, queue_id)
        prefix = 1 if len(name) <= _TOPIC_V1_MAX else 2
        queue.magic = MAGIC_V1 if prefix == 1 else MAGIC_V2
        queue.topic_part = len(name).to_bytes(prefix, "big") + name
        queue.overhead = self._record_overhead + len(queue.topic_part) - 1
        queue.special = (
            topic == SCHEDULE_TOPIC or topic in self.batch_topics or self._ext_file_size is not None
        )
        # Java's hash of "TOPIC#", from which the index goes on with a key.
        queue.key_hash = string_hash(topic + "#") & 0xFFFF_FFFF
        return queue

    def ext(self, queue: ConsumeQueue, *, make: bool = False) -> ConsumeQueueExt | None:
        """The queue's extension; None when it has none (and `make` does not ask for one)."""
        key = (queue.topic, queue.queue_id)
        if key not in self._exts or (make and self._exts[key] is None):
            folder = os.path.join(self._ext_folder, queue.topic, str(queue.queue_id))
            found = ConsumeQueueExt(folder, self._ext_file_size or 48 << 20)
            found.load()
            self._exts[key] = found if found.files.files else None
            if make:
                self._exts[key] = found
        return self._exts[key]

    @property
    def keeps_ext(self) -> bool:
        """Whether new entries get a unit in consumequeue_ext."""
        return self._ext_file_size is not None

    @property
    def max_position(self) -> int:
        """End of the last record that any queue points to; 0 when there is none."""
        return max((queue.max_position for queue in self.queues.values()), default=0)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return [queue for (name, _), queue in self.queues.items() if name == topic]

    def remove(self, queue: ConsumeQueue) -> None:
        """Delete a queue and its files; the records stay in the commit log."""
        del self.queues[queue.topic, queue.queue_id]
        ext = self.ext(queue)
        if ext is not None:
            ext.destroy()
        self._exts.pop((queue.topic, queue.queue_id), None)
        queue.destroy()
        if not self.of_topic(queue.topic):
            for root in (self.folder, self._batch_folder, self._ext_folder):
                shutil.rmtree(os.path.join(root, queue.topic), ignore_errors=True)

    def release_idle(self) -> None:
        """Unmap the queues that were not used since the last call."""
        for queue in self.queues.values():
            if queue.used:
                queue.used = False
            else:
                queue.release()

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()
        for ext in self._exts.values():
            if ext is not None:
                ext.close()


def _folders(root: str) -> Iterator[tuple[str, int, str]]:
    """(topic, queue id, folder) of everything that looks like a queue's folder."""
    try:
        topics = sorted(os.scandir(root), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnreadable(root, error) from error
    for topic in topics:
        if topic.is_dir():
            with os.scandir(topic.path) as entries:
                for entry in entries:
                    if entry.name.isdecimal() and entry.is_dir():
                        yield topic.name, int(entry.name), entry.path
