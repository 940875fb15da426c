"""`pocketmq schedule`: messages that come again, kept by a broker of PocketMQ (docs/schedules.md)."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import with_admin
from pocketmq.cli.commands.message import body_text, property_pair
from pocketmq.cli.commands.schedule.rows import interval, row, shown
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.moments import parse_coming
from pocketmq.cli.options import Cluster, Json, NameServer, TopicName
from pocketmq.cli.output import print_fields, print_rows

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a schedule.")]
OfTopic = Annotated[
    str | None,
    typer.Option(
        "--topic", "-t", help="Its topic: accounts that are no administrator's need to name it."
    ),
]


@app.command()
def create(
    name: Name,
    topic: TopicName,
    body: Annotated[str, typer.Argument(help="The body; - reads it from standard input.")] = "",
    *,
    namesrv: NameServer,
    cron: Annotated[
        str | None,
        typer.Option(
            help="Minute, hour, day of month, month and day of week, such as '0 3 * * MON-FRI', or @hourly."
        ),
    ] = None,
    every: Annotated[str | None, typer.Option(help="Interval: 30s, 10m, 2h, 1d.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Once, at 2026-11-21T12:00, or in +90d.")
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            "--zone", "-z", help="Time zone of --cron, such as Europe/Berlin; default: UTC."
        ),
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="TIME", help="Nothing before.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Nothing after.")] = None,
    missed: Annotated[
        str,
        typer.Option(
            help="Times that pass while the broker is down: once (one message for all), all or skip."
        ),
    ] = "once",
    tag: Annotated[str | None, typer.Option(help="Its tag.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys, separated by spaces.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the schedule of this name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Have the broker send a message again and again."""
    from pocketmq.admin.schedules import Schedule

    if sum(each is not None for each in (cron, every, at)) != 1:
        raise CannotBegin("give one of --cron, --every and --at")
    if zone is not None and (cron is None or not zone):
        raise CannotBegin("--zone names the time zone of --cron, such as Europe/Berlin")
    schedule = Schedule(
        name,
        topic,
        sys.stdin.buffer.read() if body == "-" else body.encode(),
        tag,
        keys,
        dict(property_pair(text) for text in properties or ()),
        cron=cron,
        interval_ms=None if every is None else interval(every),
        at_ms=None if at is None else parse_coming(at),
        time_zone=zone or "UTC",
        start_ms=None if start is None else parse_coming(start),
        until_ms=None if until is None else parse_coming(until),
        missed=missed,
    )

    async def work(admin: "Admin") -> dict[str, Any]:
        return row(await admin.schedules.create(schedule, replace=replace))

    print_fields(shown(with_admin(namesrv, work), as_json=as_json), as_json=as_json)


@app.command("list")
def list_all(
    namesrv: NameServer, topic: OfTopic = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """List schedules with their next times."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        return [row(each) for each in await admin.schedules.list(topic, cluster=cluster)]

    rows = [shown(each, as_json=as_json) for each in with_admin(namesrv, work)]
    print_rows(rows, as_json=as_json, empty="no schedules")


@app.command()
def show(name: Name, namesrv: NameServer, topic: OfTopic = None, as_json: Json = False) -> None:
    """Show a schedule with its message."""

    async def work(admin: "Admin") -> dict[str, Any]:
        found = await admin.schedules.get(name, topic)
        plan = found.schedule
        return {
            **row(found),
            "start": plan.start_ms,
            "until": plan.until_ms,
            "missed": plan.missed,
            "owner": plan.owner,
            "tags": plan.tags,
            "keys": plan.keys,
            "properties": [f"{key}={value}" for key, value in plan.properties.items()],
            "body": body_text(plan.body, 10_000),
        }

    print_fields(shown(with_admin(namesrv, work), as_json=as_json), as_json=as_json)


@app.command()
def pause(name: Name, namesrv: NameServer, topic: OfTopic = None, as_json: Json = False) -> None:
    """Send nothing until it is resumed."""
    _change("pause", name, namesrv, topic, as_json=as_json)


@app.command()
def resume(name: Name, namesrv: NameServer, topic: OfTopic = None, as_json: Json = False) -> None:
    """Continue with the next time; what passed meanwhile is not sent."""
    _change("resume", name, namesrv, topic, as_json=as_json)


@app.command()
def delete(name: Name, namesrv: NameServer, topic: OfTopic = None, as_json: Json = False) -> None:
    """Delete a schedule; messages that it has sent stay."""
    _change("delete", name, namesrv, topic, as_json=as_json)


def _change(act: str, name: str, namesrv: str, topic: str | None, *, as_json: bool) -> None:
    async def work(admin: "Admin") -> dict[str, Any]:
        await getattr(admin.schedules, act)(name, topic)
        return {"schedule": name, "done": act}

    print_fields(with_admin(namesrv, work), as_json=as_json)
