"""The background services of a broker, and everything that handles requests, without a socket."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables

if TYPE_CHECKING:
    from pocketmq.broker.figures.lags import Lags
    from pocketmq.broker.groups.member_reports import MemberReports
    from pocketmq.broker.ha.replication import Replication
    from pocketmq.broker.ledger.watch import BalanceWatch
    from pocketmq.broker.lite.service import LiteService
    from pocketmq.broker.pop.service import PopService
    from pocketmq.broker.schedules.service import ScheduleService
    from pocketmq.broker.transaction_check import HalfMessages, TransactionCheck
    from pocketmq.broker.waiting.long_polling import LongPolling
    from pocketmq.remoting.transport.peer import Peer
    from pocketmq.store import DelayService
    from pocketmq.store.timer.service import TimerService


class LiteDoor:
    """The way to the service of lite topics, which is imported and made when it is first asked for."""

    def __init__(self, node: Node, tables: Tables, messages: Messages) -> None:
        self._made_of = node, tables, messages
        self._topics = messages.lite
        self._service: LiteService | None = None
        self._is_made = asyncio.Event()

    @property
    def service(self) -> "LiteService":
        if self._service is None:
            from pocketmq.broker.lite.service import LiteService

            self._service = LiteService(*self._made_of)
            self._is_made.set()
        return self._service

    async def run(self) -> None:
        """Run the service until cancelled, once it is there."""
        await self._is_made.wait()
        await self.service.run()

    def tick(self) -> None:
        """Look after the age of lite topics; called once a second. Raises: OSError."""
        if self._topics.is_open:
            self.service.tick()

    def cut_offsets(self) -> None:
        """Cut offsets that lie behind the end of what there is. Raises: OSError."""
        if self._topics.is_open:
            self.service.cut_offsets()

    def connection_closed(self, peer: "Peer") -> None:
        """Handle a lost client."""
        if self._service is not None:
            self._service.connection_closed(peer)

    def release(self) -> None:
        """Answer all that waits: the broker stops."""
        if self._service is not None:
            self._service.waiting.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The background services."""

    delay: "DelayService"
    timer: "TimerService"
    schedules: "ScheduleService"
    half: "HalfMessages"
    check: "TransactionCheck"
    pop: "PopService"
    lite: LiteDoor
    replication: "Replication"
    long_polling: "LongPolling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that handles requests, without a socket."""

    node: Node
    tables: Tables
    members: Members
    messages: Messages
    services: Services
    lags: "Lags"
    reports: "MemberReports"
    balances: "BalanceWatch"
