"""END_TRANSACTION: a producer commits or rolls back its half message. Source: EndTransactionProcessor,
RocketMQ 4.9.7; wire.md 3.8.

1. A half message is a record of RMQ_SYS_TRANS_HALF_TOPIC queue 0; REAL_TOPIC and REAL_QID say where it is
   meant to go, PGROUP whose it is.
2. Commit appends the real message (commit bits in sysFlag, preparedTransactionOffset = the half record's
   position), then an op message; rollback appends the op message alone (transaction_check.py reads them).
3. Group, half-queue offset and position must be those of the half record, or nothing happens.
"""

import logging

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.message_put import MessagePut
from pocketmq.broker.transaction_check import HalfMessages
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.headers import EndTransactionHeader
from pocketmq.remoting.message_codec import get_property
from pocketmq.remoting.names import TRANS_HALF_TOPIC
from pocketmq.remoting.record import Record, read_record
from pocketmq.store import MessageStore, StoreError

log = logging.getLogger(__name__)

_COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
_ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)
_MASK = 0xC


class EndTransactionProcessor:
    """Handler of the one code."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, put: MessagePut, half: HalfMessages
    ) -> None:
        self._config = config
        self._store = store
        self._put = put
        self._half = half

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end}

    def end(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """Commit (8) or roll back (12); 0 means `not decided` and is not answered, as in RocketMQ."""
        header = EndTransactionHeader.parse(request.ext)
        decision = header.commit_or_rollback
        if header.from_transaction_check or decision != _COMMIT:
            log.warning(
                "end of transaction check=%s decision=%s producer=%s group=%s offset=%d remark=%r",
                str(header.from_transaction_check).lower(),
                {_COMMIT: "commit", _ROLLBACK: "rollback"}.get(decision, "pending"),
                connection.peer,
                header.producer_group,
                header.tran_state_table_offset,
                request.remark,
            )
        if decision not in (_COMMIT, _ROLLBACK):
            return None
        found = self._find(header)
        if isinstance(found, str):
            return request.answer(ResponseCode.SYSTEM_ERROR, found)
        try:
            # Ours: a decision that comes twice is carried out once, while it is remembered.
            current = self._half.current(found.queue_offset)
            if not self._half.is_decided(current):
                if decision == _COMMIT:
                    self._commit(found)
                self._half.decide(current)
                self._half.count_end(found, committed=decision == _COMMIT)
        except StoreError as error:
            log.error("a transaction could not be ended reason=%s", error)
            return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        return request.answer(ResponseCode.SUCCESS)

    def _find(self, header: EndTransactionHeader) -> Record | str:
        """The half record, or RocketMQ's remark on why it is not (invariant 3)."""
        stored = self._store.message_at(header.commit_log_offset)
        if stored is None:
            return "Find prepared transaction message failed"
        try:
            record = read_record(stored)
        except MessageCodecError as error:
            return f"Find prepared transaction message failed: {error}"
        group = get_property(record.properties, b"PGROUP")
        # Ours: RocketMQ also takes a record of any other topic that happens to have a PGROUP.
        if group is None or record.topic != TRANS_HALF_TOPIC:
            return "Find prepared transaction message failed"
        if group.decode("utf-8", "replace") != header.producer_group:
            return "The producer group wrong"
        if record.queue_offset != header.tran_state_table_offset:
            return "The transaction state table offset wrong"
        return record

    def _commit(self, half: Record) -> None:
        topic = get_property(half.properties, b"REAL_TOPIC")
        queue_id = get_property(half.properties, b"REAL_QID")
        if topic is None or queue_id is None or not queue_id.isdigit():
            raise MessageCodecError("the half message does not say where it is meant to go")
        self._put.put(
            topic.decode("utf-8", "replace"),
            int(queue_id),
            half.body,
            # RocketMQ 4.9.7 stores the half message's properties as they are; by TRAN_MSG the Java
            # client knows the transaction's id.
            half.properties,
            born_host=half.born_host,
            flag=half.flag,
            sys_flag=half.sys_flag & ~_MASK | _COMMIT,
            born_ms=half.born_ms,
            reconsume_times=half.reconsume_times,
            prepared_offset=half.position,
        )
