"""SendOnce: a repeated send gets the answer of the first one. Ours; off by default.

1. Clients give a message its UNIQ_KEY once, before their retry loop: a message of a topic whose key is in the
   window is a repetition, whatever queue it names. It gets the first one's position and queue offset.
2. The window is rebuilt from the log at the start, and when a slave begins to lead: a kill forgets nothing.
3. Exempt: retry topics and dead letters, and copies that name the message they are of (ORIGIN_MESSAGE_ID,
   RETRY_TOPIC), as those of a consumer's send-back or of a tool.
4. Delayed and half messages are found where they wait, by their REAL_TOPIC; what is made of them later is
   no send.
5. A repetition waits, as any send, until the log is safe up to the end of the first copy.
Owner: the broker, on its event loop.
"""

import logging
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pocketmq.broker.node import Node
from pocketmq.broker.once.window import KeyWindow
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
)
from pocketmq.model.record import Record, read_record
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.store import MessageStore

log = logging.getLogger(__name__)

ATTRIBUTE = "sendOnce"
Buffer = bytes | bytearray | memoryview
_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)
# Messages of a batch: size, magic, CRC, flag, size of the body; then the body and the size of the properties.
_BATCHED = struct.Struct(">iiiii")
_READ_MAX = 1_024


class FirstCopy(NamedTuple):
    """Where the first of several equal sends is; end: behind it in the log."""

    position: int
    end: int
    queue_id: int
    queue_offset: int


class SendOnce:
    """See the head of the file. repeated: repetitions since the start, by topic."""

    def __init__(self, node: Node, topics: TopicConfigManager, store: MessageStore) -> None:
        self._config = node.config
        self._now_ms = node.clock.now_ms
        self._topics = topics
        self._store = store
        self._window = KeyWindow(
            node.config.send_once_keys,
            node.config.send_once_window,
            node.clock.monotonic_ms,
            lambda: store.appends.has_numpy,
        )
        self.repeated: Counter[str] = Counter()

    def applies(self, topic: TopicConfig) -> bool:
        """Return True if repetitions are recognised in a topic."""
        own = topic.attributes.get(ATTRIBUTE)
        is_on = self._config.send_once if own is None else own.lower() == "true"
        name = topic.topic
        return (
            is_on
            and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
            and not self._topics.is_system(name)
        )

    def first(self, topic: str, properties: bytes) -> FirstCopy | None:
        """Return the message that a send repeats, and count it; None if it is new."""
        key = _key(properties)
        if key is None:
            return None
        position = self._window.find(hash(key) ^ hash(topic))
        record = None if position < 0 else self._record(position)
        if record is None or _topic(record) != topic or _key(record.properties) != key:
            return None
        self.repeated[topic] += 1
        queue = get_property(record.properties, b"REAL_QID")
        queue_id = int(queue) if queue is not None and record.topic != topic else record.queue_id
        return FirstCopy(position, position + record.size, queue_id, record.queue_offset)

    def note(self, topic: str, properties: bytes, position: int) -> None:
        """Remember a message that was stored."""
        key = _key(properties)
        if key is not None:
            self._window.add(hash(key) ^ hash(topic), position)

    def of_topic(self, topic: TopicConfig) -> "OnceTopic | None":
        """Return what plain sends to a topic ask; None if repetitions are not recognised there."""
        return OnceTopic(topic.topic, self._window) if self.applies(topic) else None

    # ------------------------------------------------------------ batches

    def first_batch(self, topic: TopicConfig, body: Buffer) -> list[FirstCopy]:
        """Return the messages that a batch repeats, all of it; [] if one of them is new."""
        found: list[FirstCopy] = []
        if not self.applies(topic):
            return found
        for properties in _batched(body):
            first = self.first(topic.topic, properties)
            if first is None:
                return []
            found.append(first)
        return found

    def note_batch(self, name: str, body: Buffer, positions: Sequence[int]) -> None:
        """Remember the messages of a batch that was stored."""
        topic = self._topics.get(name)
        if topic is not None and self.applies(topic):
            for properties, position in zip(_batched(body), positions, strict=False):
                self.note(name, properties, position)

    # ------------------------------------------------------------ the log

    def load(self) -> None:
        """Rebuild the window from the log (2)."""
        self._window.clear()
        names = {name for name, topic in self._topics.topics.items() if self.applies(topic)}
        if not names:
            return
        since_ms = self._now_ms() - self._config.send_once_window
        count = 0
        for topic, queue_id in self._store.queues():
            if topic in names or topic in _WAITING:
                begin = self._store.offset_by_time(topic, queue_id, since_ms, "LOWER")
                end = self._store.max_offset(topic, queue_id)
                begin = max(begin, end - self._config.send_once_keys)
                for record in self._records(topic, queue_id, begin, end):
                    if _topic(record) in names:
                        self.note(_topic(record), record.properties, record.position)
                        count += 1
        log.info("sendOnce: read the keys of recent messages topics=%d count=%d", len(names), count)

    def _records(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Record]:
        for at in range(begin, end, _READ_MAX):
            count = min(_READ_MAX, end - at)
            for position, _, _ in self._store.entries(topic, queue_id, at, count):
                record = self._record(position)
                if record is not None:
                    yield record

    def _record(self, position: int) -> Record | None:
        # Also a first copy that no reader may see yet (store/reading_limit.py): its repetition waits for it.
        found = self._store.record_at(position)
        try:
            return None if found is None else read_record(found, check_crc=False)
        except MessageCodecError:
            return None


