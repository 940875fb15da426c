"""GroupRedelivery: lost or skipped messages are given to their group again, by its own retry topic. Ours.

1. Only this group sees a copy: it is in the retry topic that the group's members read, pop retry topic or
   %RETRY%group. Its property REDELIVERED says what it was taken from, ORIGIN_MESSAGE_ID which message it is.
2. While members differ in mode compatible nothing is given: the copies would go to one member, whatever it
   asks for. Only what a member wants is given.
3. No message is given twice. What was given before a kill is found by the copies themselves, before more is
   given: the record may lack its last second.
4. It may be millions: a call looks at some thousands, in turns of the loop, and says where the next one
   continues. One call works at a time, so that two give nothing twice.
5. Messages in a queue that no member reads are left: they are delivered once the members agree, or the topic
   has its queues again.
"""

import asyncio
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pocketmq.books.given_back import GivenBack, given_text
from pocketmq.books.origins import REDELIVERED, given_back_as
from pocketmq.books.rows import EventKind
from pocketmq.books.sorting import DISCARDED, KEPT, MISSED, UNWANTED, Pulling, Sorter, wanted_by
from pocketmq.broker.delivery.record import DeliveryRecord
from pocketmq.broker.ledger.ledger import GroupLedger, page_after
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.balance import Cause, ListedMessages, ListedPage, State
from pocketmq.model.message_codec import (
    add_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.model.names import retry_topic
from pocketmq.model.pop_receipt import pop_retry_topic
from pocketmq.model.record import Record, read_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.timer.properties import without_timer

COUNT_MAX = 2_000
# Messages of an answer that only counts, and of one that gives, for each that it may give.
COUNTED_MAX, _LOOKED_FOR = 65_536, 4
# Offsets looked at before other work gets its turn.
_STEP = 256
_DONE = ("given", "unwanted", "deleted")
_KINDS = {Cause.FILTERED.value: MISSED, Cause.DISCARDED.value: DISCARDED}
_WORDS = {MISSED: "missed", DISCARDED: "discarded", KEPT: "skipped"}
_OF_WORD = {word: kind for kind, word in _WORDS.items()}
# What belongs to the way of the message that it was.
_NOT_COPIED = (
    *(b"POP_CK", b"DELAY", b"WAIT", b"RETRY_TOPIC", b"ORIGIN_MESSAGE_ID", b"ORIGIN_GROUP"),
    *(b"1ST_POP_TIME", b"REAL_TOPIC", b"REAL_QID", REDELIVERED),
)


class Redelivered(NamedTuple):
    """Numbers of messages, of those that were looked at. left: not given yet; unwanted: no member wants them
    now; deleted: not stored. after: how to look at the next ones, "" behind the last.
    """

    given: int
    left: int
    unwanted: int
    deleted: int
    after: str
    end: int


class GroupRedelivery:
    """See the head of the file."""

    def __init__(
        self, node: Node, tables: Tables, members: Members, messages: Messages, ledger: GroupLedger
    ) -> None:
        self._config = node.config
        self._tables = tables
        self._members = members
        self._store = messages.store
        self._put = messages.put
        self._deliveries = messages.deliveries
        self._ledger = ledger
        self._sorter = Sorter(self._store)
        # Groups whose copies have been looked at since the start.
        self._looked_at: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def give(
        self,
        group: str,
        state: State,
        topic: str | None,
        since_ms: int,
        count_max: int,
        after: str = "",
    ) -> Redelivered:
        """Give up to count_max messages, in the order of the queues; 0 only counts.

        after: "" at first, then that of the last answer. Raises: Refused, ValueError.
        """
        async with self._one_at_a_time:
            self._check(group)
            if group not in self._looked_at:
                await self._find_given(group)
                self._looked_at.add(group)
            count_max = min(count_max, COUNT_MAX)
            page = await self._ledger.listed(
                group,
                frozenset({state}),
                topic,
                since_ms,
                after,
                messages=_LOOKED_FOR * count_max or COUNTED_MAX,
                unless=(Cause.UNREAD, Cause.GONE),
            )
            return await self._give_of(group, page, count_max)

    async def _give_of(self, group: str, page: ListedPage, count_max: int) -> Redelivered:
        counts: Counter[str] = Counter()
        after: str | None = None
        copies = _Copies(self._deliveries, group)
        for few in _few(page.rows):
            await asyncio.sleep(0)
            after = self._give_few(group, few, count_max, copies, counts)
            copies.note()
            if after is not None:
                break
        self._deliveries.flush()
        left = sum(row.size for row in page.rows) - counts.total()
        end = self._store.commit_log_max_position
        after = page.after if after is None else after
        return Redelivered(
            **{name: counts[name] for name in _DONE}, left=left, after=after, end=end
        )

    def _give_few(
        self,
        group: str,
        rows: Sequence[ListedMessages],
        count_max: int,
        copies: "_Copies",
        counts: Counter[str],
    ) -> str | None:
        """Give or count some rows of a queue; return where to continue if enough were given."""
        for row, offset, is_wanted in self._sorted(group, rows):
            if is_wanted is None:
                counts["deleted"] += 1
            elif not is_wanted:
                counts["unwanted"] += 1
            elif count_max and counts["given"] == count_max:
                return page_after(row.topic, row.queue_id, offset)
            elif count_max:
                record = self._record(row.topic, row.queue_id, offset)
                assert record is not None, "it is stored"
                kind = _KINDS.get(row.cause, KEPT)
                copies.add(record, kind, *self._give(group, record, _WORDS[kind]))
                counts["given"] += 1
        return None

    def _sorted(
        self, group: str, rows: Sequence[ListedMessages]
    ) -> Iterator[tuple[ListedMessages, int, bool | None]]:
        """Yield each message of some rows of a queue, and whether a member wants it; None: it is deleted."""
        topic, _, queue_id, begin, *_ = rows[0]
        end = rows[-1].last + 1
        low = self._store.commit_log_min_position
        stored = self._store.entries(topic, queue_id, begin, end - begin)
        wishes = tuple(self._tables.wishes.of(group, topic))
        pulling = Pulling(wishes[0], wishes[0], wishes) if wishes else None
        classes = pulling and self._sorter.classes(topic, queue_id, begin, end, pulling)
        for row in rows:
            for offset in range(row.first, row.last + 1):
                at = offset - begin
                if at >= len(stored) or stored[at][0] < low:
                    yield row, offset, None
                elif classes is not None:
                    yield row, offset, classes[at] != UNWANTED
                else:
                    record = self._record(topic, queue_id, offset)
                    yield row, offset, record and wanted_by(record.properties, wishes)

    def _check(self, group: str) -> None:
        """Apply 2. Raises: Refused."""
        config = self._tables.groups.get(group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist",
            )
        online = self._members.consumers.get(group)
        if online is not None:
            # A mode that was set a moment ago: until it holds, pulls that wait would take what others want.
            self._tables.isolated.apply_mode(online)
        findings = self._members.guard.findings(group)
        if findings:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"members of group {group} subscribe differently, so the copies would go to one member "
                "whatever it asks for. Let all members subscribe alike, or isolate them: "
                f"pocketmq group mode {group} isolate",
            )
        if config.extra.get("consumeMessageOrderly") is True and self._pops(group):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"group {group} pops in order, and orderly pops read no retry topic",
            )

    def _pops(self, group: str) -> bool:
        """Return True if the members read the pop retry topics."""
        online = self._members.consumers.get(group)
        return online is not None and online.is_shared

    def _retry_topic(self, group: str, topic: str) -> str:
        if not self._pops(group):
            return retry_topic(group)
        return pop_retry_topic(topic, group, v2=self._config.enable_retry_topic_v2)

    def _give(self, group: str, record: Record, taken_from: str) -> tuple[str, int]:
        """Store a copy; return its topic and offset."""
        retry = self._retry_topic(group, record.topic)
        self._tables.topics.create_internal(retry, 1)
        properties = without_timer(record.properties)
        for name in _NOT_COPIED:
            properties = remove_property(properties, name)
        msg_id = offset_msg_id(record.store_host, record.position).encode()
        for name, value in (
            (b"RETRY_TOPIC", record.topic.encode()),
            (b"ORIGIN_MESSAGE_ID", msg_id),
            (b"ORIGIN_GROUP", group.encode()),
            (REDELIVERED, taken_from.encode()),
        ):
            properties = add_property(properties, name, value)
        return retry, self._put.put_again(record, retry, 0, properties).appended.queue_offset

    async def _find_given(self, group: str) -> None:
        """Record the copies that are stored, but not recorded (3)."""
        known = await self._ledger.copied_to(group)
        copies = _Copies(self._deliveries, group)
        for retry, _ in self._store.queues(retry_topic(group)) + self._pop_queues(group):
            at = max(self._store.min_offset(retry, 0), known.get((retry, 0), 0))
            while entries := self._store.entries(retry, 0, at, _STEP):
                for place, (position, size, _) in enumerate(entries):
                    found = self._store.record_at(position, size)
                    copy = None if found is None else read_record(found, check_crc=False)
                    taken_from = copy and given_back_as(copy)
                    origin = self._origin(copy.properties) if copy and taken_from else None
                    if origin is not None and taken_from in _OF_WORD:
                        copies.add(origin, _OF_WORD[taken_from], retry, at + place)
                copies.note()
                at += len(entries)
                await asyncio.sleep(0)

    def _pop_queues(self, group: str) -> list[tuple[str, int]]:
        return [
            queue
            for topic in self._tables.offsets.topics_of(group)
            for v2 in (False, True)
            for queue in self._store.queues(pop_retry_topic(topic, group, v2=v2))
        ]

    def _origin(self, properties: bytes) -> Record | None:
        place = self._deliveries.around.original(properties)
        return None if place is None else self._record(*place)

    def _record(self, topic: str, queue_id: int, offset: int) -> Record | None:
        entries = self._store.entries(topic, queue_id, offset, 1)
        found = self._store.record_at(*entries[0][:2]) if entries else None
        return None if found is None else read_record(found)


