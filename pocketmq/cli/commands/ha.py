"""`pocketmq ha`: masters and their slaves."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import with_admin
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.moments import show_moment
from pocketmq.cli.options import Broker, Cluster, Json, NameServer
from pocketmq.cli.output import print_fields, print_rows, title
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.admin import Admin

app = typer.Typer()

One = Annotated[str, typer.Argument(metavar="BROKER", help="host:port of the broker.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@app.command()
def status(
    namesrv: NameServer, broker: Broker = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """Each broker with its role, how far its slaves are, and what is wrong."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows = []
        for each in await admin.replicas.find(broker, cluster):
            found = await admin.replicas.status(each.address)
            following = found.get("haClientRuntimeInfo") or {}
            rows.append(
                {
                    "broker": each.name,
                    "brokerId": each.broker_id,
                    "address": each.address,
                    "role": found.get("role", "master" if found["master"] else "slave"),
                    "end": found["masterCommitLogMaxOffset"],
                    "slaves": len(found.get("haConnectionInfo") or []),
                    "inSync": found["inSyncSlaveNums"],
                    "follows": await _master(admin, each.name, following.get("masterAddr", "")),
                    "behind": following.get("behind", 0),
                    **_election(found.get("election")),
                    "trouble": found.get("trouble", ""),
                }
            )
        return rows

    rows = with_admin(namesrv, work)
    columns = {key: title(key) for key in rows[0]} if rows else {}
    if not any(row["controller"] for row in rows):
        for key in _election(None):
            columns.pop(key, None)
    print_rows(rows, as_json=as_json, empty="no brokers", columns=columns)


def _election(found: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a broker whose role a controller decides says of that; empty texts for another."""
    known = found or {}
    return {
        "controller": known.get("controller", ""),
        "epoch": known.get("masterEpoch", 0),
        "brokersInSync": known.get("inSync", []),
        "confirmed": known.get("confirmed", 0),
        "elections": known.get("elections", 0),
    }


@app.command()
def elections(
    namesrv: NameServer, broker: Broker = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """The last elections, the newest first: who led since when, and how long no broker did."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.views.elections import elections_of

        return elections_of(
            [
                (each.name, await admin.replicas.status(each.address))
                for each in await admin.replicas.find(broker, cluster)
            ]
        )

    rows = with_admin(namesrv, work)
    if not as_json:
        rows = [{**row, "time": show_moment(row["time"])} for row in rows]
    print_rows(rows, as_json=as_json, empty="no controller has elected a broker here")


async def _master(admin: "Admin", name: str, ha_address: str) -> str:
    """Return a master's address for clients, by which it is known, if it is the one at this HA address."""
    host, _, port = ha_address.rpartition(":")
    for each in await admin.replicas.find(None) if ha_address else ():
        if each.name == name and each.broker_id == 0:
            try:
                settings = await admin.settings.broker(each.address)
            except PocketMQError:
                continue
            if settings.get("haListenPort") == port:
                return each.address
    return f"{ha_address} (HA port)" if host else ""


@app.command()
def promote(
    broker: One,
    *,
    namesrv: NameServer,
    sync: Annotated[
        bool, typer.Option("--sync", help="As SYNC_MASTER, not as ASYNC_MASTER.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Even while the old master still answers: the two logs will diverge."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a slave the master, at once. Set brokerRole and brokerId in its configuration, too."""
    role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
    _change(namesrv, broker, "promote", as_json=as_json, role=role, force=force)


@app.command()
def demote(
    broker: One,
    *,
    namesrv: NameServer,
    number: Annotated[
        int | None,
        typer.Option("--id", min=1, help="Its number as a slave (default: the first free one)."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a master a slave, which follows the new one. Set its configuration, too."""
    if dry_run:
        print_fields(
            {"address": broker, "act": "would be a slave", "brokerId": number or "the first free"},
            as_json=as_json,
        )
        return
    _change(namesrv, broker, "demote", as_json=as_json, broker_id=number)


@app.command()
def resync(broker: One, *, namesrv: NameServer, as_json: Json = False) -> None:
    """Slave: give up the end that only it has (into a file), and follow. Master: hear refused slaves."""
    _change(namesrv, broker, "resync", as_json=as_json)


def _change(namesrv: str, broker: str, act: str, *, as_json: bool, **how: Any) -> None:
    async def work(admin: "Admin") -> dict[str, Any]:
        found = await admin.replicas.find(broker)
        if len(found) > 1:
            named = ", ".join(each.address for each in found)
            raise CannotBegin(
                f"{broker} is the name of several brokers: choose one by its address: {named}"
            )
        address = found[0].address
        status = await admin.replicas.status(address)
        if act == "promote" and status["master"]:
            return {"address": address, "act": "is already the master"}
        if act == "resync":
            try:
                kept = await admin.replicas.resync(address)
            except TimeoutError as error:
                raise CannotBegin(f"{address} {error}") from None
            # Paths at the broker's machine.
            return {"address": address, "act": "resynced", "cutOff": ", ".join(kept) or "nothing"}
        await admin.replicas.change(address, act, **how)
        return {"address": address, "act": f"{act}d" if act.endswith("e") else f"{act}ed"}

    print_fields(with_admin(namesrv, work), as_json=as_json)
