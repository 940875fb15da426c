"""SendOnce: a repeated send gets the answer of the first one. Ours; off by default.

1. Clients give a message its UNIQ_KEY once, before their retry loop: a message of a topic whose key is in the
   window is a repetition, whatever queue it names. It gets the first one's position and queue offset. Only if
   body, tags and keys are the same, and both are half messages or none is: programs fill one object anew and
   send it again, and a key may be guessed. A message whose key is not in the window is new, with no look at
   the rest. Where messages of one key differ, the window has each by all of this, too.
2. The window is rebuilt from the log at the start, and when a slave begins to lead: a kill forgets nothing.
3. Exempt: retry topics and dead letters, and copies that name the message they are of (ORIGIN_MESSAGE_ID,
   RETRY_TOPIC), as those of a consumer's send-back or of a tool.
4. Delayed and half messages are found where they wait, by their REAL_TOPIC; what is made of them later is
   no send.
5. A repetition waits, as any send, until the log is safe up to the end of the first copy.
6. A first copy that no consumer will get repeats nothing: its topic was deleted, it was rolled back or
   recalled.
Owner: the broker, on its event loop.
"""

import logging
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pocketmq.broker.internal_append import FIRST_STORED
from pocketmq.broker.node import Node
from pocketmq.broker.once.key_hash import PRIME, hash_of, salt_of
from pocketmq.broker.once.once_topic import OnceTopic
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
from pocketmq.model.record import Record, body_crc, read_record
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.store import MessageStore
from pocketmq.store.timer.properties import DEL_KEY, OUT_MS

log = logging.getLogger(__name__)

ATTRIBUTE = "sendOnce"
Buffer = bytes | bytearray | memoryview
Identity = tuple[bytes, int, int, bytes | None, bytes | None, bool]
_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)
# Messages of a batch: size, magic, CRC, flag, size of the body; then the body and the size of the properties.
_BATCHED = struct.Struct(">iiiii")
_EXEMPT = (b"ORIGIN_MESSAGE_ID", b"RETRY_TOPIC")
_TRANSACTION_MASK = 0xC


class FirstCopy(NamedTuple):
    """Where the first of several equal sends is; end: behind it in the log."""

    position: int
    end: int
    queue_id: int
    queue_offset: int


