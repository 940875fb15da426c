"""GET_GROUP_BALANCE, REDELIVER. Ours; their behaviour: acts/balance.py, acts/redeliver.py."""

import logging

from pocketmq.broker.acts.balance import BalanceActs
from pocketmq.broker.acts.redeliver import RedeliverActs
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import GetGroupBalanceHeader, PocketRequestCode, RedeliverHeader
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)


def balance_handlers(acts: BalanceActs, redeliver_acts: RedeliverActs) -> dict[int, Handler]:
    """Return the handlers."""

    async def balance(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = await acts.balance(GetGroupBalanceHeader.parse(request.ext))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return json_answer(request, found)

    async def redeliver(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = await redeliver_acts.redeliver(RedeliverHeader.parse(request.ext))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        log.info("messages redelivered %s by=%s %s", request.ext, connection.peer, found)
        return json_answer(request, found)

    return {
        PocketRequestCode.GET_GROUP_BALANCE: balance,
        PocketRequestCode.REDELIVER: redeliver,
    }
