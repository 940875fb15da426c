"""OrderLog: what orderly pops hand out, and what of it is done, in the revive log. Ours.

    tag    body (JSON) of a record in queue 0 of the log
    order  {"bn": broker, "c": group, "info": as consumerOrderInfo.json has it, or none, "n": the group's next
           offset, -1 if it is left as it is, "q": queue id, "t": topic}

1. A pop is in the log before its messages are handed out, an acknowledgement before it is answered. RocketMQ
   keeps both in consumerOrderInfo.json alone, which is saved now and then: after kill -9 a queue is blocked
   by what was acknowledged, for as long as it would have been invisible.
2. A record has all that is known of its queue, so that the last one counts. consumerOrderInfo.json says from
   which record on it lacks them ("logged"), CID_RMQ_SYS_REVIVE_TAKEN from which on the groups' offsets do.
3. A file without "logged" is an Apache broker's, or older than this log; one that is ahead of the log was
   saved before the power went. What is in the log is not read for either.
RocketMQ passes over records of other tags than its own. Owner: the broker.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.broker.parts import Tables
from pocketmq.broker.pop.order_info import OrderInfo
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.revive_log import ReviveLog
from pocketmq.model.names import TAKEN_GROUP
from pocketmq.model.record import Record
from pocketmq.remoting import fastjson
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

ORDER_TAG = "order"
REVIVE_QUEUE = 0
_AS_IT_IS = -1


class OrderLog:
    """Changes the table of blocked queues, and the groups' offsets with it."""

    def __init__(self, tables: Tables, revive_log: ReviveLog, broker_name: str) -> None:
        self._order = tables.order_info
        self._offsets = tables.offsets
        self._log = revive_log
        self._broker_name = broker_name

    # ------------------------------------------------------------ start

    def load(self, taken: int) -> None:
        """Apply what the table does not have yet. taken: the offsets have the records before it.

        Raises: StoreError.
        """
        order, topic = self._order, self._log.topic
        end = self._log.end_of(REVIVE_QUEUE)
        begin = order.logged(topic)
        if begin is None and order.is_new:
            begin = self._log.finished(REVIVE_QUEUE) + 1
        if begin is None or begin > end:
            begin = end
            # Before there is a record that a start would pass over.
            self._save(topic, end)
        for record in self._log.records(REVIVE_QUEUE, begin, ORDER_TAG):
            try:
                self._apply(record, taken)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                log.error(
                    "skipped a record of an orderly pop that cannot be read offset=%d reason=%r",
                    record.queue_offset,
                    error,
                )
        order.note_logged(topic, end)

    def _save(self, topic: str, logged: int) -> None:
        self._order.note_logged(topic, logged)
        try:
            self._order.persist()
        except OSError as error:
            log.error("cannot save %s yet reason=%s", self._order.name, error)
            self._order.persist_soon()

    def _apply(self, record: Record, taken: int) -> None:
        data = fastjson.loads(bytes(record.body))
        queue = GroupQueue(str(data["c"]), str(data["t"]), int(data["q"]))
        info = data.get("info")
        self._order.put(queue, None if info is None else OrderInfo.from_json(info))
        following = int(data["n"])
        if following != _AS_IT_IS and record.queue_offset >= taken:
            self._offsets.place(*queue, following)
            self._log.reset(queue, following)

    # ------------------------------------------------------------ changes

    def popped(
        self,
        queue: GroupQueue,
        attempt_id: str | None,
        pop_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
        following: int,
    ) -> dict[int, int]:
        """Block a queue whose messages are handed out. Returns: offset -> times consumed before.

        following: the group's offset. Raises: StoreError; nothing has happened then.
        """
        old = self._order.get(queue)
        times = self._order.popped(queue, attempt_id, pop_ms, invisible_ms, offsets)
        try:
            self._write(queue, following)
        except StoreError:
            self._order.put(queue, old)
            raise
        return times

    def done(self, queue: GroupQueue, offsets: Iterable[int], pop_ms: int) -> list[int]:
        """Acknowledge messages. Returns: those that this pop did not hand out.

        Raises: StoreError; nothing has happened then.
        """
        order, info = self._order, self._order.get(queue)
        acked = 0 if info is None else info.acked
        committed = following = self._offsets.query(*queue)
        wrong: list[int] = []
        for offset in sorted(offsets):
            try:
                found = order.ack(queue, offset, pop_ms, following)
            except ValueError:
                wrong.append(offset)
            else:
                following = following if found is None else found
        if following == committed and (info is None or info.acked == acked):
            return wrong
        try:
            self._write(queue, following)
        except StoreError:
            if info is not None:
                info.acked = acked
            raise
        if 0 <= committed < following:
            key = f"{queue.topic}{SEPARATOR}{queue.group}"
            self._offsets.consumed.add(key, following - committed)
        order.announce(queue)
        return wrong

    def postpone(
        self, queue: GroupQueue, offset: int, pop_ms: int, visible_ms: int, *, untried: bool
    ) -> None:
        """Change the time at which a message becomes visible again.

        untried: its client did not try to consume it, so this does not count as an attempt.
        Raises: StoreError; nothing has happened then.
        """
        info = self._order.get(queue)
        before = None if info is None else (dict(info.next_visible_ms), set(info.untried))
        if self._order.postpone(queue, offset, pop_ms, visible_ms, untried=untried):
            try:
                self._write(queue, _AS_IT_IS)
            except StoreError:
                assert info is not None
                assert before is not None
                info.next_visible_ms, info.untried = before
                raise

    def clear(self, queue: GroupQueue, offset: int) -> None:
        """Unblock a queue whose offset was set from outside."""
        if self._order.clear(queue):
            self._write_if_possible(queue, offset)

    def forget(self, group: str, topic: str) -> None:
        """Drop a deleted group or topic."""
        for queue in self._order.forget(group, topic):
            self._write_if_possible(queue, _AS_IT_IS)

    def _write_if_possible(self, queue: GroupQueue, following: int) -> None:
        try:
            self._write(queue, following)
        except StoreError as error:
            log.error("cannot log that a queue is not blocked any more %s reason=%s", queue, error)

    def _write(self, queue: GroupQueue, following: int) -> None:
        """Log what is known of a queue, and set the group's offset. Raises: StoreError."""
        group, topic, queue_id = queue
        info = self._order.get(queue)
        body: dict[str, Any] = {
            "bn": self._broker_name,
            "c": group,
            "info": None if info is None else info.to_json(),
            "n": following,
            "q": queue_id,
            "t": topic,
        }
        key = f"{topic}@{queue_id}@{group}@{self._broker_name}@{ORDER_TAG}"
        at = self._log.note(REVIVE_QUEUE, ORDER_TAG, key, fastjson.dumps(body))
        self._order.note_logged(self._log.topic, at + 1)
        if following != _AS_IT_IS:
            self._offsets.place(*queue, following)
            self._log.reset(queue, following)
        self._offsets.place(TAKEN_GROUP, self._log.topic, REVIVE_QUEUE, at + 1)
