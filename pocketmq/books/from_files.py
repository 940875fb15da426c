"""StoreLedger: the books of a group, from the files of a store alone. Read only; no broker is needed.

1. Where the store has a delivery record of the group (PocketMQ's brokers keep one), the books are those of
   the broker. Files know no members: what members hold counts as waiting, but for popped messages.
2. Without one, files tell what is stored, where the group's offsets are, and what was sent back or is dead.
   What the offsets have passed is UNKNOWN. Of subscriptions that the caller gives, a message that none asks
   for is FILTERED; the cause of the others says whether all ask for it, or they differ.
3. Nothing is guessed: who got a message, and whether an offset was moved, only a record tells.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from pocketmq.books.book import Books
from pocketmq.books.in_state import InState
from pocketmq.books.listing import LISTED_MAX, add_queue, listed_of
from pocketmq.books.origins import original
from pocketmq.books.reckoning import Now, Reckoning
from pocketmq.books.record_file import NAMES, rows_of_file
from pocketmq.books.rows import EventKind, origin_text
from pocketmq.books.runs import PIECE_MAX
from pocketmq.books.sorting import KEPT, MISSED, RECORDS_MAX, UNWANTED, Pulling, Sorter, is_sql
from pocketmq.books.stored_queues import StoredQueues
from pocketmq.books.stored_receipts import receipts
from pocketmq.files.broker_name import BROKER, name_in
from pocketmq.files.local import FileSystem
from pocketmq.files.side_file import file_of_offsets
from pocketmq.model.balance import Balance, Cause, ListedMessages, State
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import (
    REVIVE_GROUP,
    SCHEDULE_TOPIC,
    dlq_topic,
    is_retry_topic,
    retry_topic,
)
from pocketmq.model.pop_receipt import Receipted
from pocketmq.model.record import Record
from pocketmq.remoting.errors import IllegalArgument, did_you_mean

FOLDER = "deliveries"
ALL_ASK, SOME_ASK = "passed; all ask for it", "passed; some ask for it"
_ASKED = {
    KEPT: (State.UNKNOWN, ALL_ASK),
    MISSED: (State.UNKNOWN, SOME_ASK),
    UNWANTED: (State.FILTERED, ""),
}
# Stands for the way in which messages were given, where only subscriptions are given.
_GIVEN = "given"


class StoreLedger:
    """One store. Raises: IllegalArgument if the folder is no store, or its queues cannot be read."""

    def __init__(self, store: StoredQueues, broker_name: str) -> None:
        self.store = store
        self.broker_name = broker_name
        self._sorter = Sorter(store)
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        name = file_of_offsets(f"{store.base}/config", store.names("config").keys())
        for key, queues in (store.side_file(name).get("offsetTable") or {}).items():
            topic, separator, group = key.partition("@")
            if separator:
                own = self._offsets.setdefault(group, {})
                own[topic] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
        self._topics = store.side_file("topics.json").get("topicConfigTable") or {}

    @property
    def groups(self) -> list[str]:
        """Return the groups that have offsets."""
        return sorted(self._offsets)

    def of_group(self, group: str, subscriptions: Sequence[str] = ()) -> "StoredBooks":
        """Return the books of a group. subscriptions: texts as in the delivery record, "TAG A || B".

        Raises: IllegalArgument if the store does not know the group.
        """
        books = Books(group)
        for name in NAMES:
            with suppress(FileNotFoundError):
                for texts, row in rows_of_file(
                    self.store.content(f"{self.store.base}/{FOLDER}/{name}")
                ):
                    books.enter(texts, row)
        is_recorded = bool(books.books)
        if not is_recorded:
            if group not in self._offsets:
                near = did_you_mean(group, self.groups)
                known = ", ".join(self.groups[:10]) or "none"
                raise IllegalArgument(
                    f"{self.store.base} has no offsets of group {group!r}{near}; groups there: {known}"
                )
            Copies(self.store, books).enter()
        reckoning = self._reckoning(books, is_recorded=is_recorded)
        return StoredBooks(self, reckoning, subscriptions, is_recorded=is_recorded)

    def is_there(self, topic: str) -> bool:
        """Return True unless a topic was deleted."""
        return topic in self._topics if self._topics else bool(self.store.queues(topic))

    def _reckoning(self, books: Books, *, is_recorded: bool) -> Reckoning:
        offsets = self._offsets.get(books.group, {})
        told: dict[tuple[str, int], dict[int, Receipted]] = {}
        if is_recorded:
            firsts = self._offsets.get(REVIVE_GROUP, {})
            for topic, queue_id, offset in receipts(self.store, books.group, firsts):
                told.setdefault((topic, queue_id), {})[offset] = Receipted.OUT
        now = {}
        for topic in offsets.keys() | {topic for topic, _ in books.books}:
            queues = self.store.queues(topic)
            own = offsets.get(topic, {})
            for queue_id in {*queues, *own, *(queue for of, queue in books.books if of == topic)}:
                bounds = queues.get(queue_id)
                now[topic, queue_id] = Now(
                    low=0 if bounds is None else bounds.low,
                    high=0 if bounds is None else bounds.high,
                    offset=own.get(queue_id, -1),
                    told=told.get((topic, queue_id), {}),
                    unread=self._why_unread(topic, queue_id),
                )
        return Reckoning(books, now, frozenset(), self._sorter.classes)

    def _why_unread(self, topic: str, queue_id: int) -> Cause | None:
        read_queues = (self._topics.get(topic) or {}).get("readQueueNums")
        return Cause.GONE if read_queues is not None and queue_id >= int(read_queues) else None


def open_ledger(folders: FileSystem, folder: str, broker_name: str = "") -> StoreLedger:
    """Return the ledger of a store. broker_name: "" for the one that the store knows, or its folder's.

    Raises: IllegalArgument.
    """
    store = StoredQueues(folders, folder.rstrip("/") or "/")
    if not broker_name:
        with suppress(FileNotFoundError):
            broker_name = name_in(store.content(f"{store.base}/{BROKER}"))
    parts = store.base.split("/")
    own = parts[-2] if parts[-1] == "store" and len(parts) > 1 else parts[-1]
    return StoreLedger(store, broker_name or own)


class StoredBooks:
    """The books of one group. is_recorded: whether a delivery record has the group (1)."""

    def __init__(
        self,
        ledger: StoreLedger,
        reckoning: Reckoning,
        subscriptions: Sequence[str],
        *,
        is_recorded: bool,
    ) -> None:
        self._ledger = ledger
        self._reckoning = reckoning
        self._pulling = Pulling(_GIVEN, _GIVEN, tuple(subscriptions))
        self._classes = reckoning.classes
        reckoning.classes = self._sorted
        if subscriptions and not is_recorded:
            reckoning.passed = self._passed
        self.is_recorded = is_recorded

    @property
    def group(self) -> str:
        return self._reckoning.books.group

    def balances(self, topic: str | None = None, since_ms: int = 0) -> list[Balance]:
        """Return the books, a topic each. since_ms: of messages stored then or later."""
        found: dict[str, Balance] = {}
        for name, queue_id, begin in self._queues(topic, since_ms):
            balance = found.setdefault(name, Balance(name, self.group))
            add_queue(balance, self._reckoning, queue_id, begin)
        return list(found.values())

    def listed(
        self, states: frozenset[State], topic: str | None = None, since_ms: int = 0
    ) -> list[ListedMessages]:
        """Return the messages in these states, in the order of the queues; at most LISTED_MAX ranges."""
        found: list[ListedMessages] = []
        for name, queue_id, begin in self._queues(topic, since_ms):
            parts = list(self._reckoning.parts(name, queue_id, begin))
            queue = (name, self._ledger.broker_name, queue_id)
            rows = listed_of(queue, parts, states, self._sorted)
            found += islice(rows, LISTED_MAX - len(found))
        return found

    def _queues(self, only: str | None, since_ms: int) -> Iterator[tuple[str, int, int]]:
        """Yield topic, queue id and first offset of the queues that count."""
        dead = dlq_topic(self.group)
        for topic, queue_id in sorted(self._reckoning.now):
            is_there = self._ledger.is_there(topic)
            if topic == dead or is_retry_topic(topic) or not is_there or only not in (None, topic):
                continue
            begin = self._reckoning.begin(topic, queue_id)
            if since_ms and queue_id in self._ledger.store.queues(topic):
                begin = max(begin, self._ledger.store.offset_at_time(topic, queue_id, since_ms))
            yield topic, queue_id, begin

    # ------------------------------------------------------------ by given subscriptions (2)

    def _passed(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[InState]:
        size = RECORDS_MAX if any(map(is_sql, self._pulling.wishes)) else PIECE_MAX
        for first in range(begin, end, size):
            last = min(end, first + size)
            classes = self._sorted(topic, queue_id, first, last, self._pulling)
            if classes is None:
                yield InState(first, last, State.UNKNOWN, last - first)
                continue
            for kind, (state, cause) in _ASKED.items():
                count = classes.count(kind)
                of = None if count == last - first else (kind, self._pulling)
                if count:
                    yield InState(first, last, state, count, cause, of=of)

    def _sorted(
        self, topic: str, queue_id: int, begin: int, end: int, pulling: Pulling
    ) -> bytes | None:
        """As Sorter.classes; of given subscriptions KEPT: all ask, MISSED: some do, UNWANTED: none does."""
        if pulling is not self._pulling:
            return self._classes(topic, queue_id, begin, end, pulling)
        each = [
            self._classes(topic, queue_id, begin, end, Pulling(text, text, (text,)))
            for text in pulling.wishes
        ]
        if None in each:
            return None
        sums = map(sum, zip(*filter(None, each), strict=True))
        return bytes(
            UNWANTED if not count else KEPT if count == len(each) else MISSED for count in sums
        )


class Copies:
    """Enters what the group's retry topics and dead letters are copies of, as the delivery record would."""

    def __init__(self, store: StoredQueues, books: Books) -> None:
        self._store = store
        self._books = books
        self._by_key: dict[str, dict[bytes, Record]] = {}

    def enter(self) -> None:
        """Look at all copies that are stored."""
        group = self._books.group
        retry, dead = retry_topic(group), dlq_topic(group)
        for topic in self._store.topics(retry):
            if topic == retry or topic[len(retry)] in "_+":
                for queue_id in self._store.queues(topic):
                    for offset, record in self._store.records(topic, queue_id):
                        self._enter(EventKind.COPY, record, (topic, queue_id, offset))
        for queue_id in self._store.queues(dead):
            for _, record in self._store.records(dead, queue_id):
                self._enter(EventKind.DEAD, record, None)
        self._enter_delayed(retry)

    def _enter_delayed(self, retry: str) -> None:
        """Look at what waits in a delay level."""
        offsets = self._store.side_file("delayOffset.json").get("offsetTable") or {}
        for queue_id in self._store.queues(SCHEDULE_TOPIC):
            first = int(offsets.get(str(queue_id + 1), 0))
            for _, record in self._store.records(SCHEDULE_TOPIC, queue_id, first):
                if get_property(record.properties, b"REAL_TOPIC") == retry.encode():
                    self._enter(EventKind.RETRY, record, None)

    def _enter(self, kind: EventKind, record: Record, place: tuple[str, int, int] | None) -> None:
        origin = original(record.properties, self._at, self._of_key)
        if origin is None:
            return
        book = self._books.book(origin.topic, origin.queue_id)
        if place is None:
            book.event(kind, origin.offset, origin.offset, "", record.store_ms)
        else:
            self._books.copied(*place, origin_text(*origin))

    def _at(self, position: int) -> Record | None:
        return self._store.record(position, 0)

    def _of_key(self, topic: str, key: bytes) -> Record | None:
        """Find a record by its key; reads the topic once."""
        found = self._by_key.get(topic)
        if found is None:
            found = self._by_key[topic] = {
                own: record
                for queue_id in self._store.queues(topic)
                for _, record in self._store.records(topic, queue_id)
                if (own := get_property(record.properties, b"UNIQ_KEY")) is not None
            }
        return found.get(key)


def merged(balances: Iterable[Balance]) -> list[Balance]:
    """Return the books of several stores as one, a topic each."""
    found: dict[str, Balance] = {}
    for each in balances:
        found.setdefault(each.topic, Balance(each.topic, each.group)).merge(each)
    return [found[name] for name in sorted(found)]
