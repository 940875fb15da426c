"""ConsumerOrderInfo: which queues are blocked until their messages are acknowledged,
config/consumerOrderInfo.json. What changes it comes by way of order_log.py, which logs it.

    table["TOPIC@GROUP"][queue id] = {"popTime": ms, "i": invisible ms, "o": [first offset, distances ...],
        "ot": {offset: next visible ms}, "oc": {offset: times consumed}, "l": ms of the pop, "cm": acked bits,
        "a": attempt id}
    logged[topic of the revive log] = the first record of it whose effect is not in the table (ours)

1. An orderly pop hands out a queue's next messages only when those of the previous pop are acknowledged or
   visible again; a repeated attempt (same attempt id) gets the same messages again.
2. The group's offset moves to the first message that is not acknowledged.
3. A redelivered message counts one more in "oc". Ours: not one that was given back untried ("untried").
Source: ConsumerOrderInfoManager, RocketMQ 5.3.3. Owner: the broker. Wall time, since the file says so.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pocketmq.broker.events import Events
from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.broker.pop.check_point import HELD_MS_MAX
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)

# Blocks are forgotten this long after their last use.
_KEPT_MS = 24 * 3_600_000


@dataclass(slots=True)
class OrderInfo:
    """The pop that blocks one queue; offsets ascending, `acked` has one bit for each of them."""

    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    attempt_id: str | None = None
    acked: int = 0
    consumed_ms: int = 0
    next_visible_ms: dict[int, int] = field(default_factory=dict)
    consumed_times: dict[int, int] = field(default_factory=dict)
    # Given back by a client that did not try to consume them. Ours.
    untried: set[int] = field(default_factory=set)
    # The client that holds these messages while it is connected; in memory only. Ours.
    holder: Peer | None = None
    # By how much the clock was set back since the pop; in memory only.
    set_back_ms: int = 0

    def look_at_clock(self, now_ms: int) -> None:
        """Notice a clock that had run ahead: of the times only their distance from the pop counts then."""
        if self.pop_ms - self.set_back_ms > now_ms:
            self.set_back_ms = self.pop_ms - now_ms

    def visible_ms(self, offset: int) -> int:
        """Return when a message becomes visible again."""
        at_ms = self.next_visible_ms.get(offset, self.pop_ms + self.invisible_ms)
        return at_ms - self.set_back_ms

    def is_held(self, now_ms: int) -> bool:
        """Return True while its holder is connected, has returned nothing, and has not held it too long."""
        holder = self.holder
        return (
            holder is not None
            and not holder.closed
            and not self.next_visible_ms
            and now_ms - self.pop_ms < HELD_MS_MAX
            and self.free_ms > 0
        )

    @property
    def next_offset(self) -> int:
        """Return the group's offset by invariant 2."""
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                return offset
        return self.offsets[-1] + 1

    @property
    def free_ms(self) -> int:
        """Return when the last of its messages becomes visible again; 0 if all are acknowledged."""
        return max(
            (
                self.visible_ms(offset)
                for index, offset in enumerate(self.offsets)
                if not self.acked >> index & 1
            ),
            default=0,
        )

    def to_json(self) -> dict[str, Any]:
        first = self.offsets[0]
        data: dict[str, Any] = {
            "cm": self.acked - (1 << 64) if self.acked >> 63 & 1 else self.acked,
            "i": self.invisible_ms,
            "l": self.consumed_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "oc": dict(self.consumed_times),
            "popTime": self.pop_ms,
        }
        if self.attempt_id is not None:
            data["a"] = self.attempt_id
        if self.next_visible_ms:
            data["ot"] = dict(self.next_visible_ms)
        if self.untried:
            data["untried"] = sorted(self.untried)
        return data

    @classmethod
    def from_json(cls, data: Any) -> "OrderInfo":
        """Parse an entry of the file. Raises: KeyError, TypeError, ValueError, IndexError if malformed."""
        first, *others = (int(offset) for offset in data["o"])
        attempt = data.get("a")
        return cls(
            pop_ms=int(data["popTime"]),
            invisible_ms=int(data.get("i") or 0),
            offsets=[first, *(first + distance for distance in others)],
            attempt_id=None if attempt is None else str(attempt),
            acked=int(data.get("cm") or 0) & (1 << 64) - 1,
            consumed_ms=int(data.get("l") or 0),
            next_visible_ms=_numbers(data.get("ot")),
            consumed_times=_numbers(data.get("oc")),
            untried={int(offset) for offset in data.get("untried") or ()},
        )


