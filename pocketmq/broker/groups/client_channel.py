"""ClientChannel: the client at the other end of a connection. Source: ClientChannelInfo, RocketMQ 4.9.7."""

from dataclasses import dataclass, field

from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.codes import version_name
from pocketmq.remoting.transport.peer import Peer

# A client that has sent no heartbeat for so long is removed, and its connection closed.
CHANNEL_EXPIRED_MS = 120_000


@dataclass(slots=True, eq=False)
class ClientChannel:
    """One client of one group.

    version is its MQVersion ordinal; last_update_ms is wall time (shown), last_seen_ms monotonic
    (decides expiry); subscriptions are the member's own, whatever the group's are.
    """

    connection: Peer
    client_id: str
    language: str
    version: int
    last_update_ms: int = 0
    last_seen_ms: int = 0
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    def seen(self, now_ms: int, monotonic_ms: int) -> None:
        """Record a heartbeat."""
        self.last_update_ms = now_ms
        self.last_seen_ms = monotonic_ms

    def expired(self, monotonic_ms: int) -> bool:
        return monotonic_ms - self.last_seen_ms > CHANNEL_EXPIRED_MS

    def __str__(self) -> str:
        return (
            f"client={self.client_id} address={self.connection.address} language={self.language} "
            f"version={version_name(self.version)}"
        )
