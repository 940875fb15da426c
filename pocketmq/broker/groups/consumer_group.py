"""ConsumerGroup: one group that is online: its members and subscriptions.

The invariants are those of consumer_manager.py. Source: ConsumerGroupInfo, RocketMQ 4.9.7.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.model.names import is_retry_topic
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.transport.peer import Peer

log = logging.getLogger(__name__)

# Lines that one change of a subscription writes, each way.
_LINES_MAX = 20

CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_POP = "CONSUME_POP"
BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class ConsumerGroup:
    """What the broker knows of one group (S66); last_update_ms is wall time."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    last_update_ms: int = 0
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    channels: dict[Peer, ClientChannel] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Return True if there are members that pop: they share each queue with the others."""
        return self.consume_type == CONSUME_POP or any(
            each.protocol == "grpc" for each in self.channels
        )

    def client_ids(self) -> list[str]:
        """Return one id per connection, so an id can briefly occur twice, as in RocketMQ."""
        return [channel.client_id for channel in self.channels.values()]

    def find(self, client_id: str) -> ClientChannel | None:
        """Return the member with that client id, or None."""
        for channel in self.channels.values():
            if channel.client_id == client_id:
                return channel
        return None

    def update_channel(self, channel: ClientChannel, now_ms: int, monotonic_ms: int) -> bool:
        """Add or refresh a member; True if its connection is new (invariant 4)."""
        known = self.channels.get(channel.connection)
        new = known is None
        if known is None:
            self.channels[channel.connection] = known = channel
            log.info(
                "member joined group=%s %s type=%s model=%s",
                self.name,
                channel,
                self.consume_type,
                self.message_model,
            )
        elif known.client_id != channel.client_id:
            log.error(
                "consumer channel exist in broker, but clientId not equal. GROUP: %s OLD: %s NEW: %s",
                self.name,
                known,
                channel,
            )
            self.channels[channel.connection] = known = channel
        else:
            known.language, known.version = channel.language, channel.version
            known.subscriptions = channel.subscriptions
        self.last_update_ms = now_ms
        known.seen(now_ms, monotonic_ms)
        return new

    def update_subscriptions(self, asked: Iterable[SubscriptionData]) -> bool:
        """Apply invariants 2 and 3; True if a topic was added or removed."""
        changed, added = False, 0
        table = self.subscriptions
        named = set()
        for subscription in asked:
            topic = subscription.topic
            named.add(topic)
            old = table.get(topic)
            if old is None:
                table[topic] = subscription
                changed = True
                added += 1
                if added <= _LINES_MAX:
                    log.log(
                        _level(topic),
                        "subscription changed, add new topic, group: %s %s",
                        self.name,
                        describe(subscription),
                    )
            elif subscription.sub_version > old.sub_version:
                if self.consume_type == CONSUME_PASSIVELY:
                    # A member that starts brings the same with a newer version.
                    is_same = old.expression == subscription.expression
                    log.log(
                        logging.DEBUG if is_same else logging.INFO,
                        "subscription changed, group: %s OLD: %s NEW: %s",
                        self.name,
                        describe(old),
                        describe(subscription),
                    )
                table[topic] = subscription
        removed = [topic for topic in table if topic not in named]
        for place, topic in enumerate(removed):
            if place < _LINES_MAX:
                log.warning(
                    "subscription changed, group: %s remove topic %s %s",
                    self.name,
                    topic,
                    describe(table[topic]),
                )
            del table[topic]
            changed = True
        if max(added, len(removed)) > _LINES_MAX:
            log.info(
                "subscription changed, group: %s, in all added=%d removed=%d",
                self.name,
                added,
                len(removed),
            )
        return changed


# merge(group, heartbeating member) -> the group's subscriptions to publish; None publishes the member's, as
# RocketMQ does. Ours.
Merge = Callable[[ConsumerGroup, ClientChannel], list[SubscriptionData] | None]


def _level(topic: str) -> int:
    """Return the level of a line about a topic: that of its retries comes with each group."""
    return logging.DEBUG if is_retry_topic(topic) else logging.INFO


def describe(subscription: SubscriptionData) -> str:
    """Format a subscription for a line of the log."""
    return (
        f"topic={subscription.topic} expression={subscription.sub_string!r} "
        f"type={subscription.expression_type} version={subscription.sub_version}"
    )
