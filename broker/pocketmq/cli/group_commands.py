"""`pocketmq group`: create, delete, list, show, doctor, mode, producers."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.exits import ExitCode
from pocketmq.cli.group_report import check_known, describe, more_warnings
from pocketmq.cli.options import Broker, Cluster, GroupName, Json, NameServer, Yes
from pocketmq.cli.output import print_fields, print_json, print_line, print_rows
from pocketmq.cli.site import SiteRefused, confirm, with_admin
from pocketmq.remoting.codes import version_name

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer(help="Create, change, delete and show consumer groups.", no_args_is_help=True)


@app.command("list")
def list_groups(namesrv: NameServer, as_json: Json = False) -> None:
    """Every group, with its members online and its lag."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views import group_row

        rows = []
        for name in await admin.groups.names():
            row = await group_row(admin, name)
            rows.append(
                {"group": name, "members": row.members, "topics": row.topics, "lag": row.lag}
            )
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="no groups")


@app.command()
def create(
    group: GroupName,
    namesrv: NameServer,
    retry_queues: Annotated[int, typer.Option(min=0, help="Queues of its retry topic.")] = 1,
    retry_max: Annotated[
        int, typer.Option(min=-1, help="Failures after which a message becomes a dead letter.")
    ] = 16,
    consume: Annotated[bool, typer.Option(help="Whether it may consume.")] = True,
    broadcast: Annotated[bool, typer.Option(help="Whether it may broadcast.")] = True,
    cluster: Cluster = None,
    broker: Broker = None,
    as_json: Json = False,
) -> None:
    """Create a group, or change it where it exists."""

    async def work(admin: "Admin") -> list[str]:
        from pocketmq.admin import GroupConfig

        config = GroupConfig(
            group,
            consume_enable=consume,
            consume_broadcast_enable=broadcast,
            retry_queues=retry_queues,
            retry_max_times=retry_max,
        )
        return await admin.groups.create(config, cluster=cluster, broker=broker)

    print_fields({"group": group, "brokers": with_admin(namesrv, work)}, as_json=as_json)


@app.command()
def delete(
    group: GroupName,
    namesrv: NameServer,
    with_offsets: Annotated[
        bool, typer.Option("--with-offsets", help="Forget how far it has consumed, too.")
    ] = False,
    cluster: Cluster = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a group's configuration."""
    more = " and its offsets" if with_offsets else ""
    confirm(f"group {group!r}{more} will be deleted", yes)

    async def work(admin: "Admin") -> list[str]:
        await check_known(admin, group)
        return await admin.groups.delete(group, with_offsets=with_offsets, cluster=cluster)

    print_fields({"group": group, "deleted on": with_admin(namesrv, work)}, as_json=as_json)


@app.command()
def show(group: GroupName, namesrv: NameServer, as_json: Json = False) -> None:
    """Members, each one's own subscription beside the group's, who has which queue, and the lag."""
    found = with_admin(namesrv, lambda admin: describe(admin, group))
    if as_json:
        print_json(found)
        return
    if not found["members"]:
        print_line("nobody is online")
    else:
        print_line(
            f"{found['consume_type']} {found['message_model']} {found['consume_from_where']}"
        )
        if found["mode"] not in (None, "compatible"):
            print_line(f"mode: {found['mode']}")
        print_rows(found["subscriptions"], as_json=False, empty="no subscriptions")
        print_rows(found["members"], as_json=False)
    print_rows(found["queues"], as_json=False, empty="no offsets")
    for warning in found["warnings"]:
        print_line(f"warning: {warning}")


@app.command()
def doctor(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Default: all.")] = None,
    *,
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """Do the members subscribe to the same, what is lost if not, does everybody read? Exit code 1 if not."""
    found = with_admin(namesrv, lambda admin: examine(admin, group))
    if as_json:
        print_json(found)
    else:
        for warning in found["warnings"] or ["nothing is wrong"]:
            print_line(warning)
    if found["warnings"]:
        raise typer.Exit(int(ExitCode.FAILED))


async def examine(admin: "Admin", group: str | None) -> dict[str, Any]:
    """One group's warnings, or those of all groups whose members differ."""
    if group is None:
        told = [each for rows in (await admin.doctor.groups()).values() for each in rows]
        texts = [str(finding["text"]) for each in told for finding in each["findings"]]
        return {"group": None, "warnings": list(dict.fromkeys(texts))}
    found = await describe(admin, group)
    warnings = [*found["warnings"], *more_warnings(found)]
    return {
        "group": group,
        "mode": found["mode"],
        "findings": found["findings"],
        "warnings": warnings,
    }


class Mode(StrEnum):
    """What a group does when its members subscribe differently."""

    COMPATIBLE = "compatible"
    STRICT = "strict"
    ISOLATE = "isolate"
    DEFAULT = "default"


@app.command()
def mode(
    group: GroupName,
    new: Annotated[
        Mode | None,
        typer.Argument(
            metavar="[MODE]",
            help="compatible (as RocketMQ), strict (one subscription, others are refused), isolate (each "
            "subscription gets all of its messages), default (the broker's groupMode).",
        ),
    ] = None,
    *,
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """Show or set what a group does when its members subscribe differently."""

    async def work(admin: "Admin") -> dict[str, str]:
        if new is not None:
            await admin.doctor.set_mode(group, None if new is Mode.DEFAULT else new.value)
        else:
            await check_known(admin, group)
        told = await admin.doctor.groups(group)
        return {name: str(rows[0]["mode"]) for name, rows in told.items() if rows}

    modes = with_admin(namesrv, work)
    if not modes:
        raise SiteRefused("no PocketMQ broker answers here, and an Apache broker has no modes")
    print_fields({"group": group, "modes": modes}, as_json=as_json)


@app.command()
def producers(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of a producer group.")],
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """Who is online as a producer group."""
    found = with_admin(namesrv, lambda admin: admin.groups.producers(group))
    rows = [
        {
            "client": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": version_name(member.version),
        }
        for member in found
    ]
    print_rows(rows, as_json=as_json, empty=f"nobody is online as producer group {group!r}")
