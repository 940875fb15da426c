"""The broker's addresses: the ports it binds and what it advertises to clients."""

import logging
import socket
from contextlib import ExitStack

from pocketmq.broker.config import BrokerConfig

log = logging.getLogger(__name__)

_FAST_PORT_DISTANCE = 2
_ANY_ADDRESSES = ("0.0.0.0", "::", "")


def bind(config: BrokerConfig, stack: ExitStack) -> list[socket.socket]:
    """Bind the listening port, and the fast one 2 below it if that is free; `stack` closes them.

    Raises: OSError.
    """
    sockets = [_bound(config.listen_address, config.listen_port)]
    stack.callback(sockets[0].close)
    if config.fast_listen_enable and config.listen_port > _FAST_PORT_DISTANCE:
        port = config.listen_port - _FAST_PORT_DISTANCE
        try:
            sockets.append(_bound(config.listen_address, port))
        except OSError as error:
            log.info("not listening on the fast port port=%d reason=%s", port, error)
        else:
            stack.callback(sockets[1].close)
    return sockets


def bind_ha(config: BrokerConfig, listen_port: int, stack: ExitStack) -> socket.socket:
    """Bind the port for slaves and record it in the settings; `stack` closes it. Raises: OSError."""
    wanted = config.ha_listen_port
    try:
        sock = _bound(config.listen_address, wanted or listen_port + 1)
    except (OSError, OverflowError) as error:
        if wanted:
            raise
        # Slaves learn the port from the name server.
        sock = _bound(config.listen_address, 0)
        log.info("listenPort + 1, the port for slaves, is in use; taking another reason=%s", error)
    stack.callback(sock.close)
    config.ha_listen_port = sock.getsockname()[1]
    return sock


def advertise(config: BrokerConfig, sock: socket.socket) -> tuple[str, int]:
    """Return the IP and port advertised to clients, and record them in the settings."""
    host, port = sock.getsockname()[:2]
    ip = config.broker_ip1
    if not ip:
        ip = _local_address() if host in _ANY_ADDRESSES else host
    elif not _is_ip(ip):
        ip = socket.gethostbyname(ip)
    config.broker_ip1 = ip
    config.broker_ip2 = config.broker_ip2 or ip
    config.listen_port = port
    return ip, config.advertised_port or port


def address_text(ip: str, port: int) -> str:
    """Format `ip:port`, an IPv6 address in brackets.

    >>> address_text("127.0.0.1", 1), address_text("::1", 1)
    ('127.0.0.1:1', '[::1]:1')
    """
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket that does not listen yet. Raises: OSError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
        # Linux lets two sockets bind one port while neither listens: only listening claims it.
        sock.listen(0)
    except OSError:
        sock.close()
        raise
    return sock


def _is_ip(text: str) -> bool:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _local_address() -> str:
    """Return an address of this machine that others can reach; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which address such a packet would leave from.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
