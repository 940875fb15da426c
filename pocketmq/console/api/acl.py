"""Access: the accounts that brokers check signatures with, and their rights to topics and groups.

The rules are the broker's own (broker.acl); secrets are neither shown nor stored here.
"""

from typing import Any

from pocketmq.admin.views.account import AccountView
from pocketmq.admin.views.topic import users_topics
from pocketmq.broker.access.account import Account, AccountPermission
from pocketmq.console.api.request import ApiRequest, paged
from pocketmq.console.errors import in_words, not_found
from pocketmq.console.state import Console
from pocketmq.model.names import is_system_group, retry_topic
from pocketmq.remoting.errors import IllegalArgument, PocketMQError

# Account.parse wants one; it is never compared with anything.
_UNKNOWN_SECRET = "unknown-here"


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return each master with its accounts, or why they are unknown."""
    rows: list[dict[str, Any]] = []
    for master in await console.admin.site.masters():
        row: dict[str, Any] = {"broker": master.name, "enabled": None, "error": None}
        row.update(whiteAddresses=[], accounts=[])
        try:
            settings = await console.admin.settings.broker(master.address)
            row["enabled"] = settings.get("aclEnable") == "true"
            if row["enabled"]:
                told = await console.admin.settings.accounts(master.address)
                row["whiteAddresses"] = list(told.get("globalWhiteAddrs") or ())
                row["accounts"] = [
                    AccountView.of(each).to_json() for each in told.get("plainAccessConfigs") or ()
                ]
        except PocketMQError as error:
            row["error"] = in_words(error)
        rows.append(row)
    return {"brokers": rows}


async def may(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return an account's rights to each topic and group of the cluster; `q`: a part of the name."""
    page, size = call.page()
    part = call.query.text("q", "").lower()
    account = await _find(console, call.path["broker"], call.path["accessKey"])
    topics = await users_topics(console.admin)
    # A broker that does not answer hides no group of the others.
    known = await console.admin.groups.names(partial=True)
    groups = [each for each in known if not is_system_group(each)]
    rows: list[dict[str, Any]] = [
        {
            "kind": "TOPIC",
            "name": name,
            "publish": account.has(name, AccountPermission.PUB),
            "subscribe": account.has(name, AccountPermission.SUB),
        }
        for name in sorted(topics)
    ]
    rows += [
        {
            "kind": "GROUP",
            "name": name,
            "publish": None,
            "subscribe": account.has(retry_topic(name), AccountPermission.SUB),
        }
        for name in groups
    ]
    chosen = [row for row in rows if part in row["name"].lower()]
    return {**paged(chosen, page, size), "admin": account.admin}


async def _find(console: Console, broker: str, access_key: str) -> Account:
    [master, *_] = await console.admin.site.masters(None, broker)
    told = await console.admin.settings.accounts(master.address)
    for each in told.get("plainAccessConfigs") or ():
        if each.get("accessKey") == access_key:
            try:
                return Account.parse({**each, "secretKey": _UNKNOWN_SECRET})
            except IllegalArgument:
                break
    raise not_found(f"broker {broker!r} has no account {access_key!r}")
