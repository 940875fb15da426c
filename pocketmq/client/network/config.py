"""Where the name servers are, and the client's identity."""

import os
import socket
import time

from pocketmq.client.network.top_addressing import is_lookup, look_up
from pocketmq.remoting.address_list import split_addresses
from pocketmq.remoting.errors import IllegalArgument

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"


def find_name_servers(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the URL to query, if it is one, and the addresses. Raises: IllegalArgument,
    NameServersNotFound.
    """
    given = text if text is not None else os.environ.get(NAME_SERVER_VARIABLE)
    if given is not None and is_lookup(given):
        return given, parse_name_servers(look_up(given))
    return None, parse_name_servers(given)


def parse_name_servers(text: str | None) -> tuple[str, ...]:
    """Parse `a:9876;b:9876` into addresses; None uses $NAMESRV_ADDR. Raises: IllegalArgument."""
    given = text if text is not None else os.environ.get(NAME_SERVER_VARIABLE)
    if not given:
        raise IllegalArgument(
            'no name server is given: pass name_server="host:9876" (several joined by ;) or set '
            f"{NAME_SERVER_VARIABLE}"
        )
    found = []
    for part in split_addresses(given):
        address = part.rpartition("/")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, "9876"
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise IllegalArgument(f"name server {part!r} is not host:port")
        found.append(f"{host}:{port}")
    if not found:
        raise IllegalArgument(f"name server {given!r} contains no address; write host:9876")
    return tuple(dict.fromkeys(found))


def local_ip(towards: str) -> str:
    """Return the own address from which `towards` (host:port) is reached; nothing is sent.

    127.0.0.1 if the machine has no route there.
    """
    host, _, port = towards.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return "127.0.0.1"


_started = 0


def own_instance_name() -> str:
    """Return `pid#nanoseconds`, a unique name. Source: ClientConfig.changeInstanceNameToPID."""
    global _started
    # A coarse clock may give the same time twice.
    _started = max(time.monotonic_ns(), _started + 1)
    return f"{os.getpid()}#{_started}"
