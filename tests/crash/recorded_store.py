"""A small store of ours with a bit of everything, recorded once and then damaged in many ways."""

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from pocketmq.model.record import encode_batch, read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.hosts import pack_host
from pocketmq.store import MessageStore, ReadStatus, StoreConfig

HOST = pack_host("127.0.0.1:10911")
LONG_MAX = (1 << 63) - 1
# (topic, queue id, queue offset)
Place = tuple[str, int, int]


def config(root: Path, **changes: object) -> StoreConfig:
    """Small files, so that a store of some hundred KiB has several of each."""
    values: dict[str, object] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log": 96 << 10,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 32,
        "max_index_num": 64,
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


def open_store(root: Path, **changes: object) -> MessageStore:
    """Opened without background work."""
    store = MessageStore(config(root, **changes), clock=ManualClock(), store_host=HOST)
    store.open()
    return store


@dataclass
class RecordedStore:
    """bodies: what was appended; records: (position, size, place) in the order of the log."""

    root: Path
    bodies: dict[Place, bytes]
    keys: dict[Place, str]
    records: list[tuple[int, int, Place]]
    end: int

    def copy_to(self, folder: Path) -> Path:
        """A copy that keeps holes and costs little."""
        shutil.copytree(self.root, folder, dirs_exist_ok=True)
        return folder


def record(root: Path, *, bodies_of: int = 1400, count: int = 240, seed: int = 7) -> RecordedStore:
    """Make the store: three topics, tags, keys, batches, prepared records; cleanly stopped."""
    chance = random.Random(seed)
    clock = ManualClock()
    store = MessageStore(config(root), clock=clock, store_host=HOST)
    store.open()
    bodies: dict[Place, bytes] = {}
    keys: dict[Place, str] = {}
    records: list[tuple[int, int, Place]] = []
    for number in range(count):
        clock.advance_ms(chance.randrange(3))
        topic, queue_id = chance.choice(
            [("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("SCHEDULE_TOPIC_XXXX", 2)]
        )
        tags = chance.choice(["tagA", "tagB", "中文"])
        properties = f"KEYS\x01key{number}\x02TAGS\x01{tags}\x02DELAY\x013".encode()
        if number % 17 == 5:
            # A half message's record: it is in the log, but in no queue.
            store.append(topic, queue_id, b"prepared", properties, 0, 0x4, 1, HOST)
        elif number % 23 == 7:
            members = [chance.randbytes(chance.randrange(1, 300)) for _ in range(4)]
            batch = encode_batch([(0, body, properties) for body in members])
            stored = store.append_batch("TopicB", 0, batch, b"WAIT\x01true", 0, 1, HOST)
            for at, body in enumerate(members):
                place = ("TopicB", 0, stored.queue_offset + at)
                bodies[place], keys[place] = body, f"key{number}"
                found = store.record_at(stored.positions[at])
                assert found is not None
                records.append((stored.positions[at], len(found), place))
        else:
            body = chance.randbytes(chance.randrange(1, bodies_of))
            appended = store.append(topic, queue_id, body, properties, number, 0, number, HOST)
            place = (topic, queue_id, appended.queue_offset)
            bodies[place], keys[place] = body, f"key{number}"
            records.append((appended.position, appended.size, place))
    end = store.commit_log_max_position
    store.close()
    return RecordedStore(root, bodies, keys, records, end)


def served(store: MessageStore) -> dict[Place, bytes]:
    """Every body that pulls give, by the place that was asked for; records must say the same place."""
    found: dict[Place, bytes] = {}
    for topic, queue_id in list(store.queues()):
        offset = store.min_offset(topic, queue_id)
        while True:
            result = store.read(topic, queue_id, offset, 32)
            for buffer in result.buffers:
                at = 0
                while at < len(buffer):
                    got = read_record(buffer, at)
                    assert (got.topic, got.queue_id) == (topic, queue_id)
                    place = (topic, queue_id, got.queue_offset)
                    assert place not in found
                    found[place] = bytes(got.body)
                    at += got.size
            if result.next_offset <= offset or result.status is ReadStatus.OFFSET_OVERFLOW_ONE:
                break
            offset = result.next_offset
    return found


def flip(path: Path, at: int, bit: int) -> None:
    """Change one bit of a file."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        value = os.pread(descriptor, 1, at)[0]
        os.pwrite(descriptor, bytes([value ^ (1 << bit)]), at)
    finally:
        os.close(descriptor)
