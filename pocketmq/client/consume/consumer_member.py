"""ConsumerMember: shared by push and lite pull consumers: a group, its queues, its offsets.

It is the consumer as the instance and the rebalance see it; the two kinds add the handling of pulled
messages. Source: DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl, RocketMQ 4.9.8.
"""

import logging
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from pocketmq.client.consume.consumer_stats import SAMPLE_INTERVAL_MS, ConsumerStats
from pocketmq.client.consume.rebalance import Rebalance
from pocketmq.client.consume.stacks import process_stacks
from pocketmq.client.errors import CallerError
from pocketmq.client.network.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType
from pocketmq.client.network.namespace import shown, without_namespace
from pocketmq.client.network.runner import Runner
from pocketmq.client.offset_store import OffsetStore, ReadFrom
from pocketmq.client.options import MemberOptions
from pocketmq.client.pull.decode import Habit
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.client.pull.pull_service import PullRequest
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.names import is_retry_topic
from pocketmq.model.queue_json import queue_key
from pocketmq.model.subscription import SubscriptionData, build_subscription
from pocketmq.remoting.codes import OUR_VERSION, version_name
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)

# A timestamp start without a time begins this long before the consumer.
DEFAULT_CONSUME_TIMESTAMP_MS = 30 * 60_000


Options = TypeVar("Options", bound=MemberOptions)


class NoListener(CallerError):
    """The consumer was asked to consume a message directly but has no listener."""


