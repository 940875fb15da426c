"""The options of `up`, `namesrv`, `broker` and `controller`, as one table.

These commands start in half a second, so they are parsed by argparse: typer and rich, which the
other commands use, take a fifth of that. The table is also what `--help` and the reference page show.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from pocketmq.cli.exits import CannotBegin

UP, NAMESRV, BROKER, CONTROLLER = "up", "namesrv", "broker", "controller"
_ALL = (UP, NAMESRV, BROKER, CONTROLLER)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. setting: RocketMQ's name of the setting, in the broker's or name server's file."""

    flags: tuple[str, ...]
    attribute: str
    help: str
    roles: tuple[str, ...] = _ALL
    metavar: str = ""
    setting: str = ""
    is_number: bool = False
    low: int = 0
    is_count: bool = False
    is_flag: bool = False
    is_list: bool = False


OPTIONS = (
    Option(
        ("--data", "--store"),
        "data",
        "directory of the store and all other data (default: ./data)",
        metavar="DIR",
    ),
    Option(
        ("--host",),
        "host",
        "address to listen on (default: 127.0.0.1; 0.0.0.0 lets other machines in)",
        (UP, NAMESRV, BROKER),
        "H",
        "bindAddress",
    ),
    Option(
        ("--host",),
        "host",
        "address to listen on (default: 127.0.0.1; 0.0.0.0 lets other machines in)",
        (CONTROLLER,),
        "H",
        "controllerBindAddress",
    ),
    Option(
        ("--namesrv-port",),
        "namesrv_port",
        "port of the name server (default: 9876; 0: any free one)",
        (UP,),
        "PORT",
        is_number=True,
    ),
    Option(
        ("--broker-port", "--port"),
        "port",
        "port of the broker (default: 10911; 0: any free one)",
        (UP, BROKER),
        "PORT",
        "listenPort",
        is_number=True,
    ),
    Option(
        ("--port",),
        "port",
        "port of the name server (default: 9876; 0: any free one)",
        (NAMESRV,),
        "PORT",
        "listenPort",
        is_number=True,
    ),
    Option(
        ("--port",),
        "port",
        "port of the controller (default: 9878; 0: any free one)",
        (CONTROLLER,),
        "PORT",
        "controllerListenPort",
        is_number=True,
    ),
    Option(
        ("--brokers",),
        "brokers",
        "broker processes behind one name server (default: one for each store in DIR, or 1); ports"
        " are 10 apart",
        (UP,),
        "N",
        is_count=True,
    ),
    Option(
        ("--replicas",),
        "replicas",
        "a master and its slaves behind one name server, N processes in all; ports are 10 apart",
        (UP,),
        "N",
        is_count=True,
    ),
    Option(
        ("--controller",),
        "controller",
        "with --replicas: a controller beside the name server elects another master when one dies",
        (UP,),
        is_flag=True,
    ),
    Option(
        ("--namesrv", "-n"),
        "namesrv",
        "name servers to register with: 'host:port;host:port'",
        (BROKER,),
        "ADDR",
        "namesrvAddr",
    ),
    Option(
        ("--namesrv", "-n"),
        "namesrv",
        "accepted for RocketMQ's scripts and ignored: a name server does not register anywhere",
        (NAMESRV,),
        "ADDR",
    ),
    Option(
        ("--broker-name",),
        "broker_name",
        "name of the broker (default: the one that DIR knows, else the name of this machine)",
        (UP, BROKER),
        "NAME",
        "brokerName",
    ),
    Option(
        ("--cluster",),
        "cluster",
        "name of the cluster (default: DefaultCluster)",
        (UP, BROKER),
        "NAME",
        "brokerClusterName",
    ),
    Option(
        ("--grpc-port",),
        "grpc_port",
        "port for the gRPC SDKs of RocketMQ 5 (default: 8081 with `up`, else none; 0: any free one; "
        "-1: none)",
        (UP, BROKER),
        "PORT",
        "grpcServerPort",
        is_number=True,
        low=-1,
    ),
    Option(
        ("--console-port",),
        "console_port",
        "port of the web console (default: 8082 with `up`, else none; 0: any free one; -1: no console)",
        (UP, BROKER),
        "PORT",
        "consolePort",
        is_number=True,
        low=-1,
    ),
    Option(
        ("--console-host",),
        "console_host",
        "address that the console listens on (default: 127.0.0.1); beyond loopback it is "
        "read-only until consoleUser and consolePassword are set",
        (UP, BROKER),
        "H",
        "consoleHost",
    ),
    Option(("--no-console",), "no_console", "no web console", (UP, BROKER), is_flag=True),
    Option(
        ("-c", "--config"),
        "config",
        "a properties file, such as RocketMQ's broker.conf or namesrv.conf",
        metavar="FILE",
    ),
    Option(
        ("--set", "-D"),
        "settings",
        "any setting by its name in broker.conf; may be repeated",
        metavar="NAME=VALUE",
        is_list=True,
    ),
    Option(
        ("-p", "-m", "--print-config"),
        "print_config",
        "print every setting with its value, and exit",
        is_flag=True,
    ),
    Option(
        ("--json",),
        "as_json",
        "print the ready line as a JSON object, for programs",
        is_flag=True,
    ),
    Option(
        ("--figures",),
        "figures",
        # For the console of the process that starts this one, on a free port of loopback.
        argparse.SUPPRESS,
        (BROKER,),
        is_flag=True,
    ),
    Option(
        ("--grpc-port-is-wish",),
        "grpc_port_is_wish",
        # For a broker of several on this machine: another program may take its port before it does.
        argparse.SUPPRESS,
        (BROKER,),
        is_flag=True,
    ),
    Option(
        ("--log-level",),
        "log_level",
        "DEBUG, INFO, WARNING or ERROR (default: INFO); by module: the setting logLevels",
        metavar="LEVEL",
    ),
    Option(
        ("--log-format",),
        "log_format",
        "text or json, an object a line (default: text)",
        metavar="FORMAT",
    ),
    Option(
        ("--log-file",),
        "log_file",
        "write the log into this file instead of standard error; SIGHUP opens it again",
        metavar="FILE",
    ),
    Option(
        ("--log-rotate",),
        "log_rotate",
        "rotate that file at so many MiB, and keep five (default: never)",
        metavar="MIB",
        is_count=True,
    ),
)

