"""Link: one process's clients of one cluster, shared by all connections of kombu in it.

They run in the thread of the blocking clients (client.sync.loop_thread): one connection to a name server
and one to a broker, whatever the number of channels. What stands below `async` runs there, the rest in
any thread.

1. A forked child has no link of its parent's: the first connection in it opens another.
2. A queue that lives as long as a process (auto_delete or exclusive) is a tag of the topic
   TRANSIENT_TOPIC, so that replies and events create no topics; any other queue is a topic, with a
   consumer group of that name.
"""

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeVar

from pocketmq.admin import Admin
from pocketmq.client import (
    ConsumeFromWhere,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    NoRoute,
    Producer,
    PullConsumer,
    PullResult,
    SendResult,
    SimpleConsumer,
    forks,
)
from pocketmq.client.errors import BrokerRefused, ConsumerNotOnline
from pocketmq.client.network.runner import Runner
from pocketmq.client.sync import loop_thread
from pocketmq.integrations.kombu.bindings import ROUND_MS, Bindings
from pocketmq.integrations.kombu.envelope import PRIORITY, PUT_BACK
from pocketmq.integrations.kombu.transient import TRANSIENT_TOPIC, Transients
from pocketmq.integrations.queue_names import topic_of
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP = "kombu"
_PRIORITY_TYPE = "PRIORITY"


class Where(NamedTuple):
    """A cluster, and how it is used. cluster None: all brokers of the name servers."""

    name_server: str
    cluster: str | None = None
    credentials: Credentials | None = None
    tls: Any = False
    prefix: str = ""
    queues: int = 1
    invisible_ms: int = 60_000
    connect_timeout_ms: int = 3_000
    send_timeout_ms: int = 5_000


class QueueKind(NamedTuple):
    """What is known of a queue. priorities: how many its topic has, 0: it has none."""

    topic: str
    is_transient: bool = False
    priorities: int = 0


