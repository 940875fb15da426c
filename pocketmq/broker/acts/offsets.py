"""Consumer offsets: queried and committed by members and by administrators.

Source: ConsumerManageProcessor, RocketMQ 4.9.7.
"""

import logging
from collections.abc import Callable
from operator import attrgetter

from pocketmq.books.rows import EventKind
from pocketmq.broker.groups.consumer_offset import MEMBERS_SHARE, OTHERS_SHARE
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.transport.peer import Peer

log = logging.getLogger(__name__)

_FREE_NUMBERS = 65_536


class OffsetActs:
    """Query and commit."""

    def __init__(
        self,
        tables: Tables,
        members: Members,
        messages: Messages,
        who: Callable[[Peer], str] = attrgetter("address"),
    ) -> None:
        """who: names a client, as Node.who."""
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._policies = members.policies
        self._consumers = members.consumers
        self._store = messages.store
        self._reach = messages.reach
        self._deliveries = messages.deliveries
        self._who = who

    def query(self, queue: GroupQueue, peer: Peer, *, or_zero: bool = True) -> int:
        """Return the group's next offset in a queue.

        Without a stored offset: 0 while the queue's beginning is there and still in memory, whatever
        consumeFromWhere says. Raises: Refused (QUERY_NOT_FOUND) when it is not, or without `or_zero` (5.x);
        then the client decides.
        """
        offset = self._policies.of(queue.group).start(queue, peer)
        if offset >= 0:
            return offset
        if not or_zero:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        topic, queue_id = queue.topic, queue.queue_id
        if self._store.min_offset(topic, queue_id) > 0 or self._reach.begins_on_disk(
            topic, queue_id
        ):
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return 0

    def commit(self, queue: GroupQueue, offset: int, peer: Peer, *, as_member: bool) -> bool:
        """Store a group's offset; any value of 64 bits is accepted.

        as_member: sent one-way, as members do; administrators wait for a response.
        Returns: False if it was ignored because the queue has been reset since. Raises: IllegalArgument for a
        queue that the topic does not have, from 65,536 on: each would be kept for ever.
        """
        topic = self._topics.get(queue.topic)
        if topic is not None and not self._has(topic, queue.queue_id):
            raise IllegalArgument(f"topic {queue.topic} has no queue {queue.queue_id}")
        if as_member and topic is None:
            # As in 5.x: members of a topic that was deleted commit on for a while, and one made again under
            # the name would begin there.
            log.info("ignored an offset of a topic that does not exist %s offset=%d", queue, offset)
            return True
        if self._policies.of(queue.group).commit(queue, offset, peer, as_member=as_member):
            return True
        online = self._consumers.get(queue.group)
        is_member = online is not None and peer in online.channels
        if self._offsets.resets:
            # Some members commit over another connection (vipChannelEnabled).
            if (is_member or as_member) and self._offsets.is_reset(*queue, offset):
                log.info(
                    "ignored an offset, because the queue was reset %s offset=%d", queue, offset
                )
                return False
            self._offsets.resets.pop(queue, None)
        by_hand = not is_member and not as_member
        if not is_member:
            old = max(self._offsets.query(*queue), 0)
            kind = EventKind.RESET if by_hand else EventKind.COMMIT
            text = f"by {self._who(peer)}, which is not a member, with an offset of its own"
            self._deliveries.event(kind, queue, old, offset, text)
        if by_hand:
            self._offsets.set_by_hand(*queue, offset, peer.address)
        else:
            share = MEMBERS_SHARE if is_member else OTHERS_SHARE
            self._offsets.commit(*queue, offset, peer.address, share=share)
        return True

    def _has(self, topic: TopicConfig, queue_id: int) -> bool:
        """Return True for a queue of the topic, for one that it had once, and for any low number.

        RocketMQ takes any, and programs keep their own progress under numbers of queues: the ledger of
        Spark's sink has one for each partition.
        """
        if 0 <= queue_id < max(topic.read_queues, topic.write_queues, _FREE_NUMBERS):
            return True
        return self._store.max_offset(topic.topic, queue_id) > 0
