"""Before and after a server listens: ports that are taken, the line `ready`, the garbage collector."""

import errno
import gc
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping

from pocketmq.cli.exits import CannotBegin

log = logging.getLogger(__name__)


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
