"""ScheduleService: sends what schedules say, once each, and keeps what becomes of them in the log.

    change     a record of rmq_sys_POCKETMQ_SCHEDULES, queue 0: {"name": ..., "row": a whole row, or null}
    firing     a message of the schedule's topic with its properties and
                 SCHEDULE_NAME   the schedule
                 SCHEDULE_TIME   the time it was to be sent, ms
                 SCHEDULE_NEXT   the arming that follows, ms; 0: it was the last

1. A change counts once it is in the log; its answer waits as a send does. The table is a shortcut: a start
   and a promotion read the changes behind it, then the firings since a row's arming.
2. A firing is one append, and the next arming is in it. So a kill between any two instructions neither
   repeats nor leaves out a time that is in the log; a slave that is promoted sends those that its log lacks.
3. A slave takes the master's table once it has the log that it was of (ha/copied_state.py).
4. A schedule that never comes again is deleted.
5. A topic that does not exist, or takes no messages, misses its firings; the log and the metric say so.
Owner: the Broker; run() in its TaskGroup.
"""

import asyncio
import contextlib
import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from pocketmq.broker.acts.send_properties import queue_of_priority
from pocketmq.broker.internal_append import InternalAppend
from pocketmq.broker.node import Node
from pocketmq.broker.schedules.table import ScheduleTable
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.model.message_codec import get_property, properties_to_text
from pocketmq.model.names import SCHEDULE_CHANGES_TOPIC
from pocketmq.model.record import Record, read_record
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.java_number import property_number
from pocketmq.store import MessageStore, RecordIllegal
from pocketmq.store.side_tasks import SURVIVED

if TYPE_CHECKING:
    from pocketmq.broker.schedules.schedule import ScheduleRow
    from pocketmq.model.unique_key import UniqueKeys

log = logging.getLogger(__name__)

NAME, TIME, NEXT = "SCHEDULE_NAME", "SCHEDULE_TIME", "SCHEDULE_NEXT"
# Firings of one turn of the event loop.
_STEP = 64
# The clock may be set forward while the service waits: it looks again after this time.
_WAIT_MS_MAX = 1_000
_NEWEST_MAX = 1 << 31


