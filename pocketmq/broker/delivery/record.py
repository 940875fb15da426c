"""DeliveryRecord: what the broker delivered to whom, the evidence for a message's track. Ours.

RocketMQ computes a track from the current offsets and subscriptions; a message that was filtered out, or
dropped by a client, looks consumed (acceptance E3). This file records the deliveries themselves:

    deliveries/current, deliveries/previous      blocks: int32 size, int32 CRC-32, msgpack arrays
    [0, number, text]                            from here on in this file `number` stands for `text`
    [1, group, topic, queue, begin, end, count, client, by, own, first_ms, ms]      a span
    [2, kind, group, topic, queue, begin, end, text, ms]                            an event
    [3, topic, ms]                                                                  the topic was deleted

1. A span says: of offsets [begin, end) of a queue, `count` messages went to `client`, filtered by the
   expression `by`; the client itself asks for `own`. Pulls that continue each other within MERGE_MS, by
   the same client and filter, are one span. The hot path adds to a span; once a second they are written.
2. Expressions are texts: "TAG A || B", "SQL92 a > 5"; "" without an expression.
3. Two files of at most half of size_max each: the older one goes when the newer one is full. Memory holds
   one span per group and queue that a connected client has pulled, nothing else.
4. Deliveries do not depend on it: rows that cannot be written are counted and left out; after kill -9 up to
   a second of rows is missing; a torn block is cut off. `since_ms` returns how far it reaches back.
Owner: the Broker, on its event loop; `find` may run in a thread.
"""

import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgpack

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.starts import Starts
from pocketmq.model.subscription import SubscriptionData
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
_TEXT, _SPAN, _EVENT, _DELETED = 0, 1, 2, 3
_BLOCK = struct.Struct(">II")
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)
# Numbers for texts of one file; more distinct ones than this begin a new file.
_TEXTS_MAX = 100_000


