"""`pocketmq doctor`: what is wrong, in words. Exit code 1 when something is."""

from typing import Annotated

import typer

from pocketmq.cli.exits import ExitCode
from pocketmq.cli.options import GroupName, Json, NameServer
from pocketmq.cli.output import print_json, print_line
from pocketmq.cli.site import with_admin

app = typer.Typer(help="Say in words what is wrong.", no_args_is_help=True)


@app.command()
def net(
    namesrv: NameServer,
    timeout_ms: Annotated[int, typer.Option(min=1, help="How long to wait for each.")] = 3_000,
    as_json: Json = False,
) -> None:
    """Can a client on this machine reach the name servers, and the brokers that they name?"""
    from pocketmq.cli.network_check import check_network

    addresses = [part.strip() for part in namesrv.replace(",", ";").split(";") if part.strip()]
    findings = check_network(addresses, timeout_ms)
    if as_json:
        print_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            print_line(f"{'ok ' if finding.ok else 'BAD'} {finding.check}: {finding.found}")
            if finding.advice:
                print_line(f"    {finding.advice}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def group(group: GroupName, namesrv: NameServer, as_json: Json = False) -> None:
    """Do the members of a group subscribe to the same? Are queues without an owner, and is there lag?"""
    from pocketmq.cli.group_commands import describe

    found = with_admin(namesrv, lambda admin: describe(admin, group))
    warnings = list(found["warnings"])
    if not found["members"]:
        warnings.append("nobody of the group is online: nothing is consumed")
    else:
        ownerless = [row for row in found["queues"] if row["owner"] is None and row["lag"] > 0]
        if ownerless:
            warnings.append(
                f"{len(ownerless)} queues with messages have no member that says it consumes them: "
                "a member does not answer, or subscribes to another topic"
            )
    if as_json:
        print_json({"group": group, "warnings": warnings})
    else:
        for warning in warnings or ["nothing is wrong"]:
            print_line(warning)
    if warnings:
        raise typer.Exit(int(ExitCode.FAILED))
