"""Every command but the servers', by typer; imported only when one of them is called."""

import os
import sys
from typing import Annotated

import typer

from pocketmq.cli import (
    bench_commands,
    cluster_commands,
    delay_commands,
    dlq_commands,
    doctor,
    group_commands,
    message_commands,
    offset_commands,
    store_commands,
    topic_commands,
)
from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.server_options import HELP
from pocketmq.cli.site import SiteRefused

app = typer.Typer(
    name="pocketmq",
    help="PocketMQ: a pocket-size message broker that speaks Apache RocketMQ's protocol.",
    epilog="Exit codes: 0 done; 1 refused, not found, or something is wrong; 2 it could not begin: a bad "
    "option, an unknown setting, a port in use.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _group in (
    ("topic", topic_commands.app),
    ("group", group_commands.app),
    ("offset", offset_commands.app),
    ("message", message_commands.app),
    ("dlq", dlq_commands.app),
    ("delay", delay_commands.app),
    ("cluster", cluster_commands.app),
    ("store", store_commands.app),
    ("doctor", doctor.app),
    ("bench", bench_commands.app),
):
    app.add_typer(_group, name=_name)


@app.callback()
def reach(
    tls_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Authorities, PEM: talk TLS and check the servers' certificates. Else POCKETMQ_TLS_CA.",
        ),
    ] = None,
) -> None:
    """What holds for every command that asks a site."""
    if tls_ca is not None:
        os.environ["POCKETMQ_TLS_CA"] = tls_ca


def _add_servers() -> None:
    """The three servers are parsed elsewhere (server_options); here they are for the list of commands."""
    for role, text in HELP.items():

        def server(context: typer.Context, role: str = role) -> None:
            from pocketmq.cli.server import serve

            raise typer.Exit(int(serve(role, context.args)))

        server.__doc__ = text
        app.command(
            role,
            help=text,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(server)


_add_servers()


@app.command(
    "health",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def health(context: typer.Context) -> None:
    """Ask whether name server and broker answer; for an image's HEALTHCHECK."""
    from pocketmq.cli.health import health as run_health

    raise typer.Exit(int(run_health(context.args)))


def run(arguments: list[str]) -> int:
    """Run one command; the exit code. Raises: CannotBegin."""
    command = typer.main.get_command(app)
    try:
        result = command.main(arguments, prog_name="pocketmq", standalone_mode=False)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except typer.Abort:
        return int(ExitCode.FAILED)
    except SiteRefused as error:
        sys.stderr.write(f"pocketmq: {error}\n")
        return int(ExitCode.FAILED)
    except BrokenPipeError:
        # The reader of our output has left, as `head` does.
        sys.stderr.close()
        return int(ExitCode.FAILED)
    except Exception as error:
        # click's own mistakes of usage carry a message; anything else is a bug and shows its trace.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        context = getattr(error, "ctx", None)
        command_path = "pocketmq" if context is None else context.command_path
        raise CannotBegin(f"{message()}; see: {command_path} --help") from error
    return result if isinstance(result, int) else int(ExitCode.OK)
