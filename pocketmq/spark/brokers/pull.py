"""Pulls for bulk reading: several queues in flight on one socket, replies joined before they are decoded.

A reply's body is a sequence of stored records, so the files' decoder reads it. Decoding a single reply would
cost more than a loop over its 32 messages; joined to some MiB, the cost per message is that of files.

A broker silently skips records that it can no longer read (a file that retention has just deleted, a damaged
record): its answer continues behind them. So a pull without a filter must bring every offset that it passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.offsets import LossRule
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import GetTopicConfigHeader
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import MessageCodecError, RemotingError, RequestRefused
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.headers import PullMessageHeader, PullMessageResponseHeader
from pocketmq.spark.brokers.client import BrokerClient, BrokerQueue
from pocketmq.spark.retry import BUSY

if TYPE_CHECKING:
    from pocketmq.bulk.rows import Read

_LIGHT_PREFIX = "%LMQ%"
_IN_FLIGHT = 4


@dataclass(frozen=True)
class OffsetRange:
    """Offsets start <= o < end of one queue."""

    queue: BrokerQueue
    start: int
    end: int


@dataclass(frozen=True)
class PullSettings:
    """How to pull. group: the group named in the pulls; expression and type: the broker's filter."""

    group: str
    expression: str
    expression_type: str
    messages: int

    @property
    def filters(self) -> bool:
        """Return whether the broker leaves messages out."""
        return self.expression.strip() != "*"


class _Reply(NamedTuple):
    """Records that answer a pull: all of the offsets before <= o < after, unless the pull filters.

    end: of the offsets that are wanted of them.
    """

    queue: BrokerQueue
    before: int
    after: int
    end: int
    body: bytes | bytearray | memoryview


class _Cursor:
    """The position in a range, and its pull in flight."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted
        self.next = wanted.start
        self.opaque = 0

    @property
    def done(self) -> bool:
        return self.next >= self.wanted.end


def pull_header(queue: BrokerQueue, offset: int, settings: PullSettings) -> PullMessageHeader:
    """Return a pull that neither waits at the broker nor commits, and carries its own subscription."""
    return PullMessageHeader(
        consumer_group=settings.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=settings.messages,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=settings.expression,
        expression_type=settings.expression_type,
    )


def read_ranges(
    client: BrokerClient,
    ranges: Sequence[OffsetRange],
    settings: PullSettings,
    read: "Read",
    loss: LossRule,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some ranges of one broker; each queue keeps its order.

    Raises: DataLoss (see LossRule), RequestRefused, RemotingError when retries are used up.
    """
    waiting = [_Cursor(r) for r in reversed(ranges) if r.start < r.end]
    pulls = _Pulls(client, settings)
    replies: list[_Reply] = []
    size = 0
    holes = _Holes(client, settings, loss)
    decode = _Decoder(ranges, read, loss, holes)
    while waiting or pulls.active:
        while waiting and len(pulls.active) < _IN_FLIGHT:
            pulls.active.append(waiting.pop())
        for cursor, answer in pulls.round():
            before = cursor.next
            body = _advance(cursor, answer, loss, holes)
            if len(body):
                end = min(cursor.next, cursor.wanted.end)
                replies.append(_Reply(cursor.wanted.queue, before, cursor.next, end, body))
                size += len(body)
        pulls.active = [c for c in pulls.active if not c.done]
        if size >= read.batch_bytes:
            yield from decode(replies)
            replies, size = [], 0
    if replies:
        yield from decode(replies)


class _Holes:
    """Offsets that a broker passes over: a loss, unless a topic keeps only the last message of a key."""

    def __init__(self, client: BrokerClient, settings: PullSettings, loss: LossRule) -> None:
        self.expected = settings.filters
        self._client = client
        self._loss = loss
        self._compacted: dict[str, bool] = {}

    def found(self, queue: BrokerQueue, before: int, after: int, missing: int) -> None:
        """Report `missing` of the offsets before <= o < after. Raises: DataLoss (see LossRule)."""
        if self.expected or self._is_compacted(queue):
            return
        self._loss.lost(
            f"{_named(queue)}: {missing} of the "
            f"offsets {before} to {after} are not in the broker's answer: they were deleted while they were "
            "read, or are damaged"
        )

    def _is_compacted(self, queue: BrokerQueue) -> bool:
        if queue.topic not in self._compacted:
            self._compacted[queue.topic] = _is_compacted(self._client, queue)
        return self._compacted[queue.topic]


def _is_compacted(client: BrokerClient, queue: BrokerQueue) -> bool:
    """Ask the broker for the topic's policy. Brokers before 5.0 have none, and do not know the request."""
    header = GetTopicConfigHeader(topic=queue.topic)
    try:
        answer = client.call(queue.address, RequestCode.GET_TOPIC_CONFIG, header)
    except RequestRefused:
        return False
    attributes = fastjson.loads(answer.body).get("attributes") or {}
    return attributes.get("cleanup.policy") == "COMPACTION"


