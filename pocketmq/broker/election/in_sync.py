"""InSync: which brokers must have a message before its success is reported, under a controller; no I/O.

    confirmed   what the controller said last, with its epoch: it elects from these only
    asked       sets that the controller was asked for and has not answered
    joining     slaves that are about to be asked for

1. A position counts when every broker of the union of all three has reported it. So whichever set the
   controller has, each of its members has every acknowledged message: a master that was cut off from its
   controller, or frozen while another was elected, acknowledges nothing that the other lacks. RocketMQ 5.5.0
   takes a slave out of its own set before the controller agrees, and loses messages so.
2. A set that was asked for without an answer may have been taken: it stays in the union until the controller
   confirms another epoch of the set, since each request names the epoch that it replaces.
3. A slave joins in two steps: from some moment on it has to have what is acknowledged, and once it has
   everything up to that moment, the controller is asked to add it.
4. A member leaves when its connection ends, or when it has not had the log's end for haMaxTimeSlaveNotCatchup
   by its own reports (RocketMQ: by what was sent to it). What it had reported still counts: it has that. One
   that returns with less than it had leaves, too.
5. With fewer than minInSyncReplicas confirmed, sends are refused, and those that wait do not succeed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import ResponseCode

_NOT_TAKEN = (ResponseCode.INVALID_REPLICAS, ResponseCode.BROKER_NOT_ALIVE)
# A slave that lacks less than this may join.
_NEAR = 1 << 20
# How long sends wait for a slave that joins, and how long one that was too slow waits for its next try.
_JOIN_MS, _PAUSE_MS = 1_000, 5_000


@dataclass(slots=True)
class _Reported:
    """What a broker last reported; caught_ms: when it last had the log's end; monotonic. fell_back: it
    reported less than before, as after a power cut, and may lack what was acknowledged.
    """

    end: int
    caught_ms: int
    connected: bool = True
    fell_back: bool = False


@dataclass(frozen=True, slots=True)
class WantedSet:
    """A set to ask the controller for. epoch: that of the set it replaces."""

    members: frozenset[int]
    master_epoch: int
    epoch: int


@dataclass(slots=True)
class InSync:
    """The sets of one master. own_id: its broker id at the controller, -1 before it is known."""

    config: BrokerConfig
    own_id: int = -1
    master_epoch: int = 0
    epoch: int = 0
    confirmed: frozenset[int] = frozenset()
    _asked: list[frozenset[int]] = field(default_factory=list)
    # broker id -> the log's end when it began to join, and when that was.
    _joining: dict[int, tuple[int, int]] = field(default_factory=dict)
    _not_before: dict[int, int] = field(default_factory=dict)
    _reported: dict[int, _Reported] = field(default_factory=dict)
    _confirmed_end: int = 0

    def lead(self, master_epoch: int, members: Iterable[int], epoch: int) -> None:
        """Begin to lead with the controller's set: nothing asked for under an earlier epoch counts."""
        self.master_epoch, self.epoch = master_epoch, epoch
        self.confirmed = frozenset(members) | {self.own_id}
        self._asked.clear()
        self._joining.clear()
        self._not_before.clear()
        self._confirmed_end = 0

    # ------------------------------------------------------------ reports

    def reported(self, broker_id: int, position: int, end: int, now_ms: int) -> None:
        """Note a slave's report; end: where the master's log ends."""
        known = self._reported.get(broker_id)
        if known is None:
            known = self._reported[broker_id] = _Reported(position, now_ms)
        if position < known.end:
            known.fell_back = True
        known.end, known.connected = position, True
        if position >= end:
            known.caught_ms = now_ms
        is_new = broker_id not in self.confirmed and broker_id not in self._joining
        if is_new and end - position < _NEAR and now_ms >= self._not_before.get(broker_id, 0):
            self._joining[broker_id] = end, now_ms

    def left(self, broker_id: int) -> None:
        """Note that a slave's connection ended."""
        known = self._reported.get(broker_id)
        if known is not None:
            known.connected = False
        self._joining.pop(broker_id, None)

    def pass_time(self, end: int, now_ms: int) -> None:
        """Note members that have the log's end now, and give up joining ones that are too slow."""
        for known in self._reported.values():
            if known.connected and known.end >= end:
                known.caught_ms = now_ms
        for broker_id, (_, since_ms) in list(self._joining.items()):
            if not self._is_asked(broker_id) and now_ms - since_ms > _JOIN_MS:
                del self._joining[broker_id]
                self._not_before[broker_id] = now_ms + _PAUSE_MS

    def _is_asked(self, broker_id: int) -> bool:
        return any(broker_id in each for each in self._asked)

    # ------------------------------------------------------------ what counts

    @property
    def union(self) -> frozenset[int]:
        """Return the brokers of invariant 1."""
        return self.confirmed.union(*self._asked, self._joining)

    @property
    def too_few(self) -> bool:
        """Return True if invariant 5 applies."""
        return len(self.confirmed) < self.config.min_in_sync_replicas

    @property
    def is_alone(self) -> bool:
        """Return True if nothing has to be waited for."""
        return len(self.confirmed) == 1 and not self._asked and not self._joining

    def confirmed_end(self, end: int) -> int:
        """Return up to where a log that ends at `end` stays, whichever broker in sync is elected.

        It does not go back when a slave joins that has less: the controller does not have that one in its set
        before it has caught up.
        """
        self._confirmed_end = min(end, max(self._confirmed_end, self.acked(end)))
        return self._confirmed_end

    def acked(self, end: int) -> int:
        """Return the position that counts (invariant 1) in a log that ends at `end`."""
        if self.is_alone:
            return end
        reported = self._reported
        ends = [
            0 if (known := reported.get(each)) is None else known.end
            for each in self.union
            if each != self.own_id
        ]
        return min(end, *ends) if ends else end

    # ------------------------------------------------------------ the controller

    def wanted(self, now_ms: int) -> WantedSet | None:
        """Return the set to ask for now; None if the confirmed one is right."""
        if not self.master_epoch:
            return None
        joined = {
            each
            for each, (fence, _) in self._joining.items()
            if (known := self._reported.get(each)) is not None and known.end >= fence
        }
        members = frozenset(each for each in self.confirmed if self._stays(each, now_ms)) | joined
        if members == self.confirmed and not self._asked:
            return None
        return WantedSet(members, self.master_epoch, self.epoch)

    def _stays(self, broker_id: int, now_ms: int) -> bool:
        if broker_id == self.own_id:
            return True
        known = self._reported.get(broker_id)
        late_ms = self.config.ha_max_time_slave_not_catchup
        if known is None or not known.connected or known.fell_back:
            return False
        return now_ms - known.caught_ms <= late_ms

    def ask(self, wanted: WantedSet) -> None:
        """Note that the controller is being asked for a set, before that is sent."""
        if wanted.members not in self._asked:
            self._asked.append(wanted.members)

    def answered(self, master_epoch: int, members: Iterable[int], epoch: int) -> bool:
        """Take what the controller says of this master's set. Returns: whether anything is news."""
        if master_epoch != self.master_epoch or epoch <= self.epoch:
            return False
        self.epoch, self.confirmed = epoch, frozenset(members) | {self.own_id}
        # Invariant 2: what was asked for named an earlier epoch.
        self._asked.clear()
        for each in self.confirmed:
            self._joining.pop(each, None)
        for each, known in self._reported.items():
            known.fell_back = known.fell_back and each in self.confirmed
        return True

    def refused(self, wanted: WantedSet, code: int, now_ms: int) -> None:
        """Note a refusal. A set stays asked for unless that says that it cannot be the controller's.

        Wrong epochs, or another master, do not: an earlier request for the set may have been taken.
        """
        if code in _NOT_TAKEN and wanted.members in self._asked:
            self._asked.remove(wanted.members)
        if code == ResponseCode.ALTER_SYNC_STATE_SET_FAILED and wanted.members == self.confirmed:
            # The controller still has the confirmed set, under an epoch that nothing has replaced.
            self._asked.clear()
        for each in wanted.members - self.confirmed:
            self._joining.pop(each, None)
            self._not_before[each] = now_ms + _PAUSE_MS
