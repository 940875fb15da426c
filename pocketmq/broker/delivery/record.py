"""DeliveryRecord: what the broker delivered to whom, the evidence for a message's track. Ours.

RocketMQ computes a track from the current offsets and subscriptions; a message that was filtered out, or
dropped by a client, looks consumed (acceptance E3). This file records the deliveries themselves, as rows of
record_file.py:

    [0, number, text]                            from here on in this file `number` stands for `text`
    [2, kind, group, topic, queue, begin, end, text, ms]                            an event
    [3, topic, ms]                                                                  the topic was deleted
    [4, group, topic, queue, begin, end, count, client, by, own, wishes, way, split, first_ms, ms]     a span
    [5, group, topic, ms]                                      the group's offsets of the topic were removed
    [1, group, topic, queue, begin, end, count, client, by, own, first_ms, ms]      a span of an older version
    [6, ...]                                                     the sum of dropped rows (ledger/folding.py)

1. A span says: of offsets [begin, end) of a queue, `count` messages went to `client`, filtered by the
   expression `by`; the client itself asks for `own`, the group's members for `wishes`. Pulls that continue
   each other within MERGE_MS, by the same client and filter, are one span. The hot path adds to a span; once
   a second they are written.
2. Expressions are texts: "TAG A || B", "SQL92 a > 5"; "" without an expression. Wishes stand one a line.
3. `way` says how the client shares the queue (Way). `split` counts the messages that it keeps, discards and
   misses (sorting.py), where members differ; nil where they do not, or it is not known.
4. Two files of at most half of size_max each: the older one goes when the newer one is full. Memory holds
   one span per group and queue that a connected client has pulled, nothing else.
5. Deliveries do not depend on it: rows that cannot be written are counted and left out; after kill -9 up to
   a second of rows is missing; a torn block is cut off. `since_ms` returns how far it reaches back.
6. A slave has a copy of its master's files, and records nothing of its own (record_copy.py).
Owner: the Broker, on its event loop; `find` may run in a thread.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgpack

from pocketmq.books.record_file import RecordFiles
from pocketmq.books.rows import (
    DELETED,
    EVENT,
    FORGOTTEN,
    GIVEN,
    SPAN,
    TEXT,
    Delivery,
    DeliveryEvent,
    DeliveryHistory,
    EventKind,
    Key,
    Way,
    began_ms,
    origin_text,
)
from pocketmq.books.sorting import Pulling, Split, expression_text
from pocketmq.broker.delivery.open_span import ENDED, OpenSpan
from pocketmq.broker.delivery.surroundings import Surroundings
from pocketmq.broker.groups.consumer_group import BROADCASTING, ConsumerGroup
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.starts import Starts
from pocketmq.model.names import DLQ_PREFIX, is_retry_topic
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

MERGE_MS = 2_000
# Spans of disconnected clients are dropped after this time.
_IDLE_MS = 600_000
_SEEN_MS = 60_000
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)
# Numbers for texts of one file; more distinct ones than this begin a new file.
_TEXTS_MAX = 100_000
# Rows of rare events that nothing else tells: they are written at once, so that no kill takes them. Those of
# retries come by the dozen, and pop/revive.py flushes them together.
_AT_ONCE = (EventKind.RESET, EventKind.EXPIRED, EventKind.DEAD)
# Events that concern what was given before them.
_IN_ORDER = (EventKind.RESET, EventKind.EXPIRED)


class DeliveryRecord:
    """Owner of the two files."""

    def __init__(
        self,
        folder: str,
        clock: Clock,
        consumers: ConsumerManager,
        around: Surroundings,
        starts: Starts,
    ) -> None:
        self._clock = clock
        self._consumers = consumers
        self.around = around
        self.files = RecordFiles(folder, around.size_max)
        self._open: dict[Key, OpenSpan] = {}
        self._of_group: dict[str, set[Key]] = {}
        self._changed: set[Key] = set()
        self._packer = msgpack.Packer()
        self._buffer = bytearray()
        self._numbers: dict[str, int] = {}
        self._next_sweep_ms = 0
        self.starts = starts

    # ------------------------------------------------------------ recording

    def pulled(
        self,
        header: PullMessageHeader,
        connection: Peer,
        matches: EntryFilter | None,
        following: int,
        count: int,
        now_ms: int,
    ) -> None:
        """Record a pull answered with `count` messages, next offset `following`; now_ms is monotonic."""
        key = (header.consumer_group, header.topic, header.queue_id)
        span = self._open.get(key)
        offset = header.queue_offset
        if (
            span is None
            or span.connection is not connection
            or span.end != offset
            or (span.matches is not matches and not _same(span.matches, matches))
            or now_ms - span.started_ms > MERGE_MS
        ):
            span = self._begin(key, span, header, connection, matches, now_ms)
        span.seen_ms = now_ms
        if following > offset:
            span.end = following
            span.count += count
            self._changed.add(key)

    def is_overtaken(self, header: PullMessageHeader, connection: Peer) -> bool:
        """Return True if a pull that was held is too late: another client has read on in its queue."""
        span = self._open.get((header.consumer_group, header.topic, header.queue_id))
        if span is None or span.connection is connection:
            return False
        return span.end > header.queue_offset

    def overtaken(
        self,
        header: PullMessageHeader,
        connection: Peer,
        matches: EntryFilter | None,
        following: int,
        count: int,
    ) -> None:
        """Record the answer to such a pull: its client has probably given the queue away, and ignores it.

        Of two held pulls that a message wakes, the older one may be the one that is ignored: its client's
        queue went to the other member in between. Only the next pull tells (`_begin`).
        """
        key = (header.consumer_group, header.topic, header.queue_id)
        now_ms = self._clock.monotonic_ms()
        late = OpenSpan(connection, matches, header.queue_offset, now_ms, self._clock.now_ms())
        late.end, late.count = following, count
        self._describe(late, header, connection)
        if self.around.size_max() > 0 and following > header.queue_offset:
            self._row(key, late, Way.STRANGER)
        span = self._open[key]
        span.late, span.matches = late, ENDED

    def _begin(
        self,
        key: Key,
        old: OpenSpan | None,
        header: PullMessageHeader,
        connection: Peer,
        matches: EntryFilter | None,
        now_ms: int,
    ) -> OpenSpan:
        offset = header.queue_offset
        if old is not None:
            self._write(key, old)
            late = old.late
            if late is not None and late.connection is connection and late.end == offset:
                self._write(key, late)
                old = late
            if offset > old.end and old.way is not Way.BROADCAST:
                who = self.around.who(self._consumers.get(key[0]), connection)
                self.event(EventKind.JUMP, key, old.end, offset, f"by {who} with a pull from there")
        else:
            self._of_group.setdefault(key[0], set()).add(key)
            if self.around.stored_offset(*key) < 0:
                self.started(key, offset)
        span = OpenSpan(connection, matches, offset, now_ms, self._clock.now_ms())
        self._open[key] = span
        if (
            old is not None
            and old.connection is connection
            and (old.matches is matches or _same(old.matches, matches))
        ):
            span.client_id, span.pulling = old.client_id, old.pulling
            span.is_alike, span.way = old.is_alike, old.way
        else:
            self._describe(span, header, connection)
        return span

    def started(self, key: Key, offset: int) -> None:
        """Record that the group comes to a queue for the first time, at this offset."""
        self.event(EventKind.START, key, 0, offset, "")
        self.starts.note(*key, offset)

    def _describe(self, span: OpenSpan, header: PullMessageHeader, connection: Peer) -> None:
        """Note the client, the expression that filters the pull, its own, and those of all members."""
        group, topic = header.consumer_group, header.topic
        online = self._consumers.get(group)
        member = None if online is None else online.channels.get(connection)
        own = "" if member is None else expression_text(member.subscriptions.get(topic))
        is_isolated = self.around.is_isolated(group)
        if header.sys_flag & _SUBSCRIPTION:
            by = f"{header.expression_type or 'TAG'} {header.subscription or '*'}"
        elif is_isolated:
            by = own
        else:
            by = "" if online is None else expression_text(online.subscriptions.get(topic))
        span.client_id = connection.address if member is None else member.client_id
        wishes = () if is_retry_topic(topic) else self.around.wishes(group, topic)
        span.pulling = Pulling(by, own, wishes)
        span.is_alike = span.pulling.is_alike
        if online is None or member is None:
            span.way = Way.STRANGER
        elif online.message_model == BROADCASTING:
            span.way = Way.BROADCAST
        else:
            span.way = Way.ISOLATED if is_isolated else Way.SHARED

    def dead(self, retry: str, dead: str, properties: bytes) -> None:
        """Record that a message sent to a retry topic was one too many, by the properties of the copy."""
        group = dead.removeprefix(DLQ_PREFIX)
        origin = self.around.original(properties)
        if origin is not None:
            text = f"to {dead}: its member sent it to {retry} once more than the limit"
            self.event(EventKind.DEAD, (group, *origin[:2]), origin[2], origin[2], text)

    def members_changed(self, group: ConsumerGroup) -> None:
        """End the spans of a group whose members or their subscriptions changed."""
        for key in self._of_group.get(group.name, ()):
            span = self._open[key]
            self._write(key, span)
            span.matches = ENDED

    def event(self, kind: EventKind, key: Key, begin: int, end: int, text: str) -> None:
        """Record another event for a range of a queue's offsets in a group."""
        if self.around.size_max() <= 0:
            return
        if kind in _IN_ORDER and (span := self._open.get(key)) is not None:
            self._write(key, span)
        group, topic, queue_id = key
        self._buffer += self._packer.pack(
            [
                EVENT,
                kind.value,
                self._number(group),
                self._number(topic),
                queue_id,
                begin,
                end,
                text,
                self._clock.now_ms(),
            ]
        )
        if kind in _AT_ONCE:
            self.flush()

    def forget_topic(self, topic: str) -> None:
        """Forget what was delivered of a deleted topic: one made again under the name has other messages."""
        self._drop([key for key in self._open if key[1] == topic])
        if self.around.size_max() > 0:
            row = [DELETED, self._number(topic), self._clock.now_ms()]
            self._buffer += self._packer.pack(row)
            self.flush()

    def forget(self, group: str, topic: str) -> None:
        """Forget what a group was given of a topic, where its offsets were removed: it starts over."""
        self._drop([key for key in self._of_group.get(group, ()) if key[1] == topic])
        if self.around.size_max() > 0:
            row = [FORGOTTEN, self._number(group), self._number(topic), self._clock.now_ms()]
            self._buffer += self._packer.pack(row)
            self.flush()

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            del self._open[key]
            self._changed.discard(key)
            of_group = self._of_group[key[0]]
            of_group.discard(key)
            if not of_group:
                del self._of_group[key[0]]

    def _write(self, key: Key, span: OpenSpan) -> None:
        """Move a span into the buffer and start the next one at its end."""
        self._changed.discard(key)
        if span.end <= span.begin or self.around.size_max() <= 0:
            return
        self._row(key, span, span.way)
        _, topic, queue_id = key
        if is_retry_topic(topic):
            origins = self.around.origins(topic, queue_id, span.begin, span.end)
            for offset, first_topic, first_queue, first_offset in list(origins):
                text = origin_text(first_topic, first_queue, first_offset)
                self.event(EventKind.COPY, key, offset, offset + 1, text)
        span.begin = span.end
        span.count = 0

    def _row(self, key: Key, span: OpenSpan, way: Way) -> None:
        group, topic, queue_id = key
        by, own, wishes = span.pulling
        row = [
            GIVEN,
            self._number(group),
            self._number(topic),
            queue_id,
            span.begin,
            span.end,
            span.count,
            self._number(span.client_id),
            self._number(by),
            self._number(own),
            self._number("\n".join(wishes)),
            int(way),
            self._split(topic, queue_id, span, way),
            span.first_ms,
            span.first_ms + span.seen_ms - span.started_ms,
        ]
        self._buffer += self._packer.pack(row)

    def _split(self, topic: str, queue_id: int, span: OpenSpan, way: Way) -> Split | None:
        if span.is_alike or way in (Way.ISOLATED, Way.STRANGER):
            return None
        return self.around.split(topic, queue_id, span.begin, span.end, span.pulling)

    def _number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._numbers)
            self._buffer += self._packer.pack([TEXT, found, text])
        return found

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Write the changed spans and drop those that no client pulls; called once a second."""
        now = self._clock.monotonic_ms()
        for key in list(self._changed):
            span = self._open[key]
            self._write(key, span)
            span.started_ms, span.first_ms = now, self._clock.now_ms()
        if now >= self._next_sweep_ms:
            self._next_sweep_ms = now + _SEEN_MS
            # A client that is still there may hold what it has pulled, and pull nothing more.
            self._drop(
                [
                    key
                    for key, span in self._open.items()
                    if now - span.seen_ms > _IDLE_MS and span.connection.closed
                ]
            )
        self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        if not self._buffer:
            return
        if self.files.is_copied and self.around.follows:
            self._buffer.clear()
            self._numbers.clear()
            return
        self.files.own()
        data, self._buffer = bytes(self._buffer), bytearray()
        try:
            if self.files.append(data, full=len(self._numbers) > _TEXTS_MAX):
                self._numbers.clear()
        except OSError as error:
            self._numbers.clear()
            log.warning("cannot record deliveries reason=%s", error)

    # ------------------------------------------------------------ asking

    def holders(self, group: str, topic: str) -> Mapping[int, str]:
        """Return by queue id the client id that pulled it within the last minute."""
        now = self._clock.monotonic_ms()
        return {
            key[2]: span.client_id
            for key, span in self._open.items()
            if key[0] == group and key[1] == topic and now - span.seen_ms < _SEEN_MS
        }

    def pulled_offsets(self) -> Iterator[tuple[Key, int]]:
        """Yield the offset up to which each queue was pulled by its group, for queues being pulled."""
        for key, span in self._open.items():
            yield key, span.end

    def pulled_to(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset up to which a group pulled a queue; -1 if no member pulls it."""
        span = self._open.get((group, topic, queue_id))
        return -1 if span is None else span.end

    def settle(self) -> None:
        """Write everything in memory to the files, so that `find` sees it."""
        for key in list(self._changed):
            self._write(key, self._open[key])
        self.flush()

    def find(self, topic: str, queue_id: int, offset: int) -> dict[str, DeliveryHistory]:
        """Return by group what happened to one offset; reads both files, call `settle` first."""
        found: dict[str, DeliveryHistory] = {}
        since_ms = 0
        for texts, row in self.files.rows():
            ms = row[-1]
            since_ms = since_ms or began_ms(row)
            if row[0] in (DELETED, FORGOTTEN):
                if texts.get(row[-2]) == topic:
                    found.clear() if row[0] == DELETED else found.pop(texts.get(row[1], ""), None)
                continue
            is_span = row[0] in (SPAN, GIVEN)
            at = 1 if is_span else 2
            if row[at + 2] != queue_id or texts.get(row[at + 1]) != topic:
                continue
            group = texts.get(row[at], "")
            begin, end = row[at + 3], row[at + 4]
            if is_span:
                if begin <= offset < end:
                    history = found.setdefault(group, DeliveryHistory([], [], 0))
                    client, by, own = (texts.get(number, "") for number in row[7:10])
                    history.deliveries.append(
                        Delivery(begin, end, row[6], client, by, own, row[-2], ms)
                    )
            elif begin <= offset and (offset < end or begin == offset):
                history = found.setdefault(group, DeliveryHistory([], [], 0))
                history.events.append(DeliveryEvent(EventKind(row[1]), begin, end, row[7], ms))
        for history in found.values():
            history.since_ms = since_ms
        return found

    def since_ms(self) -> int:
        """Return the wall time of the oldest row; 0 without rows."""
        for _, row in self.files.rows():
            return began_ms(row)
        return 0


def _same(one: EntryFilter | None, other: EntryFilter | None) -> bool:
    """Return True if two filters pass the same messages, as far as their tag codes tell."""
    return (
        one is not None
        and other is not None
        and one.record is None
        and other.record is None
        and one.codes == other.codes
    )
