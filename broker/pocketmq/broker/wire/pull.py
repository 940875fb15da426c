"""Pulling: PULL_MESSAGE, LITE_PULL_MESSAGE. Source: PullMessageProcessor, RocketMQ 4.9.7; wire.md 3.4,
acceptance S73-S80.

1. The ladder's rungs come in RocketMQ's order, with its codes, remarks and log lines.
2. A pull that finds nothing and may wait is held (long_polling.py) and run once more later.
3. What is found is written as slices of the mapped log, without a copy.
4. An offset that comes with a pull is committed on its first pass, also when the pull is held then.
5. What a group's mode has to do with a pull, its policy says (policy.py).
"""

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from pocketmq.broker.long_polling import HeldPull, LongPolling
from pocketmq.broker.parts import Members, Messages, Node, Tables
from pocketmq.broker.policy import Compatible
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.broker.pull_filter import properties_filter
from pocketmq.broker.refused import OffsetMoved, Refused
from pocketmq.broker.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import OUR_LANGUAGE, OUR_VERSION, RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode_head
from pocketmq.remoting.connection import Connection, Handler, Reply
from pocketmq.remoting.flags import Perm, PullSysFlag
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.remoting.names import FAQ, MASTER_ID, OFFSET_MOVED_EVENT
from pocketmq.store import EntryFilter, ReadResult, ReadStatus, StoreError

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">II")
_JSON_FOUND = (
    '{"code":0,"extFields":{"maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
    f'"suggestWhichBrokerId":"%d"}},"flag":1,"language":"{OUR_LANGUAGE}","opaque":%d,'
    f'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}'
).encode()
_COMMIT, _SUSPEND = int(PullSysFlag.COMMIT_OFFSET), int(PullSysFlag.SUSPEND)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)

# Bytes of one answer: as RocketMQ's from memory; a client may ask for less or, 5.x, for another limit.
_SIZE_MAX = 262_144
_SIZE_LIMIT = 8 << 20
_COUNT_LIMIT = 16_384

_EMPTY = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)
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


