"""Taskiq's broker and result backend.

    broker = PocketBroker("127.0.0.1:9876").with_result_backend(PocketResults("127.0.0.1:9876"))

Labels of a task: `delay` (seconds that it waits in the broker) and `priority` (0 to priorities - 1, the
highest first; only with `priorities`). A task is acknowledged as Taskiq's `ack_type` says, renewed until
then, and comes again soon after its worker died.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, TypeVar

from pocketmq.remoting.lazy_names import without_extra

try:
    from taskiq import (
        AckableMessage,
        AsyncBroker,
        AsyncResultBackend,
        BrokerMessage,
        TaskiqResult,
    )
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError
    from taskiq.serializers import PickleSerializer
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.taskiq", missing, "taskiq") from None

from pocketmq.admin import Admin
from pocketmq.client import ConsumeFromWhere, Message, MessageExt, Producer, SimpleConsumer
from pocketmq.integrations.queue_names import topic_of
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

T = TypeVar("T")

_PRIORITY = "_SYS_MSG_PRIORITY_"
_PAUSE_S = 1.0


class PocketBroker(AsyncBroker):
    """Tasks of one topic; attribute: topic.

    Options: those of pocketmq.client, such as credentials and tls, for all clients.
    """

    def __init__(
        self,
        name_server: str | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        priorities: int = 0,
        queues: int = 1,
        invisible_ms: int = 60_000,
        **options: Any,
    ) -> None:
        """priorities, queues: of the topic, if it is created here. invisible_ms: see SimpleConsumer."""
        super().__init__()
        self.topic = topic_of(topic)
        self._priorities = priorities
        self._queues = queues
        options["name_server"] = name_server
        self.client_options = options
        self._admin = Admin(**options)
        self._producer = Producer(f"{group}_producers", **options)
        self._consumer = SimpleConsumer(
            group,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            invisible_ms=invisible_ms,
            renews=True,
            **options,
        )
        self._consumer.subscribe(self.topic)
        self._clock = SystemClock()

    async def startup(self) -> None:
        """Connect, and create the topic unless it exists. Raises: PocketMQError."""
        async with self._admin as admin:
            if not await admin.topics.exists(self.topic):
                await admin.topics.create(
                    self.topic,
                    queues=max(self._queues, self._priorities),
                    attributes="+message.type=PRIORITY" if self._priorities else None,
                )
        await self._producer.start()
        if self.is_worker_process:
            await self._consumer.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Disconnect; tasks that are not acknowledged come again."""
        await super().shutdown()
        await self._consumer.shutdown()
        await self._producer.shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Store a task. Raises: PocketMQError."""
        delay = float(message.labels.get("delay", 0))
        await self._producer.send(
            Message(
                self.topic,
                message.message,
                tags=topic_of(message.task_name),
                keys=message.task_id,
                properties=self.properties_of(message),
            ),
            deliver_at_ms=self._clock.now_ms() + int(delay * 1000) if delay > 0 else None,
        )

    def properties_of(self, message: BrokerMessage) -> dict[str, str]:
        """Return the properties that a task's message has."""
        if not self._priorities:
            return {}
        asked = int(message.labels.get("priority", 0))
        return {_PRIORITY: str(min(max(0, asked), self._priorities - 1))}

    def _data(self, message: MessageExt) -> bytes:
        """Return a task; one that a schedule sent without an id gets one, however often it is delivered."""
        if "SCHEDULE_TIME" not in message.properties or message.keys:
            return message.body
        try:
            task = self.formatter.loads(message.body)
        except ValueError:
            # Taskiq reports what it cannot read.
            return message.body
        task.task_id = uuid.uuid5(uuid.NAMESPACE_OID, message.msg_id).hex
        return self.formatter.dumps(task).message

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Yield tasks as they come, one at a time: the others stay for other workers."""
        while True:
            try:
                found = await self._consumer.receive(1)
            except PocketMQError as error:
                log.warning("cannot take tasks, will retry topic=%s reason=%r", self.topic, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            for message in found:
                yield AckableMessage(
                    data=self._data(message), ack=partial(self._consumer.ack, message)
                )


class PocketResults(AsyncResultBackend[T]):
    """Results by the task's id, in a topic; brokers delete them after `fileReservedTime` (72 h)."""

    def __init__(
        self, name_server: str | None = None, *, topic: str = "taskiq_results", **options: Any
    ) -> None:
        self._topic = topic_of(topic)
        options["name_server"] = name_server
        self._admin = Admin(**options)
        self._producer = Producer("taskiq_results", **options)
        self._serializer = PickleSerializer()

    async def startup(self) -> None:
        """Connect, and create the topic unless it exists. Raises: PocketMQError."""
        await self._admin.__aenter__()
        if not await self._admin.topics.exists(self._topic):
            await self._admin.topics.create(self._topic, queues=4)
        await self._producer.start()

    async def shutdown(self) -> None:
        """Disconnect."""
        await self._producer.shutdown()
        await self._admin.__aexit__(None, None, None)

    async def set_result(self, task_id: str, result: TaskiqResult[T]) -> None:
        """Store a result. Raises: PocketMQError."""
        await self._set(task_id, "result", result)

    async def is_result_ready(self, task_id: str) -> bool:
        """Return whether there is a result."""
        return await self._newest(task_id, "result") is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[T]:
        """Return the result. Raises: ResultGetError if it is absent."""
        found = await self._newest(task_id, "result")
        if found is None:
            raise ResultGetError
        result: TaskiqResult[T] = self._serializer.loadb(found.body)
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store how far a task is."""
        await self._set(task_id, "progress", progress)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return how far a task is, None if it has not reported."""
        found = await self._newest(task_id, "progress")
        return None if found is None else self._serializer.loadb(found.body)

    async def _set(self, task_id: str, kind: str, value: object) -> None:
        body = self._serializer.dumpb(value)
        # All of one task in one queue: the newest has the greatest offset.
        await self._producer.send(
            Message(self._topic, body, tags=kind, keys=task_id), sharding_key=task_id
        )

    async def _newest(self, task_id: str, kind: str) -> MessageExt | None:
        found = await self._admin.messages.by_key(self._topic, task_id)
        matching = [each for each in found if each.tags == kind]
        return max(matching, key=lambda each: each.queue_offset, default=None)
