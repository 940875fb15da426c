"""GroupRedelivery: lost or skipped messages are given to their group again, by its own retry topic. Ours.

1. Only this group sees a copy: it is in the retry topic that the group's members read, pop retry topic or
   %RETRY%group. Its property REDELIVERED says what it was taken from, ORIGIN_MESSAGE_ID which message it is.
2. While members differ in mode compatible nothing is given: the copies would go to one member, whatever it
   asks for. Only what a member wants is given.
3. No message is given twice. What was given before a kill is found by the copies themselves, before more is
   given: the record may lack its last second.
4. What is left is looked at no further than it is given, and in turns of the loop: it may be millions. One
   call works at a time, so that two give nothing twice.
5. Messages in a queue that no member reads are left: they are delivered once the members agree, or the topic
   has its queues again.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.books.origins import REDELIVERED
from pocketmq.books.rows import EventKind, origin_text
from pocketmq.books.sorting import wanted_by
from pocketmq.broker.ledger.ledger import GroupLedger
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.balance import Cause, ListedMessages, State
from pocketmq.model.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.model.names import retry_topic
from pocketmq.model.pop_receipt import pop_retry_topic
from pocketmq.model.record import Record, properties_of, read_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.timer.properties import without_timer

COUNT_MAX = 10_000
# Messages looked at before other work gets its turn.
_STEP = 256
_TAKEN_FROM = {
    Cause.FILTERED.value: "missed",
    Cause.DISCARDED.value: "discarded",
}
# What belongs to the way of the message that it was.
_NOT_COPIED = (
    *(b"POP_CK", b"DELAY", b"WAIT", b"RETRY_TOPIC", b"ORIGIN_MESSAGE_ID", b"ORIGIN_GROUP"),
    *(b"1ST_POP_TIME", b"REAL_TOPIC", b"REAL_QID", REDELIVERED),
)


class Redelivered(NamedTuple):
    """Numbers of messages. left: not given yet; unwanted: no member wants them now; deleted: not stored.

    Those behind the last one that was given are left.
    """

    given: int
    left: int
    unwanted: int
    deleted: int
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
        # Groups whose copies have been looked at since the start.
        self._looked_at: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def give(
        self, group: str, state: State, topic: str | None, since_ms: int, count_max: int
    ) -> Redelivered:
        """Give up to count_max messages, in the order of the queues; 0 only counts. Raises: Refused."""
        async with self._one_at_a_time:
            self._check(group)
            if group not in self._looked_at:
                await self._find_given(group)
                self._looked_at.add(group)
            rows = await self._ledger.listed(group, frozenset({state}), topic, since_ms)
            return await self._give_of(group, rows, min(count_max, COUNT_MAX))

    async def _give_of(self, group: str, rows: list[ListedMessages], count_max: int) -> Redelivered:
        rows = [row for row in rows if row.cause not in (Cause.UNREAD, Cause.GONE)]
        rest = sum(row.last - row.first + 1 for row in rows)
        given = left = unwanted = deleted = 0
        for row, offset in _each(rows):
            if given and given == count_max:
                left = rest
                break
            rest -= 1
            if not rest % _STEP:
                await asyncio.sleep(0)
            record = self._record(row.topic, row.queue_id, offset)
            if record is None:
                deleted += 1
            elif not wanted_by(record.properties, self._tables.wishes.of(group, row.topic)):
                unwanted += 1
            elif not count_max:
                left += 1
            else:
                self._give(group, record, _TAKEN_FROM.get(row.cause, "skipped"))
                given += 1
        self._deliveries.flush()
        return Redelivered(given, left, unwanted, deleted, self._store.commit_log_max_position)

    def _check(self, group: str) -> None:
        """Apply 2. Raises: Refused."""
        config = self._tables.groups.get(group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist",
            )
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

    def _give(self, group: str, record: Record, taken_from: str) -> None:
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
        copied = self._put.put_again(record, retry, 0, properties)
        self._note(group, retry, copied.appended.queue_offset, record, taken_from)

    def _note(self, group: str, retry: str, at: int, record: Record, taken_from: str) -> None:
        text = origin_text(record.topic, record.queue_id, record.queue_offset, taken_from)
        self._deliveries.event(EventKind.COPY, (group, retry, 0), at, at + 1, text)

    async def _find_given(self, group: str) -> None:
        """Record the copies that are stored already (3)."""
        for retry, _ in self._store.queues(retry_topic(group)) + self._pop_queues(group):
            at = self._store.min_offset(retry, 0)
            while entries := self._store.entries(retry, 0, at, _STEP):
                for place, (position, size, _) in enumerate(entries):
                    found = self._store.record_at(position, size)
                    properties = b"" if found is None else properties_of(found)
                    taken_from = get_property(properties, REDELIVERED)
                    origin = self._origin(properties) if taken_from else None
                    if origin is not None and taken_from is not None:
                        self._note(group, retry, at + place, origin, taken_from.decode())
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


def _each(rows: list[ListedMessages]) -> Iterator[tuple[ListedMessages, int]]:
    for row in rows:
        for offset in range(row.first, row.last + 1):
            yield row, offset