class PullMessageProcessor:
    """Handlers of the two codes."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        members: Members,
        messages: Messages,
        long_polling: LongPolling,
    ) -> None:
        self._deliveries = messages.deliveries
        self._role = node.role
        self._policies = members.policies
        self._config = node.config
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._long_polling = long_polling
        self._stats = messages.stats
        self._put = messages.put
        self._store_host = node.store_host
        self._monotonic_ms: Callable[[], int] = node.clock.monotonic_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull,
        }

    def pull(self, request: RemotingCommand, connection: Connection) -> Reply:
        """PULL_MESSAGE."""
        return self._pull(request, connection, may_hold=True)

    def lite_pull(self, request: RemotingCommand, connection: Connection) -> Reply:
        """LITE_PULL_MESSAGE, the same by another number (5.x)."""
        if not self._config.lite_pull_message_enable:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] for lite pull consumer is forbidden",
                {},
            )
        return self._pull(request, connection, may_hold=True)

    def _run_held(self, request: RemotingCommand, connection: Connection) -> None:
        """A held pull is done waiting: answer it whatever comes."""
        reply = self._pull(request, connection, may_hold=False)
        if reply is not None:
            connection.send(reply)

    def _pull(self, request: RemotingCommand, connection: Connection, *, may_hold: bool) -> Reply:
        began_ms = self._monotonic_ms()
        header = _header(request.ext)
        config = self._config
        if not config.broker_permission & Perm.READ:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden",
                {},
            )
        group_name, topic_name, queue_id = header.consumer_group, header.topic, header.queue_id
        group = self._groups.find(group_name)
        if group is None:
            return request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist, {FAQ}",
                {},
            )
        if not group.consume_enable:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {group_name}",
                {},
            )
        topic = self._topics.get(topic_name)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", topic_name[:300], connection.peer)
            return request.answer(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic_name}] not exist, apply first please! {FAQ}",
                {},
            )
        if not topic.perm & Perm.READ:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic_name}] pulling message is forbidden",
                {},
            )
        if not 0 <= queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.peer}]"
            )
            log.warning("%s", remark)
            return request.answer(ResponseCode.SYSTEM_ERROR, remark, {})
        policy = self._policies.of(group_name)
        try:
            matches = policy.filter(header, group, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, {})
        except OffsetMoved as moved:
            if may_hold and header.sys_flag & _COMMIT:
                self._commit(header, policy, connection)
            return self._sent_back(request, header, group, moved.offset)
        if self._offsets.resets:
            queue = QueueOf(group_name, topic_name, queue_id)
            offset = policy.reset_to(queue, header.queue_offset, connection)
            if offset is not None:
                return self._sent_back(request, header, group, offset)
        result = self._store.read(
            topic_name,
            queue_id,
            header.queue_offset,
            min(max(header.max_msg_nums, 1), _COUNT_LIMIT),
            matches,
            min(max(header.max_msg_bytes or _SIZE_MAX, 1), _SIZE_LIMIT),
        )
        if may_hold and header.sys_flag & _COMMIT:
            self._commit(header, policy, connection)
        policy.pulled(header, connection, result.next_offset)
        if result.next_offset >= header.queue_offset:
            self._deliveries.pulled(
                header, connection, matches, result.next_offset, result.count, began_ms
            )
        if result.count:
            counter = self._stats.get_counter(group_name, topic_name, queue_id)
            counter.nums += result.count
            counter.size += result.size
            counter.calls += 1
            counter.latency_ms += self._monotonic_ms() - began_ms
            return self._found(request, result, group)
        return self._nothing(request, connection, header, group, result, matches, may_hold=may_hold)

    def _commit(
        self, header: PullMessageHeader, policy: Compatible, connection: Connection
    ) -> None:
        """The offset that came with a pull (invariant 4)."""
        offset = header.commit_offset
        if offset < 0 or not self._role.leads:
            return
        queue = QueueOf(header.consumer_group, header.topic, header.queue_id)
        if not policy.commit(queue, offset, connection, as_member=True):
            self._offsets.commit(*queue, offset, connection.peer)

    def _sent_back(
        self,
        request: RemotingCommand,
        header: PullMessageHeader,
        group: SubscriptionGroupConfig,
        offset: int,
    ) -> RemotingCommand:
        """The client must go on at `offset`: after a reset and, ours, in mode isolate."""
        log.info(
            "member sent to another offset group=%s topic=%s queue=%d from=%d to=%d",
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.queue_offset,
            offset,
        )
        ext = {
            "suggestWhichBrokerId": str(self._suggestion(group)),
            "nextBeginOffset": str(offset),
            "minOffset": str(self._store.min_offset(header.topic, header.queue_id)),
            "maxOffset": str(self._store.max_offset(header.topic, header.queue_id)),
        }
        return request.answer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", ext)

    # ------------------------------------------------------------ the answer

    def _suggestion(self, group: SubscriptionGroupConfig) -> int:
        """The broker id that the next pull should go to."""
        return group.broker_id if self._config.slave_read_enable else MASTER_ID

    def _found(
        self, request: RemotingCommand, result: ReadResult, group: SubscriptionGroupConfig
    ) -> Reply:
        """Invariant 3."""
        suggestion = self._suggestion(group)
        if request.encoding:
            answer = request.answer(ResponseCode.SUCCESS, "FOUND", _extension(result, suggestion))
            return [encode_head(answer, result.size), *result.buffers]
        header = _JSON_FOUND % (
            result.max_offset,
            result.min_offset,
            result.next_offset,
            suggestion,
            request.opaque,
        )
        size = len(header)
        return [_HEAD.pack(4 + size + result.size, size) + header, *result.buffers]

    def _nothing(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageHeader,
        group: SubscriptionGroupConfig,
        result: ReadResult,
        matches: EntryFilter | None,
        *,
        may_hold: bool,
    ) -> Reply:
        code = self._code(header, result, connection)
        suggestion = self._suggestion(group)
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and self._may_wait(header):
            config = self._config
            held_ms = (
                header.suspend_timeout_millis
                if config.long_polling_enable
                else config.short_polling_time_mills
            )
            deadline = self._monotonic_ms() + held_ms
            passes = properties_filter(matches)
            if not self._long_polling.has_room(header.topic, header.queue_id):
                remark = (
                    f"too many pulls wait for messages of queue {header.queue_id} (pullPollingSize)"
                )
                log.warning("pull refused peer=%s reason=%r", connection.peer, remark)
                return request.answer(ResponseCode.SYSTEM_BUSY, remark, {})
            again = partial(self._run_held, request, connection)
            pull = HeldPull(again, connection, header.queue_offset, matches, deadline, passes)
            self._long_polling.hold(header.topic, header.queue_id, pull)
            return None
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._offset_moved(header, result, suggestion)
        return request.answer(code, result.status.value, _extension(result, suggestion))

    def _may_wait(self, header: PullMessageHeader) -> bool:
        """Whether the client lets its pull be held, and the broker is not about to stop."""
        return bool(header.sys_flag & _SUSPEND) and not self._long_polling.closing

    def _code(
        self, header: PullMessageHeader, result: ReadResult, connection: Connection
    ) -> ResponseCode:
        """The code of a status, with the log line that RocketMQ writes for it."""
        status = result.status
        if status in _EMPTY:
            if header.queue_offset == 0:
                return ResponseCode.PULL_NOT_FOUND
            log.info(
                "the broker store no queue data, fix the request offset %d to %d, Topic: %s "
                "QueueId: %d Consumer Group: %s",
                header.queue_offset,
                result.next_offset,
                header.topic,
                header.queue_id,
                header.consumer_group,
            )
            return ResponseCode.PULL_OFFSET_MOVED
        if status is ReadStatus.OFFSET_OVERFLOW_BADLY:
            log.info(
                "the request offset: %d over flow badly, broker max offset: %d, consumer: %s",
                header.queue_offset,
                result.max_offset,
                connection.peer,
            )
        elif status is ReadStatus.OFFSET_TOO_SMALL:
            log.info(
                "the request offset too small. group=%s, topic=%s, requestOffset=%d, "
                "brokerMinOffset=%d, clientIp=%s",
                header.consumer_group,
                header.topic,
                header.queue_offset,
                result.min_offset,
                connection.peer,
            )
        return _CODES[status]

    def _offset_moved(self, header: PullMessageHeader, result: ReadResult, suggestion: int) -> None:
        """A corrected offset is also told in OFFSET_MOVED_EVENT, as in 4.x."""
        log.warning(
            "PULL_OFFSET_MOVED:correction offset. topic=%s, groupId=%s, requestOffset=%d, "
            "newOffset=%d, suggestBrokerId=%d",
            header.topic,
            header.consumer_group,
            header.queue_offset,
            result.next_offset,
            suggestion,
        )
        group = header.consumer_group
        event: dict[str, Any] = {
            "consumerGroup": group,
            "messageQueue": {
                "brokerName": self._config.broker_name,
                "queueId": header.queue_id,
                "topic": header.topic,
            },
            "offsetNew": result.next_offset,
            "offsetRequest": header.queue_offset,
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
            log.warning("no OFFSET_MOVED_EVENT stored reason=%s", error)


def _header(ext: dict[str, str] | None) -> PullMessageHeader:
    """PullMessageHeader.parse at a quarter of its price; whatever is odd is left to it and its errors."""
    try:
        if ext is not None and "maxMsgBytes" not in ext:
            return PullMessageHeader(
                ext["consumerGroup"],
                ext["topic"],
                int(ext["queueId"]),
                int(ext["queueOffset"]),
                int(ext["maxMsgNums"]),
                int(ext["sysFlag"]),
                int(ext["commitOffset"]),
                int(ext["suspendTimeoutMillis"]),
                int(ext["subVersion"]),
                ext.get("subscription"),
                ext.get("expressionType"),
            )
    except (KeyError, ValueError):
        pass
    return PullMessageHeader.parse(ext)


def _extension(result: ReadResult, suggestion: int) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(suggestion),
        "nextBeginOffset": str(result.next_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
    }
