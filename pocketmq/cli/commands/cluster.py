"""`pocketmq cluster`: brokers, their numbers and settings."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import with_admin
from pocketmq.cli.exits import CannotBegin, ExitCode, in_line
from pocketmq.cli.options import Broker, Cluster, Json, NameServer
from pocketmq.cli.output import print_fields, print_line, print_map, print_rows
from pocketmq.remoting.settings import nearest

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()


class Answer(StrEnum):
    """A choice."""

    YES = "yes"
    NO = "no"


@app.command("list")
def list_brokers(namesrv: NameServer, cluster: Cluster = None, as_json: Json = False) -> None:
    """Every broker with its version and rates."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views.broker import cluster_view

        return [
            {
                "cluster": each.broker.cluster,
                "broker": each.broker.name,
                "brokerId": each.broker.broker_id,
                "address": each.broker.address,
                "version": each.version_text,
                "in": _rounded(each.figures["in"], 1),
                "delivered": _rounded(each.figures["delivered"], 1),
                "diskRatio": _rounded(each.figures["diskRatio"], 3),
                "state": each.state,
            }
            for each in await cluster_view(admin, cluster)
        ]

    print_rows(with_admin(namesrv, work), as_json=as_json, empty="no broker is registered")


def _rounded(figure: float | None, digits: int) -> float | None:
    return None if figure is None else round(figure, digits)


@app.command()
def numbers(
    namesrv: NameServer, broker: Broker = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """All that a broker counts (brokerStatus)."""

    async def work(admin: "Admin") -> dict[str, dict[str, str]]:
        return {
            master.name: await admin.settings.runtime(master.address)
            for master in await admin.site.masters(cluster, broker)
        }

    _print_by_broker(with_admin(namesrv, work), as_json)


@app.command()
def config(
    namesrv: NameServer,
    broker: Broker = None,
    cluster: Cluster = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the settings of brokers, or change those that may change while they run."""
    changes: dict[str, str] = {}
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise CannotBegin(f"--set takes NAME=VALUE, not {text!r}")
        changes[name.strip()] = value.strip()

    async def work(admin: "Admin") -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        masters = await admin.site.masters(cluster, broker)
        for master in masters if changes else ():
            # A broker takes any name and keeps silent about those that set nothing.
            known = await admin.settings.broker(master.address)
            for name in changes:
                if name not in known:
                    raise CannotBegin(
                        f"broker {master.name} has no setting {name!r}{nearest(name, known)}. See: "
                        "pocketmq cluster config"
                    )
        for master in masters:
            if changes:
                await admin.settings.update_broker(master.address, **changes)
            shown = await admin.settings.broker(master.address)
            found[master.name] = (
                {name: shown[name] for name in changes if name in shown} if changes else shown
            )
        return found

    _print_by_broker(with_admin(namesrv, work), as_json)


@app.command()
def reload(
    namesrv: NameServer, broker: Broker = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """Have brokers read their configuration and certificates again, as on SIGHUP."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        brokers = [
            each
            for each in await admin.site.brokers(cluster)
            if broker is None or each.name == broker
        ]
        if not brokers:
            raise CannotBegin(f"no broker {broker!r} is registered. See: pocketmq cluster list")
        return [
            {
                "broker": each.name,
                "brokerId": each.broker_id,
                **await admin.settings.reload(each.address),
            }
            for each in brokers
        ]

    found = with_admin(namesrv, work)
    print_rows(found, as_json=as_json, empty="no broker is registered")
    if any(row["failure"] for row in found):
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def writable(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Name of a broker.")],
    new: Annotated[Answer, typer.Argument(metavar="yes|no", help="Whether it accepts messages.")],
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """Let producers send to a broker or not, at the name servers; what it has can be consumed as before."""

    async def work(admin: "Admin") -> int:
        masters = await admin.site.masters(None, broker)
        return await admin.settings.set_writable(masters[0].name, new is Answer.YES)

    count = with_admin(namesrv, work)
    print_fields(
        {"broker": broker, "writable": new is Answer.YES, "topics": count}, as_json=as_json
    )


def _print_by_broker(found: dict[str, dict[str, str]], as_json: bool) -> None:
    if as_json:
        print_map(found, as_json=True)
        return
    for name, fields in found.items():
        if len(found) > 1:
            print_line(f"# {in_line(name)}")
        print_map(dict(sorted(fields.items())), as_json=False)
