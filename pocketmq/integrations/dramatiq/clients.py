"""DramatiqClients: one process's clients of a Dramatiq broker, in the thread of the blocking clients.

A forked child has none of its parent's: `is_inherited` says that it needs its own.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeVar

from pocketmq.admin import Admin
from pocketmq.client import (
    BrokerRefused,
    ConsumeFromWhere,
    Message,
    MessageExt,
    NoRoute,
    Producer,
    SimpleConsumer,
)
from pocketmq.client.errors import TopicNotExist
from pocketmq.client.sync import loop_thread
from pocketmq.integrations.queue_names import topic_of
from pocketmq.model.names import dlq_topic
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

T = TypeVar("T")

_PRIORITY = "_SYS_MSG_PRIORITY_"
# A broker keeps a message no longer than three days; what is due later is sent on.
_HOP_MS = 2 * 24 * 3_600_000
_RECEIVED_MAX = 32
_RECALLED_AT_ONCE = 1_000


class QueueSetting(NamedTuple):
    """How queues are used. options: of all clients."""

    prefix: str
    priorities: int
    queues: int
    invisible_ms: int
    options: dict[str, Any]


class Letter(NamedTuple):
    """What is to be stored of a task. eta_ms: when it is due, ms since 1970; None: now."""

    queue: str
    body: bytes
    key: str
    tag: str
    priority: int
    eta_ms: int | None


class Counts(NamedTuple):
    """Messages of a queue: ready, waiting for their time, dead; settled: all that was sent is counted."""

    ready: int
    waiting: int
    dead: int
    settled: bool


class DramatiqClients:
    """Owner: PocketmqBroker. What is `async` runs in the thread, by `call`."""

    def __init__(self, setting: QueueSetting) -> None:
        """Connect. Raises: PocketMQError."""
        self._setting = setting
        self._clock = SystemClock()
        self._admin = Admin(**setting.options)
        self._producer = Producer("dramatiq_producers", **setting.options)
        self._consumers: dict[str, SimpleConsumer] = {}
        self._known: set[str] = set()
        self._stack = AsyncExitStack()
        self._thread = loop_thread.acquire()
        try:
            self.call(self._open())
        except BaseException:
            loop_thread.release()
            raise

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process that made it."""
        return self._thread.is_inherited

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and wait for it. Raises: ForkedClient, and what it raises."""
        return self._thread.call(coroutine)

    def close(self) -> None:
        """Leave: what is not settled comes again. Nothing in a forked child."""
        if self.is_inherited:
            return
        try:
            self.call(self._stack.aclose())
        finally:
            loop_thread.release()

    async def _open(self) -> None:
        try:
            await self._stack.enter_async_context(self._admin)
            await self._stack.enter_async_context(self._producer)
        except BaseException:
            await self._stack.aclose()
            raise

    # ------------------------------------------------------------ queues

    def _topic(self, queue: str) -> str:
        return topic_of(self._setting.prefix + queue)

    async def ensure(self, queue: str) -> str:
        """Create the queue's topic unless it exists; return its name."""
        topic = self._topic(queue)
        if queue not in self._known:
            if not await self._admin.topics.exists(topic):
                await self._admin.topics.create(
                    topic,
                    queues=max(self._setting.queues, self._setting.priorities),
                    attributes="+message.type=PRIORITY" if self._setting.priorities else None,
                )
            self._known.add(queue)
        return topic

    def forget(self, queue: str) -> None:
        """Look next time whether the queue exists."""
        self._known.discard(queue)

    async def consumer(self, queue: str) -> SimpleConsumer:
        """Return the started consumer of a queue."""
        topic = await self.ensure(queue)
        found = self._consumers.get(queue)
        if found is None:
            found = SimpleConsumer(
                topic,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                invisible_ms=self._setting.invisible_ms,
                renews=True,
                **self._setting.options,
            )
            found.subscribe(topic)
            await self._stack.enter_async_context(found)
            self._consumers[queue] = found
        return found

    async def counts(self, queue: str) -> Counts:
        """Return what a queue holds that no consumer has got yet."""
        topic = await self.ensure(queue)
        # In the order in which messages move: none is overlooked on its way.
        waiting = await self._admin.delays.list(topic, count=1)
        ready = await self._lag(topic)
        try:
            letters = await self._admin.topics.status(dlq_topic(topic))
        except NoRoute:
            letters = []
        return Counts(
            ready,
            sum((each.counts or {}).get(topic, 0) for each in waiting),
            sum(each.max_offset - each.min_offset for each in letters),
            all(each.settled or each.messages is None for each in waiting),
        )

    async def _lag(self, topic: str) -> int:
        stored = await self._admin.topics.status(topic)
        try:
            rows = await self._admin.groups.progress(topic)
        except (BrokerRefused, NoRoute):
            rows = []
        done = {each.queue: each.consumer_offset for each in rows}
        retried = sum(each.lag for each in rows if each.queue.topic != topic)
        return retried + sum(
            max(0, row.max_offset - max(row.min_offset, done.get(row.queue, 0))) for row in stored
        )

    async def flush(self, queue: str) -> None:
        """Drop what is ready and what waits for its time; dead letters stay."""
        topic = await self.ensure(queue)
        while await self._recall_some(topic):
            pass
        consumer = await self.consumer(queue)
        while found := await consumer.receive(_RECEIVED_MAX, wait_ms=0):
            async with asyncio.TaskGroup() as group:
                for message in found:
                    group.create_task(consumer.ack(message))

    async def _recall_some(self, topic: str) -> bool:
        recalled = False
        for broker in await self._admin.delays.list(topic, count=_RECALLED_AT_ONCE):
            for each in broker.messages or ():
                if each.topic != topic:
                    continue
                try:
                    await self._admin.delays.recall(each.broker, topic, each.recall_handle)
                    recalled = True
                except BrokerRefused:
                    # It is due now, and ready.
                    continue
        return recalled

    # ------------------------------------------------------------ messages

    async def send(self, letter: Letter) -> None:
        """Store a task; a topic that was deleted meanwhile is created again."""
        try:
            await self._send(letter)
        except (NoRoute, TopicNotExist):
            self.forget(letter.queue)
            await self._send(letter)

    async def _send(self, letter: Letter) -> None:
        topic = await self.ensure(letter.queue)
        properties = {}
        if self._setting.priorities:
            properties[_PRIORITY] = str(min(max(0, letter.priority), self._setting.priorities - 1))
        await self._producer.send(
            Message(
                topic,
                letter.body,
                tags=topic_of(letter.tag),
                keys=letter.key,
                properties=properties,
            ),
            deliver_at_ms=self._delivery_ms(letter.eta_ms),
        )

    def _delivery_ms(self, eta_ms: int | None) -> int | None:
        if eta_ms is None:
            return None
        now_ms = self._clock.now_ms()
        # Brokers deliver to the second: the consumer waits for the rest.
        at_ms = min(eta_ms // 1000 * 1000, now_ms + _HOP_MS)
        return at_ms if at_ms > now_ms else None

    async def receive(self, queue: str, count: int, wait_ms: int) -> list[MessageExt]:
        """Return some messages of a queue, at most count; [] if none came within wait_ms."""
        consumer = await self.consumer(queue)
        return await consumer.receive(min(count, _RECEIVED_MAX), wait_ms=wait_ms)

    async def ack(self, queue: str, message: MessageExt) -> None:
        """Acknowledge a message."""
        await (await self.consumer(queue)).ack(message)

    async def dead_letter(self, queue: str, message: MessageExt) -> None:
        """Make a dead letter of a message."""
        await (await self.consumer(queue)).dead_letter(message)

    async def put_back(self, queue: str, messages: Iterable[tuple[Letter, MessageExt]]) -> None:
        """Store messages again, as new, so that it counts as no failure; those that cannot be come later."""
        consumer = await self.consumer(queue)

        async def one(letter: Letter, message: MessageExt) -> None:
            try:
                await self.send(letter)
                await consumer.ack(message)
            except PocketMQError as error:
                await consumer.give_up(message)
                log.warning(
                    "a message comes again when it is visible again queue=%s reason=%r",
                    queue,
                    str(error),
                )

        async with asyncio.TaskGroup() as group:
            for letter, message in messages:
                group.create_task(one(letter, message))
