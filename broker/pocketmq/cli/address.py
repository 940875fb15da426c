"""The address that a broker advertises: what its clients dial and what stands in message ids.

Listening on one address, it is that one. Listening on all of them, it is the address that this machine
uses towards others: right on a plain machine, and wrong where clients sit on the other side of a
container's or a router's network. There `brokerIP1` says what they can reach (`pocketmq doctor net`).
"""

import socket
from ipaddress import ip_address

# TEST-NET-1: never routed to anybody. Connecting a datagram socket sends nothing; it only asks the
# kernel which address it would use.
_ELSEWHERE = ("192.0.2.1", 9)


def is_wildcard(host: str) -> bool:
    """Whether listening on `host` means every address of the machine."""
    return host in ("", "0.0.0.0", "::", "*")


def outward_address() -> str:
    """The machine's own IPv4 address towards other machines; 127.0.0.1 when it has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def advertised_address(listen_host: str) -> str:
    """The address to advertise when brokerIP1 does not say. Raises: OSError for an unknown name."""
    if is_wildcard(listen_host):
        return outward_address()
    try:
        return str(ip_address(listen_host))
    except ValueError:
        return socket.gethostbyname(listen_host)
