"""SubscriptionData: a group's subscription of a topic, and the expressions it is built from.

`*` or nothing: everything. `A || B`: the tags A and B; the broker compares `code_set` with the tag code of
the ConsumeQueue entry, the client `tags_set` with the tag itself (acceptance S41, S42, S49).
SQL92 expressions travel as text. Source: FilterAPI, SubscriptionData, RocketMQ 4.9.7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketmq.model.java_hash import string_hash
from pocketmq.remoting.errors import HeaderError, IllegalArgument
from pocketmq.remoting.java_number import number

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"

# A filter of a topic: (TAG, the tags; () is all) or (SQL92, the expression).
Wish = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class SubscriptionData:
    """One topic of a subscription.

    sub_version: ms at the moment of the last change, by the subscriber's clock; only a greater one
    replaces a stored subscription (S68).
    """

    topic: str
    sub_string: str = ALL
    expression_type: str = TAG
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    class_filter_mode: bool = False

    @property
    def is_tag(self) -> bool:
        """Return True for type TAG; a missing expression type means TAG (ali-ons)."""
        return self.expression_type in (TAG, "", None)

    @property
    def is_all(self) -> bool:
        return self.is_tag and self.sub_string in (ALL, "", None)

    @property
    def wish(self) -> Wish:
        """Return a value that is equal for subscriptions of a topic that match the same, however written."""
        if self.is_tag:
            return TAG, tuple(sorted(self.tags_set))
        return self.expression_type, (self.sub_string,)

    @property
    def expression(self) -> str:
        """Return its text with sorted tags, so that equivalent subscriptions look alike."""
        return " || ".join(self.wish[1]) or ALL

    def to_json(self) -> dict[str, Any]:
        """Return the object of a heartbeat, keys as RocketMQ names them (S38)."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, data: Any) -> "SubscriptionData":
        """Parse a heartbeat's object; a missing expression type is TAG. Raises: HeaderError."""
        if not isinstance(data, Mapping) or not isinstance(data.get("topic"), str):
            raise HeaderError("a subscription in a heartbeat is not an object with a topic")
        try:
            return cls(
                topic=data["topic"],
                sub_string=str(data.get("subString") or ALL),
                expression_type=str(data.get("expressionType") or TAG),
                tags_set={str(tag) for tag in data.get("tagsSet") or ()},
                code_set={number(code) for code in data.get("codeSet") or ()},
                sub_version=number(data.get("subVersion") or 0),
                class_filter_mode=data.get("classFilterMode") is True,
            )
        except (TypeError, ValueError) as error:
            raise HeaderError(
                f"the subscription of topic {data['topic']!r} in a heartbeat is broken: {error}"
            ) from error


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG, sub_version: int = 0
) -> SubscriptionData:
    """Build a subscription from what a user writes: `*`, `A`, `A || B`, or a SQL92 text.

    Raises: IllegalArgument for an expression of separators only, an unknown type or empty SQL.

    >>> sorted(build_subscription("T", " A || B ").code_set)
    [65, 66]
    """
    if expression_type in (TAG, "", None):
        tags = parse_tags(expression)
        return SubscriptionData(
            topic=topic,
            sub_string=(expression or ALL) if tags else ALL,
            tags_set=tags,
            code_set={string_hash(tag) for tag in tags},
            sub_version=sub_version,
        )
    if not expression:
        raise IllegalArgument(f"a {expression_type} subscription of {topic!r} needs an expression")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        expression_type=str(expression_type),
        sub_version=sub_version,
    )


def parse_tags(expression: str | None) -> set[str]:
    """Return the tags of `A || B`; empty for `*`, an empty text or None.

    Raises: IllegalArgument if only separators are given, as FilterAPI does.
    """
    if expression is None or expression in ("", ALL):
        return set()
    # Java's split drops empty strings at the end, so "||" alone has no parts: an error there and here.
    parts = expression.split("||")
    while parts and not parts[-1]:
        parts.pop()
    if not parts:
        raise IllegalArgument(
            f"the subscription {expression!r} names no tag; write * for all tags, or A || B"
        )
    return {tag for tag in (part.strip() for part in parts) if tag}
