"""The address that a broker advertises: what its clients dial and what stands in message ids.

Listening on one address, it is that one. Listening on all of them, the broker takes the address that this
machine uses towards others: right on a plain machine, and wrong where clients sit on the other side of a
container's or a router's network. There brokerIP1 says what they can reach (`pocketmq doctor net`).
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
    """Whether listening on `host` means every address of the machine."""
    return host in ("", "0.0.0.0", "::", "*")


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine alone, as an address or by the name that all know."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_advertised(broker_ip1: str, resolve: Callable[[str], str] = socket.gethostbyname) -> None:
    """Refuse a brokerIP1 that no client could dial; empty is well. Raises: CannotBegin.

    resolve: socket.gethostbyname, or what a test has instead.
    """
    if not broker_ip1:
        return
    if is_wildcard(broker_ip1):
        raise CannotBegin(
            f"brokerIP1={broker_ip1} is no address that clients can dial: give the one by which they "
            "reach this machine, or leave it out and listen on all with --host 0.0.0.0"
        )
    try:
        ip_address(broker_ip1)
    except ValueError:
        try:
            resolve(broker_ip1)
        except (OSError, UnicodeError) as error:
            raise CannotBegin(
                f"brokerIP1={broker_ip1} is a name that this machine does not resolve ({error}): give an "
                "IP address, or enter the name into DNS or /etc/hosts"
            ) from error


def container_warning(
    listen_host: str,
    broker_ip1_was_set: bool,
    advertised: str,
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> str:
    """What to log where the automatic address is likely a container's own; empty when all is well."""
    if broker_ip1_was_set or not is_wildcard(listen_host):
        return ""
    # In Kubernetes a pod's address is reachable from all others.
    if "KUBERNETES_SERVICE_HOST" in environment:
        return ""
    if not any((root / mark).exists() for mark in _CONTAINER_MARKS):
        return ""
    return (
        f"this broker runs in a container and tells its clients to dial {advertised}, which only "
        "neighbours in the container's network can reach. For others set POCKETMQ_BROKER_IP1 to the "
        "address of the machine outside, and publish the port under the same number; `pocketmq doctor "
        "net`, run where a client is, says what it sees"
    )
