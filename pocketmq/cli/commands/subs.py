"""`pocketmq subs`: what groups will subscribe, compared with what runs, before a release is rolled out."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli.cluster import one_line, with_admin
from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.group_report import check_known
from pocketmq.cli.options import Json, NameServer
from pocketmq.cli.output import print_json, print_line, print_rows, yaml_text
from pocketmq.model.names import is_system_group

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.admin.release import ReleasePlan
    from pocketmq.client.declared_subscriptions import DeclaredSubscriptions

app = typer.Typer()


@app.command()
def export(
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="Default: all groups that are online."),
    ] = None,
    *,
    namesrv: NameServer,
    as_json: Json = False,
) -> None:
    """What groups subscribe now, as YAML for `subs plan`: an entry for each different subscription."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        from pocketmq.admin.release import described, running

        names = groups or [each for each in await admin.groups.names() if not is_system_group(each)]
        found = []
        for name in names:
            if groups:
                await check_known(admin, name)
            found += [each.to_json() for each in described(await running(admin, name))]
        return found

    found = with_admin(namesrv, work)
    if as_json:
        print_json(found)
        return
    sys.stdout.write(yaml_text(found))


@app.command()
def plan(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="From `subs export` or --describe; - is stdin."),
    ],
    namesrv: NameServer,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EFFECT",
            help="lost, delayed, twice, unwanted or dropped: do not count this as a failure.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What a rolling release of these subscriptions loses, delays or repeats, and a safe order of restarts.

    Exit code 1 when there is an effect that is not allowed.
    """
    from pocketmq.admin.release import Effect, plan_release

    unknown = sorted(set(allow or ()) - {each.value for each in Effect})
    if unknown:
        raise CannotBegin(f"--allow {unknown[0]}: it is one of {', '.join(Effect)}")
    entries = [each for file in files for each in _entries(file)]
    plans = with_admin(namesrv, lambda admin: plan_release(admin, entries))
    if as_json:
        print_json([each.to_json() for each in plans])
    else:
        _print(plans)
    effects = {each.effect for found in plans for each in found.consequences}
    if effects - set(allow or ()):
        raise typer.Exit(int(ExitCode.FAILED))


def _entries(file: Path) -> "list[DeclaredSubscriptions]":
    """Read the entries of a file. Raises: CannotBegin, IllegalArgument."""
    import yaml

    from pocketmq.client.declared_subscriptions import DeclaredSubscriptions
    from pocketmq.remoting.errors import IllegalArgument

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        data = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
        return [
            DeclaredSubscriptions.from_json(each)
            for each in (data if isinstance(data, list) else [data])
        ]
    except (OSError, ValueError, yaml.YAMLError, IllegalArgument) as error:
        raise CannotBegin(
            f"{file}: {one_line(error)}; `pocketmq subs export` shows what such a file holds"
        ) from error


def _print(plans: "list[ReleasePlan]") -> None:
    from pocketmq.model.diagnosis import lost_in_words

    for found in plans:
        if found.lost:
            print_line(f"{found.group}: {lost_in_words(found.group, found.lost)}")
        if not found.consequences:
            print_line(f"{found.group}: nothing is lost, delayed or read twice, in any order")
            continue
        print_line(f"{found.group}: if members are replaced one by one")
        rows = [each.to_json() for each in found.consequences]
        print_rows(rows, as_json=False, columns={key: key for key in rows[0] if key != "group"})
        print_line("the safest order:")
        for number, step in enumerate(found.steps, 1):
            print_line(f"  {number}. {step}")
