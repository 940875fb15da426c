"""Rebalance: determines this consumer's queues and applies changes (S8 to S15, S21 to S27).

For each subscribed topic the strategy gets the queues from the route and the group's members from a broker,
both sorted; then the table of ProcessQueues is brought in line with its result:

    in the table, not allocated     dropped and removed, its offset stored          (red)
    in the table, allocated         kept; if its pull was lost, or it was dropped
                                    before, removed and taken again                 (green)
    allocated, not in the table     orderly: locked first; start offset; added      (yellow)

1. A queue is in the table only while it is allocated, and has at most one PullRequest.
2. A queue whose start offset cannot be determined is not added: the next round tries again.
3. After a change the subscription's version is set to now and every broker is notified at once (S27), so that
   a pull with the new version does not meet an old subscription.
4. Only one rebalance of a consumer runs at a time.
Source: RebalanceImpl, RebalancePushImpl, RocketMQ 4.9.8.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pocketmq.client.consume.allocate import AllocateStrategy, sort_key
from pocketmq.client.network.gather import together
from pocketmq.client.network.heartbeat import MessageModel
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.client.pull.pull_service import PullRequest
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import is_retry_topic
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RebalancePlan:
    """How the table has to change for one topic."""

    drop: list[MessageQueue] = field(default_factory=list)
    lost_pull: list[MessageQueue] = field(default_factory=list)
    keep: list[MessageQueue] = field(default_factory=list)
    add: list[MessageQueue] = field(default_factory=list)


def plan_change(
    table: dict[MessageQueue, ProcessQueue],
    topic: str,
    allocated: Iterable[MessageQueue],
    now_ms: int,
    *,
    pushes: bool = True,
) -> RebalancePlan:
    """Compare the table with the current allocation, changing nothing. now_ms: monotonic.

    pushes: a push consumer's queue whose pull request was lost is taken again.
    """
    wanted = set(allocated)
    plan = RebalancePlan()
    for queue, process_queue in table.items():
        if queue.topic != topic:
            continue
        if queue not in wanted:
            plan.drop.append(queue)
        elif process_queue.dropped or (pushes and process_queue.pull_expired(now_ms)):
            plan.lost_pull.append(queue)
        else:
            plan.keep.append(queue)
    plan.add = sorted(wanted - set(plan.keep))
    return plan


class RebalanceEnvironment(Protocol):
    """The consumer as a rebalance needs it."""

    async def find_consumer_ids(self, topic: str, group: str) -> list[str] | None: ...

    async def start_offset(self, queue: MessageQueue) -> int | None:
        """Return the start offset; None: unknown for now. Raises: PocketMQError."""
        ...

    async def give_up(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Store its offset, unlock it; False: its listener is still running, try again next time."""
        ...

    def forget_offset(self, queue: MessageQueue) -> None:
        """removeDirtyOffset: drop the outdated offset from memory."""
        ...

    def dispatch(self, request: PullRequest) -> None: ...

    async def changed(
        self, topic: str, all_queues: Sequence[MessageQueue], own: Sequence[MessageQueue]
    ) -> None: ...

    async def lock_queues(
        self, broker_name: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues at a broker; return the granted ones. Raises: PocketMQError."""
        ...

    async def unlock_queues(self, broker_name: str, queues: Iterable[MessageQueue]) -> None: ...


class Rebalance:
    """The queues of one consumer. Owner: that consumer, on its event loop."""

    def __init__(
        self,
        group: str,
        client_id: str,
        message_model: MessageModel,
        strategy: AllocateStrategy,
        environment: RebalanceEnvironment,
        clock: Clock,
        *,
        orderly: bool = False,
        pushes: bool = True,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.message_model = message_model
        self.strategy = strategy
        self.orderly = orderly
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.topic_queues: dict[str, list[MessageQueue]] = {}
        self.table: dict[MessageQueue, ProcessQueue] = {}
        self._pushes = pushes
        self._environment = environment
        self._clock = clock
        self._one = asyncio.Lock()
        self._left = False

    # ------------------------------------------------------------ rounds

    async def do_rebalance(self) -> None:
        """Run a round over all topics; one that fails is logged, the others continue (S8)."""
        async with self._one:
            for topic in list(self.subscriptions):
                try:
                    await self._rebalance_topic(topic)
                except Exception as error:
                    if is_retry_topic(topic):
                        continue
                    if isinstance(error, PocketMQError):
                        log.warning(
                            "rebalance failed group=%s topic=%s reason=%r",
                            self.group,
                            topic,
                            str(error),
                        )
                    else:
                        log.exception("rebalance failed group=%s topic=%s", self.group, topic)
            await self._truncate_not_my_topics()

    async def _rebalance_topic(self, topic: str) -> None:
        """Rebalance one topic, unless the member has left: queues it took then would have no owner."""
        if self._left:
            return
        all_queues = self.topic_queues.get(topic)
        own: Sequence[MessageQueue] | None
        if self.message_model is MessageModel.BROADCASTING:
            if all_queues is None:
                return
            own = sorted(all_queues)
        else:
            own = await self._allocate(topic, all_queues)
            if own is None or all_queues is None:
                return
        changed, requests = await self._update_table(topic, own)
        if changed:
            log.info(
                "rebalanced group=%s topic=%s strategy=%s client=%s queues=%s of %s",
                self.group,
                topic,
                self.strategy.name,
                self.client_id,
                list(own),
                len(all_queues),
            )
            await self._environment.changed(topic, all_queues, own)
        # After the heartbeat with the subscription's new version: a broker refuses pulls that are newer
        # than what it was told, and each would wait for three seconds.
        for request in () if self._left else requests:
            log.info(
                "pulling begins group=%s queue=%s offset=%s",
                self.group,
                request.queue,
                request.next_offset,
            )
            self._environment.dispatch(request)

    async def _allocate(
        self, topic: str, all_queues: list[MessageQueue] | None
    ) -> list[MessageQueue] | None:
        """Return our share; None if it cannot be computed now (S12, S13)."""
        client_ids = await self._environment.find_consumer_ids(topic, self.group)
        if self._left:
            return None
        # A topic without a route was reported by the look-up.
        if not client_ids and all_queues is not None:
            log.warning(
                "cannot learn the members of the group, will ask again group=%s topic=%s",
                self.group,
                topic,
            )
        if not all_queues or not client_ids:
            return None
        try:
            return self.strategy(
                sorted(all_queues), sorted(client_ids, key=sort_key), self.client_id
            )
        except Exception:
            log.exception(
                "allocate strategy failed, nothing changes strategy=%s group=%s topic=%s",
                self.strategy.name,
                self.group,
                topic,
            )
            return None

    async def _update_table(
        self, topic: str, own: Sequence[MessageQueue]
    ) -> tuple[bool, list[PullRequest]]:
        """updateProcessQueueTableInRebalance. Returns: whether anything changed, the pulls to begin."""
        plan = plan_change(self.table, topic, own, self._clock.monotonic_ms(), pushes=self._pushes)
        changed = False
        for queue in plan.drop:
            changed |= await self._remove(queue, "it belongs to another member now")
        for queue in plan.lost_pull:
            changed |= await self._remove(queue, "its pull request was lost; it is taken anew")
        requests = await self._add_all(plan.add)
        return changed or bool(requests), requests

    async def _remove(self, queue: MessageQueue, why: str) -> bool:
        process_queue = self.table.get(queue)
        if process_queue is None:
            # Dropped meanwhile, when the member left.
            return False
        process_queue.dropped = True
        if not await self._environment.give_up(queue, process_queue):
            return False
        self.table.pop(queue, None)
        log.info("gave a queue up group=%s queue=%s reason=%s", self.group, queue, why)
        return True

    async def _add_all(self, queues: Sequence[MessageQueue]) -> list[PullRequest]:
        """Take queues, many at a time: a topic can have a thousand, and each takes an answer or two."""

        async def add(queue: MessageQueue) -> PullRequest | None:
            return None if self._left else await self._add(queue)

        return [each for each in await together(add, queues) if each is not None]

    async def _add(self, queue: MessageQueue) -> PullRequest | None:
        """Take a queue; None if that is not possible now (invariant 2)."""
        if queue in self.table:
            log.info("has the queue already group=%s queue=%s", self.group, queue)
            return None
        clustering = self.message_model is MessageModel.CLUSTERING
        if self.orderly and clustering and not await self.lock(queue):
            log.warning("cannot lock a queue, will try again group=%s queue=%s", self.group, queue)
            return None
        self._environment.forget_offset(queue)
        try:
            offset = await self._environment.start_offset(queue)
        except PocketMQError as error:
            log.info(
                "cannot learn where to begin, will ask again group=%s queue=%s reason=%r",
                self.group,
                queue,
                str(error),
            )
            return None
        if offset is None or offset < 0:
            log.warning(
                "no offset to begin at, will ask again group=%s queue=%s", self.group, queue
            )
            return None
        if self._left:
            return None
        process_queue = ProcessQueue(self._clock.monotonic_ms())
        process_queue.locked = True
        if self.table.setdefault(queue, process_queue) is not process_queue:
            log.info("has the queue already group=%s queue=%s", self.group, queue)
            return None
        log.info("took a queue group=%s queue=%s", self.group, queue)
        return PullRequest(self.group, queue, process_queue, offset)

    async def _truncate_not_my_topics(self) -> None:
        """Drop the queues of topics that are no longer subscribed (S9)."""
        for queue in [each for each in self.table if each.topic not in self.subscriptions]:
            process_queue = self.table[queue]
            process_queue.dropped = True
            if await self._environment.give_up(queue, process_queue):
                self.table.pop(queue, None)
            log.info(
                "gave a queue up, its topic is no longer subscribed group=%s queue=%s",
                self.group,
                queue,
            )

    async def remove_queues(
        self,
        queues: Iterable[MessageQueue],
        before: Callable[[MessageQueue, ProcessQueue], None] | None = None,
    ) -> None:
        """Give queues up between two rounds; the next may take them again. before: called with each of ours
        once it is dropped, and before its offset is stored.
        """
        async with self._one:
            mine = {queue: self.table[queue] for queue in queues if queue in self.table}
            for queue, process_queue in mine.items():
                process_queue.dropped = True
                if before is not None:
                    before(queue, process_queue)
            for queue, process_queue in mine.items():
                # In the table until then: the offset of a queue that is not there is forgotten.
                await self._environment.give_up(queue, process_queue)
                self.table.pop(queue, None)

    def destroy(self) -> None:
        """Drop everything for good; offsets were stored before."""
        self._left = True
        for process_queue in self.table.values():
            process_queue.dropped = True
        self.table.clear()

    # ------------------------------------------------------------ locks at the brokers

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock one queue at its broker; return whether it was granted."""
        try:
            locked = await self._environment.lock_queues(queue.broker_name, [queue])
        except PocketMQError as error:
            log.warning("lock failed queue=%s reason=%r", queue, str(error))
            return False
        self._note_locked(locked)
        return queue in locked

    async def lock_all(self) -> None:
        """Renew the locks of all queues; one that is not granted is not consumed meanwhile."""
        await self._by_broker(self._lock_at)

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        try:
            locked = await self._environment.lock_queues(broker_name, queues)
        except PocketMQError as error:
            log.warning("lock failed broker=%s reason=%r", broker_name, str(error))
            return
        self._note_locked(locked)
        for queue in queues:
            process_queue = self.table.get(queue)
            if queue not in locked and process_queue is not None:
                process_queue.locked = False
                log.warning(
                    "the message queue locked Failed, Group: %s queue=%s", self.group, queue
                )

    def _note_locked(self, locked: Iterable[MessageQueue]) -> None:
        for queue in locked:
            process_queue = self.table.get(queue)
            if process_queue is not None:
                process_queue.locked = True
                process_queue.last_lock_ms = self._clock.monotonic_ms()

    async def unlock(self, queue: MessageQueue) -> None:
        await self._unlock_at(queue.broker_name, [queue])

    async def unlock_all(self) -> None:
        await self._by_broker(self._unlock_at)

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        try:
            await self._environment.unlock_queues(broker_name, queues)
        except PocketMQError as error:
            log.warning(
                "unlock failed, the lock ends by itself after 60 s broker=%s reason=%r",
                broker_name,
                str(error),
            )
        for queue in queues:
            process_queue = self.table.get(queue)
            if process_queue is not None:
                process_queue.locked = False

    async def _by_broker(
        self, action: Callable[[str, list[MessageQueue]], Awaitable[None]]
    ) -> None:
        brokers: dict[str, list[MessageQueue]] = {}
        for queue in self.table:
            brokers.setdefault(queue.broker_name, []).append(queue)
        for broker_name, queues in brokers.items():
            await action(broker_name, queues)