class SendOnce:
    """See the head of the file. repeated: repetitions since the start, by topic."""

    def __init__(
        self,
        node: Node,
        topics: TopicConfigManager,
        store: MessageStore,
        is_undecided: Callable[[Record], bool],
    ) -> None:
        """is_undecided: whether a half message is neither committed nor rolled back."""
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
        self._known: dict[str, OnceTopic] = {}
        self.repeated: Counter[str] = Counter()
        self._is_undecided = is_undecided

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

    def first(self, topic: str, properties: bytes, body: Buffer) -> FirstCopy | None:
        """Return the message that a send repeats, and count it; None if it is new."""
        found = self._find(topic, properties, body)
        if found is not None:
            self.repeated[topic] += 1
        return found

    def of_topic(self, topic: TopicConfig) -> OnceTopic | None:
        """Return what plain sends to a topic ask; None if repetitions are not recognised there."""
        return self._of(topic.topic) if self.applies(topic) else None

    def _of(self, topic: str) -> OnceTopic:
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = OnceTopic(topic, self._window)
        return found

    def tick(self) -> None:
        """Enter the keys that wait, and let old ones go. Called once a second."""
        for name, each in list(self._known.items()):
            each.enter()
            if name not in self._topics.topics:
                del self._known[name]
        self._window.tick()

    def note(self, topic: str, properties: bytes, body: Buffer, position: int) -> None:
        """Remember a message that was stored."""
        key = _key(properties)
        if key is None:
            return
        window, known, number = self._window, self._of(topic), hash_of(salt_of(topic), key)
        known.enter()
        known.mark(key)
        is_known = window.knows(number)
        if not window.is_newer(number):
            window.add(number, position)
        if is_known:
            # Another message of this key, or the same one, whose first copy does not count (6).
            identity = _identity(key, properties, body_crc(body), len(body))
            whole = _hash_of(topic, identity)
            same = [at for at, _ in self._copies(whole, topic, identity)]
            window.add(whole, position, instead_of=same[0] if same else -1)

    def _find(self, topic: str, properties: bytes, body: Buffer) -> FirstCopy | None:
        key = _key(properties)
        known = self._of(topic)
        if key is None or known.is_new(key):
            return None
        known.enter()
        self._window.tick()
        identity = _identity(key, properties, body_crc(body), len(body))
        # The latest first: one that was tried again after it was rolled back is told by its commit alone.
        for each in (_hash_of(topic, identity), hash_of(salt_of(topic), key)):
            for position, record in self._copies(each, topic, identity):
                if self._counts(record, topic):
                    queue = get_property(record.properties, b"REAL_QID")
                    is_waiting = queue is not None and record.topic != topic
                    queue_id = int(queue or b"") if is_waiting else record.queue_id
                    end = position + record.size
                    return FirstCopy(position, end, queue_id, record.queue_offset)
        return None

    def _copies(self, number: int, topic: str, identity: Identity) -> Iterator[tuple[int, Record]]:
        """Yield the messages that the window has by a hash and that are the same."""
        for position in self._window.find(number):
            record = self._record(position)
            if record is None or _topic(record) != topic:
                continue
            key, size = _key(record.properties), len(record.body)
            if key and _identity(key, record.properties, record.body_crc, size) == identity:
                yield position, record

    def _counts(self, first: Record, topic: str) -> bool:
        """Return True if consumers got a first copy, or may still get it (6)."""
        store = self._store
        if not store.reads.is_queued(first):
            return False
        if first.topic == topic:
            return True
        if store.deleted.has_waiting(topic, first.position) or self._is_recalled(first):
            return False
        return (
            first.topic != TRANS_HALF_TOPIC or self._is_undecided(first) or self._committed(first)
        )

    def _is_recalled(self, first: Record) -> bool:
        """Return True if a timer message was recalled (acts/recall.py)."""
        due = get_property(first.properties, OUT_MS)
        if first.topic != TIMER_TOPIC or due is None:
            return False
        key = get_property(first.properties, b"UNIQ_KEY") or b""
        return any(
            get_property(each.properties, DEL_KEY) is not None
            and get_property(each.properties, OUT_MS) == due
            for each in self._store.reads.records_of_key(TIMER_TOPIC, key, first.position)
        )

    def _committed(self, half: Record) -> bool:
        key = get_property(half.properties, b"UNIQ_KEY") or b""
        found = self._store.reads.records_of_key(_topic(half), key, half.position)
        return any(_is_committed(each) and each.body_crc == half.body_crc for each in found)

    # ------------------------------------------------------------ batches

    def first_batch(self, topic: TopicConfig, body: Buffer) -> list[FirstCopy]:
        """Return the messages that a batch repeats, all of it; [] if one is new, or cannot be read."""
        found: list[FirstCopy] = []
        if not self.applies(topic):
            return found
        for member in _batched(body):
            first = None if member is None else self._find(topic.topic, *member)
            if first is None:
                return []
            found.append(first)
        self.repeated[topic.topic] += len(found)
        return found

    def note_batch(self, topic: TopicConfig, body: Buffer, positions: Sequence[int]) -> None:
        """Remember the messages of a batch that was stored."""
        if self.applies(topic):
            for member, position in zip(_batched(body), positions, strict=False):
                if member is not None:
                    self.note(topic.topic, *member, position)

    # ------------------------------------------------------------ the log

    def load(self) -> None:
        """Rebuild the window from the log (2)."""
        self._window.clear()
        for each in self._known.values():
            each.clear()
        names = {name for name, topic in self._topics.topics.items() if self.applies(topic)}
        if not names:
            return
        count = 0
        # In the order of the log: the window keeps the last ones, whatever queue they are in.
        for position in sorted({*self._recent(names), *self._recent(set(_WAITING))}):
            record = self._record(position)
            if record is not None and _topic(record) in names and not _is_made(record):
                self.note(_topic(record), record.properties, record.body, position)
                count += 1
        log.info("sendOnce: read the keys of recent messages topics=%d count=%d", len(names), count)

    def _recent(self, names: set[str]) -> "array[int]":
        """Return the positions of the newest messages of some topics, as many as the window holds."""
        since_ms = self._now_ms() - self._config.send_once_window
        keys_max = self._config.send_once_keys
        found = array("q")
        for topic, queue_id in self._store.queues():
            if topic in names:
                found.extend(self._store.reads.positions_since(topic, queue_id, since_ms, keys_max))
                if len(found) > 2 * keys_max:
                    found = array("q", sorted(found)[-keys_max:])
        return array("q", sorted(found)[-keys_max:])

    def _record(self, position: int) -> Record | None:
        # Also a first copy that no reader may see yet (store/reading_limit.py): its repetition waits for it.
        found = self._store.record_at(position)
        try:
            return None if found is None else read_record(found, check_crc=False)
        except MessageCodecError:
            return None


def _key(properties: bytes) -> bytes | None:
    """Return the key of a message; None for what is exempt, or has none."""
    if any(get_property(properties, name) for name in _EXEMPT):
        return None
    return get_property(properties, b"UNIQ_KEY") or None


def _identity(key: bytes, properties: bytes, crc: int, size: int) -> Identity:
    """Return what repetitions have in common (1). crc, size: of the body."""
    # Not more: clients' hooks change other properties when they try again.
    tags, keys = get_property(properties, b"TAGS"), get_property(properties, b"KEYS")
    is_half = (get_property(properties, b"TRAN_MSG") or b"").lower() == b"true"
    return key, crc, size, tags, keys, is_half


def _topic(record: Record) -> str:
    real = get_property(record.properties, b"REAL_TOPIC") if record.topic in _WAITING else None
    return record.topic if real is None else real.decode("utf-8", "replace")


def _is_committed(record: Record) -> bool:
    decision = record.sys_flag & _TRANSACTION_MASK
    return decision == int(MessageSysFlag.TRANSACTION_COMMIT)


def _is_made(record: Record) -> bool:
    """Return True if the broker made a record of another (4): delivered, committed, or replaced."""
    if record.topic in _WAITING:
        return get_property(record.properties, FIRST_STORED) is not None
    return _is_committed(record) or get_property(record.properties, b"REAL_TOPIC") is not None


def _hash_of(topic: str, identity: Identity) -> int:
    return hash((topic, identity)) % PRIME


def _batched(body: Buffer) -> Iterator[tuple[bytes, Buffer] | None]:
    """Yield properties and body of a batch's messages; None, and no more, for one that cannot be read."""
    at = 0
    while at < len(body):
        try:
            size, _, _, _, body_size = _BATCHED.unpack_from(body, at)
        except struct.error:
            size = body_size = -1
        begin = at + _BATCHED.size
        end = begin + body_size
        count = int.from_bytes(body[end : end + 2], "big")
        at += size
        if body_size < 0 or at != end + 2 + count or at > len(body):
            yield None
            return
        yield bytes(body[end + 2 : at]), body[begin:end]
