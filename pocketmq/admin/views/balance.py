"""Views: the balance of a group for all user interfaces."""

from dataclasses import dataclass

from pocketmq.admin.admin import Admin
from pocketmq.model.balance import Balance, State, total


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
