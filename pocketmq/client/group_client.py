"""GroupClient: shared by producers and consumers: options, a group, start and shutdown.

GroupClient        start, shutdown, `async with`; names with and without the namespace
  ReadingConsumer  reads queues and offsets explicitly: pull and lite pull
  SubscribingConsumer  subscribes topics: simple consumers, and
    SharingConsumer    also shares queues with its group: push and lite pull
"""

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from pocketmq.client import forks
from pocketmq.client.argument_types import check_expression
from pocketmq.client.consume.consumer_member import SharingMember
from pocketmq.client.declared_subscriptions import DeclaredSubscriptions
from pocketmq.client.errors import ForkedClient, NotRunning
from pocketmq.client.network import instances
from pocketmq.client.network.config import own_instance_name
from pocketmq.client.network.heartbeat import MessageModel
from pocketmq.client.network.namespace import check_topic, shown, with_namespace
from pocketmq.client.network.runner import alone
from pocketmq.client.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from pocketmq.client.options import ConsumerOptions, GroupOptions, MemberOptions
from pocketmq.model.message import MessageQueue
from pocketmq.model.subscription import ALL, TAG, build_subscription

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)


class RunningState(Protocol):
    """The state of a client while it runs."""

    @property
    def instance(self) -> "MQClientInstance": ...


Options = TypeVar("Options", bound=GroupOptions)
M = TypeVar("M", bound=RunningState)


class GroupClient(ABC, Generic[Options, M]):
    """Attributes: config (the options), group (as the caller names it)."""

    _noun = "consumer"

    def _set_up(self, options: Options, instance_name: str | None = None) -> None:
        self.config = options
        self.group = options.group
        self._instance_name = instance_name
        self._client_id = options.client_id(instance_name or own_instance_name())
        self._member: M | None = None
        self._inherited: M | None = None
        # The member that has left, or is leaving; and how far a shutdown is that a listener asked for.
        self._left: M | None = None
        self._ending: asyncio.Task[None] | None = None
        self._pid = os.getpid()
        forks.watch(self, GroupClient._after_fork)

    @property
    def client_id(self) -> str:
        """The client's id at the brokers."""
        return self._client_id

    async def start(self) -> None:
        """Join the group; connections are made when first needed.

        Raises: GroupInUse, InstanceConflict; SubscriptionIllegal (SQL92), OffsetFileBroken (BROADCASTING).
        """
        self._check_own()
        if self._member is not None:
            raise NotRunning(f"{self._noun} {self.group!r} is started already")
        instance = await instances.acquire(self._client_id, self.config)
        try:
            member = await self._join(instance)
        except BaseException:
            await instances.release(instance)
            raise
        self._member, self._left, self._ending = member, None, None
        try:
            await self._joined(member)
        except BaseException:
            await self.shutdown()
            raise
        log.info("%s started group=%s client=%s", self._noun, self.group, self._client_id)

    @abstractmethod
    async def _join(self, instance: "MQClientInstance") -> M: ...

    async def _joined(self, member: M) -> None:
        """Finish joining, as a member."""

    async def shutdown(self) -> None:
        """Finish running work, unregister, close what no other client uses. May be called twice.

        Inside a listener it returns at once, since it would wait for that call: the rest follows when the
        listener has returned, and another shutdown() waits for it.
        """
        member, self._member = self._member, None
        if member is None:
            if self._ending is not None and not self._is_inside():
                await asyncio.shield(self._ending)
            return
        self._left = member
        if self._is_inside():
            self._ending = alone(self._finish(member), f"shutdown {self._client_id}")
            return
        await self._finish(member)

    def _is_inside(self) -> bool:
        """Return True if this code runs inside a call of this client's listener."""
        return False

    async def _finish(self, member: M) -> None:
        try:
            await self._leave(member)
        finally:
            # A shutdown that was cut short has left, too.
            await instances.release(member.instance)
        log.info("%s shut down group=%s client=%s", self._noun, self.group, self._client_id)

    @abstractmethod
    async def _leave(self, member: M) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def _running(self) -> M:
        if self._member is None:
            self._check_own()
            raise NotRunning(
                f"{self._noun} {self.group!r} is not started: use `async with {type(self).__name__}(...)`, "
                "or start()"
            )
        return self._member

    def _after_fork(self) -> None:
        """Apply forks.py: this process is a child of the one that made the client."""
        if self._member is not None:
            # Kept: what it holds belongs to a loop that does not run here.
            self._inherited, self._member = self._member, None
        elif self._inherited is None:
            self._pid = os.getpid()
            self._client_id = self.config.client_id(self._instance_name or own_instance_name())

    def _check_own(self) -> None:
        """Raises: ForkedClient."""
        if self._inherited is not None:
            raise ForkedClient(forks.sentence(f"{self._noun} {self.group!r}", self._pid))

    # ------------------------------------------------------------ names

    def _inner_topic(self, topic: str) -> str:
        return with_namespace(self.config.namespace, topic)

    def _inner(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self._inner_topic(queue.topic))

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        return shown(self.config.namespace, queue)


