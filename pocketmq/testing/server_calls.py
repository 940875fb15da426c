"""ServerCalls: a test's requests to a server, as coroutines: create, send, inspect, wait.

Everything goes over the network like any client's requests, so that it works for a broker in the test
process, for one in another process and for an Apache broker alike. Waiting is done by polling.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Self

from pocketmq.admin import Admin, GroupConfig, QueueStatus
from pocketmq.admin.views.group import group_view
from pocketmq.client import Message, MessageExt, MessageQueue, NoRoute, Producer, SendResult
from pocketmq.model.message import Property
from pocketmq.model.names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError
from pocketmq.testing.failures import GROUP, ListenerErrors, delivery, failure

WITHIN_S = 30.0
_PAUSE_MIN_S = 0.01
_PAUSE_MAX_S = 0.2


class ServerCalls:
    """One Admin and, from the first send on, one Producer. admin: see pocketmq.admin."""

    def __init__(self, namesrv: str, clock: Clock) -> None:
        self._namesrv = namesrv
        self._clock = clock
        self._producer: Producer | None = None
        self._began_ms = clock.now_ms()
        self._errors = ListenerErrors()
        self.admin = Admin(name_server=namesrv, clock=clock)

    async def __aenter__(self) -> Self:
        await self.admin.__aenter__()
        self._errors.begin()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._errors.end()
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.shutdown()
        await self.admin.__aexit__(*raised)

    # ------------------------------------------------------------ make

    async def create_topic(self, topic: str, *, queues: int = 4, perm: int = 6) -> str:
        """Create a topic, and return its name once clients can find it."""
        await self.admin.topics.create(topic, queues=queues, perm=perm)
        await _until(lambda: self.admin.topics.exists(topic), WITHIN_S, f"a route of {topic!r}")
        return topic

    async def create_group(self, /, group: str, **settings: object) -> str:
        """Create a consumer group; settings: fields of pocketmq.admin.GroupConfig. Returns: its name."""
        await self.admin.groups.create(GroupConfig(group, **settings))  # type: ignore[arg-type]
        return group

    # ------------------------------------------------------------ send

    async def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendResult:
        """Send one message; text is sent as UTF-8. See pocketmq.client.Producer.send for the rest."""
        producer = await self._started_producer()
        queue = None
        if queue_id is not None:
            queue = await self._queue(producer, topic, queue_id)
        return await producer.send(
            Message(topic, _bytes(body), tags=tags, keys=keys, properties=dict(properties or {})),
            queue=queue,
            sharding_key=sharding_key,
            delay_level=delay_level,
            deliver_at_ms=deliver_at_ms,
        )

    async def send_all(
        self, topic: str, bodies: Iterable[bytes | str], *, tags: str | None = None
    ) -> list[SendResult]:
        """Send messages one after the other, each to the next queue."""
        producer = await self._started_producer()
        return [await producer.send(Message(topic, _bytes(body), tags=tags)) for body in bodies]

    async def _started_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(GROUP, name_server=self._namesrv, clock=self._clock)
            await producer.start()
            self._producer = producer
        return self._producer

    async def _queue(self, producer: Producer, topic: str, queue_id: int) -> MessageQueue:
        queues = await producer.queues(topic)
        for queue in queues:
            if queue.queue_id == queue_id:
                return queue
        raise ValueError(f"topic {topic!r} has no queue {queue_id}; it has {len(queues)}")

    # ------------------------------------------------------------ look

    async def messages(self, topic: str, *, tags: str = "*") -> list[MessageExt]:
        """Return every stored message of a topic, in the order of storing, without consuming them.

        None of a topic that does not exist. Dead letters are in "%DLQ%" + group.
        """
        return await self._stored(topic, 0, tags)

    async def _stored(self, topic: str, begin_ms: int, tags: str = "*") -> list[MessageExt]:
        stored = self.admin.messages.between(topic, begin_ms=begin_ms, expression=tags)
        try:
            found = [each async for each in stored]
        except NoRoute:
            return []
        return sorted(found, key=lambda each: (each.store_timestamp, each.commit_log_offset))

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Return the number of messages that the group has not committed yet; topic None: all its topics."""
        return sum(row.lag for row in await self.admin.groups.progress(group, topic))

    # ------------------------------------------------------------ wait

    async def wait_for_messages(
        self, topic: str, count: int, *, tags: str = "*", within_s: float = WITHIN_S
    ) -> list[MessageExt]:
        """Return the messages of a topic once there are at least `count`. Raises: TimeoutError."""
        found: list[MessageExt] = []

        async def enough() -> bool:
            found[:] = await self.messages(topic, tags=tags)
            return len(found) >= count

        async def why() -> str:
            return f"{count} messages of {topic!r}: {len(found)} came" + await self._no_topic(topic)

        await _until(enough, within_s, why)
        return found

    async def wait_until_consumed(
        self,
        group: str,
        topic: str | None = None,
        *,
        within_s: float = WITHIN_S,
        accept_failures: bool = False,
    ) -> None:
        """Wait until the group has consumed everything stored, by its commits or its members' reports.

        accept_failures: a message that failed, because the listener raised or asked for it later, counts as
        consumed once it is in the group's retry topic, which is among the topics of `topic=None`. Raises:
        TimeoutError saying what is left; ListenerFailed, an AssertionError, for messages that failed since
        this server was started and were not consumed since, from what the listener raised.
        """
        left: dict[MessageQueue, int] = {}

        async def none_left() -> bool:
            left.clear()
            left.update(await self._unconsumed(group, topic))
            return not left

        async def why() -> str:
            rows = ", ".join(f"{queue.topic} {queue.queue_id}: {n}" for queue, n in left.items())
            text = f"{group!r} to consume everything; left by queue: {rows}"
            text += await self._happened(group, {queue.topic for queue in left})
            raised = self._errors.of(group)
            return text if raised is None else f"{text}; its listener raised {raised!r}"

        async def consumed() -> bool:
            if not await none_left() or accept_failures:
                return not left
            failed = await self._failed(group, topic)
            if failed is None:
                left.update(await self._unconsumed(group, retry_topic(group)))
                return not left
            if failed:
                raise failure(group, failed, self._errors.of(group))
            return True

        await _until(consumed, within_s, why)

    async def _failed(self, group: str, topic: str | None) -> list[MessageExt] | None:
        """Return the messages that failed since the start and wait for their delay, or are dead letters.

        None while one is with the group again.
        """
        retry = retry_topic(group)
        if not await self.admin.topics.exists(retry):
            return []
        again = await self._stored(retry, self._began_ms)
        if again and await self._unconsumed(group, retry):
            return None
        delivered = {delivery(each) for each in again}
        found = await self._stored(SCHEDULE_TOPIC, self._began_ms)
        failed = [
            each
            for each in found
            if each.properties.get(Property.REAL_TOPIC) == retry and delivery(each) not in delivered
        ]
        failed += await self._stored(dlq_topic(group), self._began_ms)
        return [
            each for each in failed if topic in (None, each.properties.get(Property.RETRY_TOPIC))
        ]

    async def _no_topic(self, topic: str) -> str:
        return "" if await self.admin.topics.exists(topic) else f"; topic {topic!r} does not exist"

    async def _happened(self, group: str, topics: Iterable[str]) -> str:
        """Describe the group: why nothing may move."""
        view = await group_view(self.admin, group)
        if not view.members:
            return "; no member of the group is online"
        holders = [each for each in view.members if any(q.topic in topics for q in each.queues)]
        asks = sorted(view.stored.keys() - {retry_topic(group)})
        members = f"{len(view.members)} members are online and subscribe {', '.join(asks)}"
        held = "" if holders else ", but none of them has such a queue"
        return f"; {members}{held}"

    async def _unconsumed(self, group: str, topic: str | None) -> dict[MessageQueue, int]:
        """Return what is left by queue. A member's report is newer than its commits (every 5 s)."""
        rows = {row.queue: row for row in await self.admin.groups.progress(group, topic)}
        left = {queue: row.lag for queue, row in rows.items() if row.lag > 0}
        ends = {queue: row.broker_offset for queue, row in rows.items()}
        # What the group has no offset of yet, it has all before it.
        untouched = [topic] if topic is not None else [retry_topic(group)]
        for name in set(untouched) - {queue.topic for queue in rows}:
            for status in await self._status(name):
                if status.count:
                    left[status.queue] = status.count
                    ends[status.queue] = status.max_offset
        if left:
            for queue, offset in (await self._said_by_members(group)).items():
                if queue in left and offset >= ends[queue]:
                    del left[queue]
        return left

    async def _status(self, topic: str) -> list[QueueStatus]:
        try:
            return await self.admin.topics.status(topic)
        except NoRoute:
            return []

    async def _said_by_members(self, group: str) -> dict[MessageQueue, int]:
        """Return how far each member is in its queues, from its memory."""
        found: dict[MessageQueue, int] = {}
        try:
            connection = await self.admin.groups.connection(group)
        except PocketMQError:
            return found
        infos = await self.admin.groups.running_infos(group, connection.members)
        for info in infos.values():
            for queue, row in info.queues.items():
                found[queue] = int(row.get("commitOffset", -1))
        return found


def _bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body


async def _until(
    state: Callable[[], Awaitable[bool]], within_s: float, what: str | Callable[[], Awaitable[str]]
) -> None:
    """Poll until the state is reached. Raises: TimeoutError with `what`."""
    # Real time: the loop's own may be set forward by the test meanwhile.
    end = time.monotonic() + within_s
    pause_s = _PAUSE_MIN_S
    while not await state():
        if time.monotonic() >= end:
            text = what if isinstance(what, str) else await what()
            raise TimeoutError(f"waited {within_s:g} s for {text}")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
