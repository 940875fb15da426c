"""RebalanceLock: which client of a group holds a queue for orderly consumption. Source:
RebalanceLockManager, 4.9.7.

1. A lock belongs to a client id, not to a connection: locking again by the same id renews it.
2. A lock that is not renewed for 60 s may be taken by another client.
3. The queue need not exist; an unlock by any client but the owner has no effect.
4. Ours: a group has LOCKS_OF_GROUP_MAX at most, and all have LOCKS_MAX: names and numbers of queues are free,
   and each takes memory.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock

log = logging.getLogger(__name__)

LOCK_MAX_LIVE_MS = 60_000
LOCKS_OF_GROUP_MAX = 20_000
LOCKS_MAX = 200_000


class _Lock:
    __slots__ = ("client_id", "renewed_ms")

    def __init__(self, client_id: str, renewed_ms: int) -> None:
        self.client_id = client_id
        self.renewed_ms = renewed_ms


class RebalanceLock:
    """Owner of the lock table; time is monotonic, so a jump of the wall clock expires no lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock queues that are free, expired or already the client's; return those it holds now."""
        now = self._clock.monotonic_ms()
        others = sum(len(table) for name, table in self._locks.items() if name != group)
        count_max = min(LOCKS_OF_GROUP_MAX, LOCKS_MAX - others)
        table = self._locks.setdefault(group, {})
        held: list[MessageQueue] = []
        refused = 0
        for queue in queues:
            if queue not in table and len(table) >= count_max:
                refused += 1
            elif self._lock(table, group, queue, client_id, now):
                held.append(queue)
        if refused:
            log.warning(
                "too many queues are locked, so some were refused group=%s client=%s count=%d",
                group,
                client_id,
                refused,
            )
        return held

    def _lock(
        self,
        table: dict[MessageQueue, _Lock],
        group: str,
        queue: MessageQueue,
        client_id: str,
        now: int,
    ) -> bool:
        found = table.get(queue)
        if found is None:
            table[queue] = _Lock(client_id, now)
            log.debug(
                "queue locked group=%s client=%s %s",
                group,
                client_id,
                queue,
            )
            return True
        expired = now - found.renewed_ms > LOCK_MAX_LIVE_MS
        if found.client_id != client_id:
            if not expired:
                log.warning(
                    "tryLockBatch, message queue locked by other client. Group: %s "
                    "OtherClientId: %s NewClientId: %s %s",
                    group,
                    found.client_id,
                    client_id,
                    queue,
                )
                return False
            log.warning(
                "tryLockBatch, message queue lock expired, I got it. Group: %s OldClientId: %s "
                "NewClientId: %s %s",
                group,
                found.client_id,
                client_id,
                queue,
            )
            found.client_id = client_id
        found.renewed_ms = now
        return True

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the client's locks; other queues are logged and left alone."""
        table = self._locks.get(group)
        if table is None:
            log.warning("unlockBatch, group not exist, Group: %s %s", group, client_id)
            return
        for queue in queues:
            found = table.get(queue)
            if found is None:
                log.warning("unlockBatch, message queue not locked. Group: %s, %s", group, queue)
            elif found.client_id != client_id:
                log.warning(
                    "unlockBatch, message queue locked by other client. Group: %s OtherClientId: %s "
                    "%s %s",
                    group,
                    found.client_id,
                    client_id,
                    queue,
                )
            else:
                del table[queue]
        if not table:
            del self._locks[group]

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that holds the queue; None if it is free or the lock expired."""
        found = self._locks.get(group, {}).get(queue)
        if found is None:
            return None
        if self._clock.monotonic_ms() - found.renewed_ms > LOCK_MAX_LIVE_MS:
            return None
        return found.client_id

    def to_json(self) -> list[list[Any]]:
        """Rows of group, topic, broker name, queue id, client id and age in ms, for a slave."""
        now = self._clock.monotonic_ms()
        return [
            [group, *queue, lock.client_id, now - lock.renewed_ms]
            for group, table in self._locks.items()
            for queue, lock in table.items()
        ]

    def take(self, rows: Iterable[Sequence[Any]]) -> None:
        """Replace the table by a master's, if all of it can be read. Raises: TypeError, ValueError."""
        now = self._clock.monotonic_ms()
        found: dict[str, dict[MessageQueue, _Lock]] = {}
        for group, topic, broker_name, queue_id, client_id, age_ms in rows:
            queue = MessageQueue(str(topic), str(broker_name), int(queue_id))
            table = found.setdefault(str(group), {})
            # None is younger than now: it would be held for as long.
            table[queue] = _Lock(str(client_id), now - max(int(age_ms), 0))
        self._locks.clear()
        self._locks.update(found)

    def scan(self) -> None:
        """Drop locks that expired long ago, so that the table does not grow for ever. Ours."""
        limit = self._clock.monotonic_ms() - 10 * LOCK_MAX_LIVE_MS
        for group, table in list(self._locks.items()):
            for queue in [queue for queue, lock in table.items() if lock.renewed_ms < limit]:
                del table[queue]
            if not table:
                del self._locks[group]
