"""Policies: what a user may do with which resources, from which addresses; and which line of them decides.

    Topic:orders   Topic:order*   Topic:*   Group:g   Cluster:DefaultCluster   *
    Pub Sub Create Update Delete Get List, or All of them; Allow or Deny; from all addresses, or some

1. Lines of type Custom are looked at first; those of type Default only if none of them fits.
2. A line fits if its resource covers the requested one, if it has one of the actions that would do, and if
   it covers the address.
3. Of those that fit one decides: a whole name before a beginning, a longer beginning before a shorter one,
   a beginning before `*` of one kind, this before `*` of all. Deny comes before Allow where they are equal.
4. If none fits the answer is no.
5. PocketMQ only: `*` allows nothing in topics that hold messages of others; a name or a beginning does.
6. PocketMQ only: an address that is not one fits each Deny, and no Allow that names addresses.
Source: AclAuthorizationHandler, Resource, PolicyEntry, AuthorizationMetadataManagerImpl, RocketMQ 5.5.0.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from pocketmq.model.names import RETRY_PREFIX, is_internal
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.requests import Action

_Word = TypeVar("_Word", bound=StrEnum)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# One user's: each request that one signs is held against all of them.
ENTRIES_MAX = 1_000
_NAME_LENGTH_MAX = 255
_MAPPED_BITS = 96


class ResourceKind(StrEnum):
    """What a resource is; ANY in policies only."""

    ANY = "*"
    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class PolicyType(StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class PolicyDecision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


def word(kind: type[_Word], text: object, what: str) -> _Word:
    """Return a word of an enumeration, in whatever case. Raises: IllegalArgument."""
    lower = text.lower() if isinstance(text, str) else ""
    for each in kind:
        if each.lower() == lower:
            return each
    raise IllegalArgument(f"the {what} is illegal: {text!r} is not one of {', '.join(kind)}")


@dataclass(frozen=True, slots=True)
class Asked:
    """One resource of a request, and the actions of which one is enough."""

    kind: ResourceKind
    name: str
    actions: frozenset[Action]

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def is_internal(self) -> bool:
        """Return True for topics and groups of the broker itself."""
        if self.kind is ResourceKind.GROUP:
            return is_internal(RETRY_PREFIX + self.name)
        return self.kind is ResourceKind.TOPIC and is_internal(self.name)


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that a line is about: name is None for all of a kind."""

    kind: ResourceKind
    name: str | None
    begins: bool = False

    @classmethod
    def parse(cls, text: object) -> "ResourcePattern":
        """Parse `Topic:name`, `Topic:beginning*`, `Topic:*` or `*`. Raises: IllegalArgument."""
        if text == "*":
            return cls(ResourceKind.ANY, None)
        if not isinstance(text, str) or ":" not in text:
            raise IllegalArgument(
                f"the resource {text!r} is not Topic:, Group: or Cluster: and a name, or *"
            )
        kind, _, name = text.partition(":")
        if not kind.strip("*"):
            raise IllegalArgument(f"the resource {text!r} has no kind")
        begins = name.endswith("*")
        name = name.removesuffix("*")
        # RocketMQ cuts at the first of them: a*b* would allow all that begins with a.
        if "*" in name or len(name) > _NAME_LENGTH_MAX or not name.isprintable():
            raise IllegalArgument(
                f"the resource {text!r} has a * that is not at its end, or is too long"
            )
        return cls(
            word(ResourceKind, kind, "kind of resource"), name or (None if begins else ""), begins
        )

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        return f"{self.kind}:{self.name or ''}{'*' if self.begins else ''}"

    @property
    def is_open(self) -> bool:
        """Return True if it names nothing."""
        return self.name is None

    @property
    def is_literal(self) -> bool:
        """Return True if it names one resource."""
        return self.name is not None and not self.begins

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Return what the order of lines follows: the smallest decides."""
        if self.name is None:
            return self.kind is ResourceKind.ANY, 2, 0
        return False, int(self.begins), -len(self.name) if self.begins else 0

    def covers(self, asked: Asked) -> bool:
        if self.kind is ResourceKind.ANY:
            return True
        if self.kind is not asked.kind:
            return False
        if self.name is None:
            return True
        return asked.name.startswith(self.name) if self.begins else asked.name == self.name


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One line. networks: parsed source_ips, none for all addresses."""

    resource: ResourcePattern
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...]
    decision: PolicyDecision
    networks: tuple[_Network, ...]

    @classmethod
    def parse(cls, data: Any) -> "PolicyEntry":
        """Parse a PolicyEntryInfo. Raises: IllegalArgument."""
        if not isinstance(data, Mapping):
            raise IllegalArgument("a policy entry is an object")
        resource = ResourcePattern.parse(data.get("resource"))
        actions = tuple(
            dict.fromkeys(word(Action, each, "action") for each in _listed(data, "actions"))
        )
        if not actions:
            raise IllegalArgument("the actions are empty")
        ips = tuple(dict.fromkeys(_listed(data, "sourceIps")))
        decision = word(PolicyDecision, data.get("decision"), "decision")
        return cls(resource, actions, ips, decision, tuple(_network(each) for each in ips))

    def to_json(self) -> dict[str, Any]:
        """Return a PolicyEntryInfo; RocketMQ leaves absent addresses out, too."""
        ips = {"sourceIps": list(self.source_ips)} if self.source_ips else {}
        return {
            "actions": [str(each) for each in self.actions],
            "decision": str(self.decision),
            "resource": str(self.resource),
            **ips,
        }

    def __str__(self) -> str:
        where = f" from {', '.join(self.source_ips)}" if self.source_ips else ""
        return f"{self.decision} {','.join(self.actions)} on {self.resource}{where}"

    def fits(self, asked: Asked, address: _Address | None) -> bool:
        """Return True if the line says anything about a request from an address (invariants 2, 5, 6)."""
        allows = self.decision is PolicyDecision.ALLOW
        if not self.resource.covers(asked) or (
            allows and self.resource.is_open and asked.is_internal
        ):
            return False
        if Action.ALL not in self.actions and asked.actions.isdisjoint(self.actions):
            return False
        if not self.networks:
            return True
        if address is None:
            return not allows
        return any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """The answer, and the line that gave it: None if no line fits."""

    allowed: bool
    entry: PolicyEntry | None = None
    policy_type: PolicyType = PolicyType.CUSTOM

    def __str__(self) -> str:
        if self.entry is None:
            return "no policy fits"
        return f"{self.policy_type} policy: {self.entry}"

    @property
    def detail(self) -> str:
        """Return RocketMQ's words for a refusal."""
        return "no matched policies." if self.entry is None else "the decision is deny."


