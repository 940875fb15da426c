"""WritePermissions: what an operator has wiped or added at this name server, over what brokers register.

Kept by broker name and topic with the queues and the permission that the broker had sent: a registration of
the same ones changes nothing, of changed ones replaces it. So a broker stays wiped while it creates topics
and groups, after each of which it sends its whole table. Source of the effect: RouteInfoManager, RocketMQ
5.3.3, whose brokers send the changed topic alone.
"""

from collections.abc import Iterable
from dataclasses import replace

from pocketmq.model.tables import READ_WRITE, TopicConfig
from pocketmq.remoting.flags import Perm

# Queues to read, queues to write, permission, flags.
_Shown = tuple[int, int, int, int]


class WritePermissions:
    """Of each broker, the topics whose permission was changed, as the broker sent them."""

    def __init__(self) -> None:
        self._sent: dict[str, dict[str, _Shown]] = {}

    def change(
        self, broker_name: str, topic: str, shown: TopicConfig, writable: bool
    ) -> TopicConfig:
        """Change what is shown of a topic; return it. Adding gives read and write, as RocketMQ does."""
        perm = READ_WRITE if writable else shown.perm & ~int(Perm.WRITE)
        changed = replace(shown, perm=perm)
        table = self._sent.setdefault(broker_name, {})
        if table.setdefault(topic, _what_routes_show(shown)) == _what_routes_show(changed):
            self.forget(broker_name, (topic,))
        return changed

    def holds(self, broker_name: str, topic: str, sent: TopicConfig) -> bool:
        """Return True if a changed permission stays, since the broker sends what it had sent."""
        table = self._sent.get(broker_name)
        known = None if table is None else table.get(topic)
        if known is None or known == _what_routes_show(sent):
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


def _what_routes_show(topic: TopicConfig) -> _Shown:
    return topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag
