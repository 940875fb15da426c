"""`pocketmq account import` and `explain`: for brokers with users and policies (docs/protocol/acl.md)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, confirm, with_admin
from pocketmq.cli.commands.account.brokers import brokers_of
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.options import Broker, Cluster, Json, NameServer, Yes
from pocketmq.cli.output import print_rows

if TYPE_CHECKING:
    from pocketmq.admin import Admin


def import_accounts(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plain_acl.yml.")],
    namesrv: NameServer,
    cluster: Cluster = None,
    broker: Broker = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make users of the accounts of a plain_acl.yml; users that exist stay as they are."""
    accounts = _accounts_in(file)
    confirm(f"{len(accounts)} accounts of {file} become users; addresses in it have no effect", yes)

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.cli.commands.account.rights import put_user

        rows = []
        for each in await brokers_of(admin, cluster, broker):
            await _need_users(admin, each.address)
            known = {user["username"] for user in await admin.users.all(each.address)}
            for account in accounts:
                name, secret = str(account["accessKey"]), str(account["secretKey"])
                if name not in known:
                    await put_user(
                        admin, each.address, name, secret, {**account, "whiteRemoteAddress": None}
                    )
                rows.append({"broker": each.name, "accessKey": name, "imported": name not in known})
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="no accounts")


def _accounts_in(file: Path) -> list[dict[str, Any]]:
    """Return the accounts of a file. Raises: CannotBegin."""
    import yaml

    from pocketmq.broker.access.account import Account

    try:
        content = yaml.safe_load(file.read_text("utf-8")) or {}
        accounts = list(content.get("accounts") or ())
        for account in accounts:
            Account.parse(account)
    except (OSError, ValueError, AttributeError, TypeError, yaml.YAMLError) as error:
        raise CannotBegin(f"cannot read the accounts in {file}: {error}") from None
    return accounts


def explain(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of a user.")],
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="Pub, Sub, Create, Update, Delete, Get or List.")
    ],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Topic:NAME, Group:NAME or Cluster:NAME.")
    ],
    namesrv: NameServer,
    ip: Annotated[
        str, typer.Option("--from", metavar="IP", help="The address of the user's program.")
    ] = "127.0.0.1",
    cluster: Cluster = None,
    broker: Broker = None,
    as_json: Json = False,
) -> None:
    """Whether a user may do something, and which of its policies decides."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.cli.commands.account.rights import explained

        rows = []
        for each in await brokers_of(admin, cluster, broker):
            await _need_users(admin, each.address)
            users = {row["username"]: row for row in await admin.users.all(each.address)}
            if user not in users:
                raise ClusterRefused(
                    f"broker {each.name} has no user {user!r}; see: pocketmq account list"
                )
            policies = (await admin.users.policies(each.address)).get(user, [])
            allowed, why = explained(users[user], policies, action, resource, ip)
            rows.append({"broker": each.name, "allowed": allowed, "decidedBy": why})
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json)


async def _need_users(admin: "Admin", address: str) -> None:
    if not await admin.users.are_there(address):
        raise ClusterRefused(
            f"broker {address} has no users: start it with authenticationEnabled=true"
        )
