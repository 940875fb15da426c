"""END_TRANSACTION: a producer commits or rolls back its half message."""

import logging

from pocketmq.broker.acts.transactions import Decision, HalfPlace, TransactionActs
from pocketmq.broker.durability import Durability
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.when_stored import Answer, when_kept
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import EndTransactionHeader
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)


class EndTransactionProcessor:
    """Handler of the one code."""

    def __init__(self, transactions: TransactionActs, durability: Durability) -> None:
        self._transactions = transactions
        self._durability = durability

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end}

    def end(self, request: RemotingCommand, connection: Connection) -> Answer | None:
        """Commit (8) or roll back (12); 0 means `not decided` and gets no response, as in RocketMQ.

        Ours: the response waits until the decision is safe (durability.py); RocketMQ answers at once.
        """
        header = EndTransactionHeader.parse(request.ext)
        known = {int(each): each for each in Decision}
        decision = known.get(header.commit_or_rollback)
        if header.from_transaction_check or decision is not Decision.COMMIT:
            log.warning(
                "end of transaction check=%s decision=%s producer=%s group=%s offset=%d remark=%r",
                str(header.from_transaction_check).lower(),
                "pending" if decision is None else decision.name.lower(),
                connection.peer,
                header.producer_group,
                header.tran_state_table_offset,
                request.remark,
            )
        if decision is None:
            return None
        place = HalfPlace(
            header.producer_group, header.tran_state_table_offset, header.commit_log_offset
        )
        try:
            end = self._transactions.end(place, decision)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return when_kept(request, request.answer(ResponseCode.SUCCESS), self._durability, end)
