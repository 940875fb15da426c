"""ReviveLog: rmq_sys_REVIVE_LOG_CLUSTER, the log of every pop and every acknowledgement.

1. A check point is in the log before its messages are handed out, an acknowledgement before it is answered:
   after kill -9 the log tells what was in flight, what was acknowledged, and each group's next offset.
2. Offset n of CID_RMQ_SYS_REVIVE_GROUP: the check points up to record n are finished. A start reads the log
   from there. Offset n of CID_RMQ_SYS_REVIVE_TAKEN (ours): the groups' offsets include the check points
   before record n, so that a start does not undo a later reset.
3. consumerOffset.json is saved once the log is flushed up to `end` as of the table's snapshot: after a power
   cut the file contains nothing that the log does not.
4. Check points that stay in flight for long are appended again, so that a start reads few finished ones.
5. RocketMQ sends these records through its timer and sees them when they are due. We append them at once,
   with TIMER_DELIVER_MS set to now, which its PopReviveService takes for the time of its log: an Apache
   broker continues where we stopped. Records that its timer still held reach us later (`follow`).
6. The log is named by the cluster. Records of logs with other names in the store are copied into this one, as
   they arrive: RocketMQ forgets messages popped before its brokerClusterName was changed, or left out. Ours.
7. No two check points in flight have one name (`free_name`): the second would replace the first, and with it
   lose its messages. RocketMQ names them by the millisecond alone.
Source: PopBufferMergeService, PopReviveService, RocketMQ 5.3.3; disk.md 10. Owner: the broker.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Tables
from pocketmq.broker.pop.check_point import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Ack,
    CheckPoint,
    CheckPointName,
)
from pocketmq.broker.pop.pop_state import GroupQueue, PopState
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX, TAKEN_GROUP, TIMER_TOPIC
from pocketmq.model.record import Record, read_records
from pocketmq.store import MessageStore, StoreError

log = logging.getLogger(__name__)

REVIVE_QUEUES = 8
# An Apache broker's timer delivers a check point 1 s before it is due and its acks when it is, each up to
# a second off: a look before both have come redelivers acknowledged messages.
TIMER_GRACE_MS = 3_000
# Invariant 4: old check points are appended again once so many records are behind the oldest one and most
# of them are finished.
REWRITE_MIN = 10_000
_REWRITE_SHARE = 4
_REWRITE_MAX = 500
_READ_COUNT = 1_000
_READ_SIZE = 4 << 20
# Property of a check point whose messages were handed out earlier: no group moves on by it. Ours.
_AGAIN = "POP_AGAIN"


class _ReviveQueue:
    """One queue of the log: the next record to read, and the check points from the oldest open one on."""

    __slots__ = ("finished", "live", "points", "read")

    def __init__(self, read: int) -> None:
        self.read = read
        self.finished = read - 1
        self.points: deque[tuple[int, CheckPoint]] = deque()
        self.live = 0


class ReviveLog:
    """See the head of the file. `state` is the state that the log describes, once it has `unwritten`, too."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        store: MessageStore,
        *,
        rewrite_min: int = REWRITE_MIN,
    ) -> None:
        clock = node.clock
        self.state = PopState()
        self.topic = REVIVE_TOPIC_PREFIX + node.config.broker_cluster_name
        self._store = store
        self._offsets = tables.offsets
        self._topics = tables.topics
        self._clock = clock
        self._broker_name = node.config.broker_name
        self._store_host = node.store_host
        self._rewrite_min = rewrite_min
        self._queues: dict[int, _ReviveQueue] = {}
        # The queues of logs of other names (invariant 6).
        self._former: list[tuple[str, int]] = []
        # Where the last record that we wrote ends in the commit log (invariant 3).
        self.end = 0
        self._next_queue = 0
        self._began_ms = clock.now_ms()
        # Whether an Apache broker's timer may hold check points that we have not seen.
        self._hidden = False
        # Acknowledgements not logged yet, each with the queue of its check point.
        self.unwritten: deque[tuple[Ack, int]] = deque()

    # ------------------------------------------------------------ start

    def load_anew(self) -> None:
        """Reload the log from scratch: it was a master's and is ours now. Raises: StoreError."""
        self.state = PopState()
        self._queues.clear()
        self.unwritten.clear()
        self.load()

    def load(self) -> None:
        """Read the unfinished part of the log (invariant 2). Raises: StoreError."""
        for _, queue_id in self._store.queues(self.topic):
            self._follow(queue_id, self._queue(queue_id), self.taken(queue_id))
        self._former = self._queues_of_other_names()
        ours = bool(self._offsets.of_topic(TAKEN_GROUP, self.topic))
        self._hidden = (self._hidden or not ours) and self._store.max_offset(TIMER_TOPIC, 0) > 0
        self._copy_former()
        if self._queues:
            log.info("pop: check points in flight after the start count=%d", len(self.state))

    def _queues_of_other_names(self) -> list[tuple[str, int]]:
        """Return the queues of logs of other names; empty ones, too, which a timer may still fill."""
        found = {
            (topic, queue_id)
            for topic, row in self._topics.topics.items()
            if topic.startswith(REVIVE_TOPIC_PREFIX)
            for queue_id in range(row.read_queues)
        }
        for topic in self._store.topics():
            if topic.startswith(REVIVE_TOPIC_PREFIX):
                found.update(self._store.queues(topic))
        return sorted(queue for queue in found if queue[0] != self.topic)

    # ------------------------------------------------------------ writing

    def is_taken(self, name: CheckPointName) -> bool:
        """Return True if a new check point must not have this name (invariant 7)."""
        return self.state.knows(name)

    def free_name(self, name: CheckPointName) -> CheckPointName:
        """Return the name, with the next pop time that makes it a new one (invariant 7)."""
        while self.is_taken(name):
            name = name._replace(pop_ms=name.pop_ms + 1)
        return name

    def check_point(
        self,
        name: CheckPointName,
        invisible_ms: int,
        offsets: Sequence[int],
        revive_queue: int,
        *,
        again: bool = False,
        suspend: bool = False,
    ) -> CheckPoint:
        """Log a check point before its messages are handed out (invariant 1). again: they have been before;
        suspend: a redelivery does not count as an attempt. The name is free (invariant 7).

        Raises: StoreError; nothing has happened then.
        """
        point = CheckPoint(name, invisible_ms, offsets)
        point.suspend = suspend
        self._append_point(point, revive_queue, again=again)
        self._enter(point, 0)
        return point

    def ack(self, name: CheckPointName, offsets: Iterable[int], revive_queue: int) -> int | None:
        """Log an acknowledgement (invariant 1). Raises: StoreError; nothing has happened then.

        Returns: the end of the record in the commit log; None if there was nothing left to acknowledge.
        """
        point = self.state.get(name)
        if point is not None:
            offsets = [offset for offset in sorted({*offsets}) if point.is_out(offset)]
            revive_queue = point.revive_queue
        elif not self.may_be_hidden(name, revive_queue):
            # It was finished, or never was.
            return None
        if not offsets:
            return None
        ack = Ack(name, tuple(offsets))
        self._append(revive_queue, ack.tag, ack.unique_key(), ack.body())
        self._acked(ack)
        return self.end

    def ack_unwritten(
        self, name: CheckPointName, offsets: Sequence[int], revive_queue: int
    ) -> None:
        """Acknowledge what cannot be logged now: after a kill before it is, it is in flight again."""
        if offsets:
            ack = Ack(name, tuple(offsets))
            self.unwritten.append((ack, revive_queue))
            self._acked(ack)

    def write_late(self, count: int) -> bool:
        """Log `count` of what could not be logged before; return True if there is more.

        Raises: StoreError, still.
        """
        for _ in range(min(count, len(self.unwritten))):
            ack, revive_queue = self.unwritten[0]
            self._append(revive_queue, ack.tag, ack.unique_key(), ack.body())
            self.unwritten.popleft()
        return bool(self.unwritten)

    def note(self, revive_queue: int, tag: str, key: str, body: bytes) -> int:
        """Log a record of another kind. Returns: its offset in its queue. Raises: StoreError."""
        self._topics.create_internal(self.topic, REVIVE_QUEUES)
        return self._append(revive_queue, tag, key, body)

    def records(self, revive_queue: int, begin: int, tag: str) -> Iterator[Record]:
        """Yield the records with a tag from `begin` on. Raises: StoreError."""
        at = max(begin, self._store.min_offset(self.topic, revive_queue))
        while at < self.end_of(revive_queue):
            result = self._store.read(self.topic, revive_queue, at, _READ_COUNT, None, _READ_SIZE)
            for buffer in result.buffers:
                for record in read_records(buffer):
                    if get_property(record.properties, b"TAGS") == tag.encode():
                        yield record
            if result.next_offset <= at:
                break
            at = result.next_offset

    def end_of(self, revive_queue: int) -> int:
        """Return the offset of the next record of a queue."""
        return self._store.max_offset(self.topic, revive_queue)

    def finished(self, revive_queue: int) -> int:
        """Return the last record of a queue that a start does not read any more."""
        return self._offsets.query(REVIVE_GROUP, self.topic, revive_queue)

    def taken(self, revive_queue: int) -> int:
        """Return the first record of a queue that the groups' offsets do not include."""
        return self._offsets.query(TAKEN_GROUP, self.topic, revive_queue)

    def moved(self, queue: GroupQueue, offset: int, point: CheckPoint | None = None) -> None:
        """Set a group's next offset, by `point` or because nothing before concerns the group."""
        self.state.move(queue, offset)
        self._offsets.place(*queue, offset)
        if point is not None:
            taken = point.revive_offset + 1
            self._offsets.place(TAKEN_GROUP, self.topic, point.revive_queue, taken)

    def reset(self, queue: GroupQueue, offset: int) -> None:
        """Apply an offset that was set from outside."""
        self.state.move(queue, offset)

    def forget(self, group: str, topic: str) -> None:
        """Drop a deleted group or topic, so that nothing in flight is looked up under a reused name."""
        for point in self.state.of_topic(group, topic):
            left = point.unacked
            try:
                self.ack(point.name, left, point.revive_queue)
            except StoreError as error:
                log.error("cannot write off a check point %s reason=%s", point.name, error)
                self.ack_unwritten(point.name, left, point.revive_queue)
        self.state.forget(group, topic)

    def turn(self) -> int:
        """Return the next queue of the log, in turn."""
        topic = self._topics.create_internal(self.topic, REVIVE_QUEUES)
        self._next_queue = (self._next_queue + 1) % max(1, topic.write_queues)
        return self._next_queue

    def may_be_hidden(self, name: CheckPointName, revive_queue: int) -> bool:
        """Return True if an unknown check point may still be in an Apache broker's timer."""
        if not self._hidden or name.pop_ms >= self._began_ms:
            return False
        topic = self._topics.get(self.topic)
        return topic is not None and 0 <= revive_queue < topic.write_queues

    def _append_point(self, point: CheckPoint, revive_queue: int, *, again: bool) -> None:
        mark = f"{_AGAIN}\x01true\x02" if again else ""
        point.revive_offset = self._append(
            revive_queue, CHECK_POINT_TAG, point.unique_key(), point.body(), mark
        )
        point.revive_queue = revive_queue

    def _append(self, revive_queue: int, tag: str, key: str, body: bytes, mark: str = "") -> int:
        """Append a record. Returns: its offset in its queue."""
        now = self._clock.now_ms()
        properties = f"TIMER_DELIVER_MS\x01{now}\x02UNIQ_KEY\x01{key}\x02{mark}TAGS\x01{tag}\x02"
        queue = self._queue(revive_queue)
        if self._store.max_offset(self.topic, revive_queue) != queue.read:
            self._follow(revive_queue, queue, 0)
        appended = self._store.append(
            self.topic, revive_queue, body, properties.encode(), 0, 0, now, self._store_host
        )
        queue.read = appended.queue_offset + 1
        self.end = appended.position + appended.size
        return appended.queue_offset

    def _queue(self, revive_queue: int) -> _ReviveQueue:
        queue = self._queues.get(revive_queue)
        if queue is None:
            begin = max(
                self.finished(revive_queue) + 1, self._store.min_offset(self.topic, revive_queue)
            )
            queue = self._queues[revive_queue] = _ReviveQueue(begin)
        return queue

    # ------------------------------------------------------------ what a record means

    def _enter(self, point: CheckPoint, grace_ms: int) -> None:
        wait_ms = max(0, point.revive_ms - self._clock.now_ms())
        # The clock may have run ahead when it was written; and so may a pop time (invariant 7).
        wait_ms = min(wait_ms, point.invisible_ms) + grace_ms
        if not grace_ms:
            # Its acknowledgements follow it in its queue: earlier ones belong to another of this name.
            self.state.forget_early(point.name)
        old = self.state.add(point, self._clock.monotonic_ms() + wait_ms)
        queue = self._queue(point.revive_queue)
        queue.points.append((point.revive_offset, point))
        queue.live += 1
        if point.is_acked:
            self._done(point)
        if old is not None and old is not point:
            self._done(old)

    def _acked(self, ack: Ack) -> None:
        point = self.state.ack(ack.name, ack.offsets)
        if point is not None and point.is_acked:
            self._done(point)

    def _done(self, point: CheckPoint) -> None:
        point.is_done = True
        self._queues[point.revive_queue].live -= 1

    def follow(self) -> None:
        """Read records written by others: by a timer that holds an Apache broker's records."""
        topic = self._topics.get(self.topic)
        for queue_id in range(0 if topic is None else topic.read_queues):
            if self._store.max_offset(self.topic, queue_id):
                self._follow(queue_id, self._queue(queue_id), 0)
        self._copy_former()

    def _copy_former(self) -> None:
        """Apply invariant 6, as far as the disk lets it: the rest is copied by a later call."""
        try:
            for place in self._former:
                self._copy_from(*place)
        except StoreError as error:
            log.warning("pop: cannot copy an older log of pops yet reason=%s", error)

    def _copy_from(self, topic: str, queue_id: int) -> None:
        """Copy what is new in one queue. Raises: StoreError."""
        done = self._offsets.query(REVIVE_GROUP, topic, queue_id)
        read = max(done + 1, self._store.min_offset(topic, queue_id))
        if read >= self._store.max_offset(topic, queue_id):
            return
        taken = self._offsets.query(TAKEN_GROUP, topic, queue_id)
        # A check point and its acknowledgements are in one queue, there and here.
        row = self._topics.create_internal(self.topic, REVIVE_QUEUES)
        into = queue_id % max(1, row.write_queues)
        while read < self._store.max_offset(topic, queue_id):
            result = self._store.read(topic, queue_id, read, _READ_COUNT, None, _READ_SIZE)
            for buffer in result.buffers:
                for record in read_records(buffer):
                    self._copy(record, into, taken)
                    self._offsets.place(REVIVE_GROUP, topic, queue_id, record.queue_offset)
            if result.next_offset <= read:
                break
            read = result.next_offset

    def _copy(self, record: Record, into: int, taken: int) -> None:
        said = self._said(record)
        if isinstance(said, CheckPoint):
            self._append_point(said, into, again=self._is_again(record))
            self._take_point(said, record, taken)
        elif said is not None:
            self._append(into, said.tag, said.unique_key(), said.body())
            self._acked(said)

    def _follow(self, queue_id: int, queue: _ReviveQueue, taken: int) -> None:
        """Read one queue. taken: the groups' offsets include the check points before that record."""
        while queue.read < self._store.max_offset(self.topic, queue_id):
            result = self._store.read(
                self.topic, queue_id, queue.read, _READ_COUNT, None, _READ_SIZE
            )
            for buffer in result.buffers:
                for record in read_records(buffer):
                    self._take(queue_id, record, taken)
            if result.next_offset <= queue.read:
                break
            queue.read = result.next_offset

    def _take(self, queue_id: int, record: Record, taken: int) -> None:
        said = self._said(record)
        if isinstance(said, CheckPoint):
            said.revive_queue, said.revive_offset = queue_id, record.queue_offset
            self._take_point(said, record, taken)
        elif said is not None:
            self._acked(said)

    def _take_point(self, point: CheckPoint, record: Record, taken: int) -> None:
        timed = get_property(record.properties, b"REAL_TOPIC") is not None
        self._hidden |= timed
        self._enter(point, TIMER_GRACE_MS if timed else 0)
        if record.queue_offset >= taken and not self._is_again(record):
            name = point.name
            queue = GroupQueue(name.group, name.topic, name.queue_id)
            known = self.state.next_offset(queue, self._offsets.query(*queue))
            self.moved(queue, max(known, point.offsets[-1] + 1), point)

    def _said(self, record: Record) -> CheckPoint | Ack | None:
        """Return what a record says; None, logged, for one that cannot be read."""
        tag = (get_property(record.properties, b"TAGS") or b"").decode("utf-8", "replace")
        try:
            if tag == CHECK_POINT_TAG:
                return CheckPoint.from_body(bytes(record.body), self._broker_name)
            if tag in (ACK_TAG, BATCH_ACK_TAG):
                return Ack.from_body(bytes(record.body), self._broker_name)
        except (KeyError, TypeError, ValueError) as error:
            log.error(
                "skipped a record of the revive log that cannot be read topic=%s queue=%d offset=%d "
                "reason=%r",
                record.topic,
                record.queue_id,
                record.queue_offset,
                error,
            )
        return None

    @staticmethod
    def _is_again(record: Record) -> bool:
        return get_property(record.properties, _AGAIN.encode()) is not None

    # ------------------------------------------------------------ what follows

    def settle(self) -> None:
        """Drop what is finished (2), and append again what has become old (4). Raises: StoreError."""
        for queue_id, queue in self._queues.items():
            points = queue.points
            while points and self._is_finished(*points[0]):
                points.popleft()
            finished = (points[0][0] if points else queue.read) - 1
            if finished > queue.finished:
                queue.finished = finished
                self._offsets.place(REVIVE_GROUP, self.topic, queue_id, finished)
            if points and queue.read - finished > self._rewrite_min:
                self._rewrite(queue)

    @staticmethod
    def _is_finished(offset: int, point: CheckPoint) -> bool:
        return point.is_done or point.revive_offset != offset

    def _rewrite(self, queue: _ReviveQueue) -> None:
        """Apply invariant 4: append the oldest check points again."""
        if queue.live * _REWRITE_SHARE > queue.read - queue.finished:
            return
        again = [
            point
            for offset, point in list(queue.points)[:_REWRITE_MAX]
            if point.revive_offset == offset and not point.is_done
        ]
        for point in again:
            self._append_point(point, point.revive_queue, again=True)
            queue.points.append((point.revive_offset, point))
