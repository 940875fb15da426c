"""Account: one access key of the ACL file and what it may do.

    {accessKey: ..., secretKey: ..., whiteRemoteAddress: ..., admin: false,
     defaultTopicPerm: DENY, defaultGroupPerm: SUB, topicPerms: [T=PUB|SUB], groupPerms: [g=SUB]}

Permissions of groups are kept under their retry topics: %RETRY%g.
Source: PlainPermissionManager, Permission, RocketMQ 4.9.7.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

from pocketmq.broker.access.address_pattern import AddressPattern
from pocketmq.broker.access.fronts import AccessDenied
from pocketmq.model.names import RETRY_PREFIX, TRACE_TOPIC, is_internal, is_retry_topic
from pocketmq.remoting.errors import IllegalArgument

_KEY_SIZE_MIN = 7


class AccountPermission(IntFlag):
    """What an account may do with a topic or group."""

    DENY = 1
    PUB = 4
    SUB = 8


_WORDS = {
    "DENY": AccountPermission.DENY,
    "PUB": AccountPermission.PUB,
    "SUB": AccountPermission.SUB,
    "PUB|SUB": AccountPermission.PUB | AccountPermission.SUB,
    "SUB|PUB": AccountPermission.PUB | AccountPermission.SUB,
}

EITHER = AccountPermission.PUB | AccountPermission.SUB
_NO_SECRET = "******"
Need = tuple[str, AccountPermission]
"""A topic, or %RETRY%group for a group, and what is needed there."""


@dataclass(slots=True)
class Account:
    """One access key and what it may do. perms: by topic, and by %RETRY%group for groups."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressPattern
    admin: bool
    topic_default: AccountPermission
    group_default: AccountPermission
    perms: dict[str, AccountPermission]

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> "Account":
        """Raises: IllegalArgument."""
        access_key, secret_key = str(data.get("accessKey") or ""), str(data.get("secretKey") or "")
        if len(access_key) < _KEY_SIZE_MIN or len(secret_key) < _KEY_SIZE_MIN:
            raise IllegalArgument(
                f"accessKey {access_key!r}: it and its secretKey need {_KEY_SIZE_MIN} characters or more"
            )
        perms = dict(_perms(data.get("topicPerms"), ""))
        perms.update(_perms(data.get("groupPerms"), RETRY_PREFIX))
        return cls(
            access_key,
            secret_key,
            AddressPattern(str(data.get("whiteRemoteAddress") or "")),
            data.get("admin") is True,
            _permission(data.get("defaultTopicPerm")),
            _permission(data.get("defaultGroupPerm")),
            perms,
        )

    def to_json(self) -> dict[str, Any]:
        """Return a PlainAccessConfig of RocketMQ 4.9, without the secret; Account.parse reads it back."""
        groups = {name for name in self.perms if is_retry_topic(name)}
        return {
            "accessKey": self.access_key,
            "secretKey": _NO_SECRET,
            "whiteRemoteAddress": self.white_address.text,
            "admin": self.admin,
            "defaultTopicPerm": _word(self.topic_default),
            "defaultGroupPerm": _word(self.group_default),
            "topicPerms": [
                f"{name}={_word(held)}" for name, held in self.perms.items() if name not in groups
            ],
            "groupPerms": [
                f"{name.removeprefix(RETRY_PREFIX)}={_word(self.perms[name])}"
                for name in self.perms
                if name in groups
            ],
        }

    @property
    def may_all(self) -> bool:
        """Return True for an administrator without lists of permissions."""
        return self.admin and not self.perms

    def check_needs(self, needs: Iterable[Need]) -> None:
        """Raises: AccessDenied."""
        if self.may_all:
            return
        for name, wanted in needs:
            if not self.has(name, wanted):
                what = "group" if is_retry_topic(name) else "topic"
                raise AccessDenied(
                    f"No default permission for {what}:{name.removeprefix(RETRY_PREFIX)}"
                )

    def has(self, name: str, wanted: AccountPermission) -> bool:
        """Return True if the account holds `wanted` for a topic, or for %RETRY%group in case of a group."""
        return self._held(name) & wanted != 0 or (
            name == TRACE_TOPIC and wanted == AccountPermission.PUB
        )

    def covers(self, other: "Account") -> bool:
        """Return True if this account is signed as the other one, and may do all that the other may do."""
        if (self.secret_key, self.white_address.text) != (
            other.secret_key,
            other.white_address.text,
        ):
            return False
        if (other.admin and not self.admin) or (other.may_all and not self.may_all):
            return False
        # A topic and a group that no list names stand for all of those.
        names = {*self.perms, *other.perms, "", RETRY_PREFIX}
        return not any(other._held(name) & ~self._held(name) & EITHER for name in names)

    def _held(self, name: str) -> AccountPermission:
        held = self.perms.get(name)
        if held is not None:
            return held
        held = self._default(name)
        if self.may_all or not is_retry_topic(name):
            return held
        return held & self._held_of_pop_retries(name)

    def _held_of_pop_retries(self, name: str) -> AccountPermission:
        """Return what the lists leave of the default for %RETRY%GROUP_TOPIC and %RETRY%GROUP+TOPIC.

        With the underscore it may be some other group's own: only a group that is denied counts.
        """
        group, plus, topic = name.partition("+")
        if plus:
            return self._held(group) & self._held(topic)
        denied = (each for each, held in self.perms.items() if not held & AccountPermission.SUB)
        taken = any(name.startswith(f"{each}_") for each in denied if is_retry_topic(each))
        return AccountPermission.DENY if taken else EITHER

    def _default(self, name: str) -> AccountPermission:
        """Return the permission for a name that the account's lists lack (invariant 2)."""
        if self.may_all:
            return EITHER
        if is_internal(name):
            return AccountPermission.DENY
        return self.group_default if is_retry_topic(name) else self.topic_default


def _permission(word: object) -> AccountPermission:
    """Parse a permission as Java does: an unknown word means DENY."""
    return _WORDS.get(str(word or "").strip(), AccountPermission.DENY)


def _word(permission: AccountPermission) -> str:
    return next(word for word, held in _WORDS.items() if held == permission)


def _perms(listed: object, prefix: str) -> Iterator[tuple[str, AccountPermission]]:
    if listed is None:
        return
    if not isinstance(listed, list):
        raise IllegalArgument(f"permissions must be a list of NAME=PUB|SUB, not {listed!r}")
    for item in listed:
        name, equals, word = str(item).partition("=")
        if not equals or not name.strip() or "=" in word:
            raise IllegalArgument(f"the permission {item!r} is not NAME=DENY, PUB, SUB or PUB|SUB")
        yield prefix + name.strip(), _permission(word)
