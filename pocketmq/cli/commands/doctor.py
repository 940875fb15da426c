"""`pocketmq doctor`: what is wrong, in words. Exit code 1 when something is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import with_admin
from pocketmq.cli.commands import group as group_commands
from pocketmq.cli.exits import ExitCode
from pocketmq.cli.group_report import examine, print_diagnosis
from pocketmq.cli.options import Json, NameServer
from pocketmq.cli.output import print_json, print_line
from pocketmq.model.as_json import as_object

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.cli.network_check import NetworkFinding

app = typer.Typer()


@app.command()
def net(
    namesrv: NameServer,
    timeout_ms: Annotated[
        int, typer.Option(min=1, help="How long to wait for each server.")
    ] = 3_000,
    as_json: Json = False,
) -> None:
    """Can a client on this machine reach the name servers, and the brokers that they name?"""
    from pocketmq.cli.connecting import asking_options
    from pocketmq.cli.network_check import NetworkCheck
    from pocketmq.remoting.address_list import split_addresses

    findings = NetworkCheck(asking_options(timeout_ms)).run(split_addresses(namesrv))
    if as_json:
        print_json(as_object(findings))
    else:
        _print_network(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(int(ExitCode.FAILED))


def _print_network(findings: "Sequence[NetworkFinding]") -> None:
    for finding in findings:
        print_line(f"{'ok ' if finding.ok else 'BAD'} {finding.check}: {finding.found}")
        if finding.advice:
            print_line(f"    {finding.advice}")


@app.command("all")
def doctor_all(namesrv: NameServer, as_json: Json = False) -> None:
    """All: can the servers be reached, what fails in a broker, and what is wrong with any group.

    `pocketmq doctor` alone is this. Brokers and groups are left out while a server cannot be reached.
    """
    from pocketmq.cli.connecting import asking_options
    from pocketmq.cli.network_check import NetworkCheck
    from pocketmq.remoting.address_list import split_addresses

    network = NetworkCheck(asking_options(3_000)).run(split_addresses(namesrv))
    is_reached = all(finding.ok for finding in network)
    brokers, groups = with_admin(namesrv, _brokers_and_groups) if is_reached else ([], [])
    failing = [each for each in brokers if each["state"] != "ok"]
    found = any(each["findings"] for each in brokers)
    sick = [each for each in groups if each["state"] == "sick"]
    if as_json:
        print_json({"network": as_object(network), "brokers": brokers, "groups": groups})
    else:
        _print_network(network)
        for each in failing:
            print_line(f"BAD broker {each['broker']} at {each['address']} fails: {each['state']}")
        for each in brokers:
            for finding in each["findings"]:
                print_line(f"BAD broker {each['broker']}: {finding}")
        if is_reached:
            print_line(f"sick groups: {len(sick)} of {len(groups)}")
            print_diagnosis(groups)
    if failing or found or sick or not is_reached:
        raise typer.Exit(int(ExitCode.FAILED))


async def _brokers_and_groups(
    admin: "Admin",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the state of each broker, and the diagnosis of each group."""
    from pocketmq.admin.views.broker import cluster_view

    brokers = [
        {
            "broker": each.broker.name,
            "brokerId": each.broker.broker_id,
            "address": each.broker.address,
            "state": each.state,
            "findings": each.findings,
        }
        for each in await cluster_view(admin)
    ]
    return brokers, await examine(admin, None)


@app.command("group")
def doctor_group(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Default: all.")] = None,
    *,
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """The same as `pocketmq group doctor`."""
    group_commands.doctor(group, namesrv=namesrv, as_json=as_json)