class Link:
    """Owner: `acquire` and `release` below. Attributes: where, bindings, runner."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.users = 0
        self._thread = loop_thread.acquire()
        self.clock = SystemClock()
        self.runner = Runner(f"kombu {os.getpid()}")
        self._stack = AsyncExitStack()
        self._kinds: dict[str, tuple[int, QueueKind]] = {}
        self._consumers: dict[str, SimpleConsumer] = {}
        options: dict[str, Any] = {
            "name_server": where.name_server,
            "credentials": where.credentials,
            "tls": where.tls,
            "connect_timeout_ms": where.connect_timeout_ms,
        }
        self.admin = Admin(**options)
        self._options = {**options, "instance_name": f"kombu-{os.getpid()}-{uuid.uuid4().hex[:8]}"}
        self._producer = Producer(GROUP, send_timeout_ms=where.send_timeout_ms, **self._options)
        self._puller = PullConsumer(GROUP, **self._options)
        self.transients = Transients(self._puller)
        self.bindings = Bindings(self.admin, self.clock, where.prefix)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process that opened it."""
        return self._thread.is_inherited

    # ------------------------------------------------------------ calls from any thread

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the link's thread and wait for it. Raises: ForkedClient, and what it raises."""
        return self._thread.call(coroutine)

    def do(self, function: Callable[[], T]) -> T:
        """Call a function in the link's thread and wait for it. Raises: ForkedClient."""
        return self._thread.do(function)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the link's thread, later. Raises: ForkedClient."""
        self._thread.post(function)

    def open(self) -> None:
        """Connect. Raises: PocketMQError if no name server or no broker can be reached; then it is closed."""
        try:
            self.call(self._open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave; nothing in a forked child."""
        if self.is_inherited:
            return
        try:
            self.call(self._close())
        finally:
            loop_thread.release()

    # ------------------------------------------------------------ life

    def check(self) -> None:
        """Ask for the brokers. Raises: PocketMQError if no name server or no broker can be reached."""
        self.call(self.admin.site.masters(self.where.cluster))

    async def _open(self) -> None:
        await self._stack.enter_async_context(self.admin)
        await self.admin.site.masters(self.where.cluster)
        await self.runner.start()
        self._stack.push_async_callback(self.runner.stop)
        await self._stack.enter_async_context(self._producer)
        await self._stack.enter_async_context(self._puller)
        self.runner.every(ROUND_MS, self.bindings.round, first_ms=ROUND_MS, name="bindings")

    async def _close(self) -> None:
        try:
            await self.bindings.leave()
        except PocketMQError as error:
            log.warning("bindings of this process stay until they expire reason=%r", str(error))
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            await consumer.shutdown()
        await self._stack.aclose()

    # ------------------------------------------------------------ queues

    async def declare(self, queue: str, *, transient: bool, priorities: int) -> QueueKind:
        """Create the queue unless it exists, and return what it is."""
        if transient:
            await self.create(TRANSIENT_TOPIC, 1, 0)
            await self.transients.begin(queue)
            return self._know(queue, QueueKind(topic_of(self.where.prefix + queue), True))
        known = self._kinds.get(queue)
        if known is not None and not known[1].is_transient:
            return known[1]
        topic = topic_of(self.where.prefix + queue)
        await self.create(topic, max(priorities, self.where.queues), priorities)
        return self._know(queue, await self._look(topic))

    async def create(self, topic: str, queues: int, priorities: int) -> None:
        """Create a topic unless it exists. priorities: 0 for a topic without."""
        if await self.admin.topics.exists(topic):
            return
        await self.admin.topics.create(
            topic,
            queues=queues,
            cluster=self.where.cluster,
            attributes=f"+message.type={_PRIORITY_TYPE}" if priorities else None,
        )

    async def _look(self, topic: str) -> QueueKind:
        """Return what a topic is for. Raises: NoRoute."""
        for config in (await self.admin.topics.configs(topic)).values():
            return QueueKind(topic, False, config.write_queues if config.by_priority else 0)
        raise NoRoute(topic, self.admin.name_servers)

    def _know(self, queue: str, kind: QueueKind) -> QueueKind:
        self._kinds[queue] = self.clock.monotonic_ms(), kind
        return kind

    async def kind(self, queue: str) -> QueueKind:
        """Return what a queue is: a topic if there is one, else the queue of another process."""
        now_ms = self.clock.monotonic_ms()
        read_ms, kind = self._kinds.get(queue, (0, None))
        if kind is not None and (not kind.is_transient or now_ms - read_ms < _GUESS_MS):
            return kind
        topic = topic_of(self.where.prefix + queue)
        try:
            return self._know(queue, await self._look(topic))
        except NoRoute:
            await self.create(TRANSIENT_TOPIC, 1, 0)
            return self._know(queue, QueueKind(topic, True))

    async def exists(self, queue: str) -> bool:
        """Return whether the queue is a topic, or bound by a process that lives."""
        kind = await self.kind(queue)
        if not kind.is_transient:
            return True
        for exchange in await self.bindings.exchanges():
            if any(each.queue == queue for each in await self.bindings.table(exchange)):
                return True
        return False

    async def delete(self, queue: str) -> None:
        """Delete the queue, its messages and its bindings."""
        kind = await self.kind(queue)
        await self.bindings.forget(queue)
        self._kinds.pop(queue, None)
        if kind.is_transient:
            self.transients.forget(queue)
            return
        await self._close_consumer(queue)
        await self.admin.topics.delete(kind.topic, cluster=self.where.cluster)
        await self.admin.groups.delete(kind.topic, with_offsets=True, cluster=self.where.cluster)

    async def delete_unused(self, queue: str) -> bool:
        """Delete the queue unless a process consumes it; return whether it did."""
        kind = await self.kind(queue)
        if not kind.is_transient:
            await self._close_consumer(queue)
            try:
                await self.admin.groups.connection(kind.topic)
                return False
            except ConsumerNotOnline:
                pass
        await self.delete(queue)
        return True

    async def _close_consumer(self, queue: str) -> None:
        consumer = self._consumers.pop(queue, None)
        if consumer is not None:
            await consumer.shutdown()

    def is_transient(self, queue: str) -> bool:
        """Return whether a queue that was declared here lives only as long as this process."""
        _, kind = self._kinds.get(queue, (0, None))
        return kind is not None and kind.is_transient

    async def size(self, queue: str) -> int:
        """Return how many messages no consumer has got yet; 0 for the queue of a process."""
        kind = await self.kind(queue)
        if kind.is_transient:
            return 0
        stored = {each.queue: each for each in await self.admin.topics.status(kind.topic)}
        try:
            done = {
                each.queue: each.consumer_offset
                for each in await self.admin.groups.progress(kind.topic, kind.topic)
            }
        except (BrokerRefused, NoRoute):
            done = {}
        return sum(
            max(0, row.max_offset - max(row.min_offset, done.get(queue, 0)))
            for queue, row in stored.items()
        )

    async def purge(self, queue: str) -> int:
        """Take all messages that are to be had now and drop them. Returns: how many."""
        kind = await self.kind(queue)
        if kind.is_transient:
            self.transients.forget(queue)
            await self.transients.begin(queue)
            return 0
        consumer, count = await self.consumer(queue, kind), 0
        while found := await consumer.receive(32, wait_ms=0):
            async with asyncio.TaskGroup() as group:
                for message in found:
                    group.create_task(consumer.ack(message))
            count += len(found)
        return count

    # ------------------------------------------------------------ messages

    async def send(
        self,
        message: Message,
        deliver_at_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> SendResult:
        """Store a message."""
        return await self._producer.send(
            message, deliver_at_ms=deliver_at_ms, queue=queue, sharding_key=sharding_key
        )

    async def places_since(self, topic: str, since_ms: int) -> dict[MessageQueue, int]:
        """Return the queues of a topic, each with the offset of its first message stored since then."""
        return {
            each: await self._puller.offset_for_timestamp(each, since_ms)
            for each in await self._puller.queues(topic)
        }

    async def pull(
        self, place: MessageQueue, offset: int, expression: str, wait_ms: int
    ) -> PullResult:
        """Pull messages with one of the tags, held by the broker until there are some."""
        return await self._puller.pull(place, offset, expression, wait_ms=wait_ms)

    async def consumer(self, queue: str, kind: QueueKind) -> SimpleConsumer:
        """Return the started consumer of a queue that is a topic."""
        found = self._consumers.get(queue)
        if found is None:
            found = SimpleConsumer(
                kind.topic,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                invisible_ms=self.where.invisible_ms,
                renews=True,
                **self._options,
            )
            found.subscribe(kind.topic)
            self._consumers[queue] = found
            try:
                await found.start()
            except BaseException:
                del self._consumers[queue]
                raise
        return found

    async def put_back(self, message: MessageExt) -> None:
        """Store a received message again, as new: it counts as no failure."""
        kept = {
            name: value for name, value in message.properties.items() if name in _KEPT_PROPERTIES
        }
        kept[PUT_BACK] = "true"
        await self._producer.send(
            Message(
                message.topic, message.body, tags=message.tags, keys=message.keys, properties=kept
            )
        )


_KEPT_PROPERTIES = frozenset({PRIORITY})

# How long a queue without a topic is taken for another process's.
_GUESS_MS = 1_000

_lock = threading.Lock()
_links: dict[Where, Link] = {}


def _begin_process() -> None:
    global _lock
    # Another thread may have held it.
    _lock = threading.Lock()
    _links.clear()


forks.always(_begin_process)


def acquire(where: Where) -> Link:
    """Return this process's link to a cluster; hand it back with `release`.

    Raises: PocketMQError if the cluster does not answer now: kombu waits between its tries then.
    """
    with _lock:
        link = _links.get(where)
        is_known = link is not None
        if link is None:
            link = Link(where)
            link.open()
            _links[where] = link
        link.users += 1
    if is_known:
        try:
            link.check()
        except BaseException:
            release(link)
            raise
    return link


def release(link: Link) -> None:
    """Leave the link; the last connection closes it."""
    if link.is_inherited:
        return
    with _lock:
        link.users -= 1
        if link.users:
            return
        del _links[link.where]
    link.close()
