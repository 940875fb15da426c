"""GroupLedger: the books of groups: read from the record, kept while they are asked for. Ours.

1. Nothing is kept for a group without questions. The first question reads the record, in a thread; the
   next ones what was added since. Of GROUPS_MAX groups and PIECES_MAX pieces, those asked for last stay.
2. Sums and lists are made in turns of the loop, since tables and queues are the loop's; lists in pages.
Owner: the Broker, on its event loop; the thread has a group's books while its question is answered.
"""

import asyncio
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
)
from typing import NamedTuple, Protocol, TypeVar

from pocketmq.books.book import Books
from pocketmq.books.listing import LISTED_MAX, listed_of
from pocketmq.books.origins import Place
from pocketmq.books.reckoning import Now, Reckoning
from pocketmq.books.record_file import RecordReader
from pocketmq.books.rows import EventKind, Row, Texts
from pocketmq.books.sorting import Sorter
from pocketmq.broker.groups.consumer_group import BROADCASTING
from pocketmq.broker.groups.member_reports import Report
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.model.balance import Balance, Cause, ListedMessages, ListedPage, State
from pocketmq.model.names import dlq_topic, is_retry_topic
from pocketmq.model.pop_receipt import Receipted

GROUPS_MAX = 64
PIECES_MAX = 200_000
# Messages looked at in a turn of the loop; a part or a range takes as long as so many.
_TURN, _EACH = 65_536, 64
# Offsets of a queue that are looked at together, for a list and for a sum.
_WINDOW, _SUM_WINDOW = 8_192, 32_768
_FOREVER = 1 << 62


class HasSize(Protocol):
    """Parts, and rows."""

    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=HasSize)


def page_after(topic: str, queue_id: int, offset: int) -> str:
    """Format where a page of a list begins."""
    return f"{queue_id} {offset} {topic}"


def _parse_after(text: str) -> Place | None:
    """Parse what `page_after` made; None for the first page. Raises: ValueError."""
    if not text:
        return None
    try:
        queue_id, offset, topic = text.split(" ")
        return Place(topic, int(queue_id), int(offset))
    except ValueError:
        raise ValueError(
            f"no page of a list has after={text!r}: send what the last answer had"
        ) from None


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
            for name, queue_id in self._group_queues(group, reckoning, topic):
                begin = self._begin(reckoning, name, queue_id, since_ms)
                balance = found.setdefault(name, Balance(name, group))
                balance.stored += max(0, reckoning.now[name, queue_id].high - begin)
                for window in reckoning.windows(name, queue_id, begin, _SUM_WINDOW):
                    await asyncio.sleep(0)
                    async for part in _in_turns(reckoning.parts(name, queue_id, *window)):
                        balance.add(part.state, part.size)
        return [found[name] for name in sorted(found)]

    async def listed(
        self,
        group: str,
        states: frozenset[State],
        topic: str | None = None,
        since_ms: int = 0,
        after: str = "",
        *,
        ranges: int = LISTED_MAX,
        messages: int = _FOREVER,
        unless: Container[str] = (),
    ) -> ListedPage:
        """Return the next messages in these states, in the order of the queues.

        after: "" at first, then that of the last page; ranges, messages: how many at most; unless: causes
        that are left out. Raises: ValueError if no page had this `after`.
        """
        first, left = _parse_after(after), messages
        found: list[ListedMessages] = []
        async with self._one_at_a_time:
            reckoning = self._reckoning(await self._books(group))
            for name, queue_id in self._group_queues(group, reckoning, topic):
                if first is not None and (name, queue_id) < first[:2]:
                    continue
                begin = self._begin(reckoning, name, queue_id, since_ms)
                if first is not None and (name, queue_id) == first[:2]:
                    begin = max(begin, first.offset)
                async for row in self._rows(reckoning, (name, queue_id), begin, states, unless):
                    if len(found) == ranges or not left:
                        return ListedPage(found, page_after(name, queue_id, row.first))
                    row = row if row.size <= left else row._replace(last=row.first + left - 1)
                    found.append(row)
                    left -= row.size
                    if not left:
                        return ListedPage(found, page_after(name, queue_id, row.last + 1))
        return ListedPage(found, "")

    async def _rows(
        self,
        reckoning: Reckoning,
        queue: tuple[str, int],
        begin: int,
        states: frozenset[State],
        unless: Container[str],
    ) -> AsyncIterator[ListedMessages]:
        """Yield the messages of a queue in these states from an offset on."""
        for window in reckoning.windows(*queue, begin, _WINDOW):
            await asyncio.sleep(0)
            found = reckoning.parts(*queue, *window)
            parts = [each async for each in _in_turns(found) if each.cause not in unless]
            named = (queue[0], self._broker_name, queue[1])
            async for row in _in_turns(listed_of(named, parts, states, self._sorter.classes)):
                yield row

    async def copied_to(self, group: str) -> dict[tuple[str, int], int]:
        """Return behind which copies of given back messages are recorded, by retry topic and queue id."""
        found: dict[tuple[str, int], int] = {}
        async with self._one_at_a_time:
            for book in (await self._books(group)).books.values():
                for run in book.given_back.runs:
                    key = run.topic, run.queue_id
                    found[key] = max(found.get(key, 0), run.end)
        return found

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

    def _group_queues(
        self, group: str, reckoning: Reckoning, only: str | None
    ) -> list[tuple[str, int]]:
        """Return the queues of the group's topics, or one, without its retries and dead letters, sorted."""
        dead = dlq_topic(group)
        return sorted(
            (topic, queue_id)
            for topic, queue_id in reckoning.now
            if only in (None, topic)
            and not is_retry_topic(topic)
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
            found |= {(each.topic, each.queue_id) for each in book.given_back.runs}
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


async def _in_turns(found: Iterable[T]) -> AsyncIterator[T]:
    """Yield parts or rows, in turns of the loop: the more messages a part has, the longer it takes."""
    spent = 0
    for each in found:
        yield each
        spent += each.size + _EACH
        if spent > _TURN:
            spent = 0
            await asyncio.sleep(0)


def _enter(books: Books, rows: Iterator[tuple[Texts, Row]]) -> None:
    """Enter the rows that concern a group. In a thread."""
    for texts, row in rows:
        books.enter(texts, row)
