"""DeclaredSubscriptions: what a consumer will subscribe to; `pocketmq subs plan` reads it. PocketMQ only.

    {"group": "orders", "model": "CLUSTERING", "from": "CONSUME_FROM_LAST_OFFSET",
     "subscriptions": {"Orders": "paid || shipped", "Prices": {"SQL92": "amount > 10"}}}

Names are those of the wire, with the namespace. `replaces`: the group whose work this one continues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pocketmq.client.network.heartbeat import ConsumeFromWhere, MessageModel
from pocketmq.model.subscription import TAG, SubscriptionData, build_subscription
from pocketmq.remoting.errors import IllegalArgument

_FIELDS = {"group", "model", "from", "subscriptions", "replaces"}


@dataclass(frozen=True, slots=True)
class DeclaredSubscriptions:
    """Members of a group with the same subscriptions."""

    group: str
    subscriptions: Mapping[str, SubscriptionData]
    model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    replaces: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form above, topics in alphabetical order."""
        asked: dict[str, Any] = {}
        for topic, each in sorted(self.subscriptions.items()):
            text = each.expression
            asked[topic] = text if each.is_tag else {each.expression_type: text}
        found = {"group": self.group, "model": self.model.value, "from": self.consume_from.value}
        if self.replaces is not None:
            found["replaces"] = self.replaces
        return {**found, "subscriptions": asked}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse the form above. Raises: IllegalArgument, which names what is wrong."""
        if not isinstance(data, Mapping) or not isinstance(data.get("group"), str):
            raise IllegalArgument(
                f"each subscription entry needs a group, and this one has none: {data!r}"
            )
        group, topics = data["group"], data.get("subscriptions")
        unknown = sorted(set(map(str, data)) - _FIELDS)
        if unknown:
            raise IllegalArgument(f"group {group!r}: unknown {', '.join(unknown)}")
        if not isinstance(topics, Mapping) or not topics:
            raise IllegalArgument(
                f"group {group!r}: no subscriptions, as in Orders: paid || shipped"
            )
        try:
            model = MessageModel(data.get("model", MessageModel.CLUSTERING))
            begins = ConsumeFromWhere(data.get("from", ConsumeFromWhere.LAST_OFFSET))
        except ValueError as error:
            raise IllegalArgument(f"group {group!r}: {error}") from error
        asked = {str(topic): _asked(group, str(topic), each) for topic, each in topics.items()}
        return cls(group, asked, model, begins, data.get("replaces"))


def _asked(group: str, topic: str, data: Any) -> SubscriptionData:
    if data is None or isinstance(data, str):
        return build_subscription(topic, data, TAG)
    if isinstance(data, Mapping) and len(data) == 1:
        [(kind, text)] = data.items()
        return build_subscription(topic, str(text), str(kind))
    raise IllegalArgument(
        f"group {group!r}, topic {topic!r}: neither tags, as in paid || shipped, nor one expression by "
        f"its type, as in SQL92: {data!r}"
    )