class _Pulls:
    """The pulls in flight; a fault of a connection concerns all of its pulls."""

    def __init__(self, client: BrokerClient, settings: PullSettings) -> None:
        self.active: list[_Cursor] = []
        self._client = client
        self._settings = settings
        self._patience = client.patience()

    def round(self) -> Iterator[tuple[_Cursor, RemotingCommand]]:
        """Pull once for every cursor, and yield the answers received; the others pull again.

        Raises: RemotingError, RequestRefused (busy) when patience ends.
        """
        for cursor in self.active:
            self._send(cursor)
        for cursor in self.active:
            answer = self._answer(cursor)
            if answer is not None:
                yield cursor, answer

    def _send(self, cursor: _Cursor) -> None:
        queue = cursor.wanted.queue
        header = pull_header(queue, cursor.next, self._settings)
        while not cursor.opaque:
            try:
                connection = self._client.connection(queue.address)
                cursor.opaque = connection.request(RequestCode.PULL_MESSAGE, header)
            except RemotingError as error:
                self._lost(queue.address, error)

    def _answer(self, cursor: _Cursor) -> RemotingCommand | None:
        if not cursor.opaque:
            return None
        address = cursor.wanted.queue.address
        try:
            answer = self._client.connection(address).answer(
                cursor.opaque, RequestCode.PULL_MESSAGE.in_words()
            )
        except RemotingError as error:
            self._lost(address, error)
            return None
        cursor.opaque = 0
        if answer.code in BUSY:
            self._patience.pause(
                RequestRefused(
                    answer.code, answer.remark, address, RequestCode.PULL_MESSAGE.in_words()
                )
            )
            return None
        self._patience.succeeded()
        return answer

    def _lost(self, address: str, error: RemotingError) -> None:
        """Repeat all pulls of a lost connection, since they are read-only."""
        self._client.forget(address)
        for cursor in self.active:
            if cursor.wanted.queue.address == address:
                cursor.opaque = 0
        self._patience.pause(error)


