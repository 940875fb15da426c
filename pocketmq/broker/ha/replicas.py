"""ReplicaWaits: waits until slaves have a message (SYNC_MASTER); no I/O. Source: GroupTransferService, 4.9.7.

1. A message counts as replicated when inSyncReplicas brokers have it, the master included: that many slaves
   less one have acknowledged its end.
   With enableAutoInSyncReplicas as many as are in sync, at least minInSyncReplicas.
2. SLAVE_NOT_AVAILABLE at once if too few slaves are in sync; FLUSH_SLAVE_TIMEOUT if they have not
   acknowledged it within slaveTimeout. The message is stored in both cases.
3. Waits begin in the order of the log and have the same time-out, so they end first in, first out. Those that
   begin in one turn of the loop are sent to the slaves together; only the first of them checks the slaves.
4. A send that wants to wait is refused while fewer than minInSyncReplicas are in sync: it is not stored.
"""

from collections import deque
from collections.abc import Callable

from pocketmq.broker.events import Event
from pocketmq.broker.ha.config import SYNC_MASTER, HaConfig
from pocketmq.broker.ha.slaves import Slaves
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import ResponseCode

Done = Callable[[ResponseCode], object]


class ReplicaWaits:
    """Owner of the waits.

    awaited: emitted when a send waits for slaves. The sender of the log then calls `sent`.
    """

    def __init__(self, config: HaConfig, clock: Clock, slaves: Slaves, awaited: Event[[]]) -> None:
        self._config = config
        self._monotonic_ms = clock.monotonic_ms
        self.slaves = slaves
        self._awaited = awaited
        # Until when those wait that ask before `sent`; 0: the next one is looked at.
        self._until_ms = 0
        # (position, deadline in monotonic ms, the waiter's callback)
        self._waiting: deque[tuple[int, int, Done]] = deque()

    @property
    def wanted(self) -> bool:
        """Return True if responses wait for slaves at all."""
        config = self._config
        return config.broker_role == SYNC_MASTER and config.in_sync_replicas > 1

    @property
    def needed(self) -> int:
        """Return how many slaves must have a message before its success is reported."""
        config = self._config
        wanted = config.in_sync_replicas
        if config.enable_auto_in_sync_replicas:
            there = self.slaves.in_sync_count + 1
            wanted = max(min(wanted, there), config.min_in_sync_replicas)
        return wanted - 1

    @property
    def may_refuse(self) -> bool:
        """Return True if a minimum of replicas is set."""
        config = self._config
        return config.broker_role == SYNC_MASTER and config.min_in_sync_replicas > 1

    @property
    def too_few(self) -> bool:
        """Return True if invariant 4 refuses sends now."""
        return self.may_refuse and (
            self.slaves.in_sync_count + 1 < self._config.min_in_sync_replicas
        )

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ask(self, position: int, done: Done) -> ResponseCode | None:
        """Wait until slaves have the log up to `position`.

        Returns: the code when that is known already; None: `done` is called with it, once.
        """
        until_ms = self._until_ms
        if until_ms:
            self._waiting.append((position, until_ms, done))
            return None
        count = self.needed if self.wanted else 0
        if not count:
            return ResponseCode.SUCCESS
        acked = self._acked_by(count)
        if acked >= position:
            return ResponseCode.SUCCESS
        if acked < 0:
            return ResponseCode.SLAVE_NOT_AVAILABLE
        until_ms = self._monotonic_ms() + self._config.slave_timeout
        self._waiting.append((position, until_ms, done))
        self._until_ms = until_ms
        self._awaited()
        return None

    def sent(self) -> None:
        """Note that the messages for which this turn of the loop waits are on their way to the slaves."""
        self._until_ms = 0

    def acked(self) -> None:
        """Answer those whose position slaves have reported."""
        waiting = self._waiting
        if not waiting:
            return
        acked = self._acked_by(max(1, self.needed))
        while waiting and waiting[0][0] <= acked:
            waiting.popleft()[2](ResponseCode.SUCCESS)

    def _acked_by(self, count: int) -> int:
        return self.slaves.acked_by(count)

    def expire(self) -> None:
        """Answer those that have waited too long."""
        now_ms = self._monotonic_ms()
        while self._waiting and self._waiting[0][1] <= now_ms:
            self._waiting.popleft()[2](ResponseCode.FLUSH_SLAVE_TIMEOUT)

    def release(self) -> None:
        """Answer everyone: the broker stops, or is no longer the master."""
        self._until_ms = 0
        while self._waiting:
            self._waiting.popleft()[2](ResponseCode.FLUSH_SLAVE_TIMEOUT)
