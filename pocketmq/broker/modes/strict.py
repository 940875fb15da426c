"""StrictGroups: groups that accept no second, different subscription. Ours; mode `strict`.

1. The present members decide. A client that subscribes something else is not admitted: its heartbeat is
   answered with NO_PERMISSION and a remark that official clients write into their logs, its pulls with
   SUBSCRIPTION_NOT_EXIST and the same remark. Its other groups are not affected.
2. Each heartbeat (30 s) tries again: once the members that differ have left, the client is admitted. So a
   rolled-out change takes effect when the last old member has left.
3. A member that changes its subscription while others do not is refused, too, and removed from the group.
4. The same client over a new connection counts as the same member.
Owner: the Broker, on its event loop.
"""

from collections.abc import Mapping

from pocketmq.broker.groups.consumer_group import ConsumerGroup
from pocketmq.model.agreement import own_topics, same
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.transport.peer import Peer


class StrictGroups:
    """Remembers the refused clients, so that their pulls get the same remark."""

    def __init__(self) -> None:
        self.refused: dict[str, dict[Peer, str]] = {}

    def check(
        self,
        group: ConsumerGroup | None,
        name: str,
        connection: Peer,
        client_id: str,
        subscriptions: Mapping[str, SubscriptionData],
    ) -> str | None:
        """Return the remark that refuses a heartbeat; None if the client may register (1, 4)."""
        for other, member in group.channels.items() if group is not None else ():
            if other is connection or member.client_id == client_id:
                continue
            if not same(member.subscriptions, subscriptions):
                remark = (
                    f"group {name} is strict: client {client_id} subscribes to {_text(subscriptions)}, but "
                    f"member {member.client_id} to {_text(member.subscriptions)}. Let both subscribe to "
                    "the same, use another group, or wait until the other has left"
                )
                self.refused.setdefault(name, {})[connection] = remark
                return remark
        self._forget(name, connection)
        return None

    def remark(self, name: str, connection: Peer) -> str | None:
        """Return why this connection is not a member; None if it was not refused."""
        refused = self.refused.get(name)
        return None if refused is None else refused.get(connection)

    def connection_closed(self, connection: Peer) -> None:
        """Forget a client whose connection closed."""
        for name in list(self.refused):
            self._forget(name, connection)

    def _forget(self, name: str, connection: Peer) -> None:
        refused = self.refused.get(name)
        if refused is not None:
            refused.pop(connection, None)
            if not refused:
                del self.refused[name]


def _text(subscriptions: Mapping[str, SubscriptionData]) -> str:
    parts = [f"{topic}: {each.sub_string}" for topic, each in own_topics(subscriptions).items()]
    return f"[{', '.join(parts)}]"
