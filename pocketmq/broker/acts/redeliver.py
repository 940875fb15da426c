"""Give lost messages to their group again, for `pocketmq group redeliver`. Ours; see ledger/redelivery.py."""

from typing import Any

from pocketmq.broker.durability import Durability
from pocketmq.broker.ledger.redelivery import GroupRedelivery
from pocketmq.broker.refused import Refused
from pocketmq.broker.role import Role
from pocketmq.model.balance import State
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.requests import RedeliverHeader
from pocketmq.store import StoreError

_STATES = (State.LOST, State.SKIPPED)


class RedeliverActs:
    """Checks, gives, and waits until the copies are safe."""

    def __init__(self, role: Role, redelivery: GroupRedelivery, durability: Durability) -> None:
        self._role = role
        self._redelivery = redelivery
        self._durability = durability

    async def redeliver(self, ask: RedeliverHeader) -> dict[str, Any]:
        """Return how many messages were given, how many were not, and where to continue. Raises: Refused."""
        state = next((each for each in _STATES if each.value == ask.state), None)
        if state is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "only lost or skipped messages are redelivered"
            )
        if not self._role.leads:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask its master")
        try:
            found = await self._redelivery.give(
                ask.group,
                state,
                ask.topic,
                max(0, ask.since or 0),
                max(0, ask.count),
                ask.after or "",
            )
        except (StoreError, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if found.given and self._durability.waits:
            code = await self._durability.kept(found.end)
            if code is not ResponseCode.SUCCESS:
                raise Refused(code, "the copies are stored, but not yet flushed or replicated")
        return {
            "deleted": found.deleted,
            "given": found.given,
            "left": found.left,
            "unwanted": found.unwanted,
            "after": found.after,
        }
