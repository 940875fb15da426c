"""Comparison: a master compares the end of a slave's log with its own before it serves that slave.

RocketMQ's protocol compares nothing: an old master of Apache's that comes back as a slave, with records that
this master never had, would be sent bytes from the middle of other records, and serve them. Slaves of ours
compare the logs themselves (tail.py) and report the result; for all others the master asks the slave's port:

1. The slave is the member of this broker's name, other than the master, whose log ends where the slave's
   first report does; those at the host that it connects from come first. Name servers give the addresses, so
   nothing is signed.
2. It is asked for the last record of this log that lies wholly before that end, and for the record behind
   it: by position, which every version answers. Records hold their position, queue offset and time, so equal
   ones have the same history.
3. A slave that cannot be asked (not registered, or it wants an account) is served, with a line in the log.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from pocketmq.broker.nameservers.registration import Registration
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.client import RemotingClient

log = logging.getLogger(__name__)

_TIMEOUT_MS = 3_000
# How a broker says that no record begins at a position.
_NOT_FOUND = "can not find message"


class ComparedLog(Protocol):
    """The master's log, a MessageStore's."""

    def last_record_before(self, position: int) -> tuple[int, int] | None: ...
    def raw(self, position: int, size_max: int) -> memoryview | None: ...


class Unasked(PocketMQError):
    """Why a slave's log cannot be compared."""


class Comparison:
    """Asks slaves for the end of their logs."""

    def __init__(
        self, store: ComparedLog, registration: Registration, client: RemotingClient
    ) -> None:
        self._store = store
        self._registration = registration
        self._client = client

    async def difference(self, peer: str, end: int) -> str:
        """Return why a slave whose log ends at `end` is refused; empty if it may follow.

        peer: `ip:port` that it connects from. Raises nothing.
        """
        try:
            own = self._store.last_record_before(end)
            if own is None:
                return ""
            slave = await self._slave(peer.rpartition(":")[0], end)
            for position in dict.fromkeys((own[0], sum(own))):
                if position < end and await self._differs(
                    slave, position, is_whole=position == own[0]
                ):
                    return (
                        f"its log ends at {end} and differs from this one at {position}: it has records "
                        f"that this master never had (broker {slave}). Keep the right log, and empty the "
                        "other's store, so that it copies everything"
                    )
        except (OSError, PocketMQError, LookupError, TypeError, ValueError) as error:
            log.warning(
                "a slave is served without a look at its log peer=%s position=%d: %s",
                peer,
                end,
                error,
            )
        return ""

    async def _slave(self, host: str, end: int) -> str:
        """Return the address of the broker whose log ends there (invariant 1). Raises: Unasked."""
        members = await self._registration.members()
        found = [each for number, each in members.items() if number != MASTER_ID]
        for address in sorted(found, key=lambda each: each.rpartition(":")[0] != host):
            try:
                answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, {})
                table = fastjson.loads(answer.body)["table"]
                if int(table["commitLogMaxOffset"]) == end:
                    return address
            except (OSError, PocketMQError, LookupError, TypeError, ValueError):
                continue
        raise Unasked(f"no member of this broker's name is registered whose log ends at {end}")

    async def _differs(self, slave: str, position: int, *, is_whole: bool) -> bool:
        """Return True if the slave has something else there than this log (invariant 2).

        is_whole: this log has a whole record there, before the slave's end.
        """
        answer = await self._ask(slave, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})
        if answer.code == ResponseCode.SUCCESS:
            return self._bytes(position, len(answer.body)) != bytes(answer.body)
        if _NOT_FOUND not in (answer.remark or ""):
            raise Unasked(f"{slave} answers {answer.code} {answer.remark}")
        # Behind the last whole record a slave may have the beginning of the next one.
        return is_whole

    def _bytes(self, position: int, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._store.raw(position + len(found), size - len(found))
            if not piece:
                break
            found += piece
        return bytes(found)

    async def _ask(
        self, address: str, code: RequestCode, ext: Mapping[str, str]
    ) -> RemotingCommand:
        return await self._client.invoke(
            address, RemotingCommand(code, dict(ext)), _TIMEOUT_MS, signed=False
        )
