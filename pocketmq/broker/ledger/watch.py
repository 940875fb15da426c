"""BalanceWatch: the last balances of groups that were asked about, or that balanceGroups names. Ours.

Groups are reckoned only while the metrics are scraped: one round after a scrape, at least INTERVAL_S after
the last round. A scrape shows the round before it. Without such a group a scrape costs nothing.
Owner: the broker, on its event loop.
"""

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from pocketmq.broker.groups.member_reports import MemberReports
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.pop.service import PopService

if TYPE_CHECKING:
    from pocketmq.broker.ledger.ledger import GroupLedger
    from pocketmq.model.balance import Balance

INTERVAL_S = 60.0


class BalanceWatch:
    """rows: the balances of the last round by group, a topic each."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        members: Members,
        messages: Messages,
        pop: PopService,
        reports: MemberReports,
    ) -> None:
        self._node = node
        self._tables = tables
        self._members = members
        self._messages = messages
        self._pop = pop
        self._reports = reports
        self._wanted = asyncio.Event()
        self._is_made = False
        self.rows: Mapping[str, list[Balance]] = {}

    @cached_property
    def ledger(self) -> "GroupLedger":
        """Return the ledger, which the first question makes."""
        from pocketmq.broker.ledger.ledger import GroupLedger

        self._is_made = True
        return GroupLedger(
            self._node.config.broker_name,
            self._tables,
            self._members,
            self._messages,
            self._pop.receipts,
            self._reports.of_group,
        )

    def want(self) -> None:
        """Reckon soon, for the next scrape."""
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with self._messages.store.side_tasks.attempt("balances"):
                await self.reckon()
            await asyncio.sleep(INTERVAL_S)

    async def reckon(self) -> None:
        """Make the balances of all these groups anew."""
        named = self._node.config.balance_groups.replace(",", " ").split()
        known = self._tables.groups
        groups = dict.fromkeys(group for group in named if known.get(group) is not None)
        if groups or self._is_made:
            groups |= dict.fromkeys(self.ledger.groups)
            self.rows = {group: await self.ledger.balances(group) for group in groups}
        else:
            self.rows = {}
