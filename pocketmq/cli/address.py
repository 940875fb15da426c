"""The address that a broker advertises: what its clients connect to, and part of message ids.

If the broker listens on one address, it is that one. If it listens on all of them, it is the address that
this machine uses towards others: right on a plain machine, but wrong if clients are on the other side of a
container's or a router's network. Then brokerIP1 must say what they can reach (`pocketmq doctor net`).
"""

import os
import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

from pocketmq.cli.exits import CannotBegin

# What Docker and Podman put into a container's root.
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")


def is_wildcard(host: str) -> bool:
    """Return True if listening on `host` means every address of the machine."""
    return host in ("", "0.0.0.0", "::", "*")


def is_loopback(host: str) -> bool:
    """Return True if `host` is this machine only, as an address or as `localhost`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_advertised(broker_ip1: str, resolve: Callable[[str], str] = socket.gethostbyname) -> None:
    """Refuse a brokerIP1 that no client could connect to; empty is fine. Raises: CannotBegin.

    resolve: socket.gethostbyname, or a test's replacement.
    """
    if not broker_ip1:
        return
    if is_wildcard(broker_ip1):
        raise CannotBegin(
            f"brokerIP1={broker_ip1} is not an address that clients can connect to: give the one "
            f"by which they reach this machine, or leave it out and listen on all addresses with "
            f"--host 0.0.0.0"
        )
    try:
        ip_address(broker_ip1)
    except ValueError:
        try:
            resolve(broker_ip1)
        except (OSError, UnicodeError) as error:
            raise CannotBegin(
                f"brokerIP1={broker_ip1} is a name that this machine does not resolve ({error}): "
                f"give an IP address, or add the name to DNS or /etc/hosts"
            ) from error


def container_warning(
    listen_host: str,
    broker_ip1_was_set: bool,
    advertised: str,
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> str:
    """Return a warning if the automatic address is probably a container's own; else an empty text."""
    if broker_ip1_was_set or not is_wildcard(listen_host):
        return ""
    # In Kubernetes a pod's address is reachable from all others.
    if "KUBERNETES_SERVICE_HOST" in environment:
        return ""
    if not any((root / mark).exists() for mark in _CONTAINER_MARKS):
        return ""
    return (
        f"this broker runs in a container and tells its clients to connect to {advertised}, which "
        f"only containers in the same network can reach."
        " For others set POCKETMQ_BROKER_IP1 to the "
        "address of the machine outside, and publish the port under the same number; `pocketmq doctor "
        "net`, run on a client's machine, shows what that client sees"
    )
