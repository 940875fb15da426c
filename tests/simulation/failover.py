"""Failover: a master and its slave of one name, whose master goes, and a slave that is promoted in its place.

One seed is one run. Before it goes, the slave and what is between the two are troubled; then the master is
killed, loses its power, or is cut off from the slave alone, or from everybody, and continues by itself. An
operator promotes the slave, as often as it is refused; only then the old master is ended, and comes
back as the slave, which cuts off what it alone had.

    python -m tests.simulation.failover 42
    python -m tests.simulation.failover 0-199
"""

import asyncio
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pocketmq.admin import Admin
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.refused import Refused
from pocketmq.client import Message, Producer, SendResult, SendStatus
from pocketmq.model.message_codec import parse_offset_msg_id, to_message
from pocketmq.model.names import SCHEDULE_TOPIC, retry_topic
from pocketmq.model.record import read_record
from pocketmq.remoting.errors import PocketMQError
from tests.simulation.clients import ConsumerNode
from tests.simulation.ledger import Ledger
from tests.simulation.machine import Machine
from tests.simulation.network import HOST, Network
from tests.simulation.nodes import ADDRESSES, NAME_SERVER, BrokerNode, NameServerNode, NodeClock
from tests.simulation.run import silence
from tests.simulation.story import topic_of

NAME = "pair"
TOPIC, GROUP = topic_of("plain", 0), "reader"
# Where a message is that a listener gave back.
GIVEN_BACK = (SCHEDULE_TOPIC, retry_topic(GROUP))
QUEUES = 3
SENDERS = 3
ENDS = ("killed", "without power", "cut from the slave", "cut from all")
COMMON = {
    "brokerName": NAME,
    "haHousekeepingInterval": 5_000,
    "slaveSyncInterval": 1_000,
    "slaveDivergence": "cut",
}
ROUTES_MS = 3_000
_PATIENCE_S = 120
_PROCESSED_S = 400
Place = tuple[str, int, int]
"""Topic, queue id and offset."""


@dataclass(frozen=True)
class Plan:
    """troubles: when, in ms, what of whom, and for how many ms. role: of the slave once it is promoted."""

    sync_flush: bool
    role: str
    troubles: tuple[tuple[int, str, int], ...]
    end: str
    ends_ms: int
    noticed_ms: int
    back_ms: int


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"{seed} failover")
    kinds = ("kill slave", "slave without power", "cut", "reset", "slow network", "slow disk")
    ends_ms = chance.randint(3_000, 20_000)
    troubles = [
        (chance.randrange(1_000, ends_ms), chance.choice(kinds), chance.randint(200, 5_000))
        for _ in range(chance.randint(0, 4))
    ]
    return Plan(
        sync_flush=chance.random() < 0.3,
        role=chance.choice(("SYNC_MASTER", "ASYNC_MASTER")),
        troubles=tuple(sorted(troubles)),
        end=chance.choice(ENDS),
        ends_ms=ends_ms,
        noticed_ms=chance.choice((0, 100, 1_000, 5_000)),
        back_ms=chance.randint(500, 10_000),
    )


@dataclass
class Promise:
    """One SEND_OK: of which broker, by its address, and when the message was sent."""

    place: Place
    body: str
    address: str
    began_s: float


@dataclass
class Seen:
    """promises: in order. had: bodies that the old master had at a place when it ended."""

    promises: list[Promise] = field(default_factory=list)
    had: dict[Place, set[str]] = field(default_factory=dict)


