"""`pocketmq context`: save, select, list, delete."""

import os
from pathlib import Path
from typing import Annotated

import typer

from pocketmq.cli import contexts
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.options import Json, NameServer
from pocketmq.cli.output import print_fields, print_rows
from pocketmq.cli.secret_input import secret_of

app = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a context.")]


@app.command()
def save(
    name: Name,
    namesrv: NameServer,
    access_key: Annotated[
        str | None,
        typer.Option(
            help="Sign requests with this key; the secret comes from --secret-file, "
            "POCKETMQ_SECRET_KEY or a prompt."
        ),
    ] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The file that holds the secret; - reads it from stdin."),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Talk TLS.")] = False,
    as_json: Json = False,
) -> None:
    """Remember how to reach a site: the address, and what options and environment say of keys and TLS.

    The first one that is saved is selected.
    """
    found = {each: os.environ[each] for each in contexts.VARIABLES if os.environ.get(each)}
    found["NAMESRV_ADDR"] = namesrv
    if access_key is not None:
        found["POCKETMQ_ACCESS_KEY"] = access_key
        found["POCKETMQ_SECRET_KEY"] = secret_of(
            secret_file,
            found.get("POCKETMQ_SECRET_KEY"),
            question="secret key",
            otherwise="--secret-file or POCKETMQ_SECRET_KEY",
            on_line=False,
        )
    if tls:
        found["POCKETMQ_TLS_ENABLE"] = "true"
    if "POCKETMQ_TLS_CA" in found:
        # Commands that use the context may run in another folder.
        authority = Path(found["POCKETMQ_TLS_CA"]).absolute()
        if not authority.is_file():
            raise CannotBegin(
                f"there is no file {authority}; --tls-ca names one of authorities, PEM"
            )
        found["POCKETMQ_TLS_CA"] = str(authority)
    with contexts.alone():
        selected, known = contexts.load()
        contexts.save(selected or name, {**known, name: found})
    print_fields(_row(name, found, selected or name), as_json=as_json)


@app.command()
def select(name: Name, as_json: Json = False) -> None:
    """Let every command ask that site from now on."""
    with contexts.alone():
        _, known = contexts.load()
        found = contexts.named(name, known)
        contexts.save(name, known)
    print_fields(_row(name, found, name), as_json=as_json)


@app.command("list")
def list_contexts(as_json: Json = False) -> None:
    """Every context; secrets are not shown."""
    selected, known = contexts.load()
    rows = [_row(name, each, selected) for name, each in sorted(known.items())]
    print_rows(rows, as_json=as_json, empty="no contexts; see: pocketmq context save --help")


@app.command()
def delete(name: Name, as_json: Json = False) -> None:
    """Forget a context."""
    with contexts.alone():
        selected, known = contexts.load()
        found = contexts.named(name, known)
        contexts.save(
            None if selected == name else selected,
            {other: each for other, each in known.items() if other != name},
        )
    print_fields(_row(name, found, None), as_json=as_json)


def _row(name: str, context: contexts.Context, selected: str | None) -> dict[str, object]:
    return {
        "context": name,
        "selected": name == selected,
        "namesrv": context.get("NAMESRV_ADDR"),
        "accessKey": context.get("POCKETMQ_ACCESS_KEY"),
        "tls": context.get("POCKETMQ_TLS_ENABLE") == "true" or "POCKETMQ_TLS_CA" in context,
        "tlsCa": context.get("POCKETMQ_TLS_CA"),
    }
