"""Further queues: those that RocketMQ fills because a message names them, beside the queue it was sent to.

A broker with enableMultiDispatch takes the names in a message's INNER_MULTI_DISPATCH, writes an entry of the
same record into each of these queues, and notes the queue offsets in INNER_MULTI_QUEUE_OFFSET, both with
commas in between. Light queues (%LMQ%...) are filled in no other way. We serve none of them, but a RocketMQ
broker that takes the store back does: so their entries are right, and a repair keeps their files.
Source: MultiDispatch, CommitLogDispatcherBuildConsumeQueue, 4.9.7.
"""

from pathlib import Path

from pocketmq.files.layout import BLANK_SIZE
from pocketmq.files.records import Entry
from pocketmq.model.message_codec import get_property
from pocketmq.store.repair.reader import StoreReader


def further_offset(properties: bytes, topic: bytes) -> int | None:
    """Return the queue offset that a record has in the queues of `topic`; None if it does not name them."""
    names = (get_property(properties, b"INNER_MULTI_DISPATCH") or b"").split(b",")
    offsets = (get_property(properties, b"INNER_MULTI_QUEUE_OFFSET") or b"").split(b",")
    for name, offset in zip(names, offsets, strict=False):
        if name == topic and offset.isdigit():
            return int(offset)
    return None


def further_queues(store: StoreReader) -> list[Path]:
    """Return the folders of such queues, below the store's root; each queue's last record decides."""
    found: list[Path] = []
    for queue in store.queues():
        topic = queue.topic.encode("utf-8", "surrogateescape")
        for index in range(queue.end_index() - 1, queue.first_index - 1, -1):
            entry = queue.entry(index)
            if entry.size == BLANK_SIZE:
                continue
            record = store.record_at(entry.position, check_crc=False)
            if isinstance(record, Entry):
                if record.topic != topic and further_offset(record.properties, topic) == index:
                    found.append(Path("consumequeue", queue.topic, str(queue.queue_id)))
                break
        queue.close()
    return found
