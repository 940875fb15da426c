"""`mqadmin COMMAND -n ADDR ...`: RocketMQ's commands, implemented by PocketMQ's administration.

Works with Apache brokers, too. The output has the columns of RocketMQ's mqadmin 4.9.7; the exit codes are
ours (0 done, 1 refused, 2 could not begin), where RocketMQ's prints a stack trace and ends with 0.
"""

import sys
from collections.abc import Sequence

from pocketmq.cli.encoding import not_text, texts, write_any_text
from pocketmq.cli.exits import CannotBegin, ExitCode, complain, without_extras
from pocketmq.cli.mqadmin.arguments import parse
from pocketmq.cli.mqadmin.table import COMMANDS, MqCommand, find
from pocketmq.remoting.errors import did_you_mean


def main() -> int:
    """The console script."""
    write_any_text()
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run one command; return the exit code (see ExitCode)."""
    try:
        from pocketmq.cli.cluster import ClusterRefused
    except ModuleNotFoundError as missing:
        complain(without_extras(missing), "mqadmin")
        return int(ExitCode.USAGE)

    try:
        arguments = texts(arguments)
        if not arguments or arguments[0] in ("-h", "--help"):
            sys.stdout.write(_listing())
            return int(ExitCode.OK)
        if arguments[0] == "help" and len(arguments) > 1:
            arguments = [arguments[1], "-h"]
        command = _served(arguments[0])
        _do(command, arguments[1:])
    except UnicodeEncodeError as error:
        complain(not_text(error.object), "mqadmin")
        return int(ExitCode.USAGE)
    except CannotBegin as error:
        complain(error, "mqadmin")
        return int(ExitCode.USAGE)
    except ClusterRefused as error:
        complain(error, "mqadmin")
        return int(ExitCode.FAILED)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.FAILED)
    except SystemExit as stop:
        # argparse has shown its help.
        return int(stop.code or 0)
    return int(ExitCode.OK)


def _do(command: MqCommand, arguments: Sequence[str]) -> None:
    from pocketmq.cli.cluster import with_admin
    from pocketmq.cli.mqadmin.answers import show
    from pocketmq.cli.options import default_name_server

    given, namesrv = parse(command, arguments, default_name_server())
    with_admin(namesrv, lambda admin: show(command, admin, given))


def _served(name: str) -> MqCommand:
    """Return the command. Raises: CannotBegin for a name that is unknown, or not served here."""
    command = find(name)
    if command is None:
        hint = did_you_mean(name, (each.name for each in COMMANDS))
        raise CannotBegin(f"unknown command {name!r}{hint}; see: mqadmin -h, or pocketmq -h")
    if not command.module:
        what = f"use: pocketmq {command.instead}" if command.instead else command.why
        raise CannotBegin(f"{command.name} ({command.summary}) is not served: {what}")
    return command


def _listing() -> str:
    lines = ["usage: mqadmin COMMAND [-n ADDR] [options]", ""]
    lines += [f"   {each.name:<24} {each.summary}" for each in COMMANDS if each.module]
    lines += [
        "",
        "mqadmin help COMMAND shows its options; `pocketmq -h` offers all of this and more.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