@dataclass(frozen=True, slots=True)
class UserPolicies:
    """The lines of one user by type; those of one resource are one line, as the later one said."""

    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    @classmethod
    def parse(cls, data: Any) -> "UserPolicies":
        """Parse the policies of an AclInfo. Raises: IllegalArgument."""
        found = cls()
        if not isinstance(data, list) or not data:
            raise IllegalArgument("the policies are empty")
        for each in data:
            entries = each.get("entries") if isinstance(each, Mapping) else None
            if not isinstance(entries, list) or not entries:
                raise IllegalArgument("the policy entries are empty")
            kind = word(PolicyType, each.get("policyType") or PolicyType.CUSTOM, "policy type")
            found = found.with_entries(kind, (PolicyEntry.parse(entry) for entry in entries))
        return found

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"entries": [entry.to_json() for entry in entries], "policyType": str(kind)}
            for kind, entries in self._by_type()
            if entries
        ]

    def _by_type(self) -> Iterator[tuple[PolicyType, tuple[PolicyEntry, ...]]]:
        yield PolicyType.CUSTOM, self.custom
        yield PolicyType.DEFAULT, self.default

    def __bool__(self) -> bool:
        return bool(self.custom or self.default)

    def of(self, kind: PolicyType) -> tuple[PolicyEntry, ...]:
        return self.custom if kind is PolicyType.CUSTOM else self.default

    def with_entries(self, kind: PolicyType, entries: Iterable[PolicyEntry]) -> "UserPolicies":
        """Return them with these lines put in the place of those of the same resources, or behind all.

        Raises: IllegalArgument if they become too many.
        """
        rows = {entry.resource: entry for entry in self.of(kind)}
        rows.update((entry.resource, entry) for entry in entries)
        if len(rows) > ENTRIES_MAX:
            raise IllegalArgument(
                f"a user may have {ENTRIES_MAX} policy entries of one type at most"
            )
        return self._replaced(kind, tuple(rows.values()))

    def merged(self, others: "UserPolicies") -> "UserPolicies":
        """Return them changed by all lines of others. Raises: IllegalArgument."""
        found = self
        for kind, entries in others._by_type():
            found = found.with_entries(kind, entries)
        return found

    def without(self, kind: PolicyType, resource: ResourcePattern) -> "UserPolicies":
        return self._replaced(
            kind, tuple(each for each in self.of(kind) if each.resource != resource)
        )

    def only(self, text: str) -> "UserPolicies":
        """Return the lines whose resource contains a text."""
        custom, default = (
            tuple(each for each in entries if text in str(each.resource))
            for _, entries in self._by_type()
        )
        return UserPolicies(custom, default)

    def _replaced(self, kind: PolicyType, entries: tuple[PolicyEntry, ...]) -> "UserPolicies":
        if kind is PolicyType.CUSTOM:
            return UserPolicies(entries, self.default)
        return UserPolicies(self.custom, entries)

    def decide(self, asked: Asked, ip: str) -> PolicyVerdict:
        """Decide about one resource of a request from an IP (see the head of the module)."""
        address = parse_address(ip)
        for kind, entries in self._by_type():
            fitting = [entry for entry in entries if entry.fits(asked, address)]
            if fitting:
                entry = min(fitting, key=_rank)
                return PolicyVerdict(entry.decision is PolicyDecision.ALLOW, entry, kind)
        return PolicyVerdict(False)

    def cover(self, others: "UserPolicies") -> bool:
        """Return True if these certainly allow all that others allow: nothing but Allow was added."""
        for kind, entries in others._by_type():
            own = set(self.of(kind))
            added = own.difference(entries)
            if not own.issuperset(entries) or any(
                each.decision is PolicyDecision.DENY for each in added
            ):
                return False
        return True


def _rank(entry: PolicyEntry) -> tuple[tuple[bool, int, int], bool]:
    return entry.resource.rank, entry.decision is PolicyDecision.ALLOW


def parse_address(text: str) -> _Address | None:
    """Parse an IP, in brackets or not; ::ffff:10.0.0.1 is 10.0.0.1. None if invalid."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _network(text: object) -> _Network:
    """Parse an IP, or a network as 10.0.0.0/8. Raises: IllegalArgument."""
    try:
        if not isinstance(text, str) or "%" in text:
            raise ValueError("it is not a plain address")
        _, slash, bits = text.partition("/")
        if slash and not (bits.isascii() and bits.isdigit()):
            raise ValueError("behind the / stands no number of bits")
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise IllegalArgument(f"the source ip {text!r} is invalid: {error}") from None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def _listed(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise IllegalArgument(f"{name} of a policy entry is a list")
    return found
