"""Slaves: the connected slaves, the progress of each, and what to send it next; no I/O.

1. A slave counts from its first report on, which must lie within the log. 0 requests the whole log, where
   RocketMQ sends the last file only: a Java slave begins wherever the first slice does.
2. A report beyond the log's end, or of bytes never sent, is refused and logged, and does not count: that
   slave's log has diverged, or the report is false. RocketMQ counts it, and so acknowledges sends that no
   slave has. The same report is refused on every later connection, too: once the log has grown past it, the
   divergence could not be detected any more.
3. A refused slave stays connected and gets heartbeats: a 4.9 slave whose connection is closed reconnects at
   once, some hundred times a second.
4. The time a slave lags is derived from the log's end noted once a second (`passed`), for an hour.
5. A slave is in sync while it is at most haMaxGapNotInSync behind.
Owner: the broker, on its event loop. Source of the limits: DefaultHAConnection, RocketMQ 4.9.7, 5.3.3.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pocketmq.broker.ha.config import HaConfig
from pocketmq.broker.ha.flow import Flow
from pocketmq.broker.ha.wire import COMPARED, ReportDecoder

log = logging.getLogger(__name__)

_REFUSED_MAX = 64


class LogEnds(Protocol):
    """The ends of the replicated log, a MessageStore's."""

    @property
    def commit_log_min_position(self) -> int: ...
    @property
    def commit_log_max_position(self) -> int: ...


@dataclass(eq=False, slots=True)
class Slave:
    """One connection. Times are monotonic.

    next: position of the next byte to send; -1 before the first report. acked: its last report; -1 while it
    does not count. refused: why it is sent nothing; empty while it is served. has_compared: it has compared
    the logs itself. first: its first report, while its log is being compared (comparison.py); -1 otherwise.
    """

    address: str
    connected_ms: int
    heard_ms: int
    told_ms: int
    next: int = -1
    acked: int = -1
    refused: str = ""
    has_compared: bool = False
    first: int = -1
    sent: Flow = field(default_factory=Flow)
    reports: ReportDecoder = field(default_factory=ReportDecoder)

    @property
    def served(self) -> bool:
        return self.next >= 0 and not self.refused


