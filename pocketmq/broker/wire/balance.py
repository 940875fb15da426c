"""GET_GROUP_BALANCE, REDELIVER. Ours; their behaviour: acts/balance.py, acts/redeliver.py."""

import logging
from functools import cache
from typing import TYPE_CHECKING

from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import GetGroupBalanceHeader, PocketRequestCode, RedeliverHeader
from pocketmq.remoting.transport.connection import Connection, Handler

if TYPE_CHECKING:
    from pocketmq.broker.acts.balance import BalanceActs
    from pocketmq.broker.acts.redeliver import RedeliverActs
    from pocketmq.broker.services import Parts

log = logging.getLogger(__name__)


def balance_handlers(parts: "Parts") -> dict[int, Handler]:
    """Return the handlers; the ledger is loaded and made at the first question, not at every start."""

    @cache
    def acts() -> "tuple[BalanceActs, RedeliverActs]":
        from pocketmq.broker.acts.balance import BalanceActs
        from pocketmq.broker.acts.redeliver import RedeliverActs
        from pocketmq.broker.ledger.redelivery import GroupRedelivery

        node, tables, members, messages = parts.node, parts.tables, parts.members, parts.messages
        ledger = parts.balances.ledger
        redelivery = GroupRedelivery(node, tables, members, messages, ledger)
        return (
            BalanceActs(tables.groups, ledger),
            RedeliverActs(node.role, redelivery, messages.durability),
        )

    async def balance(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = await acts()[0].balance(GetGroupBalanceHeader.parse(request.ext))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return json_answer(request, found)

    async def redeliver(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = await acts()[1].redeliver(RedeliverHeader.parse(request.ext))
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        log.info("messages redelivered %s by=%s %s", request.ext, connection.peer, found)
        return json_answer(request, found)

    return {
        PocketRequestCode.GET_GROUP_BALANCE: balance,
        PocketRequestCode.REDELIVER: redeliver,
    }
