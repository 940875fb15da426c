"""Nodes: the processes of a run, each on a host of its own: name server, brokers, producers, consumers.

A node lives by start(); it ends by stop(), as by SIGTERM, or by a crash. What a crashed process would
still do it does on a network and a disk that nobody looks at: the host is dead, and the next process has
another folder. The code is the product's, its options are an operator's.
"""

import asyncio
import contextlib
import math
import os
import random
from collections.abc import Awaitable, Callable

from tests.simulation.disk import Disk
from tests.simulation.ledger import Ledger, Queue, Sent
from tests.simulation.machine import START_MS, Machine
from tests.simulation.network import HOST, Host, Network
from tests.simulation.story import DELAYS_S

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import read_broker_conf
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    PushConsumer,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.errors import PocketMQError
from pocketmq.store import MessageStore, StoreError

NAME_SERVER = "10.0.0.1:9876"
ADDRESSES = {
    "name-server": "10.0.0.1",
    "broker-a": "10.0.1.1",
    "broker-b": "10.0.1.2",
    "producer-1": "10.0.2.1",
    "reader-1": "10.0.3.1",
    "reader-2": "10.0.3.2",
    "reader-3": "10.0.3.3",
    "ordered-1": "10.0.4.1",
    "ordered-2": "10.0.4.2",
}
BROKER_PORT = 10_911
SETTINGS: dict[str, object] = {
    "listenPort": BROKER_PORT,
    "fastListenEnable": "false",
    "namesrvAddr": NAME_SERVER,
    "mappedFileSizeCommitLog": 32 << 10,
    "mappedFileSizeConsumeQueue": 200 * 20,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
    "mappedFileSizeTimerLog": 64 << 10,
    "deliveryRecordSize": 64 << 10,
    "diskMaxUsedSpaceRatio": 99,
    "diskSpaceCleanForciblyRatio": 1.0,
    "diskSpaceWarningLevelRatio": 1.0,
    "transactionCheckInterval": 6_000,
    "transactionTimeOut": 3_000,
}
TOPICS = ("plain", "ordered")
QUEUE_COUNT = 3
RESTART_MS = 2_000


class NodeClock:
    """The clock of one machine: its wall clock may be wrong."""

    def __init__(self, machine: Machine) -> None:
        self._loop = machine.loop
        self.wrong_ms = 0

    def now_ms(self) -> int:
        return START_MS + round(self._loop.now_s * 1000) + self.wrong_ms

    def monotonic_ms(self) -> int:
        return round(self._loop.now_s * 1000)