class Slaves:
    """Every connected slave."""

    def __init__(
        self, config: HaConfig, store: LogEnds, leads: Callable[[], bool] = lambda: True
    ) -> None:
        """leads: whether this broker is the master now; a follower sends nothing."""
        self._config = config
        self._store = store
        self._leads = leads
        self.connected: list[Slave] = []
        # Reports beyond the end, by the host that they came from (invariant 2).
        self._refused: dict[tuple[str, int], str] = {}
        # (where the log ended, when in monotonic ms), the oldest first (invariant 4).
        self._ends: deque[tuple[int, int]] = deque(maxlen=3_600)

    def connect(self, address: str, now_ms: int) -> Slave:
        slave = Slave(address, now_ms, now_ms, now_ms)
        self.connected.append(slave)
        return slave

    def disconnect(self, slave: Slave) -> None:
        self.connected.remove(slave)

    def forget_refusals(self) -> None:
        """Accept refused slaves again: an administrator says that they were repaired."""
        self._refused.clear()

    # ------------------------------------------------------------ reports

    def heard(self, slave: Slave, data: bytes, now_ms: int) -> None:
        """Process bytes from a slave."""
        slave.heard_ms = now_ms
        offsets = slave.reports.feed(data)
        if not offsets or slave.refused:
            return
        while slave.next < 0 and offsets and offsets[0] <= COMPARED:
            # A ticket, too, is of a slave of ours; one whose address is listed needs none.
            slave.has_compared = True
            offsets.pop(0)
        if slave.next < 0 and offsets:
            first = offsets.pop(0)
            if slave.first < 0 and self._is_to_compare(slave, first):
                slave.first = first
            elif slave.first < 0:
                self._begin(slave, first)
        if offsets and slave.served:
            offset = offsets[-1]
            if offset > slave.next:
                self._refuse_beyond(slave, offset)
            elif offset >= slave.acked:
                slave.acked = offset

    def _is_to_compare(self, slave: Slave, offset: int) -> bool:
        """Return True for a slave that may have records of its own before `offset`."""
        low, high = self._store.commit_log_min_position, self._store.commit_log_max_position
        return not slave.has_compared and self._leads() and max(low, 1) < offset <= high

    def compared(self, slave: Slave, difference: str) -> None:
        """Serve a slave that waited for its log to be compared, or refuse it for that difference."""
        offset, slave.first = slave.first, -1
        if difference:
            slave.next = offset
            self._refuse(slave, difference)
        else:
            self._begin(slave, offset)

    def _begin(self, slave: Slave, offset: int) -> None:
        """Process the first report (invariants 1 and 2)."""
        low, high = self._store.commit_log_min_position, self._store.commit_log_max_position
        if not self._leads():
            slave.next = max(offset, 0)
            self._refuse(slave, "this broker is itself a slave and has no slaves")
            return
        if offset == 0:
            slave.next = slave.acked = low
            log.info(
                "a slave follows from the beginning address=%s position=%d", slave.address, low
            )
            return
        slave.next = max(offset, 0)
        known = self._refused.get((_host(slave.address), offset))
        if known is not None:
            self._refuse(slave, known)
        elif offset > high:
            self._refuse_beyond(slave, offset)
        elif offset < low:
            self._refuse(
                slave,
                f"it asks for {offset}, but the log begins at {low}: empty its store, so that it copies "
                "everything",
            )
        else:
            slave.acked = offset
            log.info(
                "a slave follows address=%s position=%d behind=%d",
                slave.address,
                offset,
                high - offset,
            )

    def _refuse_beyond(self, slave: Slave, offset: int) -> None:
        high = self._store.commit_log_max_position
        why = (
            f"its log ends at {offset}, but this one ended at {high}: it has data that this master never "
            "sent. Find out which of the two is right before you empty one"
        )
        if len(self._refused) >= _REFUSED_MAX:
            self._refused.pop(next(iter(self._refused)))
        self._refused[_host(slave.address), offset] = why
        slave.next = offset
        self._refuse(slave, why)

    def _refuse(self, slave: Slave, why: str) -> None:
        slave.refused = why
        slave.acked = -1
        log.error("refused a slave address=%s why=%s", slave.address, why)

    # ------------------------------------------------------------ sending

    def gone(self, slave: Slave) -> None:
        """Refuse a slave whose next position is no longer in the log."""
        low = self._store.commit_log_min_position
        self._refuse(slave, f"it was too slow: it needs {slave.next}, but the log begins at {low}")

    def due_for_life(self, slave: Slave, now_ms: int) -> bool:
        """Return True if the slave is to be sent a heartbeat."""
        interval = self._config.ha_send_heartbeat_interval
        return slave.next >= 0 and now_ms - slave.told_ms > interval

    def is_silent(self, slave: Slave, now_ms: int) -> bool:
        """Return True if nothing has been received from the slave for too long."""
        return now_ms - slave.heard_ms > self._config.ha_housekeeping_interval

    # ------------------------------------------------------------ how far each one is

    def passed(self, now_ms: int) -> None:
        """Note where the log ends now."""
        ends = self._ends
        if not ends or now_ms - ends[-1][1] >= 1_000:
            ends.append((self._store.commit_log_max_position, now_ms))

    def lag_ms(self, slave: Slave, now_ms: int) -> int:
        """Return how long ago the slave had the whole log; 0 if it has it now."""
        if slave.acked >= self._store.commit_log_max_position:
            return 0
        for end, at_ms in reversed(self._ends):
            if end <= slave.acked:
                return now_ms - at_ms
        return now_ms - min(slave.connected_ms, self._ends[0][1] if self._ends else now_ms)

    # ------------------------------------------------------------ progress of the slaves

    def is_in_sync(self, slave: Slave) -> bool:
        """Apply invariant 5."""
        gap = self._store.commit_log_max_position - slave.acked
        return slave.served and gap <= self._config.ha_max_gap_not_in_sync

    @property
    def in_sync_count(self) -> int:
        return sum(map(self.is_in_sync, self.connected))

    def acked_by(self, count: int) -> int:
        """Return the position up to which `count` slaves in sync have the log; -1 if there are fewer."""
        # Asked at every send of a SYNC_MASTER: the end of the log is looked up once.
        low = self._store.commit_log_max_position - self._config.ha_max_gap_not_in_sync
        acked = [each.acked for each in self.connected if each.acked >= low and each.served]
        if len(acked) < count:
            return -1
        return max(acked) if count == 1 else sorted(acked, reverse=True)[count - 1]

    @property
    def refused(self) -> list[Slave]:
        return [slave for slave in self.connected if slave.refused]


def _host(address: str) -> str:
    return address.rpartition(":")[0]
