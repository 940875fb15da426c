"""PushMember: a running push consumer: pulls, calls the listener, hands failures to `Redelivery`.

One pull, from its request to the next one (S43 to S53):

    why not now?          dropped, paused, too much cached, not locked, no longer subscribed
    which broker?         the one that the last answer suggested, else the master
    FOUND                 decode, filter by tag, cache, consume; pull again
    NO_NEW, NO_MATCHED    if nothing is cached, advance the offset as the broker says; pull again
    OFFSET_ILLEGAL        store the broker's offset and take the queue again; a second time soon after, wait
    refused or failed     retry after a while
    no way forward        see PullPace

Source: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper, RocketMQ 4.9.8.
"""

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from pocketmq.client.consume.concurrently import ConsumeMessageConcurrently
from pocketmq.client.consume.consumer_member import SharingMember
from pocketmq.client.consume.listener import (
    Listener,
    ListenerCall,
    ListenerHooks,
    ListenerRun,
    Outcome,
    direct_result,
)
from pocketmq.client.consume.listener_pool import make_pool
from pocketmq.client.consume.orderly import ConsumeMessageOrderly
from pocketmq.client.consume.redelivery import Redelivery
from pocketmq.client.consume.service import ConsumeParts
from pocketmq.client.errors import BrokerBusy, SubscriptionNotReady
from pocketmq.client.network.heartbeat import MessageModel
from pocketmq.client.network.namespace import without_namespace
from pocketmq.client.offset_store import OffsetStore
from pocketmq.client.options import PushConsumerOptions
from pocketmq.client.pull.decode import decode_pulled, filter_by_tags
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.client.pull.pull_pace import PullFailures
from pocketmq.client.pull.pull_result import PullResult, PullStatus
from pocketmq.client.pull.pull_service import PullRequest
from pocketmq.model.message import MessageExt, MessageQueue, Property
from pocketmq.model.names import is_retry_topic, retry_topic
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.flags import PullSysFlag

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)

PAUSED_DELAY_MS = 1_000
FLOW_CONTROL_DELAY_MS = 50
EXCEPTION_DELAY_MS = 3_000
BROKER_FLOW_CONTROL_DELAY_MS = 20
BROKER_SUSPEND_MS_MAX = 15_000
PULL_TIMEOUT_MS = 30_000
ILLEGAL_DELAY_MS = 10_000
UNLOCK_DELAY_MS = 20_000
CONSUME_LOCK_WAIT_MS = 1_000
# As numbers: to join flags of an enum costs more than all else that a pull's fields do.
_SUSPEND = int(PullSysFlag.SUSPEND)
_COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)
_CLASS_FILTER = int(PullSysFlag.CLASS_FILTER)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)


class Wait(Enum):
    """Why a pull does not start now; the value is how long to wait, ms."""

    PAUSED = PAUSED_DELAY_MS
    CACHED = FLOW_CONTROL_DELAY_MS
    NOT_LOCKED = EXCEPTION_DELAY_MS


def why_wait(
    process_queue: ProcessQueue,
    *,
    paused: bool,
    orderly: bool,
    count_max: int,
    size_max: int,
    span_max: int,
) -> Wait | None:
    """Return why a pull must wait, without I/O; None lets it through. size_max in bytes."""
    if paused:
        return Wait.PAUSED
    if process_queue.message_count > count_max or process_queue.message_size > size_max:
        return Wait.CACHED
    if orderly:
        return None if process_queue.locked else Wait.NOT_LOCKED
    return Wait.CACHED if process_queue.span_exceeds(span_max) else None


