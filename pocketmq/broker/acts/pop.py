"""Pop: the broker hands out messages, each with its own invisible time, and tracks those in flight.

Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor, RocketMQ
5.3.3.

1. A pop reads the topic's queue, or all of them from a random one on, and the group's pop retry topics,
   first or last by chance; what it hands out is in the revive log before (revive_log.py).
2. Records of a retry topic are written anew with the topic's own name and their receipt in POP_CK: the
   client sees no retry topic.
3. A pop that finds nothing waits (pop_polling.py) for its pollTime. Ours: from its arrival, by the broker's
   clock; RocketMQ counts from bornTime, by the client's clock, and refuses every pop of a slow clock.
4. A pop whose filter rejects all messages of one look at a queue looks again in a later turn of the loop,
   between the looks of others, until it finds a message, has seen all, or its time is over.
5. An orderly pop (order=true) takes no check point, it blocks its queue (order_info.py).
6. Ours: a group's policy may refuse a pop (policy.py): a pop is filtered by its own expression, and the
   group moves on behind what another member asks for.
"""

import logging
import random
from collections.abc import Callable
from typing import NamedTuple

from pocketmq.broker.filters.pull_filter import properties_filter
from pocketmq.broker.filters.tag_filter import TagFilter
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.pop.check_point import OFFSETS_MAX
from pocketmq.broker.pop.pop_polling import PopPolling
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.pop.taking import Popped, PopTaking
from pocketmq.broker.refused import Refused
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.broker.waiting.held_request import HeldRequest
from pocketmq.model.names import FAQ
from pocketmq.model.pop_receipt import (
    INVISIBLE_MS_MAX,
)
from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.headers import (
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PopMessageHeader,
)
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

# A pop that has less time left than this is not held any more.
_HOLD_MIN_MS = 50
_Ask = PopMessageHeader | PeekMessageHeader | NotificationHeader | PollingInfoHeader


class Notified(NamedTuple):
    """Whether there is something to pop; full: the request was not held because too many already wait."""

    has_message: bool
    full: bool


