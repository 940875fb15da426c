"""Messages with keys, and how they are found."""

from pocketmq.model.record import read_record
from pocketmq.store import MessageStore
from tests.store.stores import HOST, LONG_MAX


def put(store: MessageStore, properties: bytes, topic: str = "Topic") -> int:
    return store.append(topic, 0, b"", properties, 0, 0, 1, HOST).position


def find(store: MessageStore, key: str, topic: str = "Topic", count: int = 64) -> list[int]:
    found = store.query_by_key(topic, key, count, 0, LONG_MAX)
    return [read_record(record).position for record in found.records]
