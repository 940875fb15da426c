"""Small stores for the tests of this folder."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pocketmq.model.record import Record, read_records
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.hosts import pack_host
from pocketmq.store import EntryFilter, MessageStore, ReadStatus, StoreConfig

HOST = pack_host("127.0.0.1:10911")
LONG_MAX = (1 << 63) - 1


def small_config(root: Path, **changes: object) -> StoreConfig:
    """Files so small that a few hundred messages fill several of each."""
    values: dict[str, object] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log": 64 << 10,
        "mapped_file_size_consume_queue": 1000,
        "max_hash_slot_num": 32,
        "max_index_num": 128,
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Arrivals:
    """Who is told of new entries."""

    arrived: Callable[[str, int, int, int, int, bytes], None] = lambda *event: None
    awaited: Callable[[str, int], object] = lambda topic, queue_id: True
    bit_map_of: Callable[[str, bytes], bytes] = lambda topic, properties: b""


def open_store(root: Path, clock: ManualClock | None = None, **changes: object) -> MessageStore:
    """A store without background work; the caller closes it."""
    return told_store(root, None, clock, **changes)


def told_store(
    root: Path, arrivals: Arrivals | None, clock: ManualClock | None = None, **changes: object
) -> MessageStore:
    """The same, and who is told of new entries."""
    store = MessageStore(
        small_config(root, **changes),
        clock=clock or ManualClock(),
        store_host=HOST,
        arrivals=arrivals,
    )
    store.open()
    return store


@asynccontextmanager
async def running_store(
    root: Path, clock: ManualClock | None = None, **changes: object
) -> AsyncIterator[MessageStore]:
    """A store with its background work."""
    config = small_config(root, **changes)
    async with MessageStore(config, clock=clock or ManualClock(), store_host=HOST) as store:
        yield store


def send(
    store: MessageStore,
    topic: str = "Topic",
    queue_id: int = 0,
    body: bytes = b"body",
    tag: str = "",
) -> int:
    """Append one message. Returns: its queue offset."""
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return store.append(topic, queue_id, body, properties, 0, 0, 1, HOST).queue_offset


def read_all(
    store: MessageStore,
    topic: str = "Topic",
    queue_id: int = 0,
    offset: int = 0,
    matches: EntryFilter | None = None,
) -> list[Record]:
    """Every record that pulls of 32 give from `offset` on."""
    records: list[Record] = []
    while True:
        result = store.read(topic, queue_id, offset, 32, matches)
        for buffer in result.buffers:
            records += read_records(buffer)
        if result.next_offset <= offset or result.status is ReadStatus.OFFSET_OVERFLOW_ONE:
            return records
        offset = result.next_offset


class Tags:
    """A subscription by tags codes."""

    record = None

    def __init__(self, *codes: int) -> None:
        self.codes = frozenset(codes)
