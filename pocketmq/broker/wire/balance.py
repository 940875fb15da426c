"""GET_GROUP_BALANCE. Ours; its behaviour: acts/balance.py."""

from pocketmq.broker.acts.balance import BalanceActs
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import GetGroupBalanceHeader, PocketRequestCode
from pocketmq.remoting.transport.connection import Connection, Handler


def balance_handlers(acts: BalanceActs) -> dict[int, Handler]:
    """Return the handler."""

    async def balance(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = await acts.balance(GetGroupBalanceHeader.parse(request.ext))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return json_answer(request, found)

    return {PocketRequestCode.GET_GROUP_BALANCE: balance}
