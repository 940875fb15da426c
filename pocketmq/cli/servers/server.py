"""Run the servers: `pocketmq up`, `namesrv`, `broker` and `controller`.

1. One line on standard output that begins with `ready`, once a client can send; logs go to standard error.
2. SIGTERM and Ctrl-C stop cleanly; the exit code is then 0. SIGHUP stops nothing (hangup.py).
3. If it cannot begin (a port in use, a store that is locked or foreign, a bad option), it prints one line
   that says what to do, at once, and exits with code 2.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from typing import Protocol

from pocketmq.cli.exits import CannotBegin, ExitCode, complain
from pocketmq.cli.servers.broker_set import chosen_count, replica_count
from pocketmq.cli.servers.event_loop import run
from pocketmq.cli.servers.hangup import ignore_hangup
from pocketmq.cli.servers.server_config import early_directory, take_variables
from pocketmq.cli.servers.server_log import start_logging
from pocketmq.cli.servers.server_options import CONTROLLER, NAMESRV, UP, ServerOptions, parse
from pocketmq.remoting.settings import format_properties

log = logging.getLogger(__name__)


class Server(Protocol):
    """One of these commands.

    failure: what went wrong during the stop, in words; empty otherwise.
    """

    failure: str

    @property
    def origins(self) -> Mapping[str, str]:
        """Return where the settings that are not defaults are from, in words, by name."""
        ...

    def settings(self) -> dict[str, str]:
        """Return every setting with its value."""
        ...

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        ...

    def reload(self) -> object:
        """Read certificates and settings again (hangup.py)."""
        ...


def serve(role: str, arguments: list[str], *, until_input_ends: bool = False) -> ExitCode:
    """Run one of these commands until it is stopped. Raises: CannotBegin.

    until_input_ends: for one of several processes: the end of standard input stops it, too.
    """
    ignore_hangup()
    options = parse(role, arguments)
    take_variables(options, os.environ)
    start_logging(options, (options.broker_name or "") if until_input_ends else "")
    if options.settings:
        # Most starts have none.
        from pocketmq.cli.secret_input import in_settings, warn_of

        for name in in_settings(options.settings):
            warn_of(f"--set {name}", "the environment, POCKETMQ_<NAME>, or the file of -c")
    server = _make(options)
    if options.print_config:
        settings = server.settings()
        sys.stdout.write(format_properties(settings))
        # Beside the properties, which programs read.
        for name, origin in sorted(server.origins.items()):
            if name in settings:
                sys.stderr.write(f"{name} is from {origin}\n")
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
        from pocketmq.cli.servers.namesrv_server import NamesrvServer

        return NamesrvServer(options, os.environ)
    if options.role == CONTROLLER:
        from pocketmq.cli.servers.controller_server import ControllerServer

        return ControllerServer(options, os.environ)
    if options.role == UP:
        count = replica_count(options.replicas, options.brokers, controller=options.controller)
        if count == 1:
            count = chosen_count(options.brokers, early_directory(options, os.environ))
        if count > 1 and not options.print_config:
            from pocketmq.cli.servers.brokers_server import begin

            return begin(options, os.environ, count, serve)
    from pocketmq.cli.servers.broker_server import BrokerServer

    return BrokerServer(options, os.environ)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
