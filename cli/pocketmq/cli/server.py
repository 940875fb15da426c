"""Run the servers: `pocketmq up`, `namesrv` and `broker`.

1. One line on standard output that begins with `ready`, once a client can send; logs go to standard error.
2. SIGTERM and Ctrl-C stop cleanly; the exit code is then 0. SIGHUP stops nothing (hangup.py).
3. If it cannot begin (a port in use, a store that is locked or foreign, a bad option), it prints one line
   that says what to do, at once, and exits with code 2.
"""

import asyncio
import errno
import gc
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping
from typing import Protocol

from pocketmq.cli.broker_set import chosen_count, replica_count
from pocketmq.cli.event_loop import run
from pocketmq.cli.exits import CannotBegin, ExitCode, complain
from pocketmq.cli.hangup import ignore_hangup
from pocketmq.cli.server_config import early_directory, take_variables
from pocketmq.cli.server_log import start_logging
from pocketmq.cli.server_options import NAMESRV, UP, ServerOptions, parse
from pocketmq.remoting.settings import format_properties

log = logging.getLogger(__name__)


class Server(Protocol):
    """One of the three commands. failure: what went wrong during the stop, in words; empty otherwise."""

    failure: str

    def settings(self) -> dict[str, str]:
        """Return every setting with its value."""
        ...

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        ...

    def reload(self) -> None:
        """Read certificates again (hangup.py)."""
        ...


def serve(role: str, arguments: list[str], *, until_input_ends: bool = False) -> ExitCode:
    """Run one of the three commands until it is told to stop. Raises: CannotBegin.

    until_input_ends: for one of several processes: the end of standard input stops it, too.
    """
    ignore_hangup()
    options = parse(role, arguments)
    take_variables(options, os.environ)
    start_logging(options.log_level, (options.broker_name or "") if until_input_ends else "")
    server = _make(options)
    if options.print_config:
        sys.stdout.write(format_properties(server.settings()))
        return ExitCode.OK
    try:
        run(server.serve, until_input_ends=until_input_ends, reload=server.reload)
    except BaseExceptionGroup as group:
        # A task group on the way wraps what its body raises.
        reason = group.subgroup(CannotBegin)
        if reason is None:
            raise
        raise _first(reason) from None
    if server.failure:
        complain(server.failure)
        return ExitCode.FAILED
    return ExitCode.OK


def _make(options: ServerOptions) -> Server:
    """Create the server of a role; a name server alone imports neither broker nor store."""
    if options.role == NAMESRV:
        from pocketmq.cli.namesrv_server import NamesrvServer

        return NamesrvServer(options, os.environ)
    if options.role == UP:
        count = replica_count(options.replicas, options.brokers)
        if count == 1:
            count = chosen_count(options.brokers, early_directory(options, os.environ))
        if count > 1 and not options.print_config:
            from pocketmq.cli.brokers_server import begin

            return begin(options, os.environ, count)
    from pocketmq.cli.broker_server import BrokerServer

    return BrokerServer(options, os.environ)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def say_ready(parts: Mapping[str, object], *, as_json: bool = False) -> None:
    """Print the one line on standard output: `ready namesrv=127.0.0.1:9876 ... pid=4711`.

    as_json: the same as one JSON object, `{"ready": true, "namesrv": ...}`.
    """
    said = {name: value for name, value in parts.items() if value not in (None, "")}
    said["pid"] = os.getpid()
    line = " ".join(["ready", *(f"{name}={value}" for name, value in said.items())])
    # A terminal that shows both streams would show it twice.
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        log.info("%s", line)
    try:
        # The command's output.
        print(json.dumps({"ready": True, **said}) if as_json else line, flush=True)  # noqa: T201
    except OSError:
        log.warning("standard output was closed by its reader; still serving")


def settle() -> None:
    """Freeze the objects that exist after the start, so that the garbage collector skips them.

    From now on it looks at young objects only. A full round would block the event loop the longer the more
    clients have the broker keep: a second for 500 filters of 4,000 words. Old objects are freed when the
    last reference goes, as nearly everything is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 5, 1_000_000)


def check_port(host: str, port: int, option: str) -> None:
    """Refuse a port that is in use before anything else is begun. Raises: CannotBegin."""
    if port == 0:
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotBegin(
            f"cannot listen on {host!r}: {error.strerror or error}. Give an address of this machine "
            "with --host"
        ) from error
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            # Only listening tells apart a port that another program listens on with SO_REUSEADDR.
            probe.listen(1)
        except OSError as error:
            raise cannot_listen(host, port, option, error) from error


def cannot_listen(host: str, port: int, option: str, error: OSError) -> CannotBegin:
    """Return the one-line error for a failed bind."""
    if error.errno == errno.EADDRINUSE:
        return CannotBegin(
            f"port {port} on {host} is in use by another program: stop that program, or choose "
            f"another port with"
            f" {option} (0 takes any free one)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return CannotBegin(
            f"{host} is not an address of this machine: give one that is with --host (127.0.0.1 for "
            "this machine alone, 0.0.0.0 for all)"
        )
    if error.errno == errno.EACCES:
        return CannotBegin(
            f"this user may not listen on port {port}: choose one above 1023 with {option}"
        )
    return CannotBegin(f"cannot listen on {host}:{port}: {error.strerror or error}")
