"""All commands except the servers', by typer; imported only when one of them is called.

A new group of commands is a module of its name in commands/ with an `app`, and a row of GROUPS.
"""

import itertools
import os
import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pocketmq.cli.cluster import ClusterRefused
from pocketmq.cli.commands import watch
from pocketmq.cli.examples import EXAMPLES
from pocketmq.cli.exits import CannotBegin, ExitCode, complain
from pocketmq.remoting import java_number

# What the list of commands says of each group. A module is imported for its own commands only: all of
# them together take three times as long as most commands do.
GROUPS = {
    "topic": "Create, change, delete and show topics.",
    "group": "Create, change, delete and show consumer groups.",
    "offset": "Show how far groups have consumed, and move their offsets.",
    "subs": "Check the subscriptions of a release before it is rolled out.",
    "message": "Send, follow, consume, find and track messages.",
    "dlq": "Show, resend and export dead letters.",
    "delay": "Messages waiting for their delivery time.",
    "schedule": "Messages that come again, by cron or interval, kept by the broker.",
    "cluster": "Brokers of a cluster, their numbers and settings.",
    "account": "Accounts that brokers check signatures with, and their rights.",
    "ha": "Masters and slaves: show masters with their slaves; promote and demote.",
    "store": "Examine a store's folder, PocketMQ's or Apache RocketMQ's.",
    "doctor": "Diagnose what is wrong.",
    "bench": "Measure this site with PocketMQ's own client.",
    "context": "Remember sites by name: address, credentials, TLS.",
}
# Commands of their own, beside the groups: each in the module of its name.
SINGLE = {
    "lake": "Write topics to Iceberg or Delta tables, each message exactly once; run it again for what "
    "is new.",
    "top": "Show the last minute's traffic by topic and the groups with the most lag, until Ctrl-C.",
    "migrate": "Move a broker from Apache RocketMQ, 4.9 or 5.x, or back to it, while its clients "
    "keep working.",
}


class _Group(TyperGroup):
    """Commands with the whole first sentence of each; typer cuts it at the end of the line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [self.commands[name] for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(str(each.name), each.get_short_help_str(999)) for each in commands]
            )


def reach(
    tls_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Certificate authorities, PEM: use TLS and verify the servers' certificates "
            "(default: POCKETMQ_TLS_CA).",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Use the site saved under this name; see `pocketmq context`."
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option("--watch", metavar="SECONDS", help=watch.HELP),
    ] = None,
) -> None:
    """Options of every command that contacts a cluster."""
    if tls_ca is not None:
        os.environ["POCKETMQ_TLS_CA"] = tls_ca
    if context is not None:
        os.environ["POCKETMQ_CONTEXT"] = context


def commands(word: str | None = None) -> typer.Typer:
    """Return all commands; with `word`, only the one with that name, or of that group, if there is one.

    Of a word that is no command, none is imported: the list of all is shown.
    """
    app = typer.Typer(
        name="pocketmq",
        cls=_Group,
        help="PocketMQ: a pocket-size message broker that speaks Apache RocketMQ's protocol.",
        epilog="Exit codes: 0 success; 1 refused, not found, or a problem was found; 2 could not start: a "
        "bad option, an unknown setting, a port in use. pocketmq --version (-V) prints the version.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Frames around the help would take as long to import as all the rest of a command.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(reach)
    known = {*GROUPS, *SINGLE}
    listed = {word} if word in known else known
    # What is added first stands first in the list of commands.
    if listed is known:
        _add_servers(app)
    for name, text in GROUPS.items():
        if name in listed:
            group = typer.Typer()
            if word in (None, name):
                group = import_module(f"pocketmq.cli.commands.{name}").app
            app.add_typer(group, name=name, cls=_Group, help=text, no_args_is_help=True)
    for name, text in SINGLE.items():
        if word in (None, name):
            app.command(name)(getattr(import_module(f"pocketmq.cli.commands.{name}"), name))
        elif name in listed:
            app.command(name, help=text)(_not_asked)
    return app


def _not_asked() -> None:
    """Stand in for a command that was not imported, in the list of commands."""
    raise AssertionError("commands() received a different name than the one invoked")


def _add_servers(app: typer.Typer) -> None:
    """Add the three servers and health to the list of commands; they are parsed elsewhere."""
    from pocketmq.cli.servers.server_options import HELP

    plain: dict[str, Any] = {
        "add_help_option": False,
        "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
    }
    for role, text in HELP.items():

        def server(context: typer.Context, role: str = role) -> None:
            from pocketmq.cli.servers.server import serve

            raise typer.Exit(int(serve(role, context.args)))

        app.command(role, help=text, **plain)(server)

    @app.command("health", **plain)
    def health(context: typer.Context) -> None:
        """Ask whether name server and broker answer; for an image's HEALTHCHECK."""
        from pocketmq.cli.commands.health import health as run_health

        raise typer.Exit(int(run_health(context.args)))