class _Copies:
    """Copies that were stored one after the other: they are recorded together."""

    def __init__(self, deliveries: DeliveryRecord, group: str) -> None:
        self._deliveries = deliveries
        self._group = group
        self._run: GivenBack | None = None
        self._of = ("", 0)

    def add(self, origin: Record, kind: int, retry: str, at: int) -> None:
        """Add the copy at `at` of a retry topic; origin: what it is a copy of, which was in this class."""
        of = origin.topic, origin.queue_id
        offsets = array("q", (origin.queue_offset,))
        added = GivenBack(retry, 0, at, offsets, bytearray((kind,)))
        if self._run is None or self._of != of or not self._run.joined(added):
            self.note()
            self._run, self._of = added, of

    def note(self) -> None:
        """Record those that were added."""
        run, self._run = self._run, None
        if run is not None:
            text = given_text(*self._of, run)
            key = (self._group, run.topic, run.queue_id)
            self._deliveries.event(EventKind.REDELIVERED, key, run.begin, run.end, text)


def _few(rows: Iterable[ListedMessages]) -> Iterator[list[ListedMessages]]:
    """Yield rows of a queue together, or parts of them, that have up to _STEP offsets between them."""
    found: list[ListedMessages] = []
    for whole in rows:
        for first in range(whole.first, whole.last + 1, _STEP):
            row = whole
            if whole.last - whole.first >= _STEP:
                row = whole._replace(first=first, last=min(whole.last, first + _STEP - 1))
            if found and (row.last - found[0].first >= _STEP or row[:3] != found[0][:3]):
                yield found
                found = []
            found.append(row)
    if found:
        yield found
