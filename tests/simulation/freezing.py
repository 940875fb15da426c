"""Freezing: SIGSTOP and SIGCONT of the process of a simulated host.

What a frozen process would do is held, in its order, and done once it is thawed: its machine still takes
connections and bytes for it, and time passes.
"""

import asyncio
import operator
from typing import Any
from unittest import mock

from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import HOST, Host

_RUN: Any = vars(asyncio.Handle)["_run"]
_context_of = operator.attrgetter("_context")


class Freezer:
    """Every frozen process of a run. To be ended before the run ends."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._held: dict[Host, list[asyncio.Handle]] = {}
        # Only while a host is frozen: this is asked before each callback.
        self._patch = mock.patch.object(asyncio.Handle, "_run", self._run_or_hold())

    def _run_or_hold(self) -> Any:
        held = self._held

        def run(handle: asyncio.Handle) -> None:
            mine = held.get(_context_of(handle).get(HOST))
            if mine is None:
                _RUN(handle)
            else:
                mine.append(handle)

        return run

    def freeze(self, host: Host) -> None:
        if not self._held:
            self._patch.start()
        self._held.setdefault(host, [])
        host.is_frozen = True

    def thaw(self, host: Host) -> None:
        """Also before it is killed."""
        if host not in self._held:
            return
        host.is_frozen = False
        for handle in self._held.pop(host):
            self._loop.call_soon(_begin, handle)
        if not self._held:
            self._patch.stop()

    def end(self) -> None:
        for host in list(self._held):
            self.thaw(host)


def _begin(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        _RUN(handle)
