"""GroupLedger: the books of groups: read from the record, kept while they are asked for. Ours.

1. Nothing is kept for a group without questions. The first question reads the record, in a thread; the
   next ones what was added since. Of GROUPS_MAX groups and PIECES_MAX pieces, those asked for last stay.
2. The sums are made in turns of the loop, a queue each, since tables and queues are the loop's.
Owner: the Broker, on its event loop; the thread has a group's books while its question is answered.
"""

import asyncio
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import NamedTuple

from pocketmq.books.book import Books
from pocketmq.books.listing import LISTED_MAX, add_queue, listed_of
from pocketmq.books.reckoning import Now, Reckoning
from pocketmq.books.record_file import RecordReader
from pocketmq.books.rows import EventKind, Row, Texts
from pocketmq.books.sorting import Sorter
from pocketmq.broker.groups.consumer_group import BROADCASTING
from pocketmq.broker.groups.member_reports import Report
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.model.balance import Balance, Cause, ListedMessages, State
from pocketmq.model.names import dlq_topic, is_retry_topic
from pocketmq.model.pop_receipt import Receipted

GROUPS_MAX = 64
PIECES_MAX = 200_000


class _Kept(NamedTuple):
    books: Books
    reader: RecordReader


class GroupLedger:
    """See the head of the file."""

    def __init__(
        self,
        broker_name: str,
        tables: Tables,
        members: Members,
        messages: Messages,
        receipts: Callable[[str], Iterable[tuple[str, int, int, Receipted]]],
        reports: Callable[[str], Awaitable[Mapping[str, Report]]],
    ) -> None:
        """receipts: as PopService.receipts; reports: as MemberReports.of_group."""
        self._broker_name = broker_name
        self._tables = tables
        self._members = members
        self._receipts = receipts
        self._reports = reports
        self._store = messages.store
        self._deliveries = messages.deliveries
        self._sorter = Sorter(self._store)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def balances(
        self, group: str, topic: str | None = None, since_ms: int = 0
    ) -> list[Balance]:
        """Return the books of a group, a topic each. since_ms: of messages stored then or later."""
        found: dict[str, Balance] = {}
        async with self._one_at_a_time:
            reckoning = self._reckoning(await self._books(group))
            async for name, queue_id in _in_turns(reckoning, self._topics(group, reckoning), topic):
                begin = self._begin(reckoning, name, queue_id, since_ms)
                balance = found.setdefault(name, Balance(name, group))
                add_queue(balance, reckoning, queue_id, begin)
        return [found[name] for name in sorted(found)]

    async def listed(
        self, group: str, states: frozenset[State], topic: str | None = None, since_ms: int = 0
    ) -> list[ListedMessages]:
        """Return the messages in these states, in the order of the queues; at most LISTED_MAX ranges."""
        found: list[ListedMessages] = []
        async with self._one_at_a_time:
            reckoning = self._reckoning(await self._books(group))
            async for name, queue_id in _in_turns(reckoning, self._topics(group, reckoning), topic):
                begin = self._begin(reckoning, name, queue_id, since_ms)
                parts = list(reckoning.parts(name, queue_id, begin))
                queue = (name, self._broker_name, queue_id)
                found += listed_of(
                    queue, parts, states, self._sorter.classes, LISTED_MAX - len(found)
                )
        return sorted(found)[:LISTED_MAX]

    @property
    def groups(self) -> list[str]:
        """Return the groups that were asked about, and whose books are kept."""
        return list(self._kept)

    def since_ms(self, group: str) -> int:
        """Return the start of the record, wall ms; 0 without one, or if the group was not asked about."""
        kept = self._kept.get(group)
        return 0 if kept is None else kept.books.since_ms

    def _begin(self, reckoning: Reckoning, topic: str, queue_id: int, since_ms: int) -> int:
        begin = reckoning.begin(topic, queue_id)
        if not since_ms:
            return begin
        return max(begin, self._store.offset_by_time(topic, queue_id, since_ms, "LOWER"))

    # ------------------------------------------------------------ what it is made of

    async def _books(self, group: str) -> Books:
        """Return the books with all that is recorded."""
        await self._note_reports(group)
        self._deliveries.settle()
        kept = self._kept.get(group)
        pieces = None if kept is None else kept.reader.pieces()
        if kept is None or pieces is None:
            kept = _Kept(Books(group), RecordReader(self._deliveries.files))
            pieces = kept.reader.pieces() or []
        books = kept.books
        rows = kept.reader.rows(pieces)
        await asyncio.get_running_loop().run_in_executor(None, _enter, books, rows)
        self._kept[group] = kept
        self._kept.move_to_end(group)
        while len(self._kept) > 1 and (
            len(self._kept) > GROUPS_MAX
            or sum(len(each.books) for each in self._kept.values()) > PIECES_MAX
        ):
            self._kept.popitem(last=False)
        return books

    async def _note_reports(self, group: str) -> None:
        """Record where members that broadcast are: they keep their offsets themselves."""
        online = self._members.consumers.get(group)
        if online is None or online.message_model != BROADCASTING:
            return
        kept = self._kept.get(group)
        for client_id, report in (await self._reports(group)).items():
            for (topic, queue_id), offset in report.own.items():
                book = None if kept is None else kept.books.books.get((topic, queue_id))
                if offset >= 0 and (book is None or book.reports.get(client_id) != offset):
                    key = (group, topic, queue_id)
                    self._deliveries.event(EventKind.REPORT, key, offset, offset, client_id)

    def _topics(self, group: str, reckoning: Reckoning) -> list[str]:
        """Return the group's topics without those of its retries and dead letters."""
        dead = dlq_topic(group)
        return sorted(
            topic
            for topic in {topic for topic, _ in reckoning.now}
            if not is_retry_topic(topic)
            and topic != dead
            and self._tables.topics.get(topic) is not None
        )

    def _reckoning(self, books: Books) -> Reckoning:
        group = books.group
        online = self._members.consumers.get(group)
        here = [] if online is None else list(online.channels.values())
        unread = self._unread(group)
        told: dict[tuple[str, int], dict[int, Receipted]] = {}
        for topic, queue_id, offset, found in self._receipts(group):
            told.setdefault((topic, queue_id), {})[offset] = found
        now = {
            key: Now(
                low=self._low(*key),
                high=self._store.max_offset(*key),
                offset=self._tables.offsets.query(group, *key),
                told=told.get(key, {}),
                unread=self._why_unread(key, unread),
            )
            for key in self._queues(books)
        }
        ids = frozenset(name for each in here for name in (each.client_id, each.connection.address))
        return Reckoning(books, now, ids, self._sorter.classes)

    def _queues(self, books: Books) -> set[tuple[str, int]]:
        """Return the queues of all topics that the group reads or has read, and of its copies."""
        group = books.group
        online = self._members.consumers.get(group)
        topics = self._tables.offsets.topics_of(group) | {topic for topic, _ in books.books}
        topics |= set() if online is None else online.subscriptions.keys()
        found = set(books.books)
        for book in books.books.values():
            found |= {(each.topic, each.queue_id) for row in book.copies.values() for each in row}
        for topic in topics:
            config = self._tables.topics.get(topic)
            found |= set(self._store.queues(topic))
            found |= {(topic, each) for each in range(0 if config is None else config.read_queues)}
        return found

    def _low(self, topic: str, queue_id: int) -> int:
        """Return the first offset that is stored; the end of a queue whose messages were all deleted."""
        low = self._store.min_offset(topic, queue_id)
        first = self._store.entries(topic, queue_id, low, 1)
        if first and first[0][0] < self._store.commit_log_min_position:
            return self._store.max_offset(topic, queue_id)
        return low

    def _why_unread(self, queue: tuple[str, int], unread: set[tuple[str, int]]) -> Cause | None:
        config = self._tables.topics.get(queue[0])
        if config is not None and queue[1] >= config.read_queues:
            return Cause.GONE
        return Cause.UNREAD if queue in unread else None

    def _unread(self, group: str) -> set[tuple[str, int]]:
        """Return the queues whose holder does not subscribe to their topic."""
        return {
            (finding.topic, queue_id)
            for finding in self._members.guard.findings(group)
            for loss in finding.losses
            if loss.holder is None
            for queue_id in loss.queue_ids
        }


async def _in_turns(
    reckoning: Reckoning, topics: Iterable[str], only: str | None
) -> AsyncIterator[tuple[str, int]]:
    """Yield the queues of these topics, one a turn of the loop."""
    for topic in topics:
        if only is None or topic == only:
            for queue_id in sorted(number for of, number in reckoning.now if of == topic):
                await asyncio.sleep(0)
                yield topic, queue_id


def _enter(books: Books, rows: Iterator[tuple[Texts, Row]]) -> None:
    """Enter the rows that concern a group. In a thread."""
    for texts, row in rows:
        books.enter(texts, row)
