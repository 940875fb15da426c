"""`pocketmq offset`: how far groups have consumed: look, reset, set, copy."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, confirm, with_admin
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.group_report import check_known, print_progress
from pocketmq.cli.moments import parse_moment
from pocketmq.cli.options import GroupName, Json, NameServer, TopicName, Yes
from pocketmq.cli.output import print_rows

if TYPE_CHECKING:
    from pocketmq.admin import Admin, OffsetReset

app = typer.Typer()


@app.command("show")
def show_offsets(
    group: GroupName,
    namesrv: NameServer,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    as_json: Json = False,
) -> None:
    """How far a group is in each queue."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views.rows import QueueProgressRow
        from pocketmq.model.as_json import as_object

        rows = await admin.groups.progress(group, topic, owners=True)
        if not rows:
            await check_known(admin, group)
        return [as_object(QueueProgressRow.of(row)) for row in rows]

    print_progress(with_admin(namesrv, work), as_json=as_json)


@app.command()
def reset(
    group: GroupName,
    topic: TopicName,
    namesrv: NameServer,
    to: Annotated[
        str,
        typer.Option("--to", help="earliest, latest, or a time: now, 2h (ago), 2026-11-21T12:00."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move a group back or forward in a topic; members that are online are notified."""
    # Not by this machine's clock: messages stored until now count as past, whatever the broker's clock.
    words = {"earliest": 0, "latest": -1, "now": -1}
    moment = words[to] if to in words else parse_moment(to)
    if not dry_run:
        confirm(f"group {group!r} will resume topic {topic!r} at {to}", yes)

    async def work(admin: "Admin") -> list["OffsetReset"]:
        await _say_when_new(admin, group)
        return await admin.groups.reset(group, topic, moment, dry=dry_run)

    _print_resets(with_admin(namesrv, work), as_json)


@app.command("set")
def set_offset(
    group: GroupName,
    topic: TopicName,
    queue: Annotated[int, typer.Argument(help="Queue id.")],
    offset: Annotated[int, typer.Argument(min=0, help="The next offset to consume.")],
    namesrv: NameServer,
    broker: Annotated[
        str | None, typer.Option(help="Name of the broker, if several have the queue.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write one offset. Stop the members first: one that is online may write its own over it."""
    confirm(f"group {group!r} will resume queue {queue} of {topic!r} at {offset}", yes)

    async def work(admin: "Admin") -> list["OffsetReset"]:
        from pocketmq.admin import OffsetReset

        await _say_when_new(admin, group)
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


@app.command()
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
        await check_known(admin, source)
        await admin.topics.route(topic)
        return await admin.groups.copy_offsets(source, target, topic)

    _print_resets(with_admin(namesrv, work), as_json)


async def _say_when_new(admin: "Admin", group: str) -> None:
    """Warn about an unknown group: its offset may be set before its first member, or its name mistyped."""
    try:
        await check_known(admin, group)
    except ClusterRefused:
        sys.stderr.write(
            f"pocketmq: no broker knows group {group!r} yet; the offsets apply when its first member joins\n"
        )


def _print_resets(steps: list["OffsetReset"], as_json: bool) -> None:
    from pocketmq.admin.views.rows import reset_row

    print_rows([reset_row(step) for step in steps], as_json=as_json, empty="nothing to do")
