"""Living: which brokers are alive, by their heartbeats and connections; no I/O.

1. A broker is alive from its first heartbeat until none has come for its own time-out, or until it is
   declared dead because its connection closed. RocketMQ declares it dead at once then; here the controller
   first tries whether the broker's port still accepts connections (controller.py).
2. A controller that has just begun to lead knows no broker's silence. A master that it has not heard of may
   be alive: nothing replaces it within one heartbeat's time-out, unless its connection ended here.
3. What a peer says is bounded: its time-out, its epoch (the next one must be an int of Java's), and how many
   brokers are noted. What is beyond is as if it had not been said.
Owner: the controller's event loop.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

from pocketmq.remoting.admin_headers import BrokerHeartbeatHeader

_PRIORITY = 2_147_483_647
_EPOCH_MAX = 2_000_000_000
_TIMEOUT_MS_MAX = 600_000
_BROKERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class LiveReplica:
    """The last heartbeat of a broker; last_ms is monotonic."""

    name: str
    broker_id: int
    address: str
    connection: Hashable
    last_ms: int
    timeout_ms: int
    epoch: int
    max_offset: int
    confirm_offset: int
    priority: int


class Living:
    """Every living broker. began_ms: when the controller began to lead."""

    def __init__(self, now_ms: int, timeout_ms: int) -> None:
        self.began_ms = now_ms
        self._timeout_ms = timeout_ms
        self._live: dict[tuple[str, int], LiveReplica] = {}
        # Those whose connection ended here, and those that fell silent since `began_ms`.
        self._ended: set[tuple[str, int]] = set()
        self._silent: set[tuple[str, int]] = set()

    def begin(self, now_ms: int) -> None:
        """Begin to lead, or again after this process was frozen (invariant 2)."""
        self.began_ms = now_ms
        self._silent.clear()
        self._live = {key: replace(live, last_ms=now_ms) for key, live in self._live.items()}

    def heard(self, header: BrokerHeartbeatHeader, connection: Hashable, now_ms: int) -> None:
        """Note a heartbeat; one without a broker id does not count, nor one beyond the bounds (3)."""
        if header.broker_id is None or (header.epoch or 0) > _EPOCH_MAX:
            return
        priority = header.election_priority
        key = header.broker_name, header.broker_id
        if key not in self._live and len(self._live) >= _BROKERS_MAX:
            return
        self._ended.discard(key)
        self._silent.discard(key)
        self._live[key] = LiveReplica(
            header.broker_name,
            header.broker_id,
            header.broker_addr,
            connection,
            now_ms,
            min(header.heartbeat_timeout_mills or self._timeout_ms, _TIMEOUT_MS_MAX),
            -1 if header.epoch is None else header.epoch,
            header.max_offset or 0,
            header.confirm_offset or 0,
            _PRIORITY if priority is None else priority,
        )

    @property
    def count(self) -> int:
        return len(self._live)

    def of(self, name: str) -> dict[int, LiveReplica]:
        """Return the living brokers of a name by id."""
        return {n: live for (each, n), live in self._live.items() if each == name}

    def get(self, name: str, broker_id: int) -> LiveReplica | None:
        return self._live.get((name, broker_id))

    def may_be_alive(self, name: str, broker_id: int, now_ms: int) -> bool:
        """Return True if a broker lives, or may do so unheard (invariant 2)."""
        is_early = now_ms - self.began_ms < self._timeout_ms
        key = name, broker_id
        return key in self._live or (
            is_early and key not in self._ended and key not in self._silent
        )

    def over(self, connection: Hashable) -> list[LiveReplica]:
        """Return the brokers whose last heartbeat came over that connection."""
        return [live for live in self._live.values() if live.connection is connection]

    def is_newer(self, live: LiveReplica) -> bool:
        """Return True if another heartbeat has come since that one, over another connection."""
        now = self._live.get((live.name, live.broker_id))
        return now is not None and now.connection is not live.connection

    def declare_dead(self, live: LiveReplica) -> None:
        """Note that a broker's connection ended, and that its port accepts none."""
        self._live.pop((live.name, live.broker_id), None)
        _note(self._ended, live)

    def expire(self, now_ms: int) -> list[LiveReplica]:
        """Remove brokers without a heartbeat within their time; return them."""
        late = [each for each in self._live.values() if now_ms - each.last_ms > each.timeout_ms]
        for live in late:
            del self._live[live.name, live.broker_id]
            _note(self._silent, live)
        return late


def _note(keys: set[tuple[str, int]], live: LiveReplica) -> None:
    """Add a broker; one that is not noted may be alive for longer (2)."""
    if len(keys) < _BROKERS_MAX:
        keys.add((live.name, live.broker_id))
