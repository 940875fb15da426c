"""`pocketmq group`: create, delete, list, show; `pocketmq offset`: look, reset, set, copy."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.moments import parse_moment, show_moment
from pocketmq.cli.options import Broker, Cluster, GroupName, Json, NameServer, TopicName, Yes
from pocketmq.cli.output import print_fields, print_json, print_line, print_rows
from pocketmq.cli.site import confirm, with_admin
from pocketmq.remoting.codes import version_name
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.admin import Admin, GroupConnection, OffsetReset, QueueProgress

app = typer.Typer(help="Create, change, delete and show consumer groups.", no_args_is_help=True)
offsets = typer.Typer(help="How far groups have consumed; move them.", no_args_is_help=True)


@app.command("list")
def list_groups(namesrv: NameServer, as_json: Json = False) -> None:
    """Every group, with its members online and its lag."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows = []
        for name in await admin.groups.names():
            try:
                members = len((await admin.groups.connection(name)).members)
            except PocketMQError:
                members = 0
            progress = await admin.groups.progress(name)
            rows.append(
                {
                    "group": name,
                    "members": members,
                    "topics": sorted({row.queue.topic for row in progress}),
                    "lag": sum(row.lag for row in progress),
                }
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
        print_rows(found["subscriptions"], as_json=False, empty="no subscriptions")
        print_rows(found["members"], as_json=False)
    print_rows(found["queues"], as_json=False, empty="no offsets")
    for warning in found["warnings"]:
        print_line(f"warning: {warning}")


async def describe(admin: "Admin", group: str) -> dict[str, Any]:
    """All that is known of a group, and what is suspicious."""
    from pocketmq.client.errors import ConsumerNotOnline

    try:
        connection = await admin.groups.connection(group)
    except ConsumerNotOnline:
        connection = None
    progress = await admin.groups.progress(group, owners=connection is not None)
    found: dict[str, Any] = {
        "group": group,
        "members": [],
        "subscriptions": [],
        "queues": [_queue_row(row) for row in progress],
        "warnings": [],
    }
    if connection is None:
        return found
    found["consume_type"] = connection.consume_type
    found["message_model"] = connection.message_model
    found["consume_from_where"] = connection.consume_from_where
    found["subscriptions"] = [
        {"topic": topic, "expression": each.sub_string, "version": each.sub_version}
        for topic, each in sorted(connection.subscriptions.items())
    ]
    await _add_members(admin, group, connection, found)
    return found


async def _add_members(
    admin: "Admin", group: str, connection: "GroupConnection", found: dict[str, Any]
) -> None:
    """The members' own subscriptions, as they say them themselves (E2, E3)."""
    asked: dict[str, dict[str, str]] = {}
    for member in connection.members:
        try:
            info = await admin.groups.running_info(group, member.client_id)
            own = {topic: each.sub_string for topic, each in info.subscriptions.items()}
        except PocketMQError:
            own = {}
        asked[member.client_id] = own
        found["members"].append(
            {
                "client": member.client_id,
                "address": member.address,
                "language": member.language,
                "version": version_name(member.version),
                "subscribes": [
                    f"{topic}: {text}"
                    for topic, text in sorted(own.items())
                    if not topic.startswith("%RETRY%")
                ],
            }
        )
    known = [own for own in asked.values() if own]
    if any(own != known[0] for own in known[1:]):
        found["warnings"].append(
            "the members subscribe to different things: each gets only the queues that it is given, "
            "and the broker filters all of them by the last heartbeat's expression, so messages are "
            "lost to everybody. Give members with different topics or tags different groups"
        )


def _queue_row(row: "QueueProgress") -> dict[str, Any]:
    return {
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        "end": row.broker_offset,
        "offset": row.consumer_offset,
        "lag": row.lag,
        "last": show_moment(row.last_ms),
        "owner": row.owner,
    }


# ------------------------------------------------------------ offsets


@offsets.command("show")
def show_offsets(
    group: GroupName,
    namesrv: NameServer,
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    as_json: Json = False,
) -> None:
    """How far a group is in each queue."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        return [_queue_row(row) for row in await admin.groups.progress(group, topic, owners=True)]

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="no offsets")


@offsets.command()
def reset(
    group: GroupName,
    topic: TopicName,
    namesrv: NameServer,
    to: Annotated[
        str,
        typer.Option("--to", help="earliest, latest, or a time: now, 2h (ago), 2026-11-21T12:00."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move a group back or forward in a topic; members that are online are told."""
    words = {"earliest": 0, "latest": -1}
    moment = words[to] if to in words else parse_moment(to)
    if not dry_run:
        confirm(f"group {group!r} will go on in topic {topic!r} from {to}", yes)

    async def work(admin: "Admin") -> list["OffsetReset"]:
        return await admin.groups.reset(group, topic, moment, dry=dry_run)

    _print_resets(with_admin(namesrv, work), as_json)


@offsets.command("set")
def set_offset(
    group: GroupName,
    topic: TopicName,
    queue: Annotated[int, typer.Argument(help="Queue id.")],
    offset: Annotated[int, typer.Argument(min=0, help="The next offset to consume.")],
    namesrv: NameServer,
    broker: Annotated[
        str | None, typer.Option(help="Name of the broker, when several have it.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write one offset. Stop the members first: one that is online may write its own over it."""
    confirm(f"group {group!r} will go on in queue {queue} of {topic!r} from {offset}", yes)

    async def work(admin: "Admin") -> list["OffsetReset"]:
        from pocketmq.admin import OffsetReset

        queues = [
            each
            for each in (await admin.topics.route(topic)).subscribe_queues(topic)
            if each.queue_id == queue and broker in (None, each.broker_name)
        ]
        if len(queues) != 1:
            raise CannotBegin(
                f"topic {topic!r} has {len(queues)} queues with id {queue}: "
                + ("name the broker with --broker" if queues else "see `pocketmq topic show`")
            )
        old = {row.queue: row.consumer_offset for row in await admin.groups.progress(group, topic)}
        await admin.groups.place(group, queues[0], offset)
        return [OffsetReset(queues[0], old.get(queues[0], 0), offset)]

    _print_resets(with_admin(namesrv, work), as_json)


@offsets.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Group to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Group to copy to.")],
    topic: TopicName,
    namesrv: NameServer,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give a group the offsets that another one has of a topic."""
    confirm(f"offsets of group {target!r} in topic {topic!r} will be those of {source!r}", yes)

    async def work(admin: "Admin") -> list["OffsetReset"]:
        return await admin.groups.copy_offsets(source, target, topic)

    _print_resets(with_admin(namesrv, work), as_json)


def _print_resets(steps: list["OffsetReset"], as_json: bool) -> None:
    rows = [
        {
            "broker": step.queue.broker_name,
            "queue": step.queue.queue_id,
            "from": step.old_offset,
            "to": step.new_offset,
        }
        for step in steps
    ]
    print_rows(rows, as_json=as_json, empty="nothing to do")
