"""`pocketmq account`: accounts of RocketMQ 4 in the brokers' files, or users of RocketMQ 5 with policies."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, confirm, with_admin
from pocketmq.cli.commands.account.audit import audit
from pocketmq.cli.commands.account.brokers import brokers_of
from pocketmq.cli.commands.account.users import explain, import_accounts
from pocketmq.cli.options import Broker, Cluster, Json, NameServer, Yes
from pocketmq.cli.output import print_fields, print_rows
from pocketmq.cli.secret_input import secret_of

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.admin.views.account import AccountView

app = typer.Typer()

AccessKey = Annotated[str, typer.Argument(metavar="KEY", help="Access key of an account.")]


@app.command("list")
def list_accounts(
    namesrv: NameServer, cluster: Cluster = None, broker: Broker = None, as_json: Json = False
) -> None:
    """Every account of each broker with its rights; secrets are not shown."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        return [
            {"broker": each.name, **row}
            for each in await brokers_of(admin, cluster, broker)
            for row in await _rows(admin, each.address)
        ]

    rows = with_admin(namesrv, work)
    print_rows(rows, as_json=as_json, empty="no accounts", columns=_COLUMNS)


_COLUMNS = {
    "broker": "broker",
    "accessKey": "account",
    "admin": "admin",
    "mayAll": "may all",
    "whiteAddress": "addresses",
    "topicPerms": "topics",
    "defaultTopicPerm": "other topics",
    "groupPerms": "groups",
    "defaultGroupPerm": "other groups",
}


async def _rows(admin: "Admin", address: str) -> list[dict[str, Any]]:
    if not await admin.users.are_there(address):
        return [{**each.to_json(), "enabled": True} for each in await _accounts(admin, address)]
    from pocketmq.cli.commands.account.rights import row_of

    policies = await admin.users.policies(address)
    return [
        row_of(each, policies.get(each["username"], [])) for each in await admin.users.all(address)
    ]


@app.command("set")
def set_account(
    key: AccessKey,
    namesrv: NameServer,
    context: typer.Context,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="POCKETMQ_ACCOUNT_SECRET",
            help="Its secret key, seven characters or more; asked for if not given.",
        ),
    ] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The file that holds it; - reads it from stdin."),
    ] = None,
    admin: Annotated[
        bool | None,
        typer.Option("--admin/--no-admin", help="Whether it may change brokers (default: no)."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PERM", help="PUB, SUB, PUB|SUB or DENY; repeated, for all listed."
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PERM", help="SUB or DENY; as with --topic.")
    ] = None,
    other_topics: Annotated[
        str | None, typer.Option(metavar="PERM", help="For topics not listed (default: DENY).")
    ] = None,
    other_groups: Annotated[
        str | None, typer.Option(metavar="PERM", help="For groups not listed (default: DENY).")
    ] = None,
    addresses: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="From where it needs no signature: 192.168.0.*"),
    ] = None,
    cluster: Cluster = None,
    broker: Broker = None,
    as_json: Json = False,
) -> None:
    """Make an account or user at each broker, or change what the options say of one that exists."""
    source = context.get_parameter_source("secret")
    key_of_it = secret_of(
        secret_file,
        secret,
        question="secret key",
        otherwise="--secret-file or POCKETMQ_ACCOUNT_SECRET",
        on_line=source is not None and source.name == "COMMANDLINE",
    )
    fields: dict[str, Any] = {
        "admin": admin,
        "topicPerms": topic,
        "groupPerms": group,
        "defaultTopicPerm": other_topics,
        "defaultGroupPerm": other_groups,
        "whiteRemoteAddress": addresses,
    }

    async def act(admin: "Admin", address: str) -> None:
        if not await admin.users.are_there(address):
            await admin.settings.set_account(address, key, key_of_it, **_header_of(fields))
            return
        from pocketmq.cli.commands.account.rights import put_user

        await put_user(admin, address, key, key_of_it, fields)

    brokers = with_admin(namesrv, _at_each(cluster, broker, act))
    print_fields({"accessKey": key, "brokers": brokers}, as_json=as_json)


def _header_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of an account as set_account takes them."""
    names = {
        "admin": "admin",
        "topicPerms": "topic_perms",
        "groupPerms": "group_perms",
        "defaultTopicPerm": "default_topic_perm",
        "defaultGroupPerm": "default_group_perm",
        "whiteRemoteAddress": "white_remote_address",
    }
    given = {names[name]: value for name, value in fields.items() if value not in (None, [])}
    return {
        name: ",".join(value) if isinstance(value, list) else value for name, value in given.items()
    }


@app.command()
def delete(
    key: AccessKey,
    namesrv: NameServer,
    cluster: Cluster = None,
    broker: Broker = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete an account at each broker; its connections end."""
    confirm(f"account {key!r} will be deleted, and its connections end", yes)

    async def act(admin: "Admin", address: str) -> None:
        if key not in {row["accessKey"] for row in await _rows(admin, address)}:
            raise ClusterRefused(
                f"broker {address} has no account {key!r}; see: pocketmq account list"
            )
        if await admin.users.are_there(address):
            await admin.users.delete(address, key)
        else:
            await admin.settings.delete_account(address, key)

    brokers = with_admin(namesrv, _at_each(cluster, broker, act))
    print_fields({"accessKey": key, "brokers": brokers}, as_json=as_json)


@app.command()
def white(
    addresses: Annotated[
        list[str], typer.Argument(metavar="PATTERN...", help="All of them: 10.0.0.1 192.168.0.*")
    ],
    namesrv: NameServer,
    cluster: Cluster = None,
    broker: Broker = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replace the addresses whose requests need no signature."""
    confirm(f"requests from {', '.join(addresses)} are unrestricted, even unsigned", yes)

    async def act(admin: "Admin", address: str) -> None:
        await admin.settings.set_white_addresses(address, addresses)

    brokers = with_admin(namesrv, _at_each(cluster, broker, act))
    print_fields({"whiteAddresses": addresses, "brokers": brokers}, as_json=as_json)


async def _accounts(admin: "Admin", address: str) -> list["AccountView"]:
    from pocketmq.admin.views.account import AccountView

    told = await admin.settings.accounts(address)
    return [AccountView.of(each) for each in told.get("plainAccessConfigs") or ()]


def _at_each(
    cluster: str | None, broker: str | None, act: Callable[["Admin", str], Awaitable[None]]
) -> Callable[["Admin"], Awaitable[list[str]]]:
    """Return work that acts at each broker, slaves too: each reads files of its own."""

    async def work(admin: "Admin") -> list[str]:
        brokers = await brokers_of(admin, cluster, broker)
        for each in brokers:
            await act(admin, each.address)
        return sorted({each.name for each in brokers})

    return work


app.command("import")(import_accounts)
app.command()(explain)
app.command()(audit)
