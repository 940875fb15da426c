"""What topics and groups say of lite topics: names and attributes. Source: LiteUtil, TopicAttributes,
SubscriptionGroupAttributes, RocketMQ 5.5.0. See lite.md 1.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.java_number import property_number

PREFIX = "%LMQ%$"
LITE_TOPIC = b"__LITE_TOPIC"
DISPATCH, OFFSETS = b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"
NAME_SIZE_MAX = 64
QUOTA = 2_000
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def fault_of(name: str) -> str | None:
    """Return what is wrong with the name of a lite topic, in the proxy's words; None: nothing.

    >>> fault_of("session-1"), fault_of("a.b")[:20]
    (None, 'lite topic can only ')
    """
    if not name.strip():
        return "lite topic cannot be the char sequence of whitespace"
    if len(name.encode()) > NAME_SIZE_MAX:
        return f"lite topic exceed the max size {NAME_SIZE_MAX}"
    if _NAME.fullmatch(name) is None:
        return "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
    return None


def light_queue(parent: str, name: str) -> str:
    """Return the name of a lite topic's queue.

    >>> light_queue("Chats", "session-1")
    '%LMQ%$Chats$session-1'
    """
    return f"{PREFIX}{parent}${name}"


def minutes_of(topic: TopicConfig) -> int:
    """Return after how many minutes without a message a lite topic goes; 0: never."""
    found = _number(topic.attributes, "lite.topic.expiration")
    return max(0, -1 if found is None else found)


class LiteGroup(NamedTuple):
    """What a group's attributes say. topic: of its lite topics, "" if it is no lite group."""

    topic: str = ""
    quota: int = QUOTA
    exclusive: bool = False
    wildcard: bool = False
    resets_taken_over: bool = False
    resets_left: bool = False

    @classmethod
    def of(cls, group: GroupConfig | None) -> "LiteGroup":
        attributes = {} if group is None else group.extra.get("attributes")
        if not isinstance(attributes, Mapping) or not attributes.get("lite.bind.topic"):
            return cls()
        quota = _number(attributes, "lite.sub.client.quota")
        return cls(
            str(attributes["lite.bind.topic"]),
            QUOTA if quota is None else quota,
            attributes.get("lite.sub.model") == "Exclusive",
            "lite.sub.wildcard" in attributes,
            _truth(attributes, "lite.sub.reset.offset.exclusive"),
            _truth(attributes, "lite.sub.reset.offset.unsubscribe"),
        )


def _number(attributes: Mapping[str, object], name: str) -> int | None:
    return property_number(str(attributes.get(name, "")).encode())


def _truth(attributes: Mapping[str, object], name: str) -> bool:
    return str(attributes.get(name, "")).lower() == "true"