class Node:
    """One process after the other on one machine."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        network: Network,
        tasks: asyncio.TaskGroup,
        ledger: Ledger,
    ) -> None:
        self.name = name
        self.ip = ADDRESSES[name]
        self.clock = NodeClock(machine)
        self.ledger = ledger
        self._machine = machine
        self._network = network
        self._tasks = tasks
        self._generation = 0
        self._ending = asyncio.Event()
        self.host: Host | None = None
        self.ready = False
        # Wanted: should it end by itself, it is started again, as by systemd.
        self.wanted = False

    @property
    def now_s(self) -> float:
        return self._machine.loop.now_s

    def start(self) -> None:
        if self.host is not None and self.host.up:
            return
        self.wanted = True
        self._generation += 1
        self.host = self._network.host(self.ip)
        self._ending = asyncio.Event()
        self._tasks.create_task(self._live(self.host, self._ending), name=self.name)

    def stop(self) -> None:
        """As SIGTERM: it ends in its own time."""
        self.wanted = False
        self._ending.set()

    def crash(self, *, silently: bool) -> None:
        self.wanted = False
        if self.host is not None and self.host.up:
            self.ledger.say(self.now_s, f"{self.name} is gone")
            self.host.die(silently=silently)
            self.ready = False
            # Not at once: this may be called amid one of its own calls.
            self._machine.loop.call_soon(self._ending.set)

    async def _live(self, host: Host, ending: asyncio.Event) -> None:
        HOST.set(host)
        try:
            await self._process(host, ending)
        except (OSError, StoreError, PocketMQError) as error:
            if host.up:
                self.ledger.say(self.now_s, f"{self.name} ended by itself: {error!r}")
                if self.ready:
                    self.ledger.fault(self.now_s, f"{self.name} served and ended by {error!r}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            if host.up:
                self.ledger.fault(self.now_s, f"{self.name} died of {_cause(error)}")
        if host.up:
            host.die(silently=False)
            self.ready = False
            self.ledger.say(self.now_s, f"{self.name} ended")
            if self.wanted:
                self._machine.loop.call_later(RESTART_MS / 1000, self.start_again)

    def start_again(self) -> None:
        if self.wanted:
            self.start()

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        raise NotImplementedError


def _cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)


class NameServerNode(Node):
    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        config = NamesrvConfig(listen_port=9876, bind_address=self.ip)
        async with NameServer(config, self.clock) as server:
            await server.listen()
            self.ready = True
            await ending.wait()


class BrokerNode(Node):
    """disk: of its machine. broker: what runs; store, offsets: of that, for the checks."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        network: Network,
        tasks: asyncio.TaskGroup,
        ledger: Ledger,
        settings: dict[str, object],
    ) -> None:
        super().__init__(name, machine, network, tasks, ledger)
        self.disk: Disk = machine.disk(name)
        self.broker: Broker | None = None
        # When its power was cut; when its processes began and ended to serve.
        self.power_cuts_s: list[float] = []
        self._lives_s: list[tuple[float, float]] = []
        self._settings = {**SETTINGS, **settings, "brokerName": name, "bindAddress": self.ip}

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        values = {name: str(value) for name, value in self._settings.items()}
        config, store_config = read_broker_conf({**values, "storePathRootDir": self.disk.root})
        async with Broker(config, store_config, clock=self.clock) as broker:
            if host.up:
                self.broker = broker
                self.ready = True
                self._lives_s.append((self.now_s, math.inf))
                self.ledger.say(self.now_s, f"{self.name} serves")
            await ending.wait()
        if host.up:
            self.ledger.say(
                self.now_s, f"{self.name} clean={broker.parts.messages.store.closed_cleanly}"
            )

    def delete_old_files(self) -> None:
        """As retention does with all files but the last, which nothing else does: they have real dates."""
        folder = os.path.join(self.disk.root, "commitlog")
        for name in sorted(os.listdir(folder))[:-1]:
            os.utime(os.path.join(folder, name), (0, 0))
        self.store.delete_expired_files()

    @property
    def store(self) -> MessageStore:
        assert self.broker is not None
        return self.broker.parts.messages.store

    @property
    def offsets(self) -> ConsumerOffsetManager:
        assert self.broker is not None
        return self.broker.parts.tables.offsets

    def knows(self, topic: str) -> bool:
        """Whether clients can get a route to the topic."""
        assert self.broker is not None
        return self.broker.parts.tables.topics.get(topic) is not None

    def kill(self) -> None:
        """The process ends between two of its instructions; the machine goes on."""
        if self.host is not None and self.host.up:
            self.disk.after_kill()
            self._gone()
            self.crash(silently=False)

    def cut_power(self) -> None:
        if self.host is not None and self.host.up:
            self.power_cuts_s.append(self.now_s)
            self.disk.after_power_cut()
            self._gone()
            self.crash(silently=True)

    def longest_life_s(self, low_s: float, high_s: float) -> float:
        """How long one process served without a break between two times: nobody else flushes."""
        return max(
            (min(end, high_s) - max(begin, low_s) for begin, end in self._lives_s), default=0
        )

    def _gone(self) -> None:
        if self.broker is not None:
            self._lives_s[-1] = self._lives_s[-1][0], self.now_s
        self.broker = None
        self.disk.on_call = None

    def crash_at_call(self, number: int, *, power: bool, then: Callable[[], None]) -> None:
        """Crash before the disk is asked for the `number`th time from now."""
        left = number

        def on_call(call: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.ledger.say(self.now_s, f"{self.name} crashes before {call}")
                if power:
                    self.cut_power()
                else:
                    self.kill()
                then()

        self.disk.on_call = on_call


class ProducerNode(Node):
    """Sends what the story says and notes what it was told."""

    producer: TransactionProducer
    # Sends that have not ended.
    busy = 0

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        async with (
            TransactionProducer(
                "producers",
                check=self._check,
                name_server=NAME_SERVER,
                client_ip=self.ip,
                clock=self.clock,
            ) as self.producer,
            asyncio.TaskGroup() as self._sends,
        ):
            self.ready = True
            await ending.wait()

    def send(self, kind: str, number: int, count: int) -> None:
        """Of event `number`; runs beside what else is sent."""
        topic = {"ordered": "ordered", "fresh": f"fresh-{number}"}.get(kind, "plain")
        messages = []
        for place in range(count):
            key = f"{kind}-{number}-{place}"
            outcome = "rollback" if kind == "transaction" and place % 3 == 2 else "commit"
            self.ledger.sent[key] = Sent(key, kind, topic, self.now_s, outcome=outcome)
            messages.append(Message(topic, key.encode(), keys=key, tags="a"))
        assert self.host is not None
        context = self._machine.context_of(self.host)
        self.busy += 1
        sending = self._sends.create_task(self._send(kind, number, messages), context=context)
        sending.add_done_callback(self._sent)

    def _sent(self, _: object) -> None:
        self.busy -= 1

    async def _send(self, kind: str, number: int, messages: list[Message]) -> None:
        if kind == "batch":
            await self._noted(self._batch(messages), [m.body.decode() for m in messages])
            return
        for message in messages:
            key = message.body.decode()
            match kind:
                case "delay":
                    sending = self.producer.send(message, delay_level=1 + number % len(DELAYS_S))
                case "transaction":
                    sending = self._in_transaction(message, key)
                case "ordered":
                    sending = self.producer.send(message, sharding_key=f"order-{number % 5}")
                case _:
                    sending = self.producer.send(message)
            await self._noted(sending, [key])

    async def _batch(self, messages: list[Message]) -> SendResult:
        (result,) = await self.producer.send_batch(messages)
        return result

    async def _in_transaction(self, message: Message, key: str) -> SendResult:
        result = await self.producer.send_in_transaction(message, lambda _: self._decision(key))
        return result.send_result

    def _decision(self, key: str) -> TransactionState:
        # A third leaves it to the broker to ask.
        if len(key) % 3 == 0:
            return TransactionState.UNKNOWN
        return self._outcome(key)

    def _outcome(self, key: str) -> TransactionState:
        if self.ledger.sent[key].outcome == "commit":
            return TransactionState.COMMIT
        return TransactionState.ROLLBACK

    def _check(self, message: MessageExt) -> TransactionState:
        return self._outcome(bytes(message.body).decode())

    async def _noted(self, sending: Awaitable[SendResult], keys: list[str]) -> None:
        try:
            result = await sending
        except PocketMQError as error:
            self.ledger.say(self.now_s, f"{keys[0]} failed: {type(error).__name__}")
            return
        self.ledger.say(self.now_s, f"{keys[0]} {result.status.name} {result.message_queue}")
        if result.status is not SendStatus.SEND_OK:
            return
        queue = _queue(result.message_queue)
        for place, key in enumerate(keys):
            sent = self.ledger.sent[key]
            sent.acked_s = self.now_s
            if sent.kind in ("plain", "batch", "ordered", "fresh"):
                sent.place = queue, result.queue_offset + place


class ConsumerNode(Node):
    """A member of a group: `reader-*` concurrently, `ordered-*` in order.

    from_last: a new group begins at the end of the queues.
    """

    consumer: PushConsumer | None = None

    def __init__(
        self,
        name: str,
        machine: Machine,
        network: Network,
        tasks: asyncio.TaskGroup,
        ledger: Ledger,
        *,
        from_last: bool,
    ) -> None:
        super().__init__(name, machine, network, tasks, ledger)
        self._from = ConsumeFromWhere.LAST_OFFSET if from_last else ConsumeFromWhere.FIRST_OFFSET

    @property
    def group(self) -> str:
        return f"{self.name.partition('-')[0]}s"

    @property
    def topic(self) -> str:
        return "ordered" if self.group == "ordereds" else "plain"

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        chance = self._machine.chance(f"{self.name} {self._generation}")

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            return await self._listen(host, messages[0], _queue(context.queue), chance)

        consumer = PushConsumer(
            self.group,
            listener=listen,
            orderly=self.topic == "ordered",
            consume_from_where=self._from,
            concurrency=4,
            drain_timeout_ms=5_000,
            suspend_ms=200,
            name_server=NAME_SERVER,
            client_ip=self.ip,
            clock=self.clock,
        )
        consumer.subscribe(self.topic)
        async with consumer:
            if host.up:
                self.consumer = consumer
                self.ready = True
            await ending.wait()
            if self.consumer is consumer:
                self.consumer = None

    async def _listen(
        self, host: Host, message: MessageExt, queue: Queue, chance: random.Random
    ) -> ConsumeResult:
        ledger, handled = self.ledger, self.ledger.group(self.group)
        key = bytes(message.body).decode()
        offset = message.queue_offset
        if self.topic == "ordered" and host.up:
            self._in_order(queue, offset)
        if key.startswith("delay"):
            self._not_early(key)
        await asyncio.sleep(chance.uniform(0.0, 0.06))
        if not host.up:
            # This process is gone: nobody hears what it says.
            return ConsumeResult.RECONSUME_LATER
        failed = chance.randrange(12) == 0
        ledger.say(
            self.now_s, f"{self.name} {'failed' if failed else 'did'} {key} {queue} {offset}"
        )
        handled.returned.setdefault((queue, offset), set()).add(key)
        if failed:
            handled.failed.add(key)
            if self.topic == "ordered":
                return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
            return ConsumeResult.RECONSUME_LATER
        handled.keys.add(key)
        handled.done.setdefault(queue, set()).add(offset)
        return ConsumeResult.SUCCESS

    def _in_order(self, queue: Queue, offset: int) -> None:
        done = self.ledger.group(self.group).done.get(queue, set())
        missing = next((each for each in range(offset) if each not in done), None)
        if missing is not None:
            self.ledger.fault(
                self.now_s, f"{self.name} got {queue} {offset} before {missing} was processed"
            )

    def _not_early(self, key: str) -> None:
        sent = self.ledger.sent[key]
        due_s = sent.began_s + DELAYS_S[int(key.split("-")[1]) % len(DELAYS_S)]
        if self.now_s < due_s - 0.1 and not any(
            began <= self.now_s and sent.began_s <= ended
            for began, ended in self.ledger.wrong_clocks
        ):
            self.ledger.fault(self.now_s, f"{key} came {due_s - self.now_s:.1f} s early")

    def owned(self) -> list[MessageQueue]:
        """Its queues, those of the retry topic left out."""
        if self.consumer is None:
            return []
        with contextlib.suppress(PocketMQError):
            return [q for q in self.consumer.assignment() if q.topic == self.topic]
        return []


def _queue(queue: MessageQueue) -> Queue:
    return queue.topic, queue.broker_name, queue.queue_id