class EventKind(StrEnum):
    """What happened besides deliveries. begin and end are offsets of the queue."""

    # The group came to the queue for the first time, at `end`; it never asks for what is before.
    START = "start"
    # The group's offset was set from `begin` to `end` by a client that is not a member.
    RESET = "reset"
    # The message at `begin` was sent back; the text says where it went and why.
    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A span; ms are wall time."""

    begin: int
    end: int
    count: int
    client_id: str
    by: str
    own: str
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """An event; ms is wall time."""

    kind: EventKind
    begin: int
    end: int
    text: str
    ms: int


@dataclass(slots=True)
class DeliveryHistory:
    """What is known of one queue offset in one group, oldest first; since_ms: start of the record."""

    deliveries: list[Delivery]
    events: list[DeliveryEvent]
    since_ms: int


class _Open:
    """The span still growing. seen_ms is monotonic; connection and matches decide if a pull extends it."""

    __slots__ = (
        "begin",
        "by",
        "client_id",
        "connection",
        "count",
        "end",
        "first_ms",
        "matches",
        "own",
        "seen_ms",
        "started_ms",
    )

    def __init__(
        self,
        connection: Peer,
        matches: EntryFilter | None,
        offset: int,
        seen_ms: int,
        wall_ms: int,
        texts: tuple[str, str, str],
    ) -> None:
        self.connection = connection
        self.matches = matches
        self.begin = self.end = offset
        self.count = 0
        self.started_ms = self.seen_ms = seen_ms
        self.first_ms = wall_ms
        self.client_id, self.by, self.own = texts


Key = tuple[str, str, int]


class DeliveryRecord:
    """Owner of the two files."""

    def __init__(
        self,
        folder: str,
        clock: Clock,
        consumers: ConsumerManager,
        stored_offset: Callable[[str, str, int], int],
        *,
        size_max: Callable[[], int],
        filters_by_own: Callable[[str], bool] = lambda group: False,
    ) -> None:
        """stored_offset(group, topic, queue id): -1 if the group has none; size_max(): bytes of
        both files, 0 turns recording off; filters_by_own(group): its pulls are filtered by the
        member's own subscription (isolated groups).
        """
        self._folder = folder
        self._clock = clock
        self._consumers = consumers
        self._stored_offset = stored_offset
        self._size_max = size_max
        self._filters_by_own = filters_by_own
        self._open: dict[Key, _Open] = {}
        self._changed: set[Key] = set()
        self._packer = msgpack.Packer()
        self._buffer = bytearray()
        self._numbers: dict[str, int] = {}
        self._size = -1
        self._next_sweep_ms = 0
        self.starts = Starts(clock)

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

    def _begin(
        self,
        key: Key,
        old: _Open | None,
        header: PullMessageHeader,
        connection: Peer,
        matches: EntryFilter | None,
        now_ms: int,
    ) -> _Open:
        if old is not None:
            self._write(key, old)
        elif self._stored_offset(*key) < 0:
            self.event(EventKind.START, key, 0, header.queue_offset, "")
            self.starts.note(*key, header.queue_offset)
        texts = self._texts(header, connection)
        span = _Open(connection, matches, header.queue_offset, now_ms, self._clock.now_ms(), texts)
        self._open[key] = span
        return span

    def _texts(self, header: PullMessageHeader, connection: Peer) -> tuple[str, str, str]:
        """Return the client id, the expression that filtered the pull, and the client's own expression."""
        group, topic = header.consumer_group, header.topic
        online = self._consumers.get(group)
        member = None if online is None else online.channels.get(connection)
        own = "" if member is None else expression_text(member.subscriptions.get(topic))
        if header.sys_flag & _SUBSCRIPTION:
            by = f"{header.expression_type or 'TAG'} {header.subscription or '*'}"
        elif self._filters_by_own(group):
            by = own
        else:
            by = "" if online is None else expression_text(online.subscriptions.get(topic))
        return connection.address if member is None else member.client_id, by, own

    def event(self, kind: EventKind, key: Key, begin: int, end: int, text: str) -> None:
        """Record another event for a range of a queue's offsets in a group."""
        if self._size_max() <= 0:
            return
        group, topic, queue_id = key
        self._buffer += self._packer.pack(
            [
                _EVENT,
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

    def forget_topic(self, topic: str) -> None:
        """Forget what was delivered of a deleted topic: one made again under the name has other messages."""
        for key in [key for key in self._open if key[1] == topic]:
            del self._open[key]
            self._changed.discard(key)
        if self._size_max() > 0:
            row = [_DELETED, self._number(topic), self._clock.now_ms()]
            self._buffer += self._packer.pack(row)

    def _write(self, key: Key, span: _Open) -> None:
        """Move a span into the buffer and start the next one at its end."""
        self._changed.discard(key)
        if span.end <= span.begin or self._size_max() <= 0:
            return
        group, topic, queue_id = key
        self._buffer += self._packer.pack(
            [
                _SPAN,
                self._number(group),
                self._number(topic),
                queue_id,
                span.begin,
                span.end,
                span.count,
                self._number(span.client_id),
                self._number(span.by),
                self._number(span.own),
                span.first_ms,
                span.first_ms + span.seen_ms - span.started_ms,
            ]
        )
        span.begin = span.end
        span.count = 0

    def _number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._numbers)
            self._buffer += self._packer.pack([_TEXT, found, text])
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
            for key, span in list(self._open.items()):
                # A client that is still there may hold what it has pulled, and pull nothing more.
                if now - span.seen_ms > _IDLE_MS and span.connection.closed:
                    del self._open[key]
        self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        if not self._buffer:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        try:
            self._append(data)
        except OSError as error:
            self._numbers.clear()
            log.warning("cannot record deliveries reason=%s", error)

    def _append(self, data: bytes) -> None:
        current = os.path.join(self._folder, "current")
        os.makedirs(self._folder, exist_ok=True)
        if self._size < 0:
            self._size = _whole_size(current)
        with open(current, "r+b" if self._size else "wb") as file:
            file.truncate(self._size)
            file.seek(self._size)
            file.write(_BLOCK.pack(len(data), zlib.crc32(data)) + data)
        self._size += _BLOCK.size + len(data)
        if self._size * 2 >= self._size_max() or len(self._numbers) > _TEXTS_MAX:
            os.replace(current, os.path.join(self._folder, "previous"))
            self._numbers.clear()
            self._size = 0

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
        for texts, row in self._rows():
            ms = row[-1]
            since_ms = since_ms or (row[-2] if row[0] == _SPAN else ms)
            if row[0] == _DELETED:
                if texts.get(row[1]) == topic:
                    found.clear()
                continue
            at = 1 if row[0] == _SPAN else 2
            if row[at + 2] != queue_id or texts.get(row[at + 1]) != topic:
                continue
            group = texts.get(row[at], "")
            begin, end = row[at + 3], row[at + 4]
            if row[0] == _SPAN:
                if begin <= offset < end:
                    history = found.setdefault(group, DeliveryHistory([], [], 0))
                    client, by, own = (texts.get(number, "") for number in row[7:10])
                    history.deliveries.append(
                        Delivery(begin, end, row[6], client, by, own, row[10], ms)
                    )
            elif begin <= offset and (offset < end or begin == offset):
                history = found.setdefault(group, DeliveryHistory([], [], 0))
                history.events.append(DeliveryEvent(EventKind(row[1]), begin, end, row[7], ms))
        for history in found.values():
            history.since_ms = since_ms
        return found

    def since_ms(self) -> int:
        """Return the wall time of the oldest row; 0 without rows."""
        for _, row in self._rows():
            return int(row[-2] if row[0] == _SPAN else row[-1])
        return 0

    def _rows(self) -> Iterator[tuple[dict[int, str], list[Any]]]:
        for name in ("previous", "current"):
            texts: dict[int, str] = {}
            for block in _blocks(_content(os.path.join(self._folder, name))):
                unpacker = msgpack.Unpacker(raw=False, max_buffer_size=len(block) + 1)
                unpacker.feed(block)
                for row in unpacker:
                    if row[0] == _TEXT:
                        texts[row[1]] = row[2]
                    else:
                        yield texts, row


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield the whole blocks in order, up to the first torn one."""
    at = 0
    while at + _BLOCK.size <= len(data):
        size, crc = _BLOCK.unpack_from(data, at)
        block = data[at + _BLOCK.size : at + _BLOCK.size + size]
        if len(block) < size or zlib.crc32(block) != crc:
            return
        yield block
        at += _BLOCK.size + size


def _whole_size(path: str) -> int:
    """Return the size of a file's whole blocks, bytes; 0 if the file is absent."""
    return sum(_BLOCK.size + len(block) for block in _blocks(_content(path)))


def expression_text(asked: SubscriptionData | None) -> str:
    """Format a subscription as a text (invariant 2)."""
    if asked is None:
        return ""
    return (
        f"TAG {asked.sub_string}" if asked.is_tag else f"{asked.expression_type} {asked.sub_string}"
    )


def _same(one: EntryFilter | None, other: EntryFilter | None) -> bool:
    """Return True if two filters pass the same messages, as far as their tag codes tell."""
    return (
        one is not None
        and other is not None
        and one.record is None
        and other.record is None
        and one.codes == other.codes
    )
