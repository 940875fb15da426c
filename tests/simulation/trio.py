"""Trio: three brokers of one name under a controller, and everything that may happen to them.

One seed is one run. Brokers are killed, lose their power, freeze and thaw; they are cut from the controller,
from clients, from each other or from all; connections vanish without a word; the controller dies or freezes.
In the end all is well again, and all three have to be in sync.

    python -m tests.simulation.trio 42
    python -m tests.simulation.trio 0-199
"""

import asyncio
import contextlib
import itertools
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from pocketmq.admin import Admin
from pocketmq.broker.election.replication import ElectedReplication
from pocketmq.client import Message, Producer, SendStatus
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting.errors import PocketMQError
from tests.simulation.freezing import Freezer
from tests.simulation.ledger import Ledger
from tests.simulation.machine import Machine
from tests.simulation.network import HOST, Host, Network
from tests.simulation.nodes import (
    ADDRESSES,
    CONTROLLER_PORT,
    HEARTBEAT_MS,
    NAME_SERVER,
    BrokerNode,
    ControllerNode,
    NameServerNode,
    NodeClock,
)
from tests.simulation.run import silence
from tests.simulation.watch import NAME, TOPIC, Promise, Watch

QUEUES, SENDERS = 2, 3
MEMBERS = ("broker-a", "broker-b", "broker-c")
OTHERS = {
    "cut from the controller": ("controller",),
    "cut from clients": ("producer-1",),
    "cut from brokers": MEMBERS,
    "cut from the name server": ("name-server",),
    "cut from all": ("controller", "producer-1", "name-server", *MEMBERS),
}
"""From whom a broker may be cut."""
BROKER_TROUBLES = (
    *OTHERS,
    "kill",
    "freeze",
    "vanish",
    "reset",
    "slow disk",
    "stop",
    "clock",
    "elect",
)
CONTROLLER_TROUBLES = ("kill", "freeze", "without power")
COMMON: dict[str, object] = {
    "brokerName": NAME,
    "enableControllerMode": "true",
    "controllerAddr": f"{ADDRESSES['controller']}:{CONTROLLER_PORT}",
    "controllerHeartBeatTimeoutMills": HEARTBEAT_MS,
    "haHousekeepingInterval": 5_000,
    "haMaxTimeSlaveNotCatchup": 5_000,
    "slaveSyncInterval": 1_000,
    "slaveTimeout": 1_000,
}
_PATIENCE_S = 60


@dataclass(frozen=True, order=True)
class Trouble:
    """who: a broker, "controller", "master" (whichever broker leads then), or "all" brokers."""

    at_ms: int
    kind: str
    who: str
    length_ms: int


@dataclass(frozen=True)
class Plan:
    """length_ms: how long they are troubled."""

    seed: int
    sync_flush: bool
    min_in_sync: int
    troubles: tuple[Trouble, ...] = ()
    length_ms: int = 0
    settings: tuple[tuple[str, object], ...] = ()


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"{seed} trio")
    length_ms = chance.randint(6_000, 20_000)
    sync_flush, min_in_sync = chance.random() < 0.3, chance.choice((1, 2))
    # The one whose power is cut: what is in the memory of all machines alone, no cut of all may spare.
    frail = chance.choice(MEMBERS) if min_in_sync > 1 or sync_flush else ""
    troubles = []
    for _ in range(chance.randint(2, 7)):
        at_ms, length_ms_of = chance.randrange(1_000, length_ms), chance.randint(200, 8_000)
        who = chance.choice(("master", "master", *MEMBERS, "controller"))
        kind = chance.choice(CONTROLLER_TROUBLES if who == "controller" else BROKER_TROUBLES)
        if kind == "kill" and frail and chance.random() < 0.5:
            kind, who = "without power", frail
        elif kind == "reset" and chance.random() < 0.5:
            kind, who = "without power" if sync_flush else "kill", "all"
        troubles.append(Trouble(at_ms, kind, who, length_ms_of))
    return Plan(seed, sync_flush, min_in_sync, tuple(sorted(troubles)), length_ms)


class Trio:
    """Three brokers, their controller, and three senders."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        network: Network,
        tasks: asyncio.TaskGroup,
        course: "Course | None",
    ) -> None:
        """course: what happens; None: what the plan says."""
        self.plan = plan
        self._course, self._tasks = course, tasks
        self.ledger = Ledger()
        self._machine = machine
        self._network = network
        self._chance = machine.chance("senders")
        self.freezer = Freezer(machine.loop)
        parts = machine, network, tasks, self.ledger
        settings = {
            **COMMON,
            "flushDiskType": "SYNC_FLUSH" if plan.sync_flush else "ASYNC_FLUSH",
            "minInSyncReplicas": plan.min_in_sync,
            **dict(plan.settings),
        }
        self.names = NameServerNode("name-server", *parts)
        self.controller = ControllerNode(*parts)
        self.brokers = [BrokerNode(name, *parts, settings) for name in MEMBERS]
        self.watch = Watch(self.brokers, self.ledger, machine.loop)
        self._sending = True
        self._producer: Producer | None = None
        self._may_send = asyncio.Event()
        self._may_send.set()

    @property
    def now_s(self) -> float:
        return self._machine.loop.now_s

    def say(self, text: str) -> None:
        self.ledger.say(self.now_s, text)

    async def until(self, state: Callable[[], bool], what: str) -> None:
        end_s = self.now_s + _PATIENCE_S
        while not state() and not self.ledger.wrong:
            if self.now_s > end_s:
                self.ledger.fault(self.now_s, f"not within {_PATIENCE_S} s: {what}")
                return
            await asyncio.sleep(0.05)

    # ------------------------------------------------------------ the course

    async def live(self) -> None:
        for node in (self.names, self.controller):
            node.start()
            await self.until(lambda node=node: node.ready, f"{node.name} starts")  # type: ignore[misc]
        for number, broker in enumerate(self.brokers, 1):
            broker.start()
            await self.until(partial(self.are_in_sync, number), f"{broker.name} is in sync")
        here = ADDRESSES["producer-1"]
        HOST.set(self._network.host(here))
        clock = NodeClock(self._machine)
        await self.create_topic(TOPIC)
        producer = Producer(
            "senders",
            name_server=NAME_SERVER,
            client_ip=here,
            clock=clock,
            poll_name_server_interval_ms=1_000,
        )
        self._producer = producer
        async with producer, asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self.watch.run())
            for number in range(SENDERS):
                tasks.create_task(self._send(producer, number))
            await (self._go_through() if self._course is None else self._course(self))
            self._all_well()
            await self.until(self._all_level, "all are in sync again")
            count = len(self.watch.promises)
            await self.until(lambda: len(self.watch.promises) > count + 5, "sends succeed again")
            self._sending = False
            looking.cancel()
        await self.until(self._all_level, "all are in sync")
        self.watch.check()

    async def _go_through(self) -> None:
        began_s = self.now_s
        for trouble in self.plan.troubles:
            await asyncio.sleep(max(0.0, began_s + trouble.at_ms / 1000 - self.now_s))
            self.trouble(trouble)
        await asyncio.sleep(max(0.0, began_s + self.plan.length_ms / 1000 - self.now_s))

    def _all_well(self) -> None:
        self.say("all is well")
        self._may_send.set()
        self.freezer.end()
        self._network.heal()
        self._start_all()

    def _start_all(self) -> None:
        for node in (self.controller, *self.brokers):
            node.start()

    async def _send(self, producer: Producer, sender: int) -> None:
        number = 0
        while self._sending:
            await self._may_send.wait()
            body = f"plain-{sender}-{number}"
            number += 1
            try:
                result = await producer.send(Message(TOPIC, body.encode()), timeout_ms=2_000)
            except PocketMQError as error:
                self.say(f"{body} failed: {type(error).__name__}")
                await asyncio.sleep(0.1)
            else:
                address, _ = parse_offset_msg_id(result.offset_msg_id)
                place = result.message_queue.queue_id, result.queue_offset
                self.say(f"{body} {result.status.name} {place} {address}")
                if result.status is SendStatus.SEND_OK:
                    self.watch.promises.append(Promise(place, body, address, self.now_s))
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))

    # ------------------------------------------------------------ trouble

    def may_send(self, may: bool) -> None:
        (self._may_send.set if may else self._may_send.clear)()

    async def has(self, kind: str, who: str, length_ms: int = 0) -> None:
        """Let trouble begin now."""
        self.trouble_now(kind, who, length_ms)
        await asyncio.sleep(0)

    def trouble_now(self, kind: str, who: str, length_ms: int = 0) -> None:
        self.trouble(Trouble(0, kind, who, length_ms))

    async def more(self, count: int) -> None:
        """Wait for more acknowledged sends."""
        enough = len(self.watch.promises) + count
        await self.until(lambda: len(self.watch.promises) >= enough, f"{count} more are sent")

    def leads(self, name: str) -> bool:
        master = self.master()
        return master is not None and master.name == name

    async def send_to(self, topic: str) -> None:
        """One message that is acknowledged."""
        assert self._producer is not None
        result = await self._producer.send(Message(topic, b"x"))
        assert result.status is SendStatus.SEND_OK

    async def send_large(self) -> None:
        """A message of several slices, whatever becomes of it; small enough not to be compressed."""
        assert self._producer is not None
        with contextlib.suppress(PocketMQError):
            await self._producer.send(Message(TOPIC, b"large".ljust(3_900)), timeout_ms=2_000)

    async def create_topic(self, name: str) -> None:
        here = ADDRESSES["producer-1"]
        clock = NodeClock(self._machine)
        async with Admin(name_server=NAME_SERVER, client_ip=here, clock=clock) as admin:
            await admin.topics.create(name, queues=QUEUES, broker=NAME)

    def master(self) -> BrokerNode | None:
        """The one that the controller names, or did when it was last up."""
        leads = [
            each
            for each in self.brokers
            if each.broker is not None and not replication(each).follows
        ]
        return max(leads, key=lambda each: replication(each).last_epoch, default=None)

    def trouble(self, trouble: Trouble) -> None:
        kind, length_s = trouble.kind, trouble.length_ms / 1000
        if trouble.who == "controller":
            self._trouble_controller(kind, length_s)
            return
        if (kind, trouble.who) == ("without power", "all"):
            self.watch.all_lost_power()
        master = self.master()
        for broker in self.brokers:
            names = (broker.name, "all", *(("master",) if broker is master else ()))
            if broker.broker is not None and trouble.who in names:
                self._trouble_broker(broker, kind, length_s)

    def _trouble_broker(self, broker: BrokerNode, kind: str, length_s: float) -> None:
        self.say(f"{broker.name}: {kind} {length_s}")
        later = self._machine.loop.call_later
        match kind:
            case "kill":
                self.end(broker.host, broker.kill)
                later(length_s, self._restart, broker)
            case "without power":
                self.end(broker.host, broker.cut_power)
                later(length_s, self._restart, broker)
            case "stop":
                broker.stop()
                later(length_s + 5.0, self._restart, broker)
            case "freeze":
                self._freeze(broker.host, length_s)
            case "vanish":
                for ip in (each.ip for each in (*self.brokers, self.controller)):
                    self._network.forget(broker.ip, ip)
            case "reset":
                self._network.reset(broker.ip, ADDRESSES["controller"])
            case "slow disk":
                broker.disk.slow = 60.0
                later(length_s, setattr, broker.disk, "slow", 1.0)
            case "clock":
                broker.clock.wrong_ms = round(length_s * 9_000) * (-1 if self.plan.seed % 2 else 1)
            case "elect":
                replication(broker).notified()
                self._elect(broker)
            case _:
                for name in OTHERS[kind]:
                    self._network.cut(broker.ip, ADDRESSES[name])
                    later(length_s, self._network.heal, broker.ip, ADDRESSES[name])

    def _trouble_controller(self, kind: str, length_s: float) -> None:
        node = self.controller
        self.say(f"controller: {kind} {length_s}")
        match kind:
            case "freeze":
                self._freeze(node.host, length_s)
            case "kill" | "without power":
                self.end(node.host, node.kill if kind == "kill" else node.cut_power)
                self._machine.loop.call_later(length_s, self._restart, node)

    def _restart(self, node: BrokerNode | ControllerNode) -> None:
        if self._sending:
            node.start()

    def end(self, host: Host | None, act: Callable[[], None]) -> None:
        if host is not None:
            self.freezer.thaw(host)
        act()

    def _freeze(self, host: Host | None, length_s: float) -> None:
        if host is not None and host.up:
            self.freezer.freeze(host)
            self._machine.loop.call_later(length_s, self.freezer.thaw, host)

    def _elect(self, broker: BrokerNode) -> None:
        """As `pocketmq ha promote`."""
        running, own_id = self.controller.running, replication(broker).in_sync.own_id
        if running is not None and self.controller.host is not None:
            context = self._machine.context_of(self.controller.host)
            electing = _elected(running.elect(NAME, own_id, designated=True))
            context.run(self._tasks.create_task, electing)

    # ------------------------------------------------------------ what must hold

    def are_in_sync(self, count: int) -> bool:
        running = self.controller.running
        row = None if running is None else running.sets.sets.get(NAME)
        return row is not None and row.master is not None and len(row.in_sync) == count

    def _all_level(self) -> bool:
        self._start_all()
        ends = {
            -1 if each.broker is None else each.store.commit_log_max_position
            for each in self.brokers
        }
        return len(ends) == 1 and ends != {-1} and self.are_in_sync(len(MEMBERS))

    async def end_all(self) -> None:
        self.freezer.end()
        for node in (*self.brokers, self.controller, self.names):
            node.stop()


async def _elected(electing: Awaitable[object]) -> None:
    with contextlib.suppress(PocketMQError):
        await electing


def replication(node: BrokerNode) -> ElectedReplication:
    assert node.broker is not None
    found = node.broker.parts.services.replication
    assert isinstance(found, ElectedReplication)
    return found


Course = Callable[[Trio], Awaitable[None]]


@dataclass
class Outcome:
    """promised: how many SEND_OK. epochs: in how many a broker led. longest_s: the longest time between two
    SEND_OK.
    """

    wrong: list[str]
    said: list[str]
    promised: int
    epochs: int
    longest_s: float


def run(plan: Plan, course: Course | None = None) -> Outcome:
    """Let it happen."""

    async def main() -> Trio:
        network = Network(machine.loop, plan.seed)
        async with asyncio.TaskGroup() as tasks:
            trio = Trio(plan, machine, network, tasks, course)
            try:
                await trio.live()
            except PocketMQError as error:
                trio.ledger.fault(trio.now_s, f"the run itself failed: {error!r}")
            finally:
                await trio.end_all()
        return trio

    with silence(), Machine(plan.seed) as machine:
        trio: Trio = machine.run(main)
    watch = trio.watch
    times = [each.at_s for each in watch.promises]
    longest_s = max((b - a for a, b in itertools.pairwise(times)), default=0.0)
    epochs, ledger = len(watch.leaders), trio.ledger
    return Outcome(ledger.wrong, ledger.said, len(watch.promises), epochs, longest_s)


def main() -> int:
    low, _, high = sys.argv[1].partition("-")
    failed = promised = epochs = 0
    for seed in range(int(low), int(high or low) + 1):
        outcome = run(plan_of(seed))
        promised, epochs = promised + outcome.promised, epochs + outcome.epochs
        if outcome.wrong or "--said" in sys.argv:
            failed += bool(outcome.wrong)
            said = outcome.said if "--said" in sys.argv else []
            sys.stdout.write("\n".join([f"{plan_of(seed)}", *said, *outcome.wrong[:8], ""]))
            sys.stdout.flush()
    sys.stdout.write(f"{failed} failed; {promised} acknowledged in {epochs} epochs\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
