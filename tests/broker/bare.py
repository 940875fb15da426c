"""The parts of a broker around a store, for tests that call them without a connection or a loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pocketmq.broker.assembly import assemble
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.events import Events
from pocketmq.broker.node import Node
from pocketmq.broker.role import Role
from pocketmq.broker.services import Parts
from pocketmq.remoting.clock import Clock, ManualClock
from pocketmq.remoting.hosts import pack_host
from pocketmq.remoting.transport.peer import PeerAnswer
from pocketmq.store import MessageStore

ADDRESS = "127.0.0.1:10911"
HOST = pack_host(ADDRESS)


def bare_node(clock: Clock | None = None, config: BrokerConfig | None = None) -> Node:
    """A broker named `b` that leads."""
    role = Role()
    role.leads = True
    return Node(
        config=config or BrokerConfig(broker_name="b"),
        clock=clock or ManualClock(),
        events=Events(),
        role=role,
        address=ADDRESS,
        store_host=HOST,
    )


def bare_parts(
    store: MessageStore, clock: Clock | None = None, config: BrokerConfig | None = None
) -> Parts:
    """Its parts around a store that was opened."""
    return assemble(bare_node(clock, config), store)


@dataclass(eq=False)
class Asker:
    """A peer of no connection at all: it keeps what it is told. Equal only to itself."""

    address: str = "10.0.0.1:4711"
    protocol: str = "remoting"
    closed: bool = False
    told: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    @property
    def host(self) -> bytes:
        return pack_host(self.address)

    @property
    def writable(self) -> bool:
        return not self.closed

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        self.told.append((code, dict(fields)))

    async def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> PeerAnswer:
        self.tell(code, fields, body)
        return PeerAnswer(0, None, None, b"")

    def when_read(self, run: Callable[[], None]) -> None:
        run()

    def abort(self) -> None:
        self.closed = True
