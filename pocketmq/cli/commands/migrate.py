"""`pocketmq migrate`: from an Apache broker to this one, and back, while clients keep running."""

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli.cluster import answered, with_admin
from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.options import Json, NameServer, Yes
from pocketmq.cli.output import print_line, print_rows

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.cli.migration.check import MigrationFinding
    from pocketmq.cli.migration.outwards import Successor
    from pocketmq.cli.migration.source import BrokerFacts, Source

ROUTE_S = 35.0


BrokerName = Annotated[str, typer.Option(help="Name of the broker to replace.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="ADDR",
        help="Migrate from an Apache broker at these name servers: this command becomes the broker.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Migrate to an Apache broker, whose broker.conf this command writes to FILE.",
    ),
]
Data = Annotated[str, typer.Option(metavar="DIR", help="Folder of the new broker's store.")]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="--from: further settings, in a broker.conf."
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the new broker.")]
Host = Annotated[str, typer.Option(metavar="IP", help="--to: address of the Apache machine.")]
Version = Annotated[
    str, typer.Option("--apache", help="--to: version of the Apache broker, 4.9 or 5.")
]
RouteTime = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds after which every client has asked a name server again; clients do so every 30.",
    ),
]
StopCommand = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="--from: command that stops the Apache broker once it is no longer needed.",
    ),
]
RestartCommand = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="--to: command that restarts the Apache broker."),
]
Drain = Annotated[
    bool,
    typer.Option(
        "--drain",
        help="--to 4.9: first wait until no timer is pending and no popped message "
        "unacknowledged; it would never deliver those.",
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Only show what would not be migrated.")]


def migrate(
    broker: BrokerName,
    namesrv: NameServer,
    *,
    come_from: From = None,
    to: To = None,
    data: Data = "data",
    config: Config = None,
    port: Port = 10911,
    host: Host = "127.0.0.1",
    version: Version = "5",
    route_time: RouteTime = ROUTE_S,
    stop_command: StopCommand = None,
    restart_command: RestartCommand = None,
    drain: Drain = False,
    check: Check = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move a broker from Apache RocketMQ, 4.9 or 5.x, or back to it, while its clients keep working."""
    if (come_from is None) == (to is None):
        raise CannotBegin("give --from ADDR, the old broker's name servers, or --to FILE")
    if version not in ("4.9", "5"):
        raise CannotBegin(f"--apache is 4.9 or 5, not {version!r}")
    route_ms = int(route_time * 1000)
    if come_from is not None:
        from pocketmq.cli.migration.request import MigrationRequest, conf_in

        conf_in(data)
        source, facts, findings = with_admin(
            come_from, lambda admin: before_in(admin, broker, data)
        )
        if may_begin(findings, check=check, yes=yes, as_json=as_json):
            from pocketmq.cli.migration.inwards_server import InwardsServer

            wish = MigrationRequest(
                come_from, broker, data, config, port, route_ms, stop_command, yes=yes
            )
            if not answered(lambda: InwardsServer(wish).serve(source, facts.settings)):
                raise typer.Exit(int(ExitCode.FAILED))
        return
    assert to is not None
    if drain and not check:
        with_admin(namesrv, lambda admin: drained(admin, broker, print_line))
    found = with_admin(namesrv, lambda admin: before_out(admin, broker, version))
    if may_begin(found, check=check, yes=yes, as_json=as_json):
        from pocketmq.cli.migration.outwards import ANYTHING, EMPTY, EMPTY_AGAIN, Successor

        store = str(Path(data).absolute())
        empty = EMPTY_AGAIN if drain else EMPTY
        successor = Successor(
            f"{host}:{port}",
            store,
            Path(to).absolute(),
            restart_command,
            empty if version == "4.9" else ANYTHING,
        )
        with_admin(namesrv, lambda admin: move_out(admin, broker, successor, route_ms, yes))


def may_begin(
    findings: "Sequence[MigrationFinding]", *, check: bool, yes: bool, as_json: bool
) -> bool:
    """Show the findings. Raises: CannotBegin, typer.Exit if something is refused."""
    refused = any(each.level == "refused" for each in findings)
    if check or refused:
        rows = [{"level": each.level, "what": each.text} for each in findings]
        print_rows(rows, as_json=as_json, empty="everything is migrated")
        if refused:
            raise typer.Exit(int(ExitCode.FAILED))
        return False
    if not yes and not sys.stdin.isatty():
        raise CannotBegin("this replaces a broker: add --yes to do it without a prompt")
    for each in findings:
        print_line(f"{each.level}: {each.text}")
    return True


async def before_in(
    admin: "Admin", broker: str, data: str
) -> "tuple[Source, BrokerFacts, list[MigrationFinding]]":
    """Return the findings before moving in. Raises: NoMaster, PocketMQError."""
    from pocketmq.cli.migration.check import inward
    from pocketmq.cli.migration.source import Source

    source = await Source.found(admin, broker)
    facts = await source.facts()
    return source, facts, list(inward(facts, _free_size(data)))


async def before_out(admin: "Admin", broker: str, version: str) -> "list[MigrationFinding]":
    """Return the findings before moving out. Raises: NoMaster, PocketMQError."""
    from pocketmq.cli.migration.check import PocketFeatures, outward
    from pocketmq.cli.migration.source import Source

    source = await Source.found(admin, broker)
    facts = await source.facts()
    long_topics = [name for name in facts.topics if len(name.encode()) > 127]
    isolated = [
        name
        for name, row in facts.groups.items()
        if (row.get("attributes") or {}).get("group.mode") == "isolate"
    ]
    ours = PocketFeatures(
        *await source.pending(),
        tuple(long_topics),
        tuple(isolated),
        facts.settings.get("aclEnable") == "true",
        tuple([each.name for each in await admin.schedules.list(broker=broker)]),
    )
    return list(outward(ours, version))


async def drained(admin: "Admin", broker: str, say: Callable[[str], None]) -> None:
    """Wait until nothing is pending that RocketMQ 4.9 would never deliver. Raises: PocketMQError."""
    from pocketmq.cli.migration.source import Source

    await (await Source.found(admin, broker)).drained(say)


async def move_out(
    admin: "Admin", broker: str, successor: "Successor", route_ms: int, yes: bool
) -> None:
    """Run all steps. Raises: MigrationRefused, PocketMQError."""
    from pocketmq.cli.migration.outwards import Outwards
    from pocketmq.cli.migration.report import MigrationReport, asked, said
    from pocketmq.cli.migration.source import Source

    # It loads asyncio, which --help does not need.
    from pocketmq.cli.servers.hangup import ignore_hangup

    async def confirm(what: str) -> None:
        if not yes:
            await asked(what)

    # Between its steps clients are led through this program.
    ignore_hangup()
    source = await Source.found(admin, broker)
    outwards = Outwards(admin, source, successor, MigrationReport(said, confirm), route_ms=route_ms)
    await outwards.run(await source.facts())


def _free_size(data: str) -> int:
    """Return the free bytes on the disk of a folder that may not exist yet."""
    folder = Path(data).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(there).free