class ReadingConsumer(GroupClient[Options, M]):
    """A consumer that reads queues explicitly."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic. Raises: NoRoute."""
        inner = self._inner_topic(topic)
        route = await self._running().instance.fetch_route(inner)
        return [self._shown(queue) for queue in route.subscribe_queues(inner)]

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's first message that is still stored."""
        instance = self._running().instance
        inner = self._inner(queue)
        return await instance.api.min_offset(await instance.queue_address(inner), inner)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset behind the queue's last message."""
        instance = self._running().instance
        inner = self._inner(queue)
        return await instance.api.max_offset(await instance.queue_address(inner), inner)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after the time, ms since 1970."""
        instance = self._running().instance
        inner = self._inner(queue)
        address = await instance.queue_address(inner)
        return await instance.api.search_offset(address, inner, timestamp_ms)


C = TypeVar("C", bound=ConsumerOptions)
Member = TypeVar("Member", bound=MemberOptions)
S = TypeVar("S", bound=SharingMember[Any])


class SubscribingConsumer(GroupClient[Member, S]):
    """A consumer that subscribes to topics."""

    def _set_up(self, options: Member, instance_name: str | None = None) -> None:
        super()._set_up(options, instance_name)
        self._subscriptions: dict[str, tuple[str, str]] = {}

    def subscribe(self, topic: str, expression: str = ALL, expression_type: str = TAG) -> None:
        """Subscribe to a topic: all messages, those with one of the tags `A || B`, or a SQL92 condition.

        May be called before and after start(); afterwards brokers are notified at once. start() has a broker
        check a SQL92 text. Raises: IllegalTopic, IllegalArgument.
        """
        inner = self._inner_topic(check_topic(topic))
        check_expression(expression, expression_type)
        build_subscription(inner, expression, expression_type)  # raises where it is wrong
        self._subscriptions[inner] = (expression, expression_type)
        if self._member is not None:
            self._member.subscribe_now(inner, expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from the topic; its queues are given up at the next rebalance."""
        inner = self._inner_topic(topic)
        self._subscriptions.pop(inner, None)
        if self._member is not None:
            self._member.unsubscribe(inner)
            self._member.instance.rebalance_now()

    def describe(self) -> DeclaredSubscriptions:
        """Return this consumer's subscriptions for `pocketmq subs plan`; it need not be started."""
        asked = {
            topic: build_subscription(topic, *each) for topic, each in self._subscriptions.items()
        }
        options = self.config
        begins = options.consume_from_where
        return DeclaredSubscriptions(options.inner_group, asked, options.message_model, begins)

    async def _joined(self, member: S) -> None:
        await super()._joined(member)
        member.open()

    async def _start_member(self, member: S) -> S:
        for topic, (expression, expression_type) in self._subscriptions.items():
            member.subscribe(topic, expression, expression_type)
        await member.start()
        return member


class SharingConsumer(SubscribingConsumer[C, S]):
    """A consumer whose queues are assigned by rebalance."""

    def _set_up(self, options: C, instance_name: str | None = None) -> None:
        self.message_model = options.message_model
        # A broadcasting consumer finds its offset file again by its client id, so that stays the same.
        broadcasts = options.message_model is MessageModel.BROADCASTING
        super()._set_up(options, "DEFAULT" if broadcasts else instance_name)

    def assignment(self) -> list[MessageQueue]:
        """Return the assigned queues; for a push consumer including those of the retry topic."""
        return sorted(self._shown(queue) for queue in self._running().owned_queues())

    async def _offset_store(self, instance: "MQClientInstance") -> OffsetStore:
        options = self.config
        offsets: OffsetStore
        if options.message_model is MessageModel.BROADCASTING:
            offsets = LocalFileOffsetStore(
                self._client_id,
                options.inner_group,
                None if options.offset_folder is None else Path(options.offset_folder),
            )
        else:
            offsets = RemoteBrokerOffsetStore(instance, options.inner_group)
        await offsets.load()
        return offsets
