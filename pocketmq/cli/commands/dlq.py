"""`pocketmq dlq`: dead letters: list, resend, export."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import ClusterRefused, confirm, one_line, with_admin
from pocketmq.cli.commands.message import Limit, Skip, message_fields, message_row
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.group_report import check_known
from pocketmq.cli.message_files import read_messages, restore
from pocketmq.cli.moments import show_moment
from pocketmq.cli.options import GroupName, Json, NameServer, Yes
from pocketmq.cli.output import json_text, print_fields, print_json, print_rows, with_progress
from pocketmq.model.names import dlq_topic
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.model.message import MessageExt

app = typer.Typer()


async def _dead_letters(admin: "Admin", group: str, count: int) -> list["MessageExt"]:
    from pocketmq.admin.views.message import first_of

    topic = dlq_topic(group)
    if not await admin.topics.exists(topic):
        await check_known(admin, group)
        return []
    return await first_of(admin.messages.between(topic), count)


async def _groups_with_dead_letters(admin: "Admin") -> list[str]:
    prefix = dlq_topic("")
    topics = sorted(each for each in await admin.topics.names() if each.startswith(prefix))
    return [each.removeprefix(prefix) for each in topics]


@app.command("list")
def list_dead(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Default: all.")] = None,
    *,
    namesrv: NameServer,
    count: Limit = 64,
    as_json: Json = False,
) -> None:
    """The dead letters of a group, or of each, oldest first, and when each was last resent."""

    async def work(admin: "Admin") -> list[tuple["MessageExt", list[int]]]:
        groups = [group] if group is not None else await _groups_with_dead_letters(admin)
        return [
            (each, await admin.messages.sent_again(each, name))
            for name in groups
            for each in await _dead_letters(admin, name, count)
        ]

    found = with_admin(namesrv, work)
    if as_json:
        print_json([{**message_fields(each), "sentAgain": times} for each, times in found])
    else:
        rows = [
            {
                **({"group": each.topic.removeprefix(dlq_topic(""))} if group is None else {}),
                "from": each.properties.get("RETRY_TOPIC"),
                "resent": show_moment(max(times, default=0)),
                **message_row(each),
            }
            for each, times in found
        ]
        print_rows(rows, as_json=False, empty="no dead letters")


@app.command()
def resend(
    group: GroupName,
    namesrv: NameServer,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids to resend.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All dead letters of the group.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give dead letters to their group again; other groups do not see them."""
    if bool(ids) == everything:
        raise CannotBegin("name the dead letters by their ids, or give --all")
    what = "all dead letters" if everything else f"{len(ids or ())} dead letters"
    confirm(f"{what} of group {group!r} will be given to it again", yes)
    wanted = set(ids or ())

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        found = await _dead_letters(admin, group, sys.maxsize)
        for message in with_progress(found, "dead letters"):
            if everything or wanted & {message.msg_id, message.offset_msg_id}:
                try:
                    result = await admin.messages.resend_dead(message, group)
                except PocketMQError as error:
                    if not rows:
                        raise
                    raise ClusterRefused(
                        f"{one_line(error)}. {len(rows)} dead letters were resent before: "
                        f"`pocketmq dlq list {group}` says which"
                    ) from error
                wanted.difference_update({message.msg_id, message.offset_msg_id})
                rows.append({"msgId": message.msg_id, "status": str(result.status)})
        if wanted:
            raise CannotBegin(
                f"{', '.join(sorted(wanted))}: no such dead letter; {len(rows)} others were resent"
            )
        return rows

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="no dead letters")


@app.command("export")
def export_dead(
    group: GroupName,
    namesrv: NameServer,
    out: Annotated[str, typer.Option("--out", "-o", help="File; - is standard output.")] = "-",
    as_json: Json = False,
) -> None:
    """Write the dead letters of a group as JSON lines; with --json say how many, in JSON."""
    if as_json and out == "-":
        raise CannotBegin(
            "with --json, name a file for the dead letters with --out: standard output gets their count"
        )

    async def work(admin: "Admin") -> list["MessageExt"]:
        return await _dead_letters(admin, group, sys.maxsize)

    found = with_admin(namesrv, work)
    lines = (json_text(message_fields(m)) + "\n" for m in found)
    if out == "-":
        sys.stdout.writelines(lines)
    else:
        try:
            with open(out, "w", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            raise CannotBegin(f"cannot write {out}: {error.strerror}") from error
    if as_json:
        print_json({"exported": len(found), "file": out})
    else:
        sys.stderr.write(f"{len(found)} dead letters exported\n")


@app.command("import")
def import_dead(
    group: GroupName,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file written by export; - is standard input.")
    ],
    namesrv: NameServer,
    skip: Skip = 0,
    as_json: Json = False,
) -> None:
    """Put exported dead letters back among the dead letters of a group; `dlq resend` gives them to it."""
    rows = read_messages(file)
    topic = dlq_topic(group)

    async def work(admin: "Admin") -> int:
        if not await admin.topics.exists(topic):
            await check_known(admin, group)
            # As a broker makes it with a group's first dead letter.
            await admin.topics.create(topic, queues=1)
        return await restore(admin, rows, topic, skip)

    print_fields({"imported": with_admin(namesrv, work), "group": group}, as_json=as_json)
