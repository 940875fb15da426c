"""Two hosts on one machine: network namespaces, joined by a pair of virtual interfaces.

    broker's host   10.87.N.1          client's host   10.87.N.2

Faults are made by routes and links, so that the kernel's TCP sees what it sees in a real network: packets
that vanish, in both directions or in one, and hosts that are said to be unreachable. Needs root and `ip`.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pytest


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def skip_without_namespaces() -> None:
    """At home a test without root or `ip` is skipped; where CI=true it fails."""
    if os.geteuid() == 0 and shutil.which("ip"):
        return
    reason = "network namespaces need root and `ip` (Debian: apt install iproute2)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class TwoHosts:
    """Made on entering, gone on leaving. number: 0..255, for tests that run side by side."""

    def __init__(self, number: int) -> None:
        name = f"pmq{os.getpid()}-{number}"
        self.broker, self.client = f"{name}b", f"{name}c"
        self.broker_ip, self.client_ip = f"10.87.{number}.1", f"10.87.{number}.2"
        self._links = {self.broker: f"pb{os.getpid()}", self.client: f"pc{os.getpid()}"}

    def __enter__(self) -> Self:
        try:
            for host in (self.broker, self.client):
                _ip("netns", "add", host)
                _ip("-n", host, "link", "set", "lo", "up")
            one, other = self._links[self.broker], self._links[self.client]
            _ip("-n", self.broker, "link", "add", one, "type", "veth", "peer", "name", other)
            _ip("-n", self.broker, "link", "set", other, "netns", self.client)
            for host, ip in ((self.broker, self.broker_ip), (self.client, self.client_ip)):
                _ip("-n", host, "addr", "add", f"{ip}/24", "dev", self._links[host])
                _ip("-n", host, "link", "set", self._links[host], "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for host in (self.broker, self.client):
            try:
                _ip("netns", "del", host)
            except OSError:
                pass

    @staticmethod
    def within(host: str, command: Sequence[str]) -> list[str]:
        """The command, run on that host."""
        return ["ip", "netns", "exec", host, *command]

    def cut(self, kind: str) -> None:
        """both: all packets vanish; to-broker, to-client: those of one direction; refused: unreachable."""
        if kind in ("both", "to-broker"):
            _ip("-n", self.client, "route", "add", "blackhole", self.broker_ip)
        if kind in ("both", "to-client"):
            _ip("-n", self.broker, "route", "add", "blackhole", self.client_ip)
        if kind == "refused":
            _ip("-n", self.client, "route", "add", "unreachable", self.broker_ip)

    def heal(self) -> None:
        """All packets arrive again."""
        for host, ip in ((self.client, self.broker_ip), (self.broker, self.client_ip)):
            for kind in ("blackhole", "unreachable"):
                try:
                    _ip("-n", host, "route", "del", kind, ip)
                except OSError:
                    pass


CUTS = ("both", "to-broker", "to-client", "refused")
