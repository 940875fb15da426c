"""Watch: what must hold of a set of brokers, while it is troubled and afterwards.

1. What was acknowledged is at its place in the end, and no place was acknowledged for two messages.
2. What any broker shows its readers at a place is what is there in the end: no read is taken back, but by a
   power cut of all machines.
3. No two brokers lead in one epoch.
4. In the end the logs are equal, byte for byte.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pocketmq.broker.election.replication import ElectedReplication
from pocketmq.model.record import read_record
from tests.simulation.ledger import Ledger
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Host
from tests.simulation.nodes import BrokerNode

NAME, TOPIC = "set", "kept"
_LOOK_S = 0.1
Place = tuple[int, int]
"""Queue id and offset."""


@dataclass
class Promise:
    """One SEND_OK, the broker's address, and when it came."""

    place: Place
    body: str
    address: str
    at_s: float


class Watch:
    """promises: in order. leaders: the broker that led in an epoch."""

    def __init__(self, brokers: Sequence[BrokerNode], ledger: Ledger, loop: SimulatedLoop) -> None:
        self._brokers = brokers
        self._ledger = ledger
        self._loop = loop
        self.promises: list[Promise] = []
        self.leaders: dict[int, str] = {}
        # What readers were shown, and where; by process, up to where it was looked at.
        self._seen: dict[Place, tuple[str, str]] = {}
        self._looked: dict[tuple[Host, int], int] = {}

    async def run(self) -> None:
        while True:
            for broker in self._brokers:
                self._look(broker)
            await asyncio.sleep(_LOOK_S)

    def all_lost_power(self) -> None:
        """Readers may have had what no disk had yet: it was not promised, and may be in no log any more."""
        self._seen.clear()

    def fault(self, text: str) -> None:
        self._ledger.fault(self._loop.now_s, text)

    def _look(self, broker: BrokerNode) -> None:
        host = broker.host
        if broker.broker is None or host is None or host.is_frozen:
            return
        replication = broker.broker.parts.services.replication
        assert isinstance(replication, ElectedReplication)
        if not replication.follows:
            epoch = replication.in_sync.master_epoch
            leader = self.leaders.setdefault(epoch, broker.name)
            if leader != broker.name:
                self.fault(f"{leader} and {broker.name} lead in epoch {epoch}")
        for place, body in self._news(broker, host):
            before, who = self._seen.setdefault(place, (body, broker.name))
            if before != body:
                self.fault(f"{who} has shown {before} at {place}, and {broker.name} shows {body}")

    def _news(self, broker: BrokerNode, host: Host) -> list[tuple[Place, str]]:
        """What the broker's readers may have that was not looked at yet."""
        found, store = [], broker.store
        with broker.disk.looked_at():
            for _, queue_id in store.queues(TOPIC):
                low, high = self._looked.get((host, queue_id), 0), store.max_offset(TOPIC, queue_id)
                self._looked[host, queue_id] = high
                entries = store.entries(TOPIC, queue_id, low, max(0, high - low))
                for offset, (position, _, _) in enumerate(entries, low):
                    data = store.record_at(position)
                    if data is not None:
                        body = bytes(read_record(data, check_crc=False).body).decode()
                        found.append(((queue_id, offset), body))
        return found

    def check(self) -> None:
        """Once all are well again."""
        for broker in self._brokers:
            self._looked.clear()
            self._look(broker)
        bodies: dict[Place, str] = {}
        for promise in self.promises:
            there = self._seen.get(promise.place, ("nothing", ""))[0]
            if there != promise.body:
                self.fault(
                    f"{promise.body} was acknowledged at {promise.place} by {promise.address}, where "
                    f"{there} is"
                )
            if bodies.setdefault(promise.place, promise.body) != promise.body:
                self.fault(f"{promise.place} was acknowledged for two messages")
        first, *others = map(_log_of, self._brokers)
        for broker, log in zip(self._brokers[1:], others, strict=True):
            if log != first:
                self.fault(f"the logs of {self._brokers[0].name} and {broker.name} differ")


def _log_of(broker: BrokerNode) -> tuple[int, bytes]:
    store = broker.store
    position, end = store.commit_log_min_position, store.commit_log_max_position
    begin, pieces = position, []
    while position < end and (piece := store.raw(position, end - position)) is not None:
        pieces.append(bytes(piece))
        position += len(piece)
    return begin, b"".join(pieces)
