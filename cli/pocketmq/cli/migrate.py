"""`pocketmq migrate`: from an Apache broker to this one, and back, while clients go on."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.options import Json, Yes
from pocketmq.cli.output import print_line, print_rows
from pocketmq.cli.site import answered, with_admin

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.cli.migration.check import Finding
    from pocketmq.cli.migration.source import Facts, Source

ROUTE_S = 35.0


def migrate(
    broker: Annotated[str, typer.Option(help="Name of the broker whose place is taken.")],
    come_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="ADDR",
            help="Its name servers, 'host:port;host:port': this command becomes the broker.",
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="DIR", help="With --from: folder of the new store.")
    ] = "data",
    config: Annotated[
        str | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="With --from: more settings, a broker.conf."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --from: port of the new broker.")
    ] = None,
    route_time: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds after which every client has asked a name server again; they do it every 30.",
        ),
    ] = ROUTE_S,
    stop_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="With --from: stops the old broker, once it is not needed."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what would not come along.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take the place of an Apache broker, 4.9 or 5.x, while producers and consumers go on."""
    if come_from is None:
        raise CannotBegin("say where from: --from ADDR, the name servers of the old broker")
    from pocketmq.cli.migration.inwards_server import InwardsServer, Wish, conf_in

    conf_in(data)
    source, facts, findings = with_admin(come_from, lambda admin: looked(admin, broker, data))
    refused = any(each.level == "refused" for each in findings)
    if check or refused:
        rows = [{"level": each.level, "what": each.text} for each in findings]
        print_rows(rows, as_json=as_json, empty="everything comes along")
        if refused:
            raise typer.Exit(int(ExitCode.FAILED))
        return
    if not yes and not sys.stdin.isatty():
        raise CannotBegin("a broker's place is taken: add --yes to do it without being asked")
    for each in findings:
        print_line(f"{each.level}: {each.text}")
    wish = Wish(
        come_from, broker, data, config, port, int(route_time * 1000), stop_command, yes=yes
    )
    server = InwardsServer(wish)
    if not answered(lambda: server.serve(source, facts.settings)):
        raise typer.Exit(int(ExitCode.FAILED))


async def looked(admin: "Admin", broker: str, data: str) -> "tuple[Source, Facts, list[Finding]]":
    """What there is to say before. Raises: CannotBegin, PocketMQError."""
    from pocketmq.cli.migration.check import inward
    from pocketmq.cli.migration.source import Source

    source = await Source.found(admin, broker)
    facts = await source.facts()
    return source, facts, list(inward(facts, _free_size(data)))


def _free_size(data: str) -> int:
    """Bytes on the disk of a folder that may not be there yet."""
    folder = Path(data).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(there).free
