"""Views: accounts for all user interfaces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DENY = "DENY"


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account as a broker reports it. topics, groups: NAME=PERM; white_address: None if it must sign."""

    access_key: str
    admin: bool
    white_address: str | None
    default_topic_perm: str
    default_group_perm: str
    topics: list[str]
    groups: list[str]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "AccountView":
        """Take one of `plainAccessConfigs`, RocketMQ 4.9's names."""
        return cls(
            str(told.get("accessKey")),
            told.get("admin") is True,
            told.get("whiteRemoteAddress") or None,
            told.get("defaultTopicPerm") or DENY,
            told.get("defaultGroupPerm") or DENY,
            list(told.get("topicPerms") or ()),
            list(told.get("groupPerms") or ()),
        )

    @property
    def may_all(self) -> bool:
        """Return True for an administrator without lists, whose default permissions are not asked."""
        return self.admin and not self.topics and not self.groups
