"""Pulling. Source: PullMessageProcessor, RocketMQ 4.9.7.

1. The checks run in RocketMQ's order, with its codes, remarks and log lines.
2. A pull that finds nothing and may wait is held (`wait`) and retried later.
3. The offset that a pull carries is committed on the first attempt, even if the pull is then held.
4. How a group's mode affects a pull is up to its policy (policy.py).
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from pocketmq.books.rows import EventKind
from pocketmq.broker.filters.pull_filter import properties_filter
from pocketmq.broker.groups.consumer_offset import OffsetTableFull
from pocketmq.broker.modes.policy import Compatible
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import OffsetMoved, Refused
from pocketmq.broker.waiting.long_polling import HeldPull, LongPolling
from pocketmq.model.names import FAQ, MASTER_ID, OFFSET_MOVED_EVENT
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.flags import Perm, PullSysFlag
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import EntryFilter, ReadResult, ReadStatus, StoreError

log = logging.getLogger(__name__)

# Plain numbers: an operation on a flag costs more than the rest of a rung.
_READ = int(Perm.READ)
_COMMIT, _SUSPEND = int(PullSysFlag.COMMIT_OFFSET), int(PullSysFlag.SUSPEND)

# Bytes of one answer: as RocketMQ's from memory; a client may ask for less or, 5.x, for another limit.
_SIZE_MAX = 262_144
_SIZE_LIMIT = 8 << 20

_EMPTY = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)
# What was asked for is not stored any more.
_DELETED = (
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.MESSAGE_WAS_REMOVING,
    ReadStatus.OFFSET_FOUND_NULL,
)
# Which code a status is answered with; the two of _EMPTY depend on the offset asked for.
_CODES: dict[ReadStatus, ResponseCode] = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class Pulled(NamedTuple):
    """The outcome of a pull. result: the client's next offset, and the messages as slices of the
    mapped log; broker_id: the broker to send the next pull to.
    """

    code: ResponseCode
    remark: str
    result: ReadResult
    broker_id: int


class Waits(NamedTuple):
    """A pull that found nothing and may be held until deadline_ms (monotonic)."""

    ask: PullMessageHeader
    matches: EntryFilter | None
    deadline_ms: int


class PullActs:
    """Pull, and hold a pull."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        members: Members,
        messages: Messages,
        long_polling: LongPolling,
    ) -> None:
        self._config = node.config
        self._role = node.role
        self._store_host = node.store_host
        self._monotonic_ms: Callable[[], int] = node.clock.monotonic_ms
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._policies = members.policies
        self._store = messages.store
        self._stats = messages.stats
        self._put = messages.put
        self._deliveries = messages.deliveries
        self._reach = messages.reach
        self._long_polling = long_polling

    def pull(self, ask: PullMessageHeader, peer: Peer, *, first: bool = True) -> Pulled | Waits:
        """Look for messages. first: False for a pull that was held; it is always answered.

        Raises: Refused.
        """
        began_ms = self._monotonic_ms()
        group = self._check(ask, peer)
        policy = self._policies.of(ask.consumer_group)
        try:
            matches = policy.filter(ask, group, peer)
        except OffsetMoved as moved:
            if first and ask.sys_flag & _COMMIT:
                self._commit(ask, policy, peer)
            return self._sent_back(ask, group, moved.offset)
        if self._offsets.resets:
            queue = GroupQueue(ask.consumer_group, ask.topic, ask.queue_id)
            offset = policy.reset_to(queue, ask.queue_offset, peer)
            if offset is not None:
                return self._sent_back(ask, group, offset)
        result = self._store.reads.read(
            ask.topic,
            ask.queue_id,
            ask.queue_offset,
            min(max(ask.max_msg_nums, 1), self._config.max_transfer_count_on_message_in_memory),
            matches,
            min(max(ask.max_msg_bytes or _SIZE_MAX, 1), _SIZE_LIMIT),
        )
        if first and ask.sys_flag & _COMMIT:
            self._commit(ask, policy, peer)
        if policy.keeps_offsets:
            policy.pulled(ask, peer, result.next_offset)
        if result.next_offset >= ask.queue_offset:
            if not first and self._deliveries.is_overtaken(ask, peer):
                self._deliveries.overtaken(ask, peer, matches, result.next_offset, result.count)
            elif result.count or result.status not in _DELETED:
                self._deliveries.pulled(
                    ask, peer, matches, result.next_offset, result.count, began_ms
                )
            else:
                key, begin = (ask.consumer_group, ask.topic, ask.queue_id), max(0, ask.queue_offset)
                self._deliveries.event(EventKind.EXPIRED, key, begin, result.next_offset, "")
        if result.count:
            counter = self._stats.get_counter(ask.consumer_group, ask.topic, ask.queue_id)
            counter.nums += result.count
            counter.size += result.size
            counter.calls += 1
            counter.latency_ms += self._monotonic_ms() - began_ms
            suggestion = self._suggestion(group, ask, result)
            return Pulled(ResponseCode.SUCCESS, "FOUND", result, suggestion)
        code = self._code(ask, result, peer)
        if code == ResponseCode.PULL_NOT_FOUND and first and self._may_wait(ask):
            return Waits(ask, matches, self._deadline_ms(ask))
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._role.leads:
            return self._only_behind(
                Waits(ask, matches, self._deadline_ms(ask)), group, result, first
            )
        suggestion = self._suggestion(group)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._offset_moved(ask, result, suggestion)
        return Pulled(code, result.status.value, result, suggestion)

    def _only_behind(
        self, waits: Waits, group: GroupConfig, result: ReadResult, first: bool
    ) -> "Pulled | Waits":
        """Do not correct an offset beyond a slave's end: it may still replicate up to there.

        Ours: a pull that may be held is, so that the client does not retry in a tight loop.
        """
        ask = waits.ask
        if first and self._may_wait(ask) and ask.queue_offset >= result.max_offset:
            return waits
        stays = result._replace(next_offset=ask.queue_offset)
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return Pulled(code, result.status.value, stays, group.broker_id)

    def wait(self, waits: Waits, peer: Peer, again: Callable[[], None]) -> None:
        """Hold a pull; `again` is called when it is to be retried (with first=False).

        Raises: Refused (SYSTEM_BUSY) when too many pulls wait for that queue.
        """
        ask, matches, deadline_ms = waits
        if not self._long_polling.has_room(ask.topic, ask.queue_id):
            remark = (
                f"too many pulls are waiting for messages of queue {ask.queue_id} (pullPollingSize)"
            )
            log.warning("pull refused peer=%s reason=%r", peer.address, remark)
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        passes = properties_filter(matches)
        held = HeldPull(again, peer, ask.queue_offset, matches, deadline_ms, passes)
        held.weigh(ask.subscription, ask.expression_type)
        self._long_polling.hold(ask.topic, ask.queue_id, held)

    # ------------------------------------------------------------ before it

    def _check(self, ask: PullMessageHeader, peer: Peer) -> GroupConfig:
        """Run the checks before the pull and return its group. Raises: Refused."""
        config = self._config
        if not config.broker_permission & _READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden",
            )
        name, topic_name, queue_id = ask.consumer_group, ask.topic, ask.queue_id
        group = self._groups.find(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        topic = self._topics.get(topic_name)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", topic_name[:300], peer.address)
            remark = f"topic[{topic_name}] not exist, apply first please! {FAQ}"
            if topic_name.startswith("%LMQ%"):
                remark = (
                    f"PocketMQ does not serve light queues or lite topics, such as {topic_name}: read the "
                    "topic that its messages were sent to"
                )
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & _READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic_name}] pulling message is forbidden",
            )
        if not 0 <= queue_id < topic.read_queues:
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer.address}]"
            )
            log.warning("%s", remark)
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return group

    def _commit(self, ask: PullMessageHeader, policy: Compatible, peer: Peer) -> None:
        """Commit the offset that the pull carries (invariant 3)."""
        offset = ask.commit_offset
        # Ours: RocketMQ stores -1, too, which forgets where the group was.
        if offset < 0 or not self._role.leads:
            return
        group, topic, queue_id = ask.consumer_group, ask.topic, ask.queue_id
        if policy.keeps_offsets and policy.commit(
            GroupQueue(group, topic, queue_id), offset, peer, as_member=True
        ):
            return
        try:
            self._offsets.commit(group, topic, queue_id, offset, peer.address)
        except OffsetTableFull as error:
            # The messages are given all the same.
            log.warning(
                "an offset that a pull carries is not kept peer=%s: %s", peer.address, error
            )

    # ------------------------------------------------------------ after it

    def _sent_back(self, ask: PullMessageHeader, group: GroupConfig, offset: int) -> Pulled:
        """Redirect the client to `offset`: after a reset and, ours, in mode isolate."""
        log.info(
            "member sent to another offset group=%s topic=%s queue=%d from=%d to=%d",
            ask.consumer_group,
            ask.topic,
            ask.queue_id,
            ask.queue_offset,
            offset,
        )
        low = self._store.min_offset(ask.topic, ask.queue_id)
        high = self._store.max_offset(ask.topic, ask.queue_id)
        result = ReadResult(ReadStatus.NO_MATCHED_MESSAGE, offset, low, high, [], 0, 0)
        code = ResponseCode.PULL_OFFSET_MOVED
        return Pulled(code, "OFFSET_RESET", result, self._suggestion(group))

    def _suggestion(
        self,
        group: GroupConfig,
        ask: PullMessageHeader | None = None,
        read: ReadResult | None = None,
    ) -> int:
        """Return the broker id that the next pull should go to; read: the result of this one."""
        if not self._config.slave_read_enable:
            return MASTER_ID
        if ask is not None and read is not None:
            last = self._store.entries(ask.topic, ask.queue_id, read.next_offset - 1, 1)
            if last and self._reach.is_on_disk(last[0][0]):
                return group.which_broker_when_consume_slowly
        return group.broker_id

    def _may_wait(self, ask: PullMessageHeader) -> bool:
        """Return True if the client allows its pull to be held and the broker is not stopping."""
        return bool(ask.sys_flag & _SUSPEND) and not self._long_polling.closing

    def _deadline_ms(self, ask: PullMessageHeader) -> int:
        config = self._config
        is_long = config.long_polling_enable
        held_ms = ask.suspend_timeout_millis if is_long else config.short_polling_time_mills
        return self._monotonic_ms() + held_ms

    def _code(self, ask: PullMessageHeader, result: ReadResult, peer: Peer) -> ResponseCode:
        """Map a status to its response code, with a line in the log where RocketMQ writes one."""
        status = result.status
        if status in _EMPTY:
            if ask.queue_offset == 0:
                return ResponseCode.PULL_NOT_FOUND
            log.info(
                "a pull of an empty queue, its offset is corrected from=%d to=%d topic=%s queue=%d group=%s",
                ask.queue_offset,
                result.next_offset,
                ask.topic,
                ask.queue_id,
                ask.consumer_group,
            )
            return ResponseCode.PULL_OFFSET_MOVED
        if status is ReadStatus.OFFSET_OVERFLOW_BADLY:
            log.info(
                "a pull behind the end of a queue offset=%d end=%d consumer=%s",
                ask.queue_offset,
                result.max_offset,
                peer.address,
            )
        elif status is ReadStatus.OFFSET_TOO_SMALL:
            log.info(
                "a pull before the begin of a queue group=%s topic=%s offset=%d begin=%d consumer=%s",
                ask.consumer_group,
                ask.topic,
                ask.queue_offset,
                result.min_offset,
                peer.address,
            )
        return _CODES[status]

    def _offset_moved(self, ask: PullMessageHeader, result: ReadResult, suggestion: int) -> None:
        """Publish a corrected offset to OFFSET_MOVED_EVENT, as 4.x does."""
        log.warning(
            "PULL_OFFSET_MOVED:correction offset. topic=%s, groupId=%s, requestOffset=%d, "
            "newOffset=%d, suggestBrokerId=%d",
            ask.topic,
            ask.consumer_group,
            ask.queue_offset,
            result.next_offset,
            suggestion,
        )
        group = ask.consumer_group
        event: dict[str, Any] = {
            "consumerGroup": group,
            "messageQueue": {
                "brokerName": self._config.broker_name,
                "queueId": ask.queue_id,
                "topic": ask.topic,
            },
            "offsetNew": result.next_offset,
            "offsetRequest": ask.queue_offset,
        }
        try:
            self._put.put(
                OFFSET_MOVED_EVENT,
                0,
                fastjson.dumps(event),
                f"TAGS\x01{group}\x02KEYS\x01{group}\x02DELAY\x010\x02WAIT\x01true\x02".encode(),
                born_host=self._store_host,
            )
        except StoreError as error:
            log.warning("cannot store OFFSET_MOVED_EVENT reason=%s", error)
