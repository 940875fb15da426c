"""Views: accounts for all user interfaces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.model.as_json import as_object

DENY = "DENY"


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account as a broker reports it.

    topic_perms, group_perms: NAME=PERM each; white_address: None if it must sign.
    """

    access_key: str
    admin: bool
    white_address: str | None
    default_topic_perm: str
    default_group_perm: str
    topic_perms: list[str]
    group_perms: list[str]

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
        return self.admin and not self.topic_perms and not self.group_perms

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: `--json` and the console."""
        return {**as_object(self), "mayAll": self.may_all}
