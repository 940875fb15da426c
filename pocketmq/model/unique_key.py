"""UNIQ_KEY: the id that a producer gives a message, 32 upper-case hex digits.

    bytes  what
    4      IPv4 address (16 bytes for IPv6: 56 digits)
    2      process id
    4      random for this process (Java: hash of its class loader)
    4      ms since the first of the month, 00:00 local time
    2      counter

Key queries use the time in the id as the start of their window, so it must be correct.
Source: MessageClientIDSetter, RocketMQ 4.9.7 (wire.md 5.4).
"""

import datetime
import itertools
import os
import socket
from typing import NamedTuple

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import IllegalArgument

# How often this process became the child of another: to ask for the pid is a system call a message.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class UniqueKeys:
    """Generates unique keys for this process. Safe to share between threads: the counter is one C call."""

    def __init__(self, ip: str, clock: Clock, random_bytes: bytes | None = None) -> None:
        """ip: own address; random_bytes: four bytes, for tests."""
        self._ip = ip
        self._clock = clock
        self._random = random_bytes
        self._forks = -1
        self._prefix = ""
        self._counter = itertools.count()
        self._month_start_ms = 0
        self._month_end_ms = 0

    def make(self) -> str:
        """Return a new key."""
        now = self._clock.now_ms()
        if self._forks != _forks:
            self._begin_process()
        if not self._month_start_ms <= now < self._month_end_ms:
            self._begin_month(now)
        return f"{self._prefix}{now - self._month_start_ms:08X}{next(self._counter) & 0xFFFF:04X}"

    def _begin_process(self) -> None:
        # A forked child has the parent's counter: its own pid and random bytes keep the keys apart.
        self._forks = _forks
        random = self._random if self._random is not None else os.urandom(4)
        raw = _packed_ip(self._ip) + (os.getpid() & 0xFFFF).to_bytes(2, "big") + random
        self._prefix = raw.hex().upper()

    def _begin_month(self, now_ms: int) -> None:
        start = _month_start(datetime.datetime.fromtimestamp(now_ms / 1000))
        self._month_start_ms = int(start.timestamp() * 1000)
        following = _month_start(start + datetime.timedelta(days=32))
        self._month_end_ms = int(following.timestamp() * 1000)


def _month_start(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _packed_ip(ip: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except OSError as error:
        raise IllegalArgument(f"the client's address {ip!r} is not an IP address") from error


class KeyParts(NamedTuple):
    """The origin in a unique key; near_ms is the likeliest time (months repeat)."""

    ip: str
    pid: int
    near_ms: int
    counter: int


def parse(key: str, now_ms: int) -> KeyParts:
    """Return the parts of a key generated before `now_ms`.

    Raises: IllegalArgument if it has neither 32 nor 56 hex digits.
    """
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise IllegalArgument(
            f"{key!r} is not a unique key: 32 hex digits (56 for IPv6) are expected"
        )
    address = raw[:-12]
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    since = int.from_bytes(raw[-6:-2], "big")
    start = _month_start(datetime.datetime.fromtimestamp(now_ms / 1000))
    made = int(start.timestamp() * 1000) + since
    # An id from the end of last month lies ahead of now when counted from this month's first.
    if made > now_ms + 86_400_000:
        made = int(_month_start(start - datetime.timedelta(days=1)).timestamp() * 1000) + since
    return KeyParts(
        socket.inet_ntop(family, address),
        int.from_bytes(raw[-12:-10], "big"),
        made,
        int.from_bytes(raw[-2:], "big"),
    )
