"""Access: the accounts or users that brokers check signatures with, their rights, and the audit trail.

The rules are the broker's own (broker/access); secrets are neither shown nor stored here.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from pocketmq.admin import ClusterBroker
from pocketmq.admin.users.audit import AuditFilter, audit_page
from pocketmq.admin.views.account import AccountView
from pocketmq.admin.views.topic import users_topics
from pocketmq.broker.access.account import Account, AccountPermission
from pocketmq.broker.access.users.policy import Asked, ResourceKind, UserPolicies
from pocketmq.broker.access.users.validator import refused
from pocketmq.console.api.request import ApiRequest, paged
from pocketmq.console.errors import in_words, not_found
from pocketmq.console.state import Console
from pocketmq.model.names import is_system_group, retry_topic
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.requests import Action

# Account.parse wants one; it is never compared with anything.
_UNKNOWN_SECRET = "unknown-here"
_SUPER = "Super"


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return each master with its accounts, or why they are unknown."""
    rows: list[dict[str, Any]] = []
    for master in await console.admin.site.masters():
        row: dict[str, Any] = {"broker": master.name, "enabled": None, "error": None}
        row.update(whiteAddresses=[], accounts=[], users=None)
        try:
            settings = await console.admin.settings.broker(master.address)
            if settings.get("authenticationEnabled") == "true":
                row.update(enabled=True, users=await _users(console, master.address))
                continue
            row["enabled"] = settings.get("aclEnable") == "true"
            if row["enabled"]:
                told = await console.admin.settings.accounts(master.address)
                row["whiteAddresses"] = list(told.get("globalWhiteAddrs") or ())
                row["accounts"] = [
                    AccountView.of(each).to_json() for each in told.get("plainAccessConfigs") or ()
                ]
        except PocketMQError as error:
            row["error"] = in_words(error, call.signer)
        finally:
            rows.append(row)
    return {"brokers": rows}


async def _users(console: Console, address: str) -> list[dict[str, Any]]:
    """Return the users of a broker with their policies, a row a line; passwords stay there."""
    policies = await console.admin.users.policies(address)
    return [
        {
            "user": each["username"],
            "admin": each.get("userType") == _SUPER,
            "enabled": each.get("userStatus") != "disable",
            "lines": [
                {
                    "policyType": lines.get("policyType") or "Custom",
                    "decision": line["decision"],
                    "actions": list(line["actions"]),
                    "resource": line["resource"],
                    "addresses": list(line.get("sourceIps") or ()),
                }
                for lines in policies.get(each["username"], [])
                for line in lines["entries"]
            ],
        }
        for each in await console.admin.users.all(address)
    ]


async def audit(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return a page; the brokers decide whether the viewer may read the trail."""
    query = call.query
    wanted = AuditFilter(
        user=query.text_or_none("user"),
        act=query.text_or_none("act"),
        resource=query.text_or_none("resource"),
        outcome=query.text_or_none("outcome"),
        begin_ms=query.number("begin", 0),
        end_ms=query.number_or_none("end"),
    )
    found = await audit_page(console.admin, wanted, call.size(), query.text_or_none("cursor"))
    return {
        "items": found.rows,
        "cursor": found.cursor,
        "scanned": found.scanned,
        "leftOut": [
            {"broker": name, "error": error} for name, error in sorted(found.left_out.items())
        ],
    }


async def may(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return an account's rights to each topic and group of the cluster; `q`: a part of the name."""
    page, size = call.page()
    part = call.query.text("q", "").lower()
    [master, *_] = await console.admin.site.masters(None, call.path["broker"])
    key = call.path["accessKey"]
    if await console.admin.users.are_there(master.address):
        account: _Rights = await _user(console, master.address, key)
    else:
        account = _AccountRights(await _find(console, master, key))
    topics = await users_topics(console.admin)
    # A broker that does not answer hides no group of the others.
    known = await console.admin.groups.names(partial=True)
    groups = [each for each in known if not is_system_group(each)]
    rows: list[dict[str, Any]] = [
        {
            "kind": "TOPIC",
            "name": name,
            "publish": account.may(ResourceKind.TOPIC, name, Action.PUB),
            "subscribe": account.may(ResourceKind.TOPIC, name, Action.SUB),
        }
        for name in sorted(topics)
    ]
    rows += [
        {
            "kind": "GROUP",
            "name": name,
            "publish": None,
            "subscribe": account.may(ResourceKind.GROUP, name, Action.SUB),
        }
        for name in groups
    ]
    chosen = [row for row in rows if part in row["name"].lower()]
    return {**paged(chosen, page, size), "admin": account.admin}


class _Rights(Protocol):
    """What an account or a user may do. admin: it may change topics, groups and settings, too."""

    @property
    def admin(self) -> bool: ...
    def may(self, kind: ResourceKind, name: str, action: Action) -> bool:
        """Return True if it may publish to a topic, or read it or for a group."""
        ...


@dataclass(frozen=True, slots=True)
class _AccountRights:
    account: Account

    @property
    def admin(self) -> bool:
        return self.account.admin

    def may(self, kind: ResourceKind, name: str, action: Action) -> bool:
        wanted = AccountPermission.PUB if action is Action.PUB else AccountPermission.SUB
        return self.account.has(retry_topic(name) if kind is ResourceKind.GROUP else name, wanted)


@dataclass(frozen=True, slots=True)
class _UserRights:
    """From any address that no line names."""

    admin: bool
    enabled: bool
    policies: UserPolicies

    def may(self, kind: ResourceKind, name: str, action: Action) -> bool:
        asked = Asked(kind, name, frozenset({action}))
        return self.enabled and (self.admin or refused(self.policies, asked, "") is None)


async def _user(console: Console, address: str, name: str) -> _UserRights:
    for each in await console.admin.users.all(address):
        if each["username"] == name:
            lines = (await console.admin.users.policies(address)).get(name, [])
            held = UserPolicies.parse(lines) if lines else UserPolicies()
            is_super = each.get("userType") == _SUPER
            return _UserRights(is_super, each.get("userStatus") != "disable", held)
    raise not_found(f"broker {address} has no user {name!r}")


async def _find(console: Console, master: ClusterBroker, access_key: str) -> Account:
    told = await console.admin.settings.accounts(master.address)
    for each in told.get("plainAccessConfigs") or ():
        if each.get("accessKey") == access_key:
            try:
                return Account.parse({**each, "secretKey": _UNKNOWN_SECRET})
            except IllegalArgument:
                break
    raise not_found(f"broker {master.name!r} has no account {access_key!r}")
