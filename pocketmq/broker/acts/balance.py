"""Account for the messages of a group, for `pocketmq group balance` and the console. Ours."""

from typing import Any

from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
from pocketmq.broker.ledger.ledger import GroupLedger
from pocketmq.broker.refused import Refused
from pocketmq.model.balance import State
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.requests import GetGroupBalanceHeader

# Ranges of an answer.
_PAGE = 1_000


class BalanceActs:
    """Asks the ledger."""

    def __init__(self, groups: SubscriptionGroupManager, ledger: GroupLedger) -> None:
        self._groups = groups
        self._ledger = ledger

    async def balance(self, ask: GetGroupBalanceHeader) -> dict[str, Any]:
        """Return the balance, or the messages in some states. Raises: Refused."""
        since_ms = max(0, ask.since or 0)
        if ask.states is None:
            balances = await self._ledger.balances(ask.group, ask.topic, since_ms)
            if not balances and self._groups.get(ask.group) is None:
                raise Refused(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"subscription group [{ask.group}] does not exist",
                )
            found: dict[str, Any] = {"topics": [each.to_json() for each in balances]}
        else:
            try:
                states = frozenset(map(State.of, ask.states.split(",")))
            except KeyError as error:
                known = ", ".join(each.value for each in State)
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"no state {error}; states are: {known}"
                ) from error
            try:
                page = await self._ledger.listed(
                    ask.group, states, ask.topic, since_ms, ask.after or "", ranges=_PAGE
                )
            except ValueError as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
            found = {"rows": [each.to_json() for each in page.rows], "after": page.after}
        return {"recordedSince": self._ledger.since_ms(ask.group), **found}
