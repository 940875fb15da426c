"""Rights as `pocketmq account` and plain_acl.yml write them, as policies of users; and which line decides.

The mapping is that of RocketMQ 5.5.0's migration (AuthMigrator): docs/protocol/acl.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pocketmq.admin import Admin

SUPER, NORMAL = "Super", "Normal"
_ACTIONS = {"PUB": ["Pub"], "SUB": ["Sub"], "PUB|SUB": ["Pub", "Sub"], "SUB|PUB": ["Pub", "Sub"]}
_KINDS = (("Topic", "topicPerms", "defaultTopicPerm"), ("Group", "groupPerms", "defaultGroupPerm"))
Entry = dict[str, Any]


def policies_of(account: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the policies of an account in the names of plain_acl.yml. Raises: IllegalArgument."""
    custom: list[Entry] = []
    default: list[Entry] = []
    for kind, listed, other in _KINDS:
        for text in account.get(listed) or ():
            name, equals, perm = str(text).partition("=")
            if not equals or not name.strip():
                raise IllegalArgument(
                    f"the permission {text!r} is not NAME=DENY, PUB, SUB or PUB|SUB"
                )
            custom.append(_entry(f"{kind}:{name.strip()}", perm))
        if account.get(other):
            default.append(_entry(f"{kind}:*", str(account[other])))
    found = (("Custom", custom), ("Default", default))
    return [{"policyType": kind, "entries": entries} for kind, entries in found if entries]


def _entry(resource: str, perm: str) -> Entry:
    """An unknown word is DENY, as in RocketMQ."""
    actions = _ACTIONS.get(perm.strip())
    if actions is None:
        return {"resource": resource, "actions": ["All"], "decision": "Deny"}
    return {"resource": resource, "actions": actions, "decision": "Allow"}


def entries_of(policies: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Entry]]:
    """Yield the type of each line, and the line."""
    for each in policies:
        for entry in each.get("entries") or ():
            yield str(each.get("policyType") or "Custom"), entry


def row_of(user: Mapping[str, Any], policies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a user as the row of an account; a line that no account could have is written as it is."""
    is_super = user.get("userType") == SUPER
    row: dict[str, Any] = {
        "accessKey": user["username"],
        "admin": is_super,
        "whiteAddress": None,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "DENY",
        "topicPerms": [],
        "groupPerms": [],
        "mayAll": is_super,
        "enabled": user.get("userStatus") != "disable",
    }
    for kind, entry in entries_of(policies):
        what, _, name = entry["resource"].partition(":")
        perm = _perm_of(entry)
        if kind == "Default" and name == "*" and what in ("Topic", "Group"):
            row[f"default{what}Perm"] = perm
            continue
        key = "groupPerms" if what == "Group" else "topicPerms"
        row[key].append(f"{name if what in ('Topic', 'Group') else entry['resource']}={perm}")
    return row


def _perm_of(entry: Entry) -> str:
    perm = "|".join(action.upper() for action in entry["actions"])
    if entry["decision"] == "Deny":
        perm = "DENY" if perm == "ALL" else f"DENY {perm}"
    ips = entry.get("sourceIps")
    return f"{perm} from {','.join(ips)}" if ips else perm


async def put_user(
    admin: "Admin", address: str, name: str, password: str, account: Mapping[str, Any]
) -> None:
    """Make a user at a broker, or change what an account's fields say of one. Raises: IllegalArgument."""
    if account.get("whiteRemoteAddress"):
        raise IllegalArgument(
            f"broker {address} has users, whose requests are all signed: leave out --addresses"
        )
    fields = {"password": password}
    if account.get("admin") is not None:
        fields["userType"] = SUPER if account["admin"] else NORMAL
    policies = policies_of(account)
    if name in {each["username"] for each in await admin.users.all(address)}:
        await admin.users.update(address, name, fields)
    else:
        await admin.users.create(address, name, fields)
    before = (await admin.users.policies(address)).get(name, [])
    if policies:
        await admin.users.put_policies(address, name, policies)
    kept = {(kind, entry["resource"]) for kind, entry in entries_of(policies)}
    # A list that is given is the whole list, as for accounts.
    given = {kind for kind, listed, _ in _KINDS if account.get(listed)}
    for kind, entry in entries_of(before):
        what = entry["resource"].partition(":")[0]
        if kind == "Custom" and what in given and (kind, entry["resource"]) not in kept:
            await admin.users.delete_policy(address, name, kind, entry["resource"])


def explained(
    user: Mapping[str, Any], policies: list[dict[str, Any]], action: str, resource: str, ip: str
) -> tuple[bool, str]:
    """Return whether a user may do something, and why. Raises: IllegalArgument."""
    from pocketmq.broker.access.users.policy import Asked, ResourceKind, UserPolicies, word
    from pocketmq.broker.access.users.validator import refused
    from pocketmq.remoting.requests import Action

    kind, colon, name = resource.partition(":")
    if not colon or not name or "*" in resource:
        raise IllegalArgument(f"{resource!r} is not Topic:, Group: or Cluster: and a name")
    wanted = word(Action, action, "action")
    asked = Asked(word(ResourceKind, kind, "kind of resource"), name, frozenset({wanted}))
    if user.get("userStatus") == "disable":
        return False, "the user is disabled"
    if user.get("userType") == SUPER:
        return True, "a super user"
    held = UserPolicies.parse(policies) if policies else UserPolicies()
    verdict, why_not = held.decide(asked, ip), refused(held, asked, ip)
    if verdict.allowed and why_not is not None:
        return False, f"{verdict}; but {why_not}"
    return why_not is None, str(verdict)
