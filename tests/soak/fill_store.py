"""Fill a store with many small messages of one topic, quickly.

python -m tests.soak.fill_store ROOT TOPIC COUNT
"""

import sys
from pathlib import Path

from pocketmq.model.record import encode_batch
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.hosts import pack_address
from pocketmq.store import MessageStore, StoreConfig

QUEUES = 4
_BATCH = 1_000


def fill(root: Path, topic: str, count: int) -> None:
    """`count` messages with bodies of some ten bytes, in turn to QUEUES queues, by thousands."""
    host = pack_address("127.0.0.1", 10911)
    clock = SystemClock()
    store = MessageStore(StoreConfig(store_path_root_dir=str(root)), clock=clock, store_host=host)
    store.open()
    try:
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            batch = encode_batch([(0, b"%d" % number, b"TAGS\x01a\x02") for number in numbers])
            queue_id = first // _BATCH % QUEUES
            store.append_batch(topic, queue_id, batch, b"", 0, clock.now_ms(), host)
    finally:
        store.close()


if __name__ == "__main__":
    fill(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