HELP = {
    UP: "Run a name server and a broker in this process, or several processes with --brokers or "
    "--replicas. Print a line that starts with 'ready' once they serve.",
    NAMESRV: "Run a name server alone.",
    CONTROLLER: "Run a controller alone: it elects the master of each set of brokers.",
    BROKER: "Run a broker alone, registered with the name servers of --namesrv.",
}


EXAMPLES_OF_SERVERS = {
    UP: "pocketmq up --data ./data",
    NAMESRV: "pocketmq namesrv --host 0.0.0.0",
    BROKER: "pocketmq broker --namesrv 10.0.0.1:9876 --data /var/lib/pocketmq",
    CONTROLLER: "pocketmq controller --data /var/lib/pocketmq",
}


@dataclass(slots=True)
class ServerOptions:
    """The options given on the command line; None: not given."""

    role: str
    data: str | None = None
    host: str | None = None
    namesrv_port: int | None = None
    port: int | None = None
    brokers: int | None = None
    replicas: int | None = None
    controller: bool = False
    namesrv: str | None = None
    broker_name: str | None = None
    cluster: str | None = None
    grpc_port: int | None = None
    console_port: int | None = None
    console_host: str | None = None
    no_console: bool = False
    config: str | None = None
    settings: list[str] | None = None
    print_config: bool = False
    as_json: bool = False
    figures: bool = False
    grpc_port_is_wish: bool = False
    log_level: str | None = None
    log_format: str | None = None
    log_file: str | None = None
    log_rotate: int | None = None

    def as_settings(self) -> dict[str, str]:
        """Return the settings that the options set, by name; --set NAME=VALUE included.

        Raises: CannotBegin for a --set without '='.
        """
        found: dict[str, str] = {}
        for text in self.settings or ():
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise CannotBegin(f"--set takes NAME=VALUE, not {text!r}")
            found[name.strip()] = value.strip()
        for option in OPTIONS:
            value_given = getattr(self, option.attribute)
            if option.setting and self.role in option.roles and value_given is not None:
                found[option.setting] = str(value_given)
        if self.no_console:
            found["consolePort"] = "-1"
        return found


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return argparse's own, which for the width would import shutil and three compressors at each start."""
    try:
        columns = (
            int(os.environ.get("COLUMNS", "0"))
            or os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else -1).columns
        )
    except (OSError, ValueError):
        columns = 80
    return argparse.HelpFormatter(prog, width=columns - 2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CannotBegin(f"{message}; see: {self.prog} --help")


def parse(role: str, arguments: list[str]) -> ServerOptions:
    """Parse the options of one of these commands.

    Raises: CannotBegin for a bad one. SystemExit(0) after --help.
    """
    parser = _Parser(
        prog=f"pocketmq {role}",
        description=HELP[role],
        allow_abbrev=False,
        formatter_class=_formatter,
        epilog=f"Example: {EXAMPLES_OF_SERVERS[role]}. "
        "Precedence: options, then POCKETMQ_<NAME> in the environment, then NAMESRV_ADDR, "
        "then the file of -c, then the defaults.",
    )
    for option in OPTIONS:
        if role in option.roles:
            _add(parser, option)
    return parser.parse_args(arguments, ServerOptions(role))


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.is_flag:
        parser.add_argument(
            *option.flags, dest=option.attribute, help=option.help, action="store_true"
        )
        return
    parser.add_argument(
        *option.flags,
        dest=option.attribute,
        help=option.help,
        metavar=option.metavar,
        type=_port(option.low) if option.is_number else _count if option.is_count else str,
        action="append" if option.is_list else "store",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; give a number of at least 1")
    return int(text)


def _port(low: int) -> Callable[[str], int]:
    """Return a parser of ports; low: -1 if "none" may be chosen."""

    def parse_port(text: str) -> int:
        digits = text.removeprefix("-") if low < 0 else text
        if digits.isascii() and digits.isdigit() and low <= int(text) <= 65_535:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port; a port is a number from {low} to 65535"
        )

    return parse_port
