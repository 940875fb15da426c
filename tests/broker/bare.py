"""The parts of a broker around a store, for tests that call them without a connection or a loop."""

from pocketmq.broker.assembly import assemble
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.events import Events
from pocketmq.broker.parts import Node, Parts
from pocketmq.broker.role import Role
from pocketmq.remoting.clock import Clock, ManualClock
from pocketmq.remoting.message_codec import pack_host
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
