"""`pocketmq account audit`: who did what to which resource, and who was refused."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import with_admin
from pocketmq.cli.moments import parse_moment, show_moment
from pocketmq.cli.options import Json, NameServer
from pocketmq.cli.output import print_rows

if TYPE_CHECKING:
    from pocketmq.admin import Admin

_COLUMNS = ("time", "user", "address", "act", "resources", "outcome", "reason")


def audit(
    namesrv: NameServer,
    user: Annotated[str | None, typer.Option(help="Entries of this user.")] = None,
    act: Annotated[str | None, typer.Option(help="Part of the name of what was asked.")] = None,
    resource: Annotated[
        str | None, typer.Option(help="Part of the name of a topic, group, user or setting.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="WORD", help="done, failed or refused.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="As with message find: 1h, or a time.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Before this time.")] = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="So many, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """The audit trail of the brokers, the newest first."""
    from pocketmq.admin.users.audit import AuditFilter, audit_page

    wanted = AuditFilter(
        user=user,
        act=act,
        resource=resource,
        outcome=outcome,
        begin_ms=0 if since is None else parse_moment(since),
        end_ms=None if until is None else parse_moment(until),
    )

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        cursor = None
        while len(rows) < count:
            page = await audit_page(admin, wanted, count - len(rows), cursor)
            rows += page.rows
            cursor = page.cursor
            if page.left_out:
                typer.echo(f"left out, no answer: {', '.join(page.left_out)}", err=True)
            if cursor is None:
                break
        return rows

    rows = with_admin(namesrv, work)
    if not as_json:
        rows = [
            {**each, "time": show_moment(each["time"]), "resources": _shown(each)} for each in rows
        ]
    columns = {name: name for name in _COLUMNS}
    print_rows(rows, as_json=as_json, empty="no entries", columns=columns)


def _shown(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={','.join(found)}" for name, found in row["resources"].items())