class PushMember(SharingMember[PushConsumerOptions]):
    """Owner: PushConsumer, between start() and shutdown()."""

    def __init__(
        self,
        options: PushConsumerOptions,
        instance: "MQClientInstance",
        offsets: OffsetStore,
        listener: Listener,
        around: Sequence[ListenerHooks] = (),
    ) -> None:
        """around: hooks before and after each call of the listener."""
        super().__init__(options, instance, offsets)
        self.consume: ConsumeMessageConcurrently | ConsumeMessageOrderly
        self._clustering = options.message_model is MessageModel.CLUSTERING
        self._retry_topic = retry_topic(self.group)
        self._failures = PullFailures()
        self._pull_from: dict[MessageQueue, int] = {}
        # When a broker's offset was last taken for ours, which was outside the queue.
        self._corrected_ms: dict[MessageQueue, int] = {}
        self._count_max = options.pull_threshold_count
        self._size_max = options.pull_threshold_mib << 20
        self._flow_control_times = 0
        self.giving_back = Redelivery(options, instance)
        self._pool = make_pool(listener, around, options.concurrency, self.clock, self.runner)

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """See SharingMember."""
        self.consume = self._make_consume_service()
        await super().start()

    def begin(self) -> None:
        self.consume.start()

    async def known(self) -> None:
        if self._retry_topic in self.rebalance.subscriptions:
            # The first heartbeat of a group creates its retry topic: look again, not in half a minute.
            await self.instance.update_route(self._retry_topic)

    def _make_consume_service(self) -> ConsumeMessageConcurrently | ConsumeMessageOrderly:
        parts = ConsumeParts(
            self.options,
            self._pool,
            self.offsets.table,
            self.runner,
            self.stats,
            self.clock,
            self._room,
        )
        if self.options.orderly:
            return ConsumeMessageOrderly(parts, self.giving_back.used_up, self.rebalance)
        queues = self.rebalance.table
        return ConsumeMessageConcurrently(
            parts, self.giving_back.send_back, lambda: list(queues.items())
        )

    async def shutdown(self) -> None:
        """Stop pulling, let listeners end, commit, unregister."""
        self._leaving = True
        try:
            drained = await self.consume.stop(self.options.drain_timeout_ms)
            if not drained:
                log.warning(
                    "listeners did not finish within %s ms, their messages will be redelivered "
                    "group=%s",
                    self.options.drain_timeout_ms,
                    self.group,
                )
            await self.offsets.persist(self.owned_queues(), final=True)
        finally:
            await self.leave()

    @property
    def calls_this(self) -> bool:
        """Return True if the code that asks runs inside a call of the listener."""
        return self._pool.is_calling_this

    def end(self) -> None:
        """End the listener's threads."""
        self._pool.stop()

    # ------------------------------------------------------------ rebalance

    def dispatch(self, request: PullRequest) -> None:
        self.instance.pulls.execute_immediately(request)

    async def do_rebalance(self) -> None:
        if not self._leaving:
            await super().do_rebalance()

    async def changed(
        self, topic: str, all_queues: Sequence[MessageQueue], own: Sequence[MessageQueue]
    ) -> None:
        self._share_thresholds()
        await super().changed(topic, all_queues, own)

    def _share_thresholds(self) -> None:
        """Divide the limits of a topic among its queues."""
        options = self.options
        queues = len(self.rebalance.table)
        if not queues:
            return
        if options.pull_threshold_count_for_topic is not None:
            self._count_max = max(1, options.pull_threshold_count_for_topic // queues)
        if options.pull_threshold_mib_for_topic is not None:
            self._size_max = max(1, options.pull_threshold_mib_for_topic // queues) << 20

    async def give_up(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Store the offset; if orderly, wait for the listener, then unlock, later if messages wait."""
        self._pull_from.pop(queue, None)
        consume = self.consume
        if isinstance(consume, ConsumeMessageConcurrently):
            consume.last_offset(process_queue)
        if not isinstance(consume, ConsumeMessageOrderly) or not self._clustering:
            return await super().give_up(queue, process_queue)
        if not await consume.is_free_within(process_queue, CONSUME_LOCK_WAIT_MS):
            process_queue.try_unlock_times += 1
            log.warning(
                "the queue is still being consumed, not unlocking it yet queue=%s times=%s",
                queue,
                process_queue.try_unlock_times,
            )
            await self.offsets.persist([queue])
            return False
        await super().give_up(queue, process_queue)
        consume.forget(process_queue)
        if process_queue.has_waiting:
            # A retry of this queue may be planned; no other member shall start before the retry has noticed.
            self.runner.call_later(
                UNLOCK_DELAY_MS,
                lambda: self.runner.spawn(self.rebalance.unlock(queue), name="unlock"),
            )
        else:
            await self.rebalance.unlock(queue)
        return True

    # ------------------------------------------------------------ pull

    async def pull(self, request: PullRequest) -> bool:
        """Process a pull request once (pull_service.Pull); it is over if its queue was dropped."""
        process_queue = request.process_queue
        if process_queue.dropped or self._leaving:
            return False
        process_queue.last_pull_ms = self.clock.monotonic_ms()
        wait = why_wait(
            process_queue,
            paused=self.paused,
            orderly=self.options.orderly,
            count_max=self._count_max,
            size_max=self._size_max,
            span_max=self.options.max_span,
        )
        if wait is not None:
            self._hold(request, wait)
            return False
        subscription = self.rebalance.subscriptions.get(request.queue.topic)
        if subscription is None:
            self._pull_later(request, EXCEPTION_DELAY_MS)
            return False
        try:
            if self.options.orderly and not request.previously_locked:
                await self._fix_offset(request)
            return await self._pull(request, subscription)
        except PocketMQError as error:
            self._failed(request, error)
        except Exception:
            log.exception("pull failed queue=%s", request.queue)
            self._pull_later(request, EXCEPTION_DELAY_MS)
        return False

    def _hold(self, request: PullRequest, wait: Wait) -> None:
        if wait is not Wait.CACHED:
            self._pull_later(request, wait.value)
            return
        if self._flow_control_times % 1_000 == 0:
            log.warning(
                "too much is cached, pulling is paused queue=%s %r times=%s",
                request.queue,
                request.process_queue,
                self._flow_control_times,
            )
        self._flow_control_times += 1
        # Taken up as soon as there is room again, and at the latest after the delay.
        request.process_queue.held_pull = request
        self.runner.call_later(wait.value, lambda: self._take_up(request.process_queue, request))

    def _room(self, process_queue: ProcessQueue) -> None:
        """Resume a held pull: messages have left its queue."""
        held = process_queue.held_pull
        if (
            isinstance(held, PullRequest)
            and process_queue.message_count <= self._count_max // 2
            and process_queue.message_size <= self._size_max // 2
            and not process_queue.span_exceeds(self.options.max_span)
        ):
            self._take_up(process_queue, held)

    def _take_up(self, process_queue: ProcessQueue, request: PullRequest) -> None:
        if process_queue.held_pull is request:
            process_queue.held_pull = None
            self.instance.pulls.execute_immediately(request)

    def _pull_later(self, request: PullRequest, delay_ms: int) -> None:
        self.instance.pulls.execute_later(request, delay_ms)

    async def _fix_offset(self, request: PullRequest) -> None:
        """Read the offset at the first pull after the lock: another member may have committed until now."""
        offset = await self.start_offset(request.queue)
        if offset is not None:
            if offset != request.next_offset:
                log.info(
                    "the first time to pull, offset fixed queue=%s from=%s to=%s",
                    request.queue,
                    request.next_offset,
                    offset,
                )
            request.next_offset = offset
            request.previously_locked = True

    async def _pull(self, request: PullRequest, subscription: SubscriptionData) -> bool:
        instance, queue = self.instance, request.queue
        broker_id = self._pull_from.get(queue, 0)
        address = instance.addresses.any_of(queue.broker_name, broker_id)
        if address is None:
            address = await instance.any_address(queue.topic, queue.broker_name, broker_id)
        if not subscription.is_tag and not instance.presence.knows_sql(address):
            raise SubscriptionNotReady(
                int(ResponseCode.FILTER_DATA_NOT_EXIST),
                f"the broker is too old for {subscription.expression_type}",
                address,
                f"pulling topic {queue.topic!r} for group {self.group!r}",
            )
        began, asked = self.clock.monotonic_ms(), request.next_offset
        slave = instance.addresses.is_slave(queue.broker_name, address)
        ext = self.pull_fields(request, subscription, slave=slave)
        result, body = await instance.api.pull(address, ext, PULL_TIMEOUT_MS)
        if request.process_queue.dropped:
            return False
        self._pull_from[queue] = result.suggest_broker_id
        if result.status is PullStatus.FOUND:
            at_once = self._found(request, subscription, result, body, began)
            return at_once and self._go_on(request, asked, began)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._take_anew(request, result)
            return False
        request.next_offset = result.next_begin_offset
        self._correct_tags_offset(request)
        return self._go_on(request, asked, began)

    def _go_on(self, request: PullRequest, asked: int, began_ms: int) -> bool:
        """Return whether to pull again at once; else it is done later."""
        took_ms = self.clock.monotonic_ms() - began_ms
        delay_ms = request.pace.delay_ms(request.queue, asked, request.next_offset, took_ms)
        if delay_ms:
            self._pull_later(request, delay_ms)
        return not delay_ms

    def pull_fields(
        self, request: PullRequest, subscription: SubscriptionData, *, slave: bool
    ) -> dict[str, str]:
        """Return the fields of PullMessageHeader for this pull."""
        options = self.options
        queue = request.queue
        flag = _SUSPEND
        commit_offset = 0
        if self._clustering:
            commit_offset = self.offsets.table.get(queue) or 0
            if commit_offset > 0 and not slave:
                flag |= _COMMIT_OFFSET
        ext = {
            "consumerGroup": self.group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(request.next_offset),
            "maxMsgNums": str(options.pull_batch_size),
            "commitOffset": str(commit_offset),
            "suspendTimeoutMillis": str(BROKER_SUSPEND_MS_MAX),
            "subVersion": str(subscription.sub_version),
            "expressionType": subscription.expression_type,
            "bname": queue.broker_name,
        }
        if subscription.class_filter_mode:
            flag |= _CLASS_FILTER
        elif options.post_subscription_when_pull:
            flag |= _SUBSCRIPTION
            ext["subscription"] = subscription.sub_string
        ext["sysFlag"] = str(flag)
        return ext

    def _found(
        self,
        request: PullRequest,
        subscription: SubscriptionData,
        result: PullResult,
        body: bytes,
        began_ms: int,
    ) -> bool:
        queue = request.queue
        messages = decode_pulled(result, body, queue.broker_name, self.habit)
        kept = filter_by_tags(messages, subscription)
        if self.options.filter_hook is not None:
            kept = self.options.filter_hook(kept, queue, False)
        before, request.next_offset = request.next_offset, result.next_begin_offset
        if messages and messages[0].queue_offset < before:
            log.warning(
                "[BUG] the broker's answer goes backwards queue=%s asked=%s first=%s",
                queue,
                before,
                messages[0].queue_offset,
            )
        if kept:
            cost = self.clock.monotonic_ms() - began_ms
            self.stats.pulled(queue.topic, len(kept), cost)
            if self.options.namespace or queue.topic == self._retry_topic:
                self._restore_names(kept)
            self.consume.put(kept, request.process_queue, queue)
        if self.options.pull_interval_ms and kept:
            self._pull_later(request, self.options.pull_interval_ms)
            return False
        return True

    def _restore_names(self, messages: list[MessageExt]) -> None:
        """Restore the original topic of retry messages, and strip the namespace."""
        namespace = self.options.namespace
        retry = self._retry_topic
        for message in messages:
            topic = message.topic
            if topic == retry:
                topic = message.properties.get(Property.RETRY_TOPIC.value, topic)
                message.topic = topic
            if namespace:
                message.topic = without_namespace(namespace, topic)

    def _correct_tags_offset(self, request: PullRequest) -> None:
        """Let the offset advance past filtered-out messages, which need no listener (S53)."""
        if request.process_queue.message_count == 0:
            self.offsets.table.update(request.queue, request.next_offset, increase_only=True)

    async def _take_anew(self, request: PullRequest, result: PullResult) -> None:
        """Store the broker's offset, as ours is outside the queue, and let the next round take the queue.

        A round asks every broker, so a queue whose offsets never suit begins one every ten seconds at most.
        """
        now, queue = self.clock.monotonic_ms(), request.queue
        if now - self._corrected_ms.get(queue, now - ILLEGAL_DELAY_MS) < ILLEGAL_DELAY_MS:
            self._pull_later(request, ILLEGAL_DELAY_MS)
            return
        self._corrected_ms[queue] = now
        log.warning(
            "the pull request offset illegal, corrected queue=%s offset=%s to=%s",
            request.queue,
            request.next_offset,
            result.next_begin_offset,
        )
        request.process_queue.dropped = True
        self.offsets.table.update(request.queue, result.next_begin_offset, increase_only=False)
        await self.offsets.persist([request.queue], final=True)
        await self.rebalance.remove_queues([request.queue])
        self.instance.rebalance_now()

    def _failed(self, request: PullRequest, error: PocketMQError) -> None:
        self.instance.broker_failed(request.queue.topic, error)
        if not is_retry_topic(request.queue.topic):
            self._failures.log(request.queue, error, self.clock.monotonic_ms())
        flow_control = isinstance(error, BrokerBusy) and error.code == ResponseCode.FLOW_CONTROL
        self._pull_later(
            request, BROKER_FLOW_CONTROL_DELAY_MS if flow_control else EXCEPTION_DELAY_MS
        )

    async def consume_directly(
        self, message: MessageExt, broker_name: str | None
    ) -> dict[str, object]:
        """CONSUME_MESSAGE_DIRECTLY: pass this message to the listener now, whatever its offset."""
        queue = MessageQueue(message.topic, broker_name or "", message.queue_id)
        self._restore_names([message])
        finished: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()

        def done(_: ListenerCall, outcome: Outcome | None) -> None:
            if not finished.done():
                finished.set_result(outcome)

        self._pool.submit(ListenerRun([message], queue, 1, done))
        outcome = await finished
        return direct_result(outcome, orderly=self.options.orderly)

    def running_properties(self) -> dict[str, str]:
        options = self.options
        return {
            **super().running_properties(),
            "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
            "consumeMessageBatchMaxSize": str(options.consume_batch_size),
            "pullBatchSize": str(options.pull_batch_size),
            "pullThresholdForQueue": str(self._count_max),
            "postSubscriptionWhenPull": str(options.post_subscription_when_pull).lower(),
        }
