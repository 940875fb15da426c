"""Ports for servers under test: no two of this machine's test processes take the same one."""

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from pathlib import Path

_PORTS = random.SystemRandom()
_FOLDER = Path(tempfile.gettempdir()) / f"pocketmq-test-ports-{os.getuid()}"
# A server listens soon after it was given its port; from then on the port is not free.
_KEPT_MAX = 96
_kept: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """`count` ports, each free on 127.0.0.1 together with the two below it and the one above.

    RocketMQ listens on listenPort, listenPort - 2 (the fast port) and listenPort + 1 (HA). Taken
    below 32768, where the system does not place the near ends of connections. This process keeps a lock on
    each for its next few dozen, so that no other one finds it free before the server listens.
    """
    found: list[int] = []
    for _ in range(10_000):
        port = _PORTS.randrange(15_000, 32_000, 8)
        if _take(port) and all(_is_free(port + step) for step in (-2, -1, 0, 1)):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError("no free ports between 15000 and 32000 on 127.0.0.1")


def _take(port: int) -> bool:
    _FOLDER.mkdir(exist_ok=True)
    lock = os.open(_FOLDER / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _kept.append(lock)
    if len(_kept) > _KEPT_MAX:
        os.close(_kept.popleft())
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