class PopActs:
    """Pop, peek, notify, and the number of waiting pops."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        members: Members,
        messages: Messages,
        pop: PopService,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._policies = members.policies
        self._store = messages.store
        self._stats = messages.stats
        self._pop = pop
        self._taking = PopTaking(node, tables, messages, pop, random_below)

    # ------------------------------------------------------------ the requests

    def waits_until_ms(self, ask: PopMessageHeader | NotificationHeader) -> int:
        """Return until when a request that has just come may be held (monotonic, invariant 3)."""
        return self._clock.monotonic_ms() + ask.poll_time

    def pop(
        self, ask: PopMessageHeader, peer: Peer, until_ms: int, again: Callable[[], None]
    ) -> Popped | None:
        """Hand out messages; None if the pop is held, and `again` is called when it is to be retried.

        until_ms: see waits_until_ms. Raises: Refused.
        """
        began_ms = self._clock.monotonic_ms()
        ask.invisible_time = min(max(0, ask.invisible_time), INVISIBLE_MS_MAX)
        if ask.max_msg_nums > OFFSETS_MAX:
            remark = f"the broker[{self._config.broker_ip1}] pop message's num is greater than 32"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        self._check(ask, peer, "pop")
        self._check_ours(ask, peer)
        matches = _filter(ask)
        found = self._taking.take(ask, matches, peer)
        if found.count:
            counter = self._stats.get_counter(ask.consumer_group, ask.topic, ask.queue_id)
            counter.nums += found.count
            counter.size += found.size
            counter.calls += 1
            counter.latency_ms += self._clock.monotonic_ms() - began_ms
            if found.rest > 0:
                self._pop.polling.wake(ask.consumer_group, ask.topic, ask.queue_id)
            self._pop.wake()
            return found
        if found.failure is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(found.failure))
        held = HeldRequest(again, peer, matches, until_ms, properties_filter(matches))
        code = self._hold(self._pop.polling, ask, held)
        if code is None:
            if found.is_unfinished:
                self._pop.polling.wake_held(held)
            return None
        found.code = code
        return found

    def notify(
        self, ask: NotificationHeader, peer: Peer, until_ms: int, again: Callable[[], None]
    ) -> Notified | None:
        """Check for messages to pop; None if the request is held, as a pop would be. Raises: Refused."""
        self._check(ask, peer, "peeking")
        queues = self._taking.queues(ask.topic, ask.consumer_group, ask.queue_id)
        if any(self._has_message(topic, queue_id, ask) for topic, queue_id in queues):
            return Notified(True, False)
        held = HeldRequest(again, peer, None, until_ms)
        code = self._hold(self._pop.notifications, ask, held)
        return None if code is None else Notified(False, code == ResponseCode.POLLING_FULL)

    def peek(self, ask: PeekMessageHeader, peer: Peer) -> Popped:
        """Return what the group's next pop might get, changing nothing. Raises: Refused."""
        self._check(ask, peer, "peeking")
        return self._taking.look(ask)

    def waiting(self, ask: PollingInfoHeader, peer: Peer) -> int:
        """Return the number of pops that wait. Raises: Refused."""
        self._check(ask, peer, "peeking")
        return self._pop.polling.polling(GroupQueue(ask.consumer_group, ask.topic, ask.queue_id))

    # ------------------------------------------------------------ before it

    def _check_ours(self, ask: PopMessageHeader, peer: Peer) -> None:
        """Run our checks beyond those of RocketMQ. Raises: Refused."""
        group = ask.consumer_group
        if not ask.order:
            fault = self._pop.revive.fault(ask.topic, group)
            if fault is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        remark = self._policies.of(group).pop_refusal(group, peer)
        if remark is not None:
            log.warning("pop refused peer=%s reason=%r", peer.address, remark)
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)

    def _check(self, ask: _Ask, peer: Peer, what: str) -> None:
        """Run RocketMQ's checks in its order. Raises: Refused."""
        config, name, group = self._config, ask.topic, ask.consumer_group
        if not config.broker_permission & Perm.READ:
            remark = f"the broker[{config.broker_ip1}] {what} message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(name)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", name[:300], peer.address)
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.readable:
            remark = f"the topic[{name}] peeking message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if ask.queue_id >= topic.read_queues:
            remark = (
                f"queueId[{ask.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer.address}]"
            )
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        found = self._groups.find(group)
        if found is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not found.consume_enable:
            remark = f"subscription group no permission, {group}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)

    def _has_message(self, topic: str, queue_id: int, ask: NotificationHeader) -> bool:
        queue = GroupQueue(ask.consumer_group, topic, queue_id)
        if ask.order and self._pop.order.is_blocked(queue, ask.attempt_id):
            return False
        offset = self._pop.log.state.next_offset(queue, self._offsets.query(*queue))
        if offset < 0:
            offset = self._store.min_offset(topic, queue_id)
        return self._store.max_offset(topic, queue_id) > offset

    # ------------------------------------------------------------ waiting

    def _hold(
        self,
        polling: PopPolling,
        ask: PopMessageHeader | NotificationHeader,
        held: HeldRequest,
    ) -> ResponseCode | None:
        """Hold a pop (invariant 3). Returns: the response code if it cannot be held, else None."""
        if ask.poll_time <= 0 or polling.closing:
            return ResponseCode.POLLING_TIMEOUT
        queue = GroupQueue(ask.consumer_group, ask.topic, ask.queue_id)
        if not polling.has_room(queue):
            log.warning("too many pops are waiting, refused one %s", queue)
            return ResponseCode.POLLING_FULL
        if held.deadline_ms - self._clock.monotonic_ms() < _HOLD_MIN_MS:
            return ResponseCode.POLLING_TIMEOUT
        held.weigh(ask.exp, ask.exp_type, ask.attempt_id, ask.bname)
        polling.hold(queue, held)
        return None


def _filter(ask: PopMessageHeader) -> EntryFilter | None:
    """Return the filter of a pop; None lets everything through. Raises: Refused."""
    try:
        return _made_filter(ask)
    except (IllegalArgument, SelectorError) as error:
        log.warning(
            "cannot parse the subscription of a pop group=%s expression=%r reason=%s",
            ask.consumer_group,
            (ask.exp or "")[:300],
            error,
        )
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from error


def _made_filter(ask: PopMessageHeader) -> EntryFilter | None:
    if not ask.exp:
        return None
    subscription = build_subscription(ask.topic, ask.exp, ask.exp_type)
    if subscription.is_tag:
        return None if subscription.is_all else TagFilter.of(subscription)
    return ExpressionMessageFilter(
        ConsumerFilterData(
            group=ask.consumer_group,
            topic=ask.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            bloom=None,
            client_version=0,
            born_ms=0,
            dead_ms=0,
            compiled=compile_expression(subscription.sub_string),
        )
    )
