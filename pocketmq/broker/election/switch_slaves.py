"""SwitchSlaves: the slaves that are connected to a master under a controller, and the waits for them; no I/O.

1. A slave names its broker id first; its first report is what to send from, and must lie in an epoch of this
   log. 0 wants the whole log.
2. A report beyond what was sent, or smaller than the last one over that connection, ends the connection:
   RocketMQ believes it, and counts it.
3. Of two connections with one id the later one counts; the end of the earlier one takes nothing away.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.in_sync import InSync
from pocketmq.broker.election.switch_wire import Hello
from pocketmq.broker.events import Event
from pocketmq.broker.ha.config import SYNC_MASTER, HaConfig
from pocketmq.broker.ha.replicas import ReplicaWaits
from pocketmq.broker.ha.slaves import LogEnds, Slave, Slaves
from pocketmq.broker.ha.wire import HaWireError
from pocketmq.remoting.clock import Clock

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class SwitchSlave(Slave):
    """One connection; broker_id: -1 before its handshake."""

    broker_id: int = -1
    is_learner: bool = False


class SwitchSlaves(Slaves):
    """Every connected slave, and the set in sync. epochs: of this log."""

    def __init__(
        self, config: HaConfig, store: LogEnds, leads: Callable[[], bool], in_sync: InSync
    ) -> None:
        super().__init__(config, store, leads)
        self.set = in_sync
        self.epochs: Epochs | None = None

    def connect(self, address: str, now_ms: int) -> Slave:
        member = SwitchSlave(address, now_ms, now_ms, now_ms)
        self.connected.append(member)
        return member

    def disconnect(self, slave: Slave) -> None:
        super().disconnect(slave)
        assert isinstance(slave, SwitchSlave)
        if not any(
            isinstance(each, SwitchSlave) and each.broker_id == slave.broker_id
            for each in self.connected
        ):
            self.set.left(slave.broker_id)

    def greeted(self, member: SwitchSlave, hello: Hello) -> None:
        """Note who a slave is. Raises: HaWireError."""
        if not self._leads():
            raise HaWireError("this broker does not lead")
        if hello.broker_id == self.set.own_id:
            raise HaWireError(
                f"a slave with this broker's own id, {hello.broker_id}: a copied store?"
            )
        member.broker_id, member.is_learner = hello.broker_id, hello.learner
        member.next = member.acked = -1

    def reported(self, member: SwitchSlave, end: int, now_ms: int) -> None:
        """Apply invariants 1 and 2. Raises: HaWireError."""
        if not self._leads() or member.broker_id < 0:
            raise HaWireError("a report without a handshake, or at a broker that does not lead")
        low, high = self._store.commit_log_min_position, self._store.commit_log_max_position
        if member.next < 0:
            self._begin_at(member, end, low, high)
        elif not member.acked <= end <= member.next:
            raise HaWireError(
                f"it reports {end} after {member.acked}, and was sent up to {member.next}"
            )
        member.acked = end
        if not member.is_learner:
            self.set.reported(member.broker_id, end, high, now_ms)

    def _begin_at(self, member: SwitchSlave, end: int, low: int, high: int) -> None:
        if end > high or (end and end < low):
            raise HaWireError(f"its log ends at {end}, but this one has {low} to {high}")
        if end and (self.epochs is None or self.epochs.at(end) is None):
            raise HaWireError(f"no epoch of this log holds {end}, where its log ends")
        member.next = max(end, low)
        log.info(
            "a slave follows id=%d address=%s position=%d behind=%d",
            member.broker_id,
            member.address,
            member.next,
            high - member.next,
        )

    def is_in_sync(self, slave: Slave) -> bool:
        return isinstance(slave, SwitchSlave) and slave.broker_id in self.set.confirmed

    @property
    def in_sync_count(self) -> int:
        return max(0, len(self.set.confirmed) - 1)

    @property
    def confirmed(self) -> int:
        """Return the position up to which every broker in sync has the log."""
        return self.set.confirmed_end(self._store.commit_log_max_position)


class SetReplicas(ReplicaWaits):
    """The waits: for every broker of the union set (in_sync.py), not for a number of slaves."""

    def __init__(
        self, config: HaConfig, clock: Clock, members: SwitchSlaves, awaited: Event[[]]
    ) -> None:
        super().__init__(config, clock, members, awaited)
        self._members = members
        # Emitted when more of the log may be confirmed.
        self.advanced: Event[[]] = Event()

    def acked(self) -> None:
        super().acked()
        self.advanced()

    @property
    def wanted(self) -> bool:
        return self._config.broker_role == SYNC_MASTER and not self._members.set.is_alone

    @property
    def needed(self) -> int:
        return len(self._members.set.union) - 1

    @property
    def too_few(self) -> bool:
        return self.may_refuse and self._members.set.too_few

    def _acked_by(self, count: int) -> int:
        # Below 0: SLAVE_NOT_AVAILABLE, which is stored and not known to be safe.
        return -1 if self.too_few else self._members.confirmed