def _places(data: dict[str, Any]) -> dict[str, int]:
    """Return "logged" of a file; empty if it cannot be read."""
    try:
        return {str(topic): int(at) for topic, at in (data.get("logged") or {}).items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _numbers(data: Any) -> dict[int, int]:
    return {int(key): int(value) for key, value in (data or {}).items()}


class ConsumerOrderInfo(ConfigManager):
    """Owner of the table of blocked queues."""

    def __init__(self, file: ConfigFile, clock: Clock, events: Events | None = None) -> None:
        super().__init__(file)
        self._clock = clock
        self._table: dict[GroupQueue, OrderInfo] = {}
        # Queues that were reset since their last pop, and when that was.
        self._cleared: dict[GroupQueue, int] = {}
        self._ticked_ms = clock.now_ms()
        self._events = events or Events()
        self._logged: dict[str, int] = {}
        # True until a file or a master has filled the table.
        self.is_new = True

    def to_json(self) -> dict[str, Any]:
        oldest = self._clock.now_ms() - _KEPT_MS
        table: dict[str, dict[int, Any]] = {}
        for queue, info in list(self._table.items()):
            if info.consumed_ms < oldest and info.free_ms < oldest:
                del self._table[queue]
                continue
            key = f"{queue.topic}{SEPARATOR}{queue.group}"
            table.setdefault(key, {})[queue.queue_id] = info.to_json()
        return {"table": table, "logged": dict(self._logged)}

    def from_json(self, data: Any) -> None:
        table = data.get("table") if isinstance(data, dict) else None
        self.is_new = table is None
        self._logged = _places(data) if isinstance(data, dict) else {}
        for key, queues in (table or {}).items():
            topic, _, group = str(key).partition(SEPARATOR)
            try:
                for queue_id, info in queues.items():
                    self._table[GroupQueue(group, topic, int(queue_id))] = OrderInfo.from_json(info)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                log.error(
                    "consumerOrderInfo.json: skipped an entry that cannot be read key=%s reason=%r",
                    key,
                    error,
                )

    def take(self, data: Any) -> None:
        """Replace the table by the master's, while this broker follows, if all of it can be read.

        Raises: AttributeError, LookupError, TypeError, ValueError.
        """
        found = {}
        for key, queues in data["table"].items():
            topic, _, group = str(key).partition(SEPARATOR)
            for queue_id, info in queues.items():
                found[GroupQueue(group, topic, int(queue_id))] = OrderInfo.from_json(info)
        self._logged = _places(data)
        self.is_new = False
        self._table.clear()
        self._table.update(found)
        self.persist_soon()

    # ------------------------------------------------------------ the log

    def logged(self, topic: str) -> int | None:
        """Return from which record of that revive log on the table lacks its effect; None if not known."""
        return self._logged.get(topic)

    def note_logged(self, topic: str, following: int) -> None:
        """Note that the table has the effect of all records before `following`."""
        self._logged = {topic: following}

    def get(self, queue: GroupQueue) -> OrderInfo | None:
        """Return what blocks a queue."""
        return self._table.get(queue)

    def put(self, queue: GroupQueue, info: OrderInfo | None) -> None:
        """Set what blocks a queue; None: nothing."""
        if info is None:
            self._table.pop(queue, None)
        else:
            self._table[queue] = info
        self.persist_soon()

    # ------------------------------------------------------------ popping

    def is_blocked(self, queue: GroupQueue, attempt_id: str | None) -> bool:
        """Return True if an orderly pop has to wait (invariant 1)."""
        info = self._table.get(queue)
        if info is None:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        now_ms = self._clock.now_ms()
        info.look_at_clock(now_ms)
        return now_ms < info.free_ms or info.is_held(now_ms)

    def popped_ms(self, queue: GroupQueue) -> int:
        """Return when the queue was popped last; -1 if that is not known."""
        info = self._table.get(queue)
        return -1 if info is None else info.pop_ms

    def hold(self, queue: GroupQueue, pop_ms: int, peer: Peer) -> None:
        """Let a peer keep what that pop handed out while it is connected."""
        info = self._table.get(queue)
        if info is not None and info.pop_ms == pop_ms:
            info.holder = peer

    def release(self, peer: Peer) -> None:
        """Drop a disconnected holder: its messages become visible once their time is over."""
        for queue, info in list(self._table.items()):
            if info.holder is peer:
                info.holder = None
                if self._clock.now_ms() >= info.free_ms:
                    self._events.poppable(queue.topic, queue.group)

    def popped(
        self,
        queue: GroupQueue,
        attempt_id: str | None,
        pop_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> dict[int, int]:
        """Block a queue whose messages are handed out. Returns: offset -> times consumed before."""
        old = self._table.get(queue)
        info = OrderInfo(pop_ms, invisible_ms, list(offsets), attempt_id)
        info.consumed_ms = self._clock.now_ms()
        if old is not None:
            if old.attempt_id is not None and old.attempt_id == attempt_id:
                info.consumed_times = old.consumed_times
            else:
                before = set(old.offsets)
                times = {
                    offset: old.consumed_times.get(offset, 0) + (offset not in old.untried)
                    for offset in offsets
                    if offset in before
                }
                info.consumed_times = {offset: count for offset, count in times.items() if count}
        self._table[queue] = info
        self._cleared.pop(queue, None)
        self.persist_soon()
        return info.consumed_times

    def ack(self, queue: GroupQueue, offset: int, pop_ms: int, committed: int) -> int | None:
        """Acknowledge a message. Returns: the group's new offset; None if it does not change.

        Raises: ValueError if it was not handed out by that pop.
        """
        info = self._table.get(queue)
        if info is None:
            # A kill or a reset took it. RocketMQ passes over all before the message.
            is_next = offset == committed and self._cleared.get(queue) != pop_ms
            return offset + 1 if is_next else None
        if info.pop_ms != pop_ms:
            log.warning("ignored an ack of an earlier orderly pop %s offset=%d", queue, offset)
            return None
        info.acked |= 1 << info.offsets.index(offset)
        self.persist_soon()
        return info.next_offset

    def announce(self, queue: GroupQueue) -> None:
        """Announce a queue that is free now."""
        info = self._table.get(queue)
        if info is not None and self._clock.now_ms() >= info.free_ms:
            self._events.poppable(queue.topic, queue.group)

    def is_out(self, queue: GroupQueue, offset: int, pop_ms: int) -> bool:
        """Return True if that pop handed out the message and it is neither acknowledged nor visible again."""
        info = self._table.get(queue)
        if info is None or info.pop_ms != pop_ms or offset not in info.offsets:
            return False
        if info.acked >> info.offsets.index(offset) & 1:
            return False
        now_ms = self._clock.now_ms()
        return now_ms < info.visible_ms(offset) or info.is_held(now_ms)

    def is_acked(self, queue: GroupQueue, offset: int, pop_ms: int) -> bool:
        """Return True if that pop handed out the message and it was acknowledged."""
        info = self._table.get(queue)
        if info is None or info.pop_ms != pop_ms or offset not in info.offsets:
            return False
        return bool(info.acked >> info.offsets.index(offset) & 1)

    def postpone(
        self, queue: GroupQueue, offset: int, pop_ms: int, visible_ms: int, *, untried: bool = False
    ) -> bool:
        """Change the time at which a message becomes visible again; False if that pop is not known."""
        info = self._table.get(queue)
        if info is None or info.pop_ms != pop_ms:
            log.warning(
                "ignored a change of an orderly pop that does not exist %s offset=%d", queue, offset
            )
            return False
        info.next_visible_ms[offset] = visible_ms + info.set_back_ms
        if untried:
            info.untried.add(offset)
        self.persist_soon()
        return True

    def clear(self, queue: GroupQueue) -> bool:
        """Unblock a queue whose offset was set from outside; False if nothing was known of it."""
        info = self._table.pop(queue, None)
        if info is not None:
            self._cleared[queue] = info.pop_ms
            self.persist_soon()
            self._events.poppable(queue.topic, queue.group)
        return info is not None

    def of_group(self, group: str) -> list[tuple[GroupQueue, OrderInfo]]:
        """Return what blocks the queues of a group. Scans everything."""
        return [(queue, info) for queue, info in self._table.items() if queue.group == group]

    def topics_of(self, group: str) -> set[str]:
        """Return the topics of which something is known for a group."""
        return {queue.topic for queue in self._table if queue.group == group}

    def forget(self, group: str, topic: str) -> list[GroupQueue]:
        """Drop a deleted group or topic. Returns: its queues of which something was known."""
        found = [queue for queue in self._table if queue[:2] == (group, topic)]
        for queue in found:
            self.put(queue, None)
        return found

    def tick(self) -> None:
        """Announce the queues whose block expired since the last tick."""
        now, before = self._clock.now_ms(), self._ticked_ms
        self._ticked_ms = now
        for queue, info in list(self._table.items()):
            info.look_at_clock(now)
            if before < info.free_ms <= now:
                self._events.poppable(queue.topic, queue.group)