class ConsumerMember(Generic[Options]):
    """Base of all kinds; see RebalanceEnvironment and InnerConsumer for the contracts."""

    def __init__(
        self, options: Options, instance: "MQClientInstance", offsets: OffsetStore
    ) -> None:
        self.options = options
        self.group = options.inner_group
        self.instance = instance
        self.offsets = offsets
        self.clock = instance.clock
        self.stats = ConsumerStats()
        self.habit = Habit()
        self.paused = False
        self._versions: dict[str, int] = {}
        self.started_ms = instance.clock.now_ms()
        self.rebalance = Rebalance(
            self.group,
            instance.client_id,
            options.message_model,
            options.strategy,
            self,
            instance.clock,
            orderly=options.orderly,
            pushes=options.consume_type is ConsumeType.PUSH,
        )

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, topic: str, expression: str, expression_type: str) -> SubscriptionData:
        """Add or replace a subscription; its version is the current time. Raises: IllegalArgument."""
        subscription = build_subscription(
            topic, expression, expression_type, self._next_version(topic)
        )
        self.rebalance.subscriptions[topic] = subscription
        return subscription

    def _next_version(self, topic: str) -> int:
        """Return the time, or more: brokers keep the subscription with the highest version of all."""
        version = max(self.clock.now_ms(), self._versions.get(topic, 0) + 1)
        self._versions[topic] = version
        return version

    def unsubscribe(self, topic: str) -> None:
        self.rebalance.subscriptions.pop(topic, None)
        self.rebalance.topic_queues.pop(topic, None)

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            self.options.consume_type,
            self.options.message_model,
            self.options.consume_from_where,
            list(self.rebalance.subscriptions.values()),
        )

    def subscribed_topics(self) -> Iterable[str]:
        return list(self.rebalance.subscriptions)

    def update_subscribe_info(self, topic: str, queues: list[MessageQueue]) -> None:
        if topic not in self.rebalance.subscriptions:
            return
        old = self.rebalance.topic_queues.get(topic)
        self.rebalance.topic_queues[topic] = queues
        if old is not None and old != queues:
            self.instance.rebalance_now()

    # ------------------------------------------------------------ rebalance

    async def do_rebalance(self) -> None:
        """Run a round, unless paused (S7)."""
        if not self.paused:
            await self.rebalance.do_rebalance()

    async def find_consumer_ids(self, topic: str, group: str) -> list[str] | None:
        return await self.instance.find_consumer_ids(topic, group)

    async def start_offset(self, queue: MessageQueue) -> int | None:
        """computePullFromWhere: return the stored offset, else that by consume_from_where (wire.md 4.4)."""
        stored = await self.offsets.read(queue, ReadFrom.STORE)
        if stored is not None:
            return stored
        where = self.options.consume_from_where
        retry = is_retry_topic(queue.topic)
        if where is ConsumeFromWhere.FIRST_OFFSET:
            return 0
        if where is ConsumeFromWhere.LAST_OFFSET and retry:
            return 0
        address = await self.instance.queue_address(queue)
        if where is ConsumeFromWhere.LAST_OFFSET or retry:
            return await self.instance.api.max_offset(address, queue)
        since = self.options.consume_timestamp_ms
        if since is None:
            since = self.started_ms - DEFAULT_CONSUME_TIMESTAMP_MS
        return await self.instance.api.search_offset(address, queue, since)

    def forget_offset(self, queue: MessageQueue) -> None:
        self.offsets.table.remove(queue)

    async def give_up(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        await self.offsets.persist([queue])
        self.offsets.table.remove(queue)
        return True

    def dispatch(self, request: PullRequest) -> None:
        raise NotImplementedError

    async def changed(
        self, topic: str, all_queues: Sequence[MessageQueue], own: Sequence[MessageQueue]
    ) -> None:
        """Set a new version of the subscription and notify every broker at once (S27)."""
        subscription = self.rebalance.subscriptions.get(topic)
        if subscription is not None:
            subscription.sub_version = self._next_version(topic)
        if self.options.on_queues_changed is not None:
            namespace = self.options.namespace
            try:
                self.options.on_queues_changed(
                    without_namespace(namespace, topic),
                    [shown(namespace, queue) for queue in all_queues],
                    [shown(namespace, queue) for queue in own],
                )
            except Exception:
                # What was taken is read all the same.
                log.exception("on_queues_changed failed group=%s topic=%s", self.group, topic)
        await self.instance.heartbeat_all()

    async def lock_queues(
        self, broker_name: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        listed = list(queues)
        address = await self.instance.master_address(listed[0].topic, broker_name)
        return await self.instance.api.lock_queues(
            address, self.group, self.instance.client_id, listed
        )

    async def unlock_queues(self, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        listed = list(queues)
        address = await self.instance.master_address(listed[0].topic, broker_name)
        await self.instance.api.unlock_queues(address, self.group, self.instance.client_id, listed)

    # ------------------------------------------------------------ offsets

    def owned_queues(self) -> list[MessageQueue]:
        """Return the queues that this consumer owns now."""
        return list(self.rebalance.table)

    async def persist_offsets(self) -> None:
        queues = self.owned_queues()
        self.offsets.table.keep_only(queues)
        await self.offsets.persist(queues)

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        return self.offsets.table.of_topic(topic)

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Continue from these offsets: cached messages are dropped, the next round takes the queues again."""

        def begin_there(queue: MessageQueue, process_queue: ProcessQueue) -> None:
            process_queue.clear()
            self.offsets.table.update(queue, offsets[queue], increase_only=False)
            log.warning(
                "offset reset group=%s queue=%s offset=%s", self.group, queue, offsets[queue]
            )

        await self.rebalance.remove_queues(
            [queue for queue in offsets if queue.topic == topic], begin_there
        )
        self.instance.rebalance_now()

    # ------------------------------------------------------------ what only push consumers do

    async def pull(self, request: PullRequest) -> bool:
        """Do nothing: other kinds fetch by themselves, so they never get a pull request."""
        return False

    async def consume_directly(
        self, message: MessageExt, broker_name: str | None
    ) -> dict[str, object]:
        """CONSUME_MESSAGE_DIRECTLY. Raises: NoListener."""
        raise NoListener(
            f"consumer group {self.group!r} has no listener here: it is not a push consumer"
        )

    # ------------------------------------------------------------ how it is

    def running_info(self, *, stacks: bool) -> dict[str, object]:
        """Return ConsumerRunningInfo (wire.md 2.4)."""
        now = self.clock.monotonic_ms()
        ahead = self.clock.now_ms() - now
        topics = sorted(self.rebalance.subscriptions)
        info: dict[str, object] = {
            "mqPopTable": {},
            "mqTable": {
                queue_key(queue): {
                    **process_queue.running_info(ahead),
                    # As in Java: only an orderly consumer locks its queues.
                    "locked": self.options.orderly and process_queue.locked,
                    "commitOffset": self.offsets.table.get(queue) or 0,
                }
                for queue, process_queue in sorted(self.rebalance.table.items())
            },
            "properties": self.running_properties(),
            "statusTable": {topic: self.stats.status(topic, now).to_json() for topic in topics},
            "subscriptionSet": [self.rebalance.subscriptions[topic].to_json() for topic in topics],
            "userConsumerInfo": {},
        }
        if stacks:
            info["jstack"] = process_stacks()
        return info

    def running_properties(self) -> dict[str, str]:
        return {
            "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
            "PROP_CONSUMEORDERLY": str(self.options.orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self.started_ms),
            "PROP_CONSUME_TYPE": self.options.consume_type.value,
            "PROP_NAMESERVER_ADDR": ";".join(self.instance.api.requests.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "consumerGroup": self.group,
            "consumeFromWhere": self.options.consume_from_where.value,
            "messageModel": self.options.message_model.value,
            "platform": f"Python {platform.python_version()} {sys.platform}",
        }


class SharingMember(ConsumerMember[Options]):
    """A member that subscribes, with tasks of its own."""

    def __init__(
        self, options: Options, instance: "MQClientInstance", offsets: OffsetStore
    ) -> None:
        super().__init__(options, instance, offsets)
        self.runner = Runner(f"{type(self).__name__} {options.group}")
        self._leaving = False
        self._is_open = False

    async def start(self) -> None:
        """Join the instance and the group. Raises: GroupInUse, SubscriptionIllegal, ..."""
        self.instance.register_consumer(self)
        try:
            for topic in self.subscribed_topics():
                await self.instance.update_route(topic)
            await self.instance.check_client_in_broker(self)
            await self.runner.start()
            self.begin()
            self.runner.every(
                SAMPLE_INTERVAL_MS, self._sample, first_ms=SAMPLE_INTERVAL_MS, name="stats"
            )
            # Subscribing after the start is legal, as in Java; to forget it is silence.
            self.runner.call_later(SAMPLE_INTERVAL_MS, self._remind)
            await self.instance.heartbeat_all()
            await self.known()
        except BaseException:
            # Cut short, perhaps by its caller's time-out: what stayed would be a member that does nothing.
            await self.leave()
            raise

    def open(self) -> None:
        """Take queues from now on: the program's callbacks may use the client that they are about."""
        self._is_open = True
        if self.rebalance.topic_queues:
            self.instance.rebalance_now()

    async def do_rebalance(self) -> None:
        """See ConsumerMember."""
        if self._is_open:
            await super().do_rebalance()

    async def leave(self) -> None:
        """Give everything up, unregister, end the tasks; offsets were stored before."""
        self._leaving = True
        self.rebalance.destroy()
        self.end()
        try:
            await self.instance.unregister_consumer(self.group)
        finally:
            await self.runner.stop()

    def _remind(self) -> None:
        if self.asks_for_nothing():
            log.warning(
                "this consumer has no subscription and receives nothing: call subscribe(topic) group=%s",
                self.group,
            )

    def asks_for_nothing(self) -> bool:
        """Return True while no topic is subscribed but that of the group's retries."""
        return all(map(is_retry_topic, self.rebalance.subscriptions))

    async def _sample(self) -> None:
        self.stats.sample(self.clock.monotonic_ms())

    def begin(self) -> None:
        """Start what runs with the member's tasks, before brokers know of it."""

    def end(self) -> None:
        """End what `begin` started and no task runs."""

    async def known(self) -> None:
        """Continue after the brokers received the first heartbeat."""

    def subscribe_now(self, topic: str, expression: str, expression_type: str) -> None:
        """Subscribe while running; route, heartbeat and rebalance follow in the background."""
        self.subscribe(topic, expression, expression_type)

        async def spread() -> None:
            await self.instance.update_route(topic)
            await self.instance.heartbeat_all()
            self.instance.rebalance_now()
            subscription = self.rebalance.subscriptions.get(topic)
            if subscription is not None and not subscription.is_tag:
                try:
                    await self.instance.check_client_in_broker(self)
                except PocketMQError as error:
                    log.error("the broker refuses the subscription topic=%s %s", topic, error)

        self.runner.spawn(spread(), name=f"subscribe {topic}")
