"""LitePullMember: a running lite pull consumer: prefetches into a cache that poll() empties.

A queue is added by rebalance (subscribe) or by assign(); each has one fetcher:

    offset of the next fetch    after seek(): that offset; else where the last fetch ended
    offset to commit            behind the messages that the program was given: see portion.py
Source: DefaultLitePullConsumerImpl, AssignedMessageQueue, RocketMQ 4.9.8 (wire.md 4.5).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pocketmq.client.consume.consumer_member import SharingMember
from pocketmq.client.consume.portion import Portion
from pocketmq.client.errors import BrokerBusy, CallerError
from pocketmq.client.network.namespace import without_namespace
from pocketmq.client.offset_store import OffsetStore, ReadFrom
from pocketmq.client.options import LitePullConsumerOptions
from pocketmq.client.pull.decode import decode_pulled, filter_by_tags
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.client.pull.pull_pace import PullPace
from pocketmq.client.pull.pull_result import PullStatus
from pocketmq.client.pull.pull_service import PullRequest
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.subscription import ALL, TAG, SubscriptionData, build_subscription
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.flags import PullSysFlag

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)

FLOW_CONTROL_DELAY_MS = 50
EXCEPTION_DELAY_MS = 1_000
BROKER_FLOW_CONTROL_DELAY_MS = 20
BROKER_SUSPEND_MS_MAX = 20_000
PULL_TIMEOUT_MS = 30_000


class NotAssigned(CallerError):
    """The queue is not assigned to this consumer."""


@dataclass(slots=True, eq=False)
class Assigned:
    """An assigned queue. Offsets are the next to read; None if not known yet."""

    queue: MessageQueue
    process_queue: ProcessQueue
    pull_offset: int | None = None
    consume_offset: int | None = None
    paused: bool = False
    begun: bool = False
    fetcher: "asyncio.Task[None] | None" = None
    pace: PullPace = field(default_factory=PullPace)


class _Chunk(NamedTuple):
    assigned: Assigned
    process_queue: ProcessQueue
    messages: list[MessageExt]


class LitePullMember(SharingMember[LitePullConsumerOptions]):
    """Owner: LitePullConsumer, between start() and shutdown()."""

    def __init__(
        self,
        options: LitePullConsumerOptions,
        instance: "MQClientInstance",
        offsets: OffsetStore,
    ) -> None:
        super().__init__(options, instance, offsets)
        self.assigned: dict[MessageQueue, Assigned] = {}
        self.assign_expressions: dict[str, str] = {}
        self._ready: deque[_Chunk] = deque()
        self._ready_count = 0
        self._arrived = asyncio.Event()
        self._portions: list[Portion] = []
        # Queues that on_queues_changed is being called with.
        self._named: set[MessageQueue] = set()
        self._room = asyncio.Event()
        self._next_commit_ms = instance.clock.monotonic_ms() + options.auto_commit_interval_ms

    # ------------------------------------------------------------ life

    async def shutdown(self, *, commit_polled: bool) -> None:
        """Stop fetching, commit, unregister; commit_polled: commit the messages of the last poll(), too."""
        self._leaving = True
        if commit_polled and self.options.auto_commit:
            self.note_consumed()
        try:
            await self.offsets.persist(list(self.assigned), final=True)
        finally:
            await self.leave()

    # ------------------------------------------------------------ which queues

    def asks_for_nothing(self) -> bool:
        return super().asks_for_nothing() and not self.assigned

    async def changed(
        self, topic: str, all_queues: Sequence[MessageQueue], own: Sequence[MessageQueue]
    ) -> None:
        """Have the new queues before on_queues_changed names them, so that it may seek and pause there; they
        are read from `dispatch` on.
        """
        table = self.rebalance.table
        for queue in own:
            if queue in table and queue not in self.assigned:
                self.assigned[queue] = Assigned(queue, table[queue])
        self._named = set(own)
        try:
            await super().changed(topic, all_queues, own)
        finally:
            self._named = set()

    def dispatch(self, request: PullRequest) -> None:
        """Begin a queue that rebalance added."""
        assigned = self.assigned.get(request.queue)
        if assigned is None or assigned.process_queue is not request.process_queue:
            assigned = Assigned(request.queue, request.process_queue)
        if assigned.pull_offset is None:
            assigned.pull_offset = request.next_offset
        self._begin(assigned)

    async def give_up(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """End a queue that rebalance takes away: what was polled before the last commit counts."""
        self._end(queue)
        return await super().give_up(queue, process_queue)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whatever other consumers of the group do."""
        wanted = set(queues)
        for queue in [each for each in self.assigned if each not in wanted]:
            self.assigned[queue].process_queue.dropped = True
            self._end(queue)
        for queue in sorted(wanted):
            if queue not in self.assigned:
                self._begin(Assigned(queue, ProcessQueue(self.clock.monotonic_ms())))

    def owned_queues(self) -> list[MessageQueue]:
        return list(self.assigned)

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if queue in self.assigned:
                self.seek(queue, offset)

    def _begin(self, assigned: Assigned) -> None:
        self.assigned[assigned.queue] = assigned
        assigned.begun = True
        assigned.fetcher = self.runner.spawn(self._fetch(assigned), name=f"fetch {assigned.queue}")

    def _end(self, queue: MessageQueue) -> None:
        assigned = self.assigned.pop(queue, None)
        if assigned is not None and assigned.fetcher is not None:
            assigned.fetcher.cancel()

    def end(self) -> None:
        """Give nothing more to a program that is in the middle of a portion."""
        for assigned in self.assigned.values():
            assigned.process_queue.dropped = True

    def of(self, queue: MessageQueue) -> Assigned:
        """Return the assigned queue. Raises: NotAssigned."""
        found = self.assigned.get(queue)
        if found is None:
            raise NotAssigned(
                f"{queue} is not assigned to this consumer; it has {sorted(self.assigned)}"
            )
        return found

    # ------------------------------------------------------------ fetching

    async def _fetch(self, assigned: Assigned) -> None:
        """Fetch from one queue until it is taken away or seek() replaces it."""
        queue, process_queue = assigned.queue, assigned.process_queue
        while not process_queue.dropped and not self._leaving:
            if assigned.paused or self.paused:
                await asyncio.sleep(FLOW_CONTROL_DELAY_MS / 1000)
                continue
            if self._too_much_cached(process_queue):
                await self._wait_for_room()
                continue
            try:
                if assigned.pull_offset is None:
                    assigned.pull_offset = await self.start_offset(queue)
                    continue
                await self._fetch_once(assigned, assigned.pull_offset)
            except PocketMQError as error:
                log.warning("fetch failed queue=%s %s", queue, error)
                self.instance.broker_failed(queue.topic, error)
                busy = isinstance(error, BrokerBusy) and error.code == ResponseCode.FLOW_CONTROL
                delay = BROKER_FLOW_CONTROL_DELAY_MS if busy else EXCEPTION_DELAY_MS
                await asyncio.sleep(delay / 1000)
            except Exception:
                log.exception("fetch failed queue=%s", queue)
                await asyncio.sleep(EXCEPTION_DELAY_MS / 1000)

    def _too_much_cached(self, process_queue: ProcessQueue) -> bool:
        options = self.options
        return (
            self._ready_count > options.pull_threshold_count_for_all
            or process_queue.message_count > options.pull_threshold_count
            or process_queue.message_size > options.pull_threshold_mib << 20
            or process_queue.span_exceeds(options.max_span)
        )

    async def _wait_for_room(self) -> None:
        self._room.clear()
        try:
            async with asyncio.timeout(FLOW_CONTROL_DELAY_MS / 1000):
                await self._room.wait()
        except TimeoutError:
            pass

    async def _fetch_once(self, assigned: Assigned, offset: int) -> None:
        queue, instance = assigned.queue, self.instance
        subscription = self._subscription(queue.topic)
        address = await instance.any_address(queue.topic, queue.broker_name)
        began = self.clock.monotonic_ms()
        assigned.process_queue.last_pull_ms = began
        flag = PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION | PullSysFlag.LITE_PULL
        fields = pull_fields(
            self.group,
            queue,
            subscription,
            offset,
            self.options.pull_batch_size,
            flag,
            BROKER_SUSPEND_MS_MAX,
        )
        result, body = await instance.api.pull(address, fields, PULL_TIMEOUT_MS)
        if assigned.process_queue.dropped:
            return
        if result.status is PullStatus.FOUND:
            messages = decode_pulled(result, body, queue.broker_name, self.habit)
            kept = filter_by_tags(messages, subscription)
            if kept:
                assigned.process_queue.put(kept)
                self._ready.append(_Chunk(assigned, assigned.process_queue, kept))
                self._ready_count += len(kept)
                self._arrived.set()
                cost = self.clock.monotonic_ms() - began
                self.stats.pulled(queue.topic, len(kept), cost)
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "corrected an illegal fetch offset queue=%s offset=%s to=%s",
                queue,
                offset,
                result.next_begin_offset,
            )
        assigned.pull_offset = following = result.next_begin_offset
        if assigned.process_queue.message_count == 0:
            # Nothing of it waits for poll(): what was filtered out is consumed.
            assigned.consume_offset = following
        took_ms = self.clock.monotonic_ms() - began
        if delay_ms := assigned.pace.delay_ms(queue, offset, following, took_ms):
            await asyncio.sleep(delay_ms / 1000)

    def _subscription(self, topic: str) -> SubscriptionData:
        known = self.rebalance.subscriptions.get(topic)
        if known is not None:
            return known
        return build_subscription(topic, self.assign_expressions.get(topic, ALL), TAG)

    # ------------------------------------------------------------ what the caller does

    async def poll(self, timeout_ms: int) -> list[MessageExt]:
        """Return what was fetched next, of one queue; [] if nothing came in time."""
        portion = Portion()
        await self.fill(portion, timeout_ms)
        messages = portion.take()
        self._settle()
        return messages

    async def fill(self, portion: Portion, timeout_ms: int) -> None:
        """Put what was fetched next, of one queue, into an empty portion; nothing if nothing came in time."""
        self._commit_if_due()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                chunk = await self._next_chunk()
        except TimeoutError:
            return
        if namespace := self.options.namespace:
            for message in chunk.messages:
                message.topic = without_namespace(namespace, message.topic)
        settle_soon = partial(asyncio.get_running_loop().call_soon_threadsafe, self._settle)
        portion.fill(chunk.messages, chunk.assigned, chunk.process_queue, settle_soon)
        self._portions.append(portion)

    async def _next_chunk(self) -> _Chunk:
        while True:
            self._settle()
            while self._ready:
                chunk = self._ready.popleft()
                self._ready_count -= len(chunk.messages)
                if not chunk.process_queue.dropped:
                    return chunk
            self._arrived.clear()
            await self._arrived.wait()

    def _settle(self) -> None:
        """Count what the program was given; the rest of a closed portion is given next."""
        open_portions = []
        # The last one first: of one queue, what was fetched earlier is in front in the end.
        for portion in reversed(self._portions):
            closed, given = portion.closed, portion.given
            self._count_given(portion, given)
            rest = portion.messages[given:]
            if not rest or portion.process_queue is None or portion.process_queue.dropped:
                continue
            if closed:
                self._ready.appendleft(_Chunk(portion.assigned, portion.process_queue, rest))
                self._ready_count += len(rest)
                self._arrived.set()
            else:
                open_portions.append(portion)
        self._portions = open_portions[::-1]

    def _count_given(self, portion: Portion, given: int) -> None:
        """Let the offset to commit follow what the program was given."""
        assigned, process_queue = portion.assigned, portion.process_queue
        messages = portion.messages[portion.settled : given]
        if not messages or process_queue is None:
            return
        portion.settled = given
        offset = process_queue.remove(messages, self.clock.monotonic_ms())
        if offset >= 0:
            assigned.consume_offset = offset
        self.stats.consumed(assigned.queue.topic, len(messages), 0, 0)
        self._room.set()

    def _commit_if_due(self) -> None:
        if not self.options.auto_commit:
            return
        now = self.clock.monotonic_ms()
        if now >= self._next_commit_ms:
            self.note_consumed()
            self._next_commit_ms = now + self.options.auto_commit_interval_ms

    def note_consumed(self) -> None:
        """Treat what the program was given as consumed; the timer or commit() sends it to the broker."""
        self._settle()
        for queue, assigned in self.assigned.items():
            if assigned.consume_offset is not None:
                self.offsets.table.update(queue, assigned.consume_offset, increase_only=False)

    async def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Commit offsets at the broker now: the given ones, else those of all messages returned by poll()."""
        if offsets is None:
            self.note_consumed()
            queues = list(self.assigned)
        else:
            for queue, offset in offsets.items():
                self.offsets.table.update(queue, offset, increase_only=False)
            queues = list(offsets)
        await self.offsets.persist(queues, final=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        return await self.offsets.read(queue, ReadFrom.MEMORY_FIRST)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue fetching at that offset and drop what was prefetched. Raises: NotAssigned."""
        if offset < 0:
            raise IllegalArgument(f"an offset is 0 or more, not {offset}")
        if queue in self._named and queue not in self.assigned:
            # Where it begins could not be learnt now: it is named again when it is taken.
            return
        old = self.of(queue)
        if not old.begun:
            old.pull_offset = old.consume_offset = offset
            return
        old.process_queue.dropped = True
        if old.fetcher is not None:
            old.fetcher.cancel()
        process_queue = ProcessQueue(self.clock.monotonic_ms())
        if queue in self.rebalance.table:
            self.rebalance.table[queue] = process_queue
        self._begin(Assigned(queue, process_queue, offset, offset, old.paused))


def pull_fields(
    group: str,
    queue: MessageQueue,
    subscription: SubscriptionData,
    offset: int,
    count_max: int,
    flag: PullSysFlag,
    suspend_ms: int,
) -> dict[str, str]:
    """Return the PullMessageHeader of a pull that carries its own subscription."""
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count_max),
        "sysFlag": str(int(flag)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        # A tag subscription of its own has no version at the broker (wire.md 4.5).
        "subVersion": "0" if subscription.is_tag else str(subscription.sub_version),
        "subscription": subscription.sub_string,
        "expressionType": subscription.expression_type,
        "bname": queue.broker_name,
    }
