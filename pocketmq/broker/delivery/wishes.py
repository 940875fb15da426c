"""Wishes: what the members of each group want of each topic, and what they wanted until lately. Ours.

1. A wish counts while a member has it, and for isolateKeepTime after the last such member left while others
   stayed: clients restart, and what passes meanwhile is not unwanted.
2. A group without members keeps its wishes: nothing is given.
3. config/groupWishes.json has them, so that they count after a restart of the broker, too.
Owner: the Broker, on its event loop.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pocketmq.books.sorting import expression_text
from pocketmq.broker.groups.consumer_group import ConsumerGroup
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.model.names import is_retry_topic
from pocketmq.remoting.clock import Clock
from pocketmq.store import ConfigFile

_LOOKED_AT_ONCE_MAX = 100
# By topic, then by expression: when the last member that has it left, ms; 0: it is there.
_Table = dict[str, dict[str, int]]


class Wishes(ConfigManager):
    """See the head of the file."""

    def __init__(self, file: ConfigFile, clock: Clock, keep_ms: Callable[[], int]) -> None:
        super().__init__(file)
        self._now_ms = clock.now_ms
        self._keep_ms = keep_ms
        self._groups: dict[str, _Table] = {}
        # Large groups that changed since they were looked at.
        self._changed: dict[str, ConsumerGroup] = {}

    def to_json(self) -> dict[str, Any]:
        groups = {
            group: {topic: dict(wishes) for topic, wishes in table.items()}
            for group, table in self._groups.items()
        }
        return {"groups": groups}

    def from_json(self, data: Any) -> None:
        groups = data.get("groups") if isinstance(data, Mapping) else None
        for group, table in (groups or {}).items():
            self._groups[str(group)] = {
                str(topic): {str(text): int(left_ms) for text, left_ms in wishes.items()}
                for topic, wishes in table.items()
            }

    def members_changed(self, group: ConsumerGroup) -> None:
        """Look at a group whose members changed; at a large one when it is asked for."""
        if len(group.channels) > _LOOKED_AT_ONCE_MAX:
            self._changed[group.name] = group
        elif group.channels:
            self._look_at(group)

    def of(self, group: str, topic: str) -> tuple[str, ...]:
        """Return the expressions, sorted."""
        if self._changed and (changed := self._changed.pop(group, None)) is not None:
            self._look_at(changed)
        wishes = self._groups.get(group, {}).get(topic)
        if not wishes:
            return ()
        if len(wishes) > 1:
            oldest_ms = self._now_ms() - self._keep_ms()
            for text in [text for text, left_ms in wishes.items() if 0 < left_ms < oldest_ms]:
                del wishes[text]
                self.dirty = True
        return tuple(sorted(wishes))

    def _look_at(self, group: ConsumerGroup) -> None:
        table = self._groups.setdefault(group.name, {})
        here: dict[str, set[str]] = {}
        for member in group.channels.values():
            for topic, asked in member.subscriptions.items():
                if not is_retry_topic(topic):
                    here.setdefault(topic, set()).add(expression_text(asked))
        now_ms = self._now_ms()
        for topic, wishes in table.items():
            for text, left_ms in wishes.items():
                if not left_ms and text not in here.get(topic, ()):
                    wishes[text] = now_ms
                    self.dirty = True
        for topic, texts in here.items():
            wishes = table.setdefault(topic, {})
            for text in texts:
                if wishes.get(text) != 0:
                    wishes[text] = 0
                    self.dirty = True

    def forget(self, group: str) -> None:
        """Drop a deleted group."""
        self._changed.pop(group, None)
        self.dirty |= bool(self._groups.pop(group, None))