class Pair:
    """Two brokers of one name, three senders and a consumer."""

    def __init__(
        self, seed: int, machine: Machine, network: Network, tasks: asyncio.TaskGroup
    ) -> None:
        self.plan = plan_of(seed)
        self.ledger = Ledger()
        self.seen = Seen()
        self._machine = machine
        self._network = network
        self._chance = machine.chance("senders")
        parts = machine, network, tasks, self.ledger
        flush = "SYNC_FLUSH" if self.plan.sync_flush else "ASYNC_FLUSH"
        common = {**COMMON, "flushDiskType": flush}
        self.names = NameServerNode("name-server", *parts)
        self.old = BrokerNode("broker-a", *parts, {**common, "brokerRole": "SYNC_MASTER"})
        self.new = BrokerNode("broker-b", *parts, {**common, "brokerRole": "SLAVE", "brokerId": 1})
        self.consumer = ConsumerNode("reader-1", *parts)
        self.old.before_kill = self.old.before_cut = partial(self._remember, self.old)
        self._sending, self._ended = True, False
        self._promoted_s = float("inf")

    @property
    def now_s(self) -> float:
        return self._machine.loop.now_s

    def say(self, text: str) -> None:
        self.ledger.say(self.now_s, text)

    async def until(self, state: Callable[[], bool], what: str) -> None:
        end_s = self.now_s + _PATIENCE_S
        while not state():
            if self.now_s > end_s:
                self.ledger.fault(self.now_s, f"not within {_PATIENCE_S} s: {what}")
                return
            await asyncio.sleep(0.05)

    async def _all_processed(self) -> None:
        end_s = self.now_s + _PROCESSED_S
        while self._unprocessed() and self.now_s < end_s:
            await asyncio.sleep(5.0)

    # ------------------------------------------------------------ the course

    async def live(self) -> None:
        for node in (self.names, self.old, self.new):
            node.start()
            await self.until(partial(_is_ready, node), f"{node.name} starts")
        HOST.set(self._network.host(ADDRESSES["producer-1"]))
        clock = NodeClock(self._machine)
        here = ADDRESSES["producer-1"]
        async with Admin(name_server=NAME_SERVER, client_ip=here, clock=clock) as admin:
            await self.until(partial(self._in_step, self.old, self.new), "the slave follows")
            await admin.topics.create(TOPIC, queues=QUEUES, broker=NAME)
        self.consumer.start()
        producer = Producer(
            "senders",
            name_server=NAME_SERVER,
            client_ip=here,
            clock=clock,
            poll_name_server_interval_ms=ROUTES_MS,
        )
        async with producer, asyncio.TaskGroup() as senders:
            for number in range(SENDERS):
                senders.create_task(self._send(producer, number))
            await self._go_through()
            self._sending = False
        await self.until(partial(self._in_step, self.new, self.old), "the old master follows")
        await self._all_processed()
        await self.until(partial(self._in_step, self.new, self.old), "the slave has all")
        self._check()
        for node in (self.new, self.old):
            node.kill()
            node.start()
        await self.until(partial(self._in_step, self.new, self.old), "the pair is back")
        self._check()

    async def _go_through(self) -> None:
        """The master goes, the slave is promoted, the old master comes back as its slave."""
        plan, began_s = self.plan, self.now_s
        for at_ms, kind, length_ms in plan.troubles:
            await asyncio.sleep(max(0.0, began_s + at_ms / 1000 - self.now_s))
            self.say(f"{kind} {length_ms}")
            self._trouble(kind, length_ms / 1000)
        await asyncio.sleep(max(0.0, began_s + plan.ends_ms / 1000 - self.now_s))
        if any(kind == "slave without power" for _, kind, _ in plan.troubles):
            # What both machines lose, no answer has promised: the slave must have it again.
            await self.until(partial(self._in_step, self.old, self.new), "the slave is back")
        # The operator of the pair starts a slave that is down before it is promoted.
        await self.until(partial(_is_ready, self.new), "the slave is up")
        self.say(f"the master is {plan.end}")
        self._end_old()
        await asyncio.sleep(plan.noticed_ms / 1000)
        await self._promote()
        await asyncio.sleep(plan.back_ms / 1000)
        self.old.kill()
        self._network.heal()
        self.old.settings.update(brokerRole="SLAVE", brokerId=1)
        self.new.settings.update(brokerRole=plan.role, brokerId=0)
        self.old.start()
        # Longer than producers go by an old route.
        await asyncio.sleep(ROUTES_MS / 1000 + 2.0)

    def _trouble(self, kind: str, length_s: float) -> None:
        later = self._machine.loop.call_later
        one, other = self.old.ip, self.new.ip
        match kind:
            case "kill slave":
                self.new.kill()
                later(length_s, self.new.start)
            case "slave without power":
                self.new.cut_power()
                later(length_s, self.new.start)
            case "cut":
                self._network.cut(one, other)
                later(length_s, self._heal)
            case "reset":
                self._network.reset(one, other)
            case "slow network":
                self._network.slowness[other] = 100.0
                later(length_s, self._network.slowness.pop, other, None)
            case "slow disk":
                self.new.disk.slow = 60.0
                later(length_s, setattr, self.new.disk, "slow", 1.0)

    def _heal(self) -> None:
        if not self._ended:
            self._network.heal(self.old.ip, self.new.ip)

    def _end_old(self) -> None:
        self._ended = True
        others = ["name-server", "producer-1", "reader-1"]
        match self.plan.end:
            case "killed":
                self.old.kill()
            case "without power":
                self.old.cut_power()
            case "cut from the slave":
                self._network.cut(self.old.ip, self.new.ip)
            case _:
                for ip in (self.new.ip, *(ADDRESSES[name] for name in others)):
                    self._network.cut(self.old.ip, ip)

    async def _promote(self) -> None:
        end_s = self.now_s + _PATIENCE_S
        before = HOST.get()
        while self.now_s < end_s:
            if self.new.broker is None:
                await asyncio.sleep(0.1)
                continue
            assert self.new.host is not None
            HOST.set(self.new.host)
            try:
                await _replication(self.new).promote(self.plan.role)
            except Refused as refused:
                self.say(f"refused: {refused}")
            else:
                self._promoted_s = self.now_s
                self.say("promoted")
                break
            finally:
                HOST.set(before)
            await asyncio.sleep(0.5)
        else:
            self.ledger.fault(self.now_s, "the slave was never promoted")
        self._offsets_within("after the promotion")

    async def _send(self, producer: Producer, sender: int) -> None:
        number = 0
        while self._sending:
            body, began_s = f"plain-{sender}-{number}", self.now_s
            number += 1
            try:
                result = await producer.send(Message(TOPIC, body.encode(), tags="ab"[number % 2]))
            except PocketMQError as error:
                self.say(f"{body} failed: {type(error).__name__}")
            else:
                self._note(body, began_s, result)
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))

    def _note(self, body: str, began_s: float, result: SendResult) -> None:
        address, _ = parse_offset_msg_id(result.offset_msg_id)
        place = TOPIC, result.message_queue.queue_id, result.queue_offset
        self.say(f"{body} {result.status.name} {place} {address}")
        if result.status is SendStatus.SEND_OK:
            self.seen.promises.append(Promise(place, body, address.partition(":")[0], began_s))

    # ------------------------------------------------------------ what must hold

    def _remember(self, node: BrokerNode) -> None:
        """What its consumers may have had from it, whether the other one has it or not."""
        if node.broker is not None:
            for place, body in _stored(node).items():
                self.seen.had.setdefault(place, set()).add(body)

    def _in_step(self, master: BrokerNode, slave: BrokerNode) -> bool:
        if master.broker is None or slave.broker is None:
            return False
        leads, follows = _replication(master), _replication(slave)
        ends = {each.status()["masterCommitLogMaxOffset"] for each in (leads, follows)}
        follower = follows.follower
        return follower is not None and follower.state.connected and len(ends) == 1

    def _unprocessed(self) -> list[str]:
        """What the group was not given, and could have been.

        It may be past a place where it had another message of the old master, which no producer was promised.
        A copy of what it gave back may be lost with the old master, too: without a slave in sync it was not
        promised either.
        """
        there, done = _stored(self.new), self.ledger.group(GROUP).keys
        parted = {
            body
            for place, bodies in self.seen.had.items()
            if bodies != {there.get(place)}
            for body in (there.get(place), *(bodies if place[0] in GIVEN_BACK else ()))
        }
        return [
            f"{body} at {place} was never processed"
            for place, body in there.items()
            if body not in done and body not in parted
        ]

    def _offsets_within(self, when: str) -> None:
        for queue_id, offset in self.new.offsets.of_topic(GROUP, TOPIC).items():
            end = self.new.store.max_offset(TOPIC, queue_id)
            if offset > end:
                self.ledger.fault(
                    self.now_s, f"{when}: offset {offset} of queue {queue_id} ends at {end}"
                )

    def _check(self) -> None:
        wrong = self._unprocessed()
        there, copied = _stored(self.new), _stored(self.old)
        if there != copied:
            wrong.append(
                f"the slave has {len(copied)} other messages than the master's {len(there)}"
            )
        bodies: dict[Place, str] = {}
        for promise in self.seen.promises:
            if there.get(promise.place) != promise.body:
                wrong.append(
                    f"{promise.body} was acknowledged at {promise.place}, where "
                    f"{there.get(promise.place)} is"
                )
            if bodies.setdefault(promise.place, promise.body) != promise.body:
                wrong.append(f"{promise.place} was acknowledged for two messages")
            if promise.address == self.old.ip and promise.began_s > self._promoted_s:
                wrong.append(f"{promise.body} was acknowledged by the old master")
        for text in wrong:
            self.ledger.fault(self.now_s, text)
        self._offsets_within("at the end")

    async def end_all(self) -> None:
        for node in (self.consumer, self.old, self.new, self.names):
            node.stop()


