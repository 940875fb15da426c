"""Balance of groups, from PocketMQ's brokers alone: an Apache broker cannot account for messages."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.admin.types import ClusterBroker
from pocketmq.client.errors import GroupNotExist, RequestNotSupported
from pocketmq.model.balance import Balance, ListedMessages, State
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.requests import GetGroupBalanceHeader, PocketRequestCode, RedeliverHeader

# Ranges of a broker that a list has at most.
LISTED_MAX = 100_000
_COUNTED = ("given", "left", "unwanted", "deleted")


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
        """Return the messages in these states, in the order of the queues.

        At most LISTED_MAX ranges of each broker. Raises: RemotingError.
        """
        words = ",".join(each.value for each in states)
        found: list[ListedMessages] = []
        for master in await self._site.masters():
            rows: list[ListedMessages] = []
            after: str | None = ""
            while after is not None and len(rows) < LISTED_MAX:
                header = GetGroupBalanceHeader(group, topic, since_ms or None, words, after or None)
                after = None
                async for _, told in self._ask(header, [master]):
                    rows += map(ListedMessages.from_json, told["rows"])
                    after = told.get("after") or None
            found += rows[:LISTED_MAX]
        return found

    async def redeliver(
        self,
        group: str,
        state: State,
        topic: str | None = None,
        since_ms: int = 0,
        *,
        count: int,
        broker: str | None = None,
    ) -> AsyncIterator[dict[str, dict[str, int]]]:
        """Give lost or skipped messages to the group again: `count` of each broker a round; 0 only counts.

        Yields after each round, until there are no more, by broker name the sums so far: {"given", "left",
        "unwanted", "deleted"}. A round of a broker looks at some thousands. Raises: BrokerFailed if members
        differ, RemotingError.
        """
        masters = await self._site.masters(None, broker)
        sums: dict[str, dict[str, int]] = {}
        after = {each.name: "" for each in masters}
        # A group may be known to some brokers only; if none knows it, the first one says so.
        skipping: tuple[type[PocketMQError], ...] = (RequestNotSupported, GroupNotExist)
        while after:
            asked, after = after, {}
            for each in masters:
                if each.name not in asked:
                    continue
                header = RedeliverHeader(
                    group, state.value, count, topic, since_ms or None, asked[each.name] or None
                )
                async for name, told in self._site.ask_each(
                    [each],
                    PocketRequestCode.REDELIVER,
                    header,
                    about=f"group {group!r}",
                    skipping=skipping,
                ):
                    sums[name] = _added(sums.get(name), told)
                    if told.get("after"):
                        after[name] = told["after"]
            if sums:
                yield dict(sums)
            elif GroupNotExist in skipping:
                skipping, after = (RequestNotSupported,), asked

    async def _ask(
        self, header: GetGroupBalanceHeader, masters: Sequence[ClusterBroker] | None = None
    ) -> AsyncIterator[tuple[str, Any]]:
        for master in masters or await self._site.masters():
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


def _added(sums: Mapping[str, int] | None, told: Mapping[str, Any]) -> dict[str, int]:
    """Return the sums with another answer. What giving left is looked at again by the next round."""
    found = {key: int(told[key]) + (sums or {}).get(key, 0) for key in _COUNTED}
    if found["given"]:
        found["left"] = int(told["left"])
    return found