def _advance(
    cursor: _Cursor, answer: RemotingCommand, loss: LossRule, holes: _Holes
) -> bytes | bytearray | memoryview:
    """Advance a cursor by an answer; return the records in it.

    Source of the answers' meaning: wire.md 4 (FOUND, NO_NEW_MESSAGE, RETRY_IMMEDIATELY, OFFSET_MOVED).
    """
    queue = cursor.wanted.queue
    known = (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
    if answer.code not in known:
        raise RequestRefused(
            answer.code,
            answer.remark,
            queue.address,
            RequestCode.PULL_MESSAGE.in_words(queue.topic),
        )
    header = PullMessageResponseHeader.parse(answer.ext)
    before, after = cursor.next, header.next_begin_offset
    what = _named(queue)
    if answer.code == ResponseCode.SUCCESS:
        cursor.next = max(after, before + 1)
        if not len(answer.body):
            holes.found(queue, before, cursor.next, cursor.next - before)
        return answer.body
    if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and after > before:
        # Nothing passed the filter. Without a filter, the messages are being removed.
        cursor.next = after
        end = min(after, cursor.wanted.end)
        holes.found(queue, before, end, end - before)
        return b""
    # The wanted offsets are not there: deleted at the front, or the queue became shorter.
    if after > before and before < header.min_offset:
        cursor.next = after
        loss.lost(
            f"{what}: offsets {before} to {min(after, cursor.wanted.end)} were deleted while they were read"
        )
    elif after > before:
        # A file of the queue's index is missing, and the broker continues behind it.
        cursor.next = after
        loss.lost(f"{what}: offsets {before} to {after} are not in the broker's index")
    else:
        cursor.next = cursor.wanted.end
        loss.lost(
            f"{what}: cannot read offset {before}, because the queue ends at {header.max_offset}: "
            "it was truncated or recreated"
        )
    return b""


class _Decoder:
    """Joins the bodies of replies and decodes them."""

    def __init__(
        self, ranges: Sequence[OffsetRange], read: "Read", loss: LossRule, holes: _Holes
    ) -> None:
        self._broker = ranges[0].queue.broker_name if ranges else ""
        self._exact = {(r.queue.topic, r.queue.queue_id): (r.start, r.end) for r in ranges}
        # RocketMQ's light queues hold records of other topics, with those queues' numbers and offsets.
        self._is_light = any(r.queue.topic.startswith(_LIGHT_PREFIX) for r in ranges)
        self._read = read
        self._loss = loss
        self._holes = holes

    def __call__(self, replies: Sequence[_Reply]) -> Iterator[pa.RecordBatch]:
        # Not imported where a query is planned, as in file_reader.
        from pocketmq.bulk.rows import decode_joined

        try:
            joined = _Joined(replies)
        except MessageCodecError:
            joined = _Joined([reply for reply in replies if self._is_whole(reply)])
        if not self._is_light:
            self._drop_others(joined)
        if not (self._holes.expected or joined.is_exact):
            self._look_for_holes(joined)
        # A record is at least 91 bytes and every place is used once: starts are already ascending.
        batch = decode_joined(
            joined.data,
            joined.starts,
            self._read,
            self._loss,
            self._broker,
            self._exact,
            others=self._is_light,
        )
        if batch.num_rows:
            yield batch

    def _is_whole(self, reply: _Reply) -> bool:
        from pocketmq.bulk.log_walk import record_starts

        try:
            record_starts(pa.py_buffer(reply.body))
        except MessageCodecError as error:
            self._loss.lost(
                f"{_named(reply.queue)}: the broker answered a pull of offset {reply.before} with bytes that "
                f"are not a record: {error}"
            )
            return False
        return True

    def _drop_others(self, joined: "_Joined") -> None:
        """Leave out the records that were not asked for: others may be missing for them."""
        if joined.is_exact:
            return
        good = joined.asked_for()
        if good.all():
            return
        for number in np.unique(joined.reply_of[~good]).tolist():
            reply = joined.replies[number]
            count = int((~good & (joined.reply_of == number)).sum())
            self._loss.lost(
                f"{_named(reply.queue)}: {count} of the records in the broker's answer for offsets "
                f"{reply.before} to {reply.after} are not of these, or come twice"
            )
        joined.keep(good)

    def _look_for_holes(self, joined: "_Joined") -> None:
        """Compare the number of records with the offsets that were passed."""
        for number, reply in enumerate(joined.replies):
            here = joined.reply_of == number
            wanted = int((joined.offsets[here] < reply.end).sum())
            missing = reply.end - reply.before - wanted
            if missing > 0 and not joined.several[here].any():
                self._holes.found(reply.queue, reply.before, reply.end, missing)


class _Joined:
    """Answers in one buffer, record by record: where each starts, of which reply, queue and offset it is."""

    def __init__(self, replies: Sequence[_Reply]) -> None:
        """Raises: MessageCodecError if the end of an answer is not that of a record."""
        from pocketmq.bulk.columns.body import INNER
        from pocketmq.bulk.columns.record import FixedPart
        from pocketmq.bulk.log_walk import record_starts

        self.replies = replies
        self.data = pa.py_buffer(b"".join(reply.body for reply in replies))
        self.starts: npt.NDArray[np.int64] = record_starts(self.data)
        ends = np.cumsum([len(reply.body) for reply in replies], dtype=np.int64)
        after = np.searchsorted(self.starts, ends)
        if not np.array_equal(self.starts[after[:-1]], ends[:-1]):
            raise MessageCodecError("a record reaches over the end of its answer")
        counts = np.diff(after, prepend=0)
        self.reply_of = np.repeat(np.arange(len(replies)), counts)
        fixed = FixedPart(self.data, self.starts, ("sys_flag", "queue_id", "queue_offset"))
        self.offsets = fixed.column("queue_offset")
        self._own = fixed.column("queue_id") == self._of_each([r.queue.queue_id for r in replies])
        # Records that hold several messages take several offsets, the first may lie before.
        self.several = (fixed.column("sys_flag") & INNER) == INNER
        self._before = self._of_each([reply.before for reply in replies])
        place = np.arange(len(self.starts)) - (after - counts)[self.reply_of]
        self.is_exact = bool(
            np.array_equal(counts, [reply.after - reply.before for reply in replies])
            and self._own.all()
            and np.array_equal(self.offsets, self._before + place)
            and not self.several.any()
        )

    def _of_each(self, values: Sequence[int]) -> npt.NDArray[np.int64]:
        return np.array(values, np.int64)[self.reply_of]

    def asked_for(self) -> npt.NDArray[np.bool_]:
        """Return the records of the queue, and of offsets that the answer passes, in ascending order."""
        after = self._of_each([reply.after for reply in self.replies])
        good: npt.NDArray[np.bool_] = self._own & (self.offsets < after)
        good &= (self.offsets >= self._before) | self.several
        for number in range(len(self.replies)):
            mine = np.flatnonzero(good & (self.reply_of == number))
            offsets = self.offsets[mine]
            if (offsets[1:] <= offsets[:-1]).any():
                good[mine[1:]] = offsets[1:] > np.maximum.accumulate(offsets)[:-1]
        return good

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Leave the others out."""
        self.starts, self.reply_of = self.starts[rows], self.reply_of[rows]
        self.offsets, self.several = self.offsets[rows], self.several[rows]


def _named(queue: BrokerQueue) -> str:
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"