class OnceTopic:
    """The keys of a topic's recent messages, for sends that are known to be plain: no batch, not exempt."""

    __slots__ = ("_salt", "_window")

    def __init__(self, topic: str, window: KeyWindow) -> None:
        self._salt = hash(topic)
        self._window = window

    def may_repeat(self, key: bytes) -> bool:
        """Return True if SendOnce has to look at a message with this UNIQ_KEY."""
        return self._window.knows(hash(key) ^ self._salt)

    def note(self, key: bytes, position: int) -> None:
        """Remember a message that was stored."""
        self._window.put(hash(key) ^ self._salt, position)

    def hashes(self, keys: bytes, count: int) -> list[int] | None:
        """Return what `note_all` takes for `count` keys of one size; None if one may repeat."""
        salt, width = self._salt, len(keys) // count
        found = [hash(keys[at : at + width]) ^ salt for at in range(0, len(keys), width)]
        return None if self._window.knows_any(found) else found

    def note_all(self, hashes: Sequence[int], positions: Sequence[int]) -> None:
        """Remember messages that were stored."""
        self._window.put_all(hashes, positions)


def exempt(properties: str) -> bool:
    """Return True for properties that may name the message that theirs is a copy of (3)."""
    return "ORIGIN_MESSAGE_ID\x01" in properties or "RETRY_TOPIC\x01" in properties


def _key(properties: bytes) -> bytes | None:
    """Return what tells a repetition; None for what is exempt, or has no key."""
    if any(get_property(properties, name) for name in (b"ORIGIN_MESSAGE_ID", b"RETRY_TOPIC")):
        return None
    return get_property(properties, b"UNIQ_KEY") or None


def _topic(record: Record) -> str:
    real = get_property(record.properties, b"REAL_TOPIC") if record.topic in _WAITING else None
    return record.topic if real is None else real.decode("utf-8", "replace")


def _batched(body: Buffer) -> Iterable[bytes]:
    """Yield the properties of a batch's messages, up to the first that cannot be read."""
    at = 0
    while at + _BATCHED.size <= len(body):
        size, _, _, _, body_size = _BATCHED.unpack_from(body, at)
        begin = at + _BATCHED.size + body_size
        if size < _BATCHED.size + 2 or body_size < 0 or begin + 2 > len(body):
            return
        count = int.from_bytes(body[begin : begin + 2], "big")
        yield bytes(body[begin + 2 : begin + 2 + count])
        at += size
