"""Sight: what a user sees of the figures that the console gathers for all viewers.

What a page asks a broker for is signed by the user, and the broker decides. The sampler's figures, and the
lists of names, are read by the console itself: these policies decide about them.

1. A topic or group is seen if a line about it allows to read or use it; where no line says anything, if the
   cluster may be looked at (`Cluster` Get or List). With several brokers all of them must allow it.
2. A line with addresses allows nothing here: the brokers see the console's address, and not the user's.
3. A user whose policies are unknown sees none of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pocketmq.broker.access.users.policy import Asked, PolicyDecision, ResourceKind, UserPolicies
from pocketmq.broker.access.users.validator import refused
from pocketmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from pocketmq.remoting.requests import Action

_READING = frozenset({Action.GET, Action.LIST})
_USING = {
    ResourceKind.TOPIC: _READING | {Action.PUB, Action.SUB},
    ResourceKind.GROUP: _READING | {Action.SUB},
}
_NO_ADDRESS = ""


class UserRole(StrEnum):
    """What a user may do, in one word: look; change what policies allow; everything."""

    LOOK = "look"
    OPERATE = "operate"
    ADMINISTER = "administer"


@dataclass(frozen=True, slots=True)
class Sight:
    """policies: by cluster and broker, none if they are unknown; administers: sees everything."""

    role: UserRole
    policies: tuple[tuple[str, UserPolicies], ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.role is UserRole.ADMINISTER

    @property
    def cluster(self) -> bool:
        """Return True if the cluster may be looked at."""
        return self.is_whole or self._all(self._cluster(*each) for each in self.policies)

    def topic(self, name: str) -> bool:
        """Return True if a topic is seen; a group's retry topic and dead letters also with the group."""
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix) and self.group(name.removeprefix(prefix)):
                return True
        return not name.startswith(RETRY_PREFIX) and self._sees(ResourceKind.TOPIC, name)

    def group(self, name: str) -> bool:
        return self._sees(ResourceKind.GROUP, name)

    def _sees(self, kind: ResourceKind, name: str) -> bool:
        asked = Asked(kind, name, _USING[kind])
        return self.is_whole or self._all(self._one(asked, *each) for each in self.policies)

    def _all(self, answers: Iterable[bool]) -> bool:
        return bool(self.policies) and all(answers)

    def _one(self, asked: Asked, cluster: str, policies: UserPolicies) -> bool:
        if policies.decide(asked, _NO_ADDRESS).entry is None:
            return self._cluster(cluster, policies)
        return refused(policies, asked, _NO_ADDRESS) is None

    def _cluster(self, cluster: str, policies: UserPolicies) -> bool:
        return policies.decide(Asked(ResourceKind.CLUSTER, cluster, _READING), _NO_ADDRESS).allowed


EVERYTHING = Sight(UserRole.ADMINISTER)
UNKNOWN = Sight(UserRole.OPERATE)


def sight_of(is_super: bool, policies: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> Sight:
    """Return the sight of a user by the policies that each broker has, as AclInfo writes them.

    Raises: IllegalArgument for policies of a newer broker that cannot be read.
    """
    if is_super:
        return EVERYTHING
    found = tuple(
        (cluster, UserPolicies.parse(list(lines)) if lines else UserPolicies())
        for cluster, lines in policies
    )
    changes = any(_changes(each) for _, each in found)
    return Sight(UserRole.OPERATE if changes else UserRole.LOOK, found)


def _changes(policies: UserPolicies) -> bool:
    """Return True if a line allows more than looking and consuming."""
    return any(not _READING.union({Action.SUB}).issuperset(each) for each in _allowed(policies))


def _allowed(policies: UserPolicies) -> Iterator[tuple[Action, ...]]:
    for entry in (*policies.custom, *policies.default):
        if entry.decision is PolicyDecision.ALLOW:
            yield entry.actions
