"""WritePermissions: what an operator has wiped or added at this name server, over what brokers register.

Kept by broker name and topic with the configuration that the broker had sent: a registration of the same
configuration changes nothing, a changed one replaces it. So a broker stays wiped while it creates topics and
groups, after each of which it sends its whole table. Source of the effect: RouteInfoManager, RocketMQ 5.3.3,
whose brokers send the changed topic alone.
"""

from collections.abc import Iterable
from dataclasses import replace

from pocketmq.remoting.flags import Perm
from pocketmq.remoting.tables import READ_WRITE, TopicConfig


class WritePermissions:
    """Of each broker, the topics whose permission was changed, as the broker sent them."""

    def __init__(self) -> None:
        self._sent: dict[str, dict[str, TopicConfig]] = {}

    def change(
        self, broker_name: str, topic: str, shown: TopicConfig, writable: bool
    ) -> TopicConfig:
        """Change what is shown of a topic; return it. Adding gives read and write, as RocketMQ does."""
        perm = READ_WRITE if writable else shown.perm & ~int(Perm.WRITE)
        changed = replace(shown, perm=perm)
        table = self._sent.setdefault(broker_name, {})
        if table.setdefault(topic, shown) == changed:
            self.forget(broker_name, (topic,))
        return changed

    def holds(self, broker_name: str, topic: str, sent: TopicConfig) -> bool:
        """Return True if a changed permission stays, since the broker sends what it had sent."""
        table = self._sent.get(broker_name)
        known = None if table is None else table.get(topic)
        if known is None or known == sent:
            return known is not None
        self.forget(broker_name, (topic,))
        return False

    def forget(self, broker_name: str, topics: Iterable[str] | None = None) -> None:
        """Forget topics of a broker; None: all."""
        if topics is None:
            self._sent.pop(broker_name, None)
            return
        table = self._sent.get(broker_name, {})
        for topic in topics:
            table.pop(topic, None)
        if not table:
            self._sent.pop(broker_name, None)
