"""Balance of groups, from PocketMQ's brokers alone: an Apache broker cannot account for messages."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.client.errors import GroupNotExist, RequestNotSupported
from pocketmq.model.balance import Balance, ListedMessages, State
from pocketmq.remoting.requests import GetGroupBalanceHeader, PocketRequestCode, RedeliverHeader


class BalanceAdmin:
    """The operations of `admin.balances`."""

    def __init__(self, site: Cluster) -> None:
        self._site = site

    async def of_group(
        self, group: str, topic: str | None = None, since_ms: int = 0
    ) -> dict[str, list[Balance]]:
        """Return the books of a group, a topic each, by broker name; {} if no broker of PocketMQ knows it.

        since_ms: only messages that were stored then or later. Raises: RemotingError.
        """
        header = GetGroupBalanceHeader(group, topic, since_ms or None, None)
        return {
            name: list(map(Balance.from_json, told["topics"]))
            async for name, told in self._ask(header)
        }

    async def listed(
        self, group: str, states: Iterable[State], topic: str | None = None, since_ms: int = 0
    ) -> list[ListedMessages]:
        """Return the messages in these states, in the order of the queues. Raises: RemotingError."""
        words = ",".join(each.value for each in states)
        header = GetGroupBalanceHeader(group, topic, since_ms or None, words)
        return [
            ListedMessages.from_json(row)
            async for _, told in self._ask(header)
            for row in told["rows"]
        ]

    async def redeliver(
        self,
        group: str,
        state: State,
        topic: str | None = None,
        since_ms: int = 0,
        *,
        count: int,
        broker: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """Give the next `count` lost or skipped messages of each broker to the group again; 0 only counts.

        Returns by broker name: {"given", "left", "unwanted", "deleted"}. Raises: BrokerFailed if members
        differ, RemotingError.
        """
        header = RedeliverHeader(group, state.value, count, topic, since_ms or None)
        masters = await self._site.masters(None, broker)
        found: dict[str, dict[str, int]] = {}
        # A group may be known to some brokers only; if none knows it, the first one says so.
        for skipping in ((RequestNotSupported, GroupNotExist), (RequestNotSupported,)):
            asked = self._site.ask_each(
                masters,
                PocketRequestCode.REDELIVER,
                header,
                about=f"group {group!r}",
                skipping=skipping,
            )
            async for name, told in asked:
                found[name] = {key: int(value) for key, value in told.items()}
            if found:
                break
        return found

    async def _ask(self, header: GetGroupBalanceHeader) -> AsyncIterator[tuple[str, Any]]:
        for master in await self._site.masters():
            try:
                asked = self._site.ask_each(
                    [master],
                    PocketRequestCode.GET_GROUP_BALANCE,
                    header,
                    about=f"group {header.group!r}",
                )
                async for name, told in asked:
                    yield name, told
            except (RequestNotSupported, GroupNotExist):
                continue
