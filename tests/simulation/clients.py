"""The clients of a run: a producer, and members of groups that push; poppers.py has those that pop.

They note in the ledger what they are told; the code is the product's.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable

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
from pocketmq.remoting.errors import PocketMQError
from tests.simulation.ledger import Queue, Sent
from tests.simulation.network import Host
from tests.simulation.nodes import NAME_SERVER, Node
from tests.simulation.story import DELAYS_S, TAGS, TOPIC_OF, WAVES, group_of, tag_of, topic_of


def batched(messages: list[Message], size: int) -> list[list[Message]]:
    """Parts of this size, one after the other."""
    return [messages[at : at + size] for at in range(0, len(messages), size)]


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
        topic = topic_of(kind, number)
        messages = []
        for place in range(count):
            # As long as the others, so that they are alike.
            key = f"{kind}-{number}-{place:0{3 if kind in WAVES else 1}}"
            outcome = "rollback" if kind == "transaction" and place % 3 == 2 else "commit"
            self.ledger.sent[key] = Sent(key, kind, topic, self.now_s, outcome=outcome)
            # Batches are alike if nothing but the unique keys of their messages differs.
            message = Message(topic, key.encode())
            if kind != "batches":
                message = Message(topic, key.encode(), keys=key, tags=tag_of(key))
            messages.append(message)
        assert self.host is not None
        context = self._machine.context_of(self.host)
        self.busy += 1
        sending = self._sends.create_task(self._send(kind, number, messages), context=context)
        sending.add_done_callback(self._sent)

    def _sent(self, _: object) -> None:
        self.busy -= 1

    async def _send(self, kind: str, number: int, messages: list[Message]) -> None:
        if kind == "batch":
            await self._noted_batch(messages)
            return
        if kind in WAVES:
            for wave in batched(messages, WAVES[kind].size):
                await self._wave(kind, wave)
            return
        for message in messages:
            key = message.body.decode()
            match kind:
                case "delay":
                    sending = self.producer.send(message, delay_level=1 + number % len(DELAYS_S))
                case "timer":
                    due_ms = self.clock.now_ms() + 1000 * DELAYS_S[number % len(DELAYS_S)]
                    sending = self.producer.send(message, deliver_at_ms=due_ms)
                case "transaction":
                    sending = self._in_transaction(message, key)
                case "ordered":
                    sending = self.producer.send(message, sharding_key=f"order-{number % 5}")
                case _:
                    sending = self.producer.send(message)
            await self._noted(sending, [key])

    async def _wave(self, kind: str, messages: list[Message]) -> None:
        """Send these at once; the broker stores together what is alike and comes in one read."""
        each = WAVES[kind].each
        async with asyncio.TaskGroup() as sends:
            for part in batched(messages, each):
                if each == 1:
                    sending = self.producer.send(part[0])
                    sends.create_task(self._noted(sending, [part[0].body.decode()]))
                else:
                    sends.create_task(self._noted_batch(part))

    async def _noted_batch(self, messages: list[Message]) -> None:
        await self._noted(self._batch(messages), [m.body.decode() for m in messages])

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
            if sent.kind not in ("delay", "timer", "transaction"):
                sent.place = queue, result.queue_offset + place


class Member(Node):
    """Of a group."""

    @property
    def group(self) -> str:
        return group_of(self.name)

    @property
    def topic(self) -> str:
        return TOPIC_OF[self.group]

    def owned(self) -> list[MessageQueue] | None:
        """Its queues; None where queues have no owners."""
        return None

    def _not_early(self, key: str) -> None:
        sent = self.ledger.sent[key]
        due_s = sent.began_s + DELAYS_S[int(key.split("-")[1]) % len(DELAYS_S)]
        if self.now_s < due_s - 0.1 and not any(
            began <= self.now_s and sent.began_s <= ended
            for began, ended in self.ledger.wrong_clocks
        ):
            self.ledger.fault(self.now_s, f"{key} came {due_s - self.now_s:.1f} s early")


class ConsumerNode(Member):
    """A member that pushes: `ordered-*` in order, the others concurrently.

    from_last: a new group begins at the end of the queues.
    """

    consumer: PushConsumer | None = None
    from_last = False

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        chance = self._machine.chance(f"{self.name} {self._generation}")

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            return await self._listen(host, messages[0], _queue(context.queue), chance)

        from_where = (
            ConsumeFromWhere.LAST_OFFSET if self.from_last else ConsumeFromWhere.FIRST_OFFSET
        )
        consumer = PushConsumer(
            self.group,
            listener=listen,
            orderly=self.topic == "ordered",
            consume_from_where=from_where,
            concurrency=4,
            drain_timeout_ms=5_000,
            suspend_ms=200,
            name_server=NAME_SERVER,
            client_ip=self.ip,
            clock=self.clock,
        )
        consumer.subscribe(self.topic, TAGS.get(self.name, "*"))
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
        if tag_of(key) not in TAGS.get(self.name, "ab"):
            ledger.fault(self.now_s, f"{self.name} got {key}, which it did not ask for")
        if key.startswith(("delay", "timer")):
            self._not_early(key)
        await asyncio.sleep(chance.uniform(0.0, 0.06))
        if not host.up:
            # This process has died: no peer hears what it sends.
            return ConsumeResult.RECONSUME_LATER
        # The fifth attempt would come later than anybody waits for it.
        failed = chance.randrange(12) == 0 and message.reconsume_times < 4
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
            self.ledger.overtaken.append((queue, offset, missing))

    def owned(self) -> list[MessageQueue]:
        """Those of the retry topic are left out."""
        if self.consumer is None:
            return []
        with contextlib.suppress(PocketMQError):
            return [q for q in self.consumer.assignment() if q.topic == self.topic]
        return []


def _queue(queue: MessageQueue) -> Queue:
    return queue.topic, queue.broker_name, queue.queue_id