def _is_ready(node: BrokerNode | NameServerNode) -> bool:
    return node.ready


def _replication(node: BrokerNode) -> Replication:
    assert node.broker is not None
    return node.broker.parts.services.replication


def _stored(node: BrokerNode) -> dict[Place, str]:
    """The body at each place of the topic, and of those where its messages wait to come again."""
    found: dict[Place, str] = {}
    with node.disk.looked_at():
        store = node.store
        for topic, queue_id in store.queues():
            if topic not in (TOPIC, *GIVEN_BACK):
                continue
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            entries = store.entries(topic, queue_id, low, high - low)
            for offset, (position, _, _) in enumerate(entries, low):
                data = store.record_at(position)
                if data is not None:
                    message = to_message(read_record(data), NAME)
                    found[topic, queue_id, offset] = bytes(message.body).decode()
    return found


@dataclass
class Outcome:
    """promised: how many SEND_OK; by_new: how many of them by the slave that was promoted."""

    wrong: list[str]
    said: list[str]
    promised: int
    by_new: int


def run(seed: int) -> Outcome:
    """Let it happen."""

    async def main() -> Pair:
        network = Network(machine.loop, seed)
        async with asyncio.TaskGroup() as tasks:
            pair = Pair(seed, machine, network, tasks)
            try:
                await pair.live()
            except PocketMQError as error:
                pair.ledger.fault(pair.now_s, f"the run itself failed: {error!r}")
            await pair.end_all()
        return pair

    with silence(), Machine(seed) as machine:
        pair: Pair = machine.run(main)
    promises = pair.seen.promises
    by_new = sum(promise.address == pair.new.ip for promise in promises)
    return Outcome(pair.ledger.wrong, pair.ledger.said, len(promises), by_new)


def main() -> int:
    low, _, high = sys.argv[1].partition("-")
    failed = promised = by_new = 0
    for seed in range(int(low), int(high or low) + 1):
        outcome = run(seed)
        promised, by_new = promised + outcome.promised, by_new + outcome.by_new
        if outcome.wrong or "--said" in sys.argv:
            failed += bool(outcome.wrong)
            said = outcome.said if "--said" in sys.argv else []
            sys.stdout.write("\n".join([f"{seed}: {plan_of(seed)}", *said, *outcome.wrong[:8], ""]))
            sys.stdout.flush()
    sys.stdout.write(f"{failed} failed; {promised} acknowledged, {by_new} by the promoted slave\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