def called(words: list[str]) -> str:
    """Return the command or group that the words call, or "".

    >>> called(["--context", "topic", "group", "list"])
    'group'
    """
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if word in _REACH:
            next(rest, None)
    return ""


def reach_first(words: list[str]) -> list[str]:
    """Put the options of every command before it, wherever they stand.

    >>> reach_first(["topic", "list", "--context", "prod", "--tls-ca=ca.pem", "--json"])
    ['--context', 'prod', '--tls-ca=ca.pem', 'topic', 'list', '--json']
    >>> reach_first(["message", "send", "T", "--", "--context"])
    ['message', 'send', 'T', '--', '--context']
    """
    end = words.index("--") if "--" in words else len(words)
    first: list[str] = []
    rest: list[str] = []
    options = iter(words[:end])
    for word in options:
        if word.partition("=")[0] not in _REACH:
            rest.append(word)
        elif "=" in word:
            first.append(word)
        else:
            first += [word, *itertools.islice(options, 1)]
    return first + rest + words[end:]


def with_default(words: list[str]) -> list[str]:
    """Add the word that is meant where a group of commands is called without one.

    >>> with_default(["doctor", "-n", "mq:9876"]), with_default(["doctor", "net"])
    (['doctor', 'all', '-n', 'mq:9876'], ['doctor', 'net'])
    >>> with_default(["--context", "prod", "doctor"]), with_default(["doctor", "--help"])
    (['--context', 'prod', 'doctor', 'all'], ['doctor', '--help'])
    """
    group = called(words)
    at = words.index(group) + 1 if group in _DEFAULTS else 0
    if not at or (words[at:] and (not words[at].startswith("-") or words[at] in ("-h", "--help"))):
        return words
    return [*words[:at], _DEFAULTS[group], *words[at:]]


_DEFAULTS = {"doctor": "all"}
_REACH = ("--tls-ca", "--context")
# What people put before the command, as --context stands there.
_OF_COMMANDS = ("-n", "--namesrv")


def run(arguments: list[str]) -> int:
    """Run one command, repeatedly with --watch; return the exit code. Raises: CannotBegin."""
    words, every_s = watch.taken_out(with_default(reach_first(arguments)))
    completing = "_POCKETMQ_COMPLETE" in os.environ
    command = tree(None if completing else called(words))
    try:
        if every_s is not None:
            return watch.again_and_again(lambda: _run(command, words), every_s)
        return _run(command, words)
    except typer.Abort:
        return int(ExitCode.FAILED)


def tree(word: str | None = None) -> Any:
    """Return click's commands, each with its example; `word`: see `commands`."""
    command = typer.main.get_command(commands(word))
    _read_numbers_as_peers_do(command)
    _show_examples(command, "")
    return command


def _show_examples(command: Any, path: str) -> None:
    """End the help of each command with its example."""
    for name, each in getattr(command, "commands", {}).items():
        words = f"{path} {name}".strip()
        if words in EXAMPLES:
            each.epilog = f"Example: {EXAMPLES[words]}"
        _show_examples(each, words)


# By the names that typer's versions give them.
_WHOLE_TYPES = {"int", "int range", "integer", "integer range"}


def _read_numbers_as_peers_do(command: Any) -> None:
    """Take for a whole number what java_number takes: `1_8` would be level 18 by Python's int()."""
    for each in getattr(command, "commands", {}).values():
        _read_numbers_as_peers_do(each)
    for param in command.params:
        if param.type.name in _WHOLE_TYPES:
            param.type = copy(param.type)
            param.type.convert = partial(_whole, param.type, param.type.convert)


def _whole(kind: Any, convert: Callable[..., Any], value: Any, param: Any, context: Any) -> Any:
    if isinstance(value, str):
        try:
            value = java_number.long(value)
        except ValueError:
            kind.fail(f"{value[:100]!r} is not a whole number", param, context)
    return convert(value, param, context)


def _run(command: watch.Command, arguments: list[str]) -> int:
    try:
        result = command.main(arguments, prog_name="pocketmq", standalone_mode=False)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except typer.Abort:
        raise
    except ClusterRefused as error:
        complain(error)
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
        hint = ""
        if getattr(error, "option_name", None) in _OF_COMMANDS and command_path == "pocketmq":
            hint = ". It goes after the command: pocketmq topic list -n ADDR"
        raise CannotBegin(
            f"{message().removesuffix('.')}{hint}; see: {command_path} --help"
        ) from error
    return result if isinstance(result, int) else int(ExitCode.OK)
