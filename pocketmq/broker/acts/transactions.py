"""End a producer's transaction: commit or roll back its half message. Source:
EndTransactionProcessor, RocketMQ 4.9.7.

1. A half message is a record of RMQ_SYS_TRANS_HALF_TOPIC queue 0; REAL_TOPIC and REAL_QID name its
   destination, PGROUP its producer group.
2. Commit appends the real message (commit bits in sysFlag, preparedTransactionOffset = the half record's
   position), then an op message; rollback appends the op message alone (transaction_check.py reads them).
3. Group, half-queue offset and position must be those of the half record, or nothing happens.
"""

import logging
from dataclasses import dataclass
from enum import IntEnum

from pocketmq.broker.internal_append import FIRST_STORED
from pocketmq.broker.parts import Messages
from pocketmq.broker.refused import Refused
from pocketmq.broker.transaction_check import HalfMessages
from pocketmq.model.message_codec import get_property, remove_property
from pocketmq.model.names import TRANS_HALF_TOPIC
from pocketmq.model.record import Record, read_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.store import StoreError
from pocketmq.store.timer.properties import TimerIllegal, without_timer

log = logging.getLogger(__name__)

_MASK = 0xC


class Decision(IntEnum):
    """How a transaction ends."""

    COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True)
class HalfPlace:
    """How a producer identifies its half message: group, offset in the half queue, position in the log."""

    producer_group: str
    offset: int
    position: int


class TransactionActs:
    """Commit and roll back."""

    def __init__(self, messages: Messages, half: HalfMessages) -> None:
        self._store = messages.store
        self._put = messages.put
        self._half = half

    def end(self, place: HalfPlace, decision: Decision) -> int:
        """Commit or roll back. Returns: the log position that must be safe. Raises: Refused (invariant 3)."""
        found = self._find(place)
        try:
            # Ours: a decision that comes twice is carried out once.
            current = self._half.current(found)
            if current is not None and not self._half.is_decided(current):
                if decision is Decision.COMMIT:
                    self._commit(found)
                keyless = get_property(found.properties, b"UNIQ_KEY") is None
                self._half.decide(current, keyed=keyless)
                self._half.count_end(found, committed=decision is Decision.COMMIT)
        except StoreError as error:
            log.error("cannot end a transaction reason=%s", error)
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return self._store.commit_log_max_position

    def _find(self, place: HalfPlace) -> Record:
        """Return the half record. Raises: Refused, with RocketMQ's remarks."""
        stored = self._store.message_at(place.position)
        if stored is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        try:
            record = read_record(stored)
        except MessageCodecError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"Find prepared transaction message failed: {error}"
            ) from error
        group = get_property(record.properties, b"PGROUP")
        # Ours: RocketMQ also takes a record of any other topic that happens to have a PGROUP.
        if group is None or record.topic != TRANS_HALF_TOPIC:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if group.decode("utf-8", "replace") != place.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != place.offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        topic = (get_property(record.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        if self._store.deleted.has_waiting(topic, record.position):
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] was deleted after the half message was sent",
            )
        return record

    def _commit(self, half: Record) -> None:
        topic = get_property(half.properties, b"REAL_TOPIC")
        queue_id = get_property(half.properties, b"REAL_QID")
        if topic is None or queue_id is None or not queue_id.isdigit():
            raise MessageCodecError("the half message does not name its topic")
        properties = remove_property(half.properties, FIRST_STORED)
        try:
            self._put_committed(half, topic, int(queue_id), properties)
        except TimerIllegal as error:
            # Taken before it was checked, or before the limit was made smaller: late is better than never,
            # and early too.
            log.error("a committed message is delivered at once reason=%s", error)
            self._put_committed(half, topic, int(queue_id), without_timer(properties))

    def _put_committed(self, half: Record, topic: bytes, queue_id: int, properties: bytes) -> None:
        name = topic.decode("utf-8", "replace")
        with self._store.of_any_size():
            self._put.put(
                name,
                self._put.queue_now(name, queue_id),
                half.body,
                # RocketMQ 4.9.7 stores the half message's properties as they are; by TRAN_MSG the Java
                # client knows the transaction's id.
                properties,
                born_host=half.born_host,
                flag=half.flag,
                sys_flag=half.sys_flag & ~_MASK | int(Decision.COMMIT),
                born_ms=half.born_ms,
                reconsume_times=half.reconsume_times,
                prepared_offset=half.position,
            )
