"""`pocketmq group`: create, delete, list, show, balance, redeliver, doctor, mode, producers."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, confirm, with_admin
from pocketmq.cli.commands.balance import balance, redeliver
from pocketmq.cli.exits import ExitCode
from pocketmq.cli.group_report import (
    check_known,
    describe,
    examine,
    print_diagnosis,
    print_progress,
)
from pocketmq.cli.options import All, Broker, Cluster, GroupName, Json, NameServer, Yes
from pocketmq.cli.output import print_fields, print_json, print_line, print_rows
from pocketmq.model.names import is_retry_topic, is_system_group

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()
app.command("balance")(balance)
app.command("redeliver")(redeliver)

_TYPES = {"CONSUME_PASSIVELY": "push consumers", "CONSUME_ACTIVELY": "pull consumers"}


@app.command("list")
def list_groups(namesrv: NameServer, everything: All = False, as_json: Json = False) -> None:
    """Every group, with its members online and its lag; those of the system and retry topics with --all."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views.group import group_row

        rows = []
        for name in await admin.groups.names():
            if is_system_group(name) and not everything:
                continue
            row = await group_row(admin, name)
            topics = [each for each in row.topics if everything or not is_retry_topic(each)]
            rows.append({"group": name, "members": row.members, "topics": topics, "lag": row.lag})
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="no groups")


@app.command()
def create(
    group: GroupName,
    namesrv: NameServer,
    retry_queues: Annotated[
        int | None, typer.Option(min=0, help="Queues of its retry topic (default: 1).")
    ] = None,
    retry_max: Annotated[
        int | None,
        typer.Option(
            min=-1, help="Failures after which a message becomes a dead letter (default: 16)."
        ),
    ] = None,
    consume: Annotated[
        bool | None,
        typer.Option("--consume/--no-consume", help="Whether it may consume (default: it may)."),
    ] = None,
    broadcast: Annotated[
        bool | None,
        typer.Option(
            "--broadcast/--no-broadcast", help="Whether it may broadcast (default: it may)."
        ),
    ] = None,
    batch: Annotated[
        bool | None,
        typer.Option(
            "--batch/--no-batch",
            help="Whether its members come and leave, as nightly jobs do: the doctor misses none then.",
        ),
    ] = None,
    cluster: Cluster = None,
    broker: Broker = None,
    as_json: Json = False,
) -> None:
    """Create a group, or change what the options say of one that exists."""
    named = {
        "consume_enable": consume,
        "consume_broadcast_enable": broadcast,
        "retry_queues": retry_queues,
        "retry_max_times": retry_max,
    }
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}

    async def work(admin: "Admin") -> list[str]:
        from dataclasses import replace

        from pocketmq.admin import GroupConfig
        from pocketmq.model.tables import reader_attribute

        changed: list[str] = []
        # Each broker keeps its own values of an existing group.
        for name, groups in (await admin.groups.configs(cluster=cluster, broker=broker)).items():
            config = replace(groups.get(group) or GroupConfig(group), **given)
            if batch is not None:
                attributes = {"attributes": reader_attribute(batch=batch)}
                config = replace(config, extra={**config.extra, **attributes})
            changed += await admin.groups.create(config, broker=broker or name)
        return changed

    print_fields({"group": group, "brokers": with_admin(namesrv, work)}, as_json=as_json)


@app.command()
def delete(
    group: GroupName,
    namesrv: NameServer,
    with_offsets: Annotated[
        bool, typer.Option("--with-offsets", help="Also forget how far it has consumed.")
    ] = False,
    with_topics: Annotated[
        bool,
        typer.Option(
            "--with-topics",
            help="Also delete its retry and dead letter topics, with their messages.",
        ),
    ] = False,
    cluster: Cluster = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a group's configuration.

    Without --with-topics its retries and dead letters stay, and a group of that name begins with them.
    """
    more = ", its offsets" * with_offsets + ", its retries and dead letters" * with_topics

    async def work(admin: "Admin") -> list[str]:
        await check_known(admin, group)
        confirm(f"group {group!r}{more} will be deleted", yes)
        brokers = await admin.groups.delete(group, with_offsets=with_offsets, cluster=cluster)
        if with_topics:
            from pocketmq.admin.group_topics import delete_group_topics

            await delete_group_topics(admin, group, cluster=cluster)
        return brokers

    print_fields({"group": group, "deletedOn": with_admin(namesrv, work)}, as_json=as_json)


@app.command()
def show(group: GroupName, namesrv: NameServer, as_json: Json = False) -> None:
    """Members, each one's own subscription beside the group's, the queues of each, and the lag."""
    found = with_admin(namesrv, lambda admin: describe(admin, group))
    if as_json:
        print_json(found)
        return
    if not found["members"]:
        print_line("no member is online")
    else:
        # Their names in RocketMQ: CONSUME_PASSIVELY, CLUSTERING, CONSUME_FROM_FIRST_OFFSET.
        begin = str(found["consumeFromWhere"]).removeprefix("CONSUME_FROM_").replace("_", " ")
        print_line(
            f"{_TYPES.get(found['consumeType'], 'consumers')}, {str(found['messageModel']).lower()}, "
            f"beginning at the {begin.lower()}"
        )
        if found["mode"] not in (None, "compatible"):
            print_line(f"mode: {found['mode']}")
        print_rows(found["subscriptions"], as_json=False, empty="no subscriptions")
        print_rows(found["members"], as_json=False)
    print_progress(found["queues"], as_json=False)
    for symptom in found["symptoms"]:
        print_line(f"{symptom['severity']}: {symptom['text']}")


@app.command()
def doctor(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Default: all.")] = None,
    *,
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """What is wrong with a group, or with any: lag that grows, failures, members that are stuck or differ.

    Exit code 1 when something is. Thresholds: the broker's settings doctor...
    """
    found = with_admin(namesrv, lambda admin: examine(admin, group))
    sick = [each for each in found if each["state"] == "sick"]
    if as_json:
        print_json(found if group is None else found[0])
    else:
        print_line(f"sick groups: {len(sick)} of {len(found)}" if group is None else _state(found))
        print_diagnosis(found)
    if sick:
        raise typer.Exit(int(ExitCode.FAILED))


def _state(found: Sequence[dict[str, Any]]) -> str:
    return "sick" if found[0]["state"] == "sick" else "nothing is wrong"


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
            help="compatible (as RocketMQ), strict (one subscription; others are refused), "
            "isolate (each subscription gets all its messages)"
            ", default (the broker's groupMode).",
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
        raise ClusterRefused("no PocketMQ broker answers, and Apache brokers have no group modes")
    print_fields({"group": group, "modes": modes}, as_json=as_json)


@app.command()
def producers(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of a producer group.")],
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """The connected producers of a group."""
    from pocketmq.admin.views.rows import ClientRow
    from pocketmq.model.as_json import as_object

    found = with_admin(namesrv, lambda admin: admin.groups.producers(group))
    rows = [as_object(ClientRow.of(member)) for member in found]
    print_rows(rows, as_json=as_json, empty=f"no producer is online in group {group!r}")
