"""Addresses of peers as records and message ids have them: 4 or 16 bytes, then 4 of the port.

Source: MessageDecoder, RocketMQ 4.9.7.
"""

import socket
import struct
from typing import Any

from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.java_number import integer

_PORT = struct.Struct(">i")


def pack_host(host: str) -> bytes:
    """Convert `ip:port` to address bytes and a 4-byte port: 8 bytes, or 20 for IPv6 (`[::1]:80`)."""
    ip, _, port = host.rpartition(":")
    try:
        return pack_address(ip.strip("[]"), integer(port))
    except ValueError as error:
        raise MessageCodecError(f"{host!r} is not ip:port") from error


def pack_address(ip: str, port: int) -> bytes:
    """Return address bytes and a 4-byte port. Raises: MessageCodecError if `ip` is not an address."""
    try:
        if ":" in ip:
            return socket.inet_pton(socket.AF_INET6, ip.partition("%")[0]) + _PORT.pack(port)
        return socket.inet_pton(socket.AF_INET, ip) + _PORT.pack(port)
    except (OSError, struct.error) as error:
        raise MessageCodecError(f"{ip!r}:{port} is not an IP address and a port") from error


def socket_name(name: Any) -> tuple[str, bytes]:
    """Return `ip:port` and the packed address of a socket name; IPv4-mapped IPv6 counts as IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "", b"\0" * 8
    ip, port = str(name[0]), int(name[1])
    if ip.startswith("::ffff:") and "." in ip:
        ip = ip[7:]
    text = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return text, pack_address(ip, port)


def unpack_host(host: bytes) -> str:
    """Convert 8 or 20 bytes to `ip:port`."""
    family = socket.AF_INET if len(host) == 8 else socket.AF_INET6
    ip = socket.inet_ntop(family, host[:-4])
    port = int.from_bytes(host[-4:], "big", signed=True)
    return f"{ip}:{port}"
