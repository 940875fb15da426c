"""One run: a cluster lives through a story, is then left in peace, and is asked what it has.

Afterwards (checks.py) what was acknowledged is stored, what is stored was processed, members agree, and
the same is true once more when all brokers have lost their power and are back.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pocketmq.admin import Admin
from pocketmq.broker.broker import Broker
from pocketmq.client.errors import NoRoute
from pocketmq.files.layout import ENTRY_SIZE
from pocketmq.remoting.errors import PocketMQError
from tests.simulation import checks
from tests.simulation.clients import ConsumerNode, Member, ProducerNode
from tests.simulation.disk import Fault
from tests.simulation.ledger import Ledger, Queue
from tests.simulation.machine import Machine
from tests.simulation.network import HOST, Network
from tests.simulation.nodes import (
    ADDRESSES,
    NAME_SERVER,
    QUEUE_COUNT,
    BrokerNode,
    NameServerNode,
    Node,
    NodeClock,
)
from tests.simulation.poppers import PopperNode, PoppingMember, ReceiverNode, SortedNode
from tests.simulation.story import TOPIC_OF, Event, Story, group_of

SETTLE_S = 400
_POWER_OFF_S = 1.0
_CLOCK_WRONG_MS = 3_600_000
_POPPING: dict[str, type[PoppingMember]] = {
    "popper": PopperNode,
    "sorted": SortedNode,
    "receiver": ReceiverNode,
}
# Longer than the interval after which ASYNC_FLUSH has flushed whatever there is.
_FLUSH_ALL_S = 12.0


@dataclass
class Outcome:
    """wrong: what may not be; empty is a good run. said: the run, line by line."""

    wrong: list[str]
    said: list[str]
    virtual_s: float


class Cluster:
    """The nodes of one run."""

    def __init__(
        self, story: Story, machine: Machine, network: Network, tasks: asyncio.TaskGroup
    ) -> None:
        self.story = story
        self.ledger = Ledger()
        # The story is told, and settled.
        self.over = False
        self.machine = machine
        # What was read of each broker's store already.
        self.known: dict[Broker, dict[tuple[Queue, int], str]] = {}
        self.network = network
        network.close.add(ADDRESSES["popper-1"])
        parts = machine, network, tasks, self.ledger
        flush = "SYNC_FLUSH" if story.sync_flush else "ASYNC_FLUSH"
        settings = {
            "flushDiskType": flush,
            "mappedFileSizeConsumeQueue": story.queue_entries * ENTRY_SIZE,
        }
        self.name_server = NameServerNode("name-server", *parts)
        self.brokers = {name: BrokerNode(name, *parts, settings) for name in story.brokers}
        for name, broker in self.brokers.items():
            broker.before_kill = partial(checks.remember_places, self, name)
            broker.before_cut = partial(checks.remember, self, name)
        self.producer = ProducerNode("producer-1", *parts)
        self.consumers: dict[str, Member] = {}
        for name in story.consumers:
            if group_of(name) in _POPPING:
                self.consumers[name] = popper = _POPPING[group_of(name)](name, *parts)
                popper.broker_names = story.brokers
                if isinstance(popper, SortedNode):
                    popper.invisible_ms = story.invisible_ms
            else:
                self.consumers[name] = consumer = ConsumerNode(name, *parts)
                consumer.from_last = story.from_last
            self.consumers[name].clock.wrong_ms = story.clocks_off_ms
        for broker in self.brokers.values():
            broker.serves_sdks = "receiver" in story.groups
        self.nodes: dict[str, Node] = {
            node.name: node
            for node in (
                self.name_server,
                *self.brokers.values(),
                self.producer,
                *self.consumers.values(),
            )
        }

    @property
    def now_s(self) -> float:
        return self.machine.loop.now_s

    def queue_count(self, topic: str) -> int:
        return QUEUE_COUNT * len(self.brokers)

    async def until(
        self, state: Callable[[], object], within_s: float, what: str, *, every_s: float = 0.1
    ) -> bool:
        end = self.now_s + within_s
        while not state():
            if self.now_s >= end:
                if what:
                    self.ledger.fault(self.now_s, f"not within {within_s:.0f} s: {what}")
                return False
            await asyncio.sleep(every_s)
        return True

    # ------------------------------------------------------------ the course

    async def begin(self) -> None:
        self.name_server.start()
        for broker in self.brokers.values():
            broker.start()
        await self.until(lambda: all(b.ready for b in self.brokers.values()), 30, "brokers start")
        HOST.set(self.network.host(ADDRESSES["producer-1"]))
        admin = Admin(
            name_server=NAME_SERVER,
            client_ip=ADDRESSES["producer-1"],
            clock=NodeClock(self.machine),
        )
        async with admin:
            while len(await admin.site.brokers()) < len(self.brokers):
                await asyncio.sleep(0.1)
            for group in self.story.groups:
                for name in self.brokers:
                    await admin.topics.create(TOPIC_OF[group], queues=QUEUE_COUNT, broker=name)
                # A member that knew only one broker at first would come to the other one late.
                while len(await _owners(admin, TOPIC_OF[group])) < len(self.brokers):
                    await asyncio.sleep(0.1)
            if "isolated" in self.story.groups:
                await admin.doctor.set_mode("isolated", "isolate")
        self.producer.start()
        for consumer in self.consumers.values():
            consumer.start()
        await self.until(lambda: all(n.ready for n in self.nodes.values()), 30, "clients start")

    async def live(self) -> None:
        """The events, each at its time."""
        begin = self.now_s
        for event in self.story.events:
            await asyncio.sleep(max(0.0, begin + event.at_ms / 1000 - self.now_s))
            self._happen(event)
        await asyncio.sleep(max(0.0, begin + self.story.length_ms / 1000 - self.now_s))

    def _happen(self, event: Event) -> None:
        kind, _, what = event.kind.partition(" ")
        self.ledger.say(self.now_s, str(event))
        if kind == "send":
            if self.producer.ready:
                self.producer.send(what, event.number, event.amount)
            return
        node = self.nodes[event.who]
        later = self.machine.loop.call_later
        seconds = event.amount / 1000
        match event.kind:
            case "kill" | "cut power":
                assert isinstance(node, BrokerNode)
                if event.kind == "kill":
                    node.kill()
                else:
                    node.cut_power()
                later(seconds, self._start, node)
            case "crash at call":
                assert isinstance(node, BrokerNode)
                node.crash_at_call(
                    event.amount,
                    power=event.number % 2 == 0,
                    then=partial(self._start_later, node),
                )
            case "stop" | "stop client":
                node.stop()
                later(seconds, self._start_when_ended, node)
            case "kill client" | "unplug client":
                node.crash(silently=event.kind == "unplug client")
                later(seconds, self._start, node)
            case "partition":
                one, other = node.ip, self.nodes[event.other].ip
                self.network.cut(one, other)
                later(seconds, self.network.heal, one, other)
            case "reset":
                self.network.reset(node.ip, self.nodes[event.other].ip)
            case "forget connections":
                self.network.forget(node.ip, self.nodes[event.other].ip)
            case "slow network":
                self.network.slowness[node.ip] = 100.0
                later(seconds, self.network.slowness.pop, node.ip, None)
            case _:
                assert isinstance(node, BrokerNode)
                self._trouble(event, node)

    def _trouble(self, event: Event, node: BrokerNode) -> None:
        """The disk and the clock of a machine."""
        later = self.machine.loop.call_later
        seconds = event.amount / 1000
        match event.kind:
            case "slow disk":
                node.disk.slow = 60.0
                later(seconds, setattr, node.disk, "slow", 1.0)
            case "delete old files":
                node.delete_old_files()
            case "disk full":
                node.disk.full = True
                later(seconds, setattr, node.disk, "full", False)
            case "sync fails":
                node.disk.fail(Fault(frozenset({"sync"}), errno.EIO, event.other))
            case "file fails":
                number = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE)[event.number % 4]
                calls = frozenset({"open", "reopen", "allocate", "write", "rename", "unlink"})
                node.disk.fail(Fault(calls, number, event.other), event.amount)
            case "clock ahead":
                node.clock.wrong_ms = _CLOCK_WRONG_MS
                self.ledger.wrong_clocks.append((self.now_s, self.now_s + seconds))
                later(seconds, setattr, node.clock, "wrong_ms", 0)
            case _:
                raise ValueError(event.kind)

    def _start(self, node: Node) -> None:
        """After a fault; not any more once the clients were told to stop."""
        if not self.over:
            node.start()

    def _start_later(self, node: Node) -> None:
        self.machine.loop.call_later(2.0, self._start, node)

    def _start_when_ended(self, node: Node) -> None:
        if node.host is not None and node.host.up and not node.wanted:
            self.machine.loop.call_later(0.5, self._start_when_ended, node)
        else:
            self._start(node)

    # ------------------------------------------------------------ peace

    async def settle(self) -> None:
        """Nothing fails any more, everybody runs: wait until all is processed and shared out."""
        self.network.heal()
        self.network.slowness.clear()
        for broker in self.brokers.values():
            broker.disk.repair()
        for node in self.nodes.values():
            if isinstance(node, BrokerNode):
                node.clock.wrong_ms = 0
            self._start_when_ended(node)
        await self.until(
            lambda: all(n.ready for n in self.nodes.values()), 60, "every node is up again"
        )
        for broker in self.brokers.values():
            if broker.broker is not None and not broker.store.writable:
                # After a failed fsync only a restart helps.
                broker.kill()
                broker.start()
        await self.until(lambda: not self.producer.busy, 120, "all sends have ended")
        await self.until(lambda: checks.all_processed(self), SETTLE_S, "", every_s=2.0)
        checks.check(self)
        await self.until(
            lambda: not checks.allocation(self), 150, "members agree on who owns which queue"
        )
        kinds = {event.kind for event in self.story.events}
        if not self.story.sync_flush or "send transaction" in kinds:
            # No client waits until a decision is on the disk; lost, it would be asked for once more.
            await asyncio.sleep(_FLUSH_ALL_S)

    async def once_more(self) -> None:
        """Cut the power of all brokers; what was stored is there again."""
        self.over = True
        self.ledger.at_the_end = set(checks.stored(self))
        for consumer in self.consumers.values():
            consumer.stop()
        self.producer.stop()
        await self.until(
            lambda: not any(n.ready for n in (self.producer, *self.consumers.values())),
            60,
            "clients stop",
        )
        for broker in self.brokers.values():
            broker.cut_power()
            await asyncio.sleep(_POWER_OFF_S)
            broker.start()
        await self.until(
            lambda: all(b.ready for b in self.brokers.values()), 60, "brokers are back"
        )
        checks.check(self)

    async def end(self) -> None:
        for node in self.nodes.values():
            node.stop()


def run(story: Story) -> Outcome:
    """Let the story happen."""
    with silence(), Machine(story.seed) as machine:
        errors: list[str] = []
        machine.loop.set_exception_handler(
            lambda _, context: errors.append(
                f"unhandled: {context.get('message')}: {context.get('exception')!r}"
            )
        )
        ledger, virtual_s = machine.run(lambda: _main(story, machine))
    return Outcome(ledger.wrong + errors, ledger.said, virtual_s)


async def _owners(admin: Admin, topic: str) -> list[tuple[str, str]]:
    """The brokers that the name server knows to have a topic."""
    try:
        return await admin.site.masters_of(topic)
    except NoRoute:
        return []


@contextmanager
def silence() -> Iterator[None]:
    """No log line meanwhile: a story breaks so much that writing them would take most of its time."""
    logger = logging.getLogger("pocketmq")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


async def _main(story: Story, machine: Machine) -> tuple[Ledger, float]:
    network = Network(machine.loop, story.seed)
    async with asyncio.TaskGroup() as tasks:
        cluster = Cluster(story, machine, network, tasks)
        try:
            await cluster.begin()
            await cluster.live()
            await cluster.settle()
            await cluster.once_more()
        except PocketMQError as error:
            cluster.ledger.fault(cluster.now_s, f"the run itself failed: {error!r}")
        await cluster.end()
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if left:
        cluster.ledger.fault(cluster.now_s, f"tasks left behind: {sorted(left)}")
    return cluster.ledger, cluster.now_s
