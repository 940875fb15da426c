"""mqadmin's commands about accounts. A secret is never printed, which RocketMQ's do."""

from pocketmq.admin import Admin
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import say, say_lines, second

# What of an account is shown, in the order of RocketMQ's PlainAccessConfig.
_SHOWN = (
    *("accessKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
    *("topicPerms", "groupPerms"),
)


async def update_acl_config(admin: Admin, given: GivenOptions) -> None:
    fields = {
        "white_remote_address": given.maybe("w"),
        "admin": given.flag("m", False) if "m" in given else None,
        "default_topic_perm": given.maybe("i"),
        "default_group_perm": given.maybe("u"),
        "topic_perms": given.maybe("t"),
        "group_perms": given.maybe("g"),
    }
    for address in await _addresses(admin, given):
        await admin.settings.set_account(address, given["a"], given["s"], **fields)
        say(f"create or update plain access config to {address} success.")


async def delete_acl_config(admin: Admin, given: GivenOptions) -> None:
    for address in await _addresses(admin, given):
        await admin.settings.delete_account(address, given["a"])
        say(f"delete plain access config account from {address} success.")
    say(f"account's accesskey is:{given['a']}")


async def update_global_white_addr(admin: Admin, given: GivenOptions) -> None:
    for address in await _addresses(admin, given):
        await admin.settings.set_white_addresses(address, given["g"].split(","), given.maybe("p"))
        say(f"update global white remote addresses to {address} success.")


async def get_acl_config(admin: Admin, given: GivenOptions) -> None:
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        told = await admin.settings.accounts(master.address)
        addresses = ", ".join(map(str, told.get("globalWhiteAddrs") or ()))
        say_lines("", f"globalWhiteRemoteAddresses: [{addresses}]", "", "accounts:")
        for account in told.get("plainAccessConfigs") or ():
            for name in _SHOWN:
                say(f"  {name:<18}: {_text(account.get(name))}")
            say("")


def _text(value: object) -> str:
    """Return a value as Java prints it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


async def cluster_acl_config_version(admin: Admin, given: GivenOptions) -> None:
    rows: list[tuple[object, ...]] = []
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        place = (master.cluster, master.name, master.address)
        for path, version in (await admin.settings.account_files(master.address)).items():
            rows.append((*place, path, version["counter"], second(version["timestamp"])))
    given.show(rows)


async def _addresses(admin: Admin, given: GivenOptions) -> list[str]:
    """Return the brokers named, slaves too: each reads files of its own."""
    if "b" in given:
        return [given["b"]]
    return [each.address for each in await admin.site.brokers(given["c"])]
