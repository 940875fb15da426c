"""Views: the balance of a group for all user interfaces."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from pocketmq.admin.admin import Admin
from pocketmq.model.balance import Balance, ListedMessages, State, total

_HOUR_MS = 3_600_000


@dataclass(slots=True)
class BalanceView:
    """rows: a topic each, over all brokers that answer; brokers: their names."""

    group: str
    rows: list[Balance]
    brokers: list[str]

    @property
    def sum(self) -> Balance:
        """Return the books of all topics together."""
        return total(self.rows, "", self.group)

    @property
    def states(self) -> list[State]:
        """Return the states that some message is in, in their order."""
        whole = self.sum
        return [state for state in State if whole.of(state)]


async def balance_view(
    admin: Admin, group: str, topic: str | None = None, since_ms: int = 0
) -> BalanceView:
    """View the balance of a group, of one topic or all. Raises: RemotingError."""
    told = await admin.balances.of_group(group, topic, since_ms)
    rows: dict[str, Balance] = {}
    for balances in told.values():
        for each in balances:
            rows.setdefault(each.topic, Balance(each.topic, group)).merge(each)
    return BalanceView(group, [rows[name] for name in sorted(rows)], sorted(told))


@dataclass(frozen=True, slots=True)
class HourOfLoss:
    """Messages that a group lost alike within an hour. hour: its start, ms since 1970, 0 if unknown.

    member: it read past them or got them; subscription: what it asked for then; filter: by what the broker
    filtered; last: ms since 1970.
    """

    hour: int
    topic: str
    cause: str
    member: str
    subscription: str
    filter: str
    count: int = 0
    last: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def losses_of(lost: Iterable[ListedMessages]) -> list[HourOfLoss]:
    """Add up lost messages by hour, topic, cause, member and subscription; the latest first."""
    found: dict[HourOfLoss, tuple[int, int]] = {}
    for each in lost:
        hour = each.time - each.time % _HOUR_MS
        alike = HourOfLoss(
            hour, each.topic, each.cause, each.member, each.subscription, each.filter
        )
        count, last = found.get(alike, (0, 0))
        found[alike] = count + each.size, max(last, each.time)
    rows = [replace(alike, count=count, last=last) for alike, (count, last) in found.items()]
    return sorted(rows, key=lambda row: (-row.last, row.topic, row.member))