class ScheduleService:
    """See the head of the file. fired, missed: firings since the start, by topic; of `missed`, decisions."""

    def __init__(
        self,
        node: Node,
        table: ScheduleTable,
        topics: TopicConfigManager,
        store: MessageStore,
        put: InternalAppend,
    ) -> None:
        self._node = node
        self._now_ms: Callable[[], int] = node.clock.now_ms
        self.table = table
        self._topics = topics
        self._store = store
        self._put = put
        self._changed = asyncio.Event()
        self.fired: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        # Schedules whose topic took the last message not; each is said once.
        self._unserved: set[str] = set()

    @cached_property
    def _keys(self) -> "UniqueKeys":
        from pocketmq.model.unique_key import UniqueKeys

        return UniqueKeys("127.0.0.1", self._node.clock)

    # ------------------------------------------------------------ changes

    def change(self, name: str, row: "ScheduleRow | None") -> int:
        """Set a schedule, or delete it (None). Returns: the end of the change in the log.

        Raises: StoreError.
        """
        self._topics.create_internal(SCHEDULE_CHANGES_TOPIC, 1)
        body = json.dumps({"name": name, "row": None if row is None else row.to_json()}).encode()
        stored = self._put.put(
            SCHEDULE_CHANGES_TOPIC, 0, body, b"", born_host=self._node.store_host
        ).appended
        self._apply(name, row)
        self.table.changes = self._store.next_offset(SCHEDULE_CHANGES_TOPIC, 0)
        self.table.end = stored.position + stored.size
        self._changed.set()
        return self.table.end

    def _apply(self, name: str, row: "ScheduleRow | None") -> None:
        if row is None:
            self.table.remove(name)
        else:
            self.table.put(row)

    # ------------------------------------------------------------ the log

    def load(self) -> None:
        """Bring the table up to the log (1)."""
        end = self._store.next_offset(SCHEDULE_CHANGES_TOPIC, 0)
        behind = end - self.table.changes
        if behind > 0:
            for record in self._records(SCHEDULE_CHANGES_TOPIC, 0, 0, behind):
                self._take_change(bytes(record.body))
        # Less: the log was cut, or its end was lost.
        self.table.changes = end
        self._take_firings()
        self.table.end = self._store.commit_log_max_position

    def _take_change(self, body: bytes) -> None:
        # A start without schedules is quicker without it.
        from pocketmq.broker.schedules.schedule import ScheduleRow

        try:
            change = json.loads(body)
            row = None if change["row"] is None else ScheduleRow.from_json(change["row"])
            self._apply(str(change["name"]), row)
        except (LookupError, TypeError, ValueError) as error:
            log.error("skipped a change of a schedule that cannot be read reason=%r", error)

    def _take_firings(self) -> None:
        """Move the schedules over their firings that are in the log."""
        now_ms = self._now_ms()
        since: dict[str, int] = {}
        for row in self.table.rows.values():
            if row.next_ms is not None and row.next_ms <= now_ms:
                topic = row.schedule.topic
                since[topic] = min(row.next_ms, since.get(topic, row.next_ms))
        for topic, queue_id in self._store.queues():
            if topic in since:
                for record in self._records(topic, queue_id, since[topic], _NEWEST_MAX):
                    self._take_firing(record)

    def _take_firing(self, record: Record) -> None:
        name = get_property(record.properties, NAME.encode())
        row = None if name is None else self.table.rows.get(name.decode("utf-8", "replace"))
        if row is None or row.next_ms is None or row.schedule.topic != record.topic:
            return
        time_ms = property_number(get_property(record.properties, TIME.encode()))
        next_ms = property_number(get_property(record.properties, NEXT.encode()))
        if time_ms is not None and next_ms is not None and time_ms >= row.next_ms:
            self._move(row, next_ms or None, time_ms)

    def _records(self, topic: str, queue_id: int, since_ms: int, count_max: int) -> list[Record]:
        found = []
        for position in self._store.reads.positions_since(topic, queue_id, since_ms, count_max):
            data = self._store.record_at(position)
            if data is not None and (
                topic == SCHEDULE_CHANGES_TOPIC or b"SCHEDULE_TIME" in bytes(data)
            ):
                with contextlib.suppress(MessageCodecError):
                    found.append(read_record(data, check_crc=False))
        return found

    # ------------------------------------------------------------ firing

    def step(self) -> int:
        """Send what is due, some dozens at most. Returns: ms until there is something to do; 0: at once."""
        side_tasks = self._store.side_tasks
        try:
            more = self._fire_some()
        except SURVIVED as error:
            side_tasks.failed("schedules", error)
            return side_tasks.retry_ms
        side_tasks.went_well("schedules")
        first = self.table.first()
        if more:
            return 0
        if first is None or first.next_ms is None:
            return _WAIT_MS_MAX
        return min(max(first.next_ms - self._now_ms(), 1), _WAIT_MS_MAX)

    def _fire_some(self) -> bool:
        """Return True if there may be more."""
        now_ms = self._now_ms()
        for _ in range(_STEP):
            row = self.table.first()
            if row is None or row.next_ms is None or row.next_ms > now_ms:
                return False
            decision = row.plan.decide(row.next_ms, now_ms)
            if decision.fires and self._send(row, row.next_ms, decision.next_ms):
                self._move(row, decision.next_ms, row.next_ms)
            else:
                self.missed[row.schedule.topic] += 1
                if row.name not in self._unserved:
                    log.warning("a schedule missed its time name=%s time=%d", row.name, row.next_ms)
                self._move(row, decision.next_ms, None)
        return True

    def _move(self, row: "ScheduleRow", next_ms: int | None, fired_ms: int | None) -> None:
        if next_ms is None:
            log.info("a schedule has come to its end name=%s", row.name)
            self.table.remove(row.name)
        else:
            self.table.put(row.moved(next_ms, fired_ms))

    def _send(self, row: "ScheduleRow", time_ms: int, next_ms: int | None) -> bool:
        """Append one firing (2); False if its topic takes none (5). Raises: StoreError."""
        plan = row.schedule
        topic = self._topics.get(plan.topic)
        if topic is None or not topic.perm & Perm.WRITE or not topic.write_queues:
            if row.name not in self._unserved:
                self._unserved.add(row.name)
                log.error(
                    "the topic of a schedule takes no messages name=%s topic=%s",
                    row.name,
                    plan.topic,
                )
            return False
        self._unserved.discard(row.name)
        properties = properties_to_text(
            {
                **plan.properties,
                "TAGS": plan.tags,
                "KEYS": plan.keys,
                "UNIQ_KEY": self._keys.make(),
                NAME: row.name,
                TIME: str(time_ms),
                NEXT: str(next_ms or 0),
            }
        ).encode()
        # A schedule keeps to one queue, so that its messages stay in order.
        queue_id = zlib.crc32(row.name.encode()) % topic.write_queues
        if topic.by_priority:
            queue_id = queue_of_priority(properties, topic, queue_id)
        try:
            stored = self._put.put(
                plan.topic, queue_id, plan.body, properties, born_host=self._node.store_host
            ).appended
        except RecordIllegal as error:
            log.error("a schedule's message cannot be stored name=%s reason=%s", row.name, error)
            return False
        self.table.end = stored.position + stored.size
        self.fired[plan.topic] += 1
        return True

    def findings(self) -> list[str]:
        """Return what keeps schedules from sending, and what to do."""
        self._unserved &= self.table.rows.keys()
        rows = [self.table.rows[name] for name in sorted(self._unserved)]
        return [
            f"schedule {row.name}: its topic {row.schedule.topic} takes no messages. To mend it: create the "
            f"topic, or allow writes to it, or: pocketmq schedule delete {row.name}"
            for row in rows
        ]

    def fails(self, name: str) -> bool:
        """Return True if the topic of a schedule took its last message not."""
        return name in self._unserved

    async def run(self) -> None:
        """Send until cancelled."""
        await self._store.side_tasks.repeat("schedules-run", self._round)

    async def _round(self) -> None:
        self._changed.clear()
        wait_ms = self.step()
        if wait_ms == 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()
