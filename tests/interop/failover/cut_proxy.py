"""A proxy in front of a controller that refuses the connections of some processes, in a thread of its own."""

import asyncio
import contextlib
import os
import random
import threading
from collections.abc import Iterator

from tests.kit.rough_proxy import RoughProxy


class CutProxy(RoughProxy):
    """cut: ids of processes whose connections are ended, and refused."""

    def __init__(self, target: int) -> None:
        super().__init__(target, random.Random(0))
        self._cut: set[int] = set()
        self._by_process: dict[asyncio.StreamWriter, int] = {}

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid = owner_of(writer.get_extra_info("peername")[1], self.port)
        if pid < 0 or pid in self._cut:
            # An end that has left, or one that is to be without the controller.
            return
        self._by_process[writer] = pid
        try:
            await super().join(reader, writer)
        finally:
            del self._by_process[writer]

    def cut_off(self, pid: int) -> None:
        """From the loop's thread."""
        self._cut.add(pid)
        for writer, owner in self._by_process.items():
            if owner == pid:
                writer.transport.abort()

    def let_in(self, pid: int) -> None:
        self._cut.discard(pid)


class Cutter:
    """The proxy, for a program without an event loop."""

    def __init__(self, proxy: CutProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._proxy = proxy
        self.address = f"127.0.0.1:{proxy.port}"

    def cut_off(self, pid: int) -> None:
        self._loop.call_soon_threadsafe(self._proxy.cut_off, pid)

    def lead_to(self, target: int) -> None:
        """Forward new connections to another port."""
        self._loop.call_soon_threadsafe(setattr, self._proxy, "target", target)

    def let_in(self, pid: int) -> None:
        self._loop.call_soon_threadsafe(self._proxy.let_in, pid)


@contextlib.contextmanager
def cutter(target: int) -> Iterator[Cutter]:
    """A proxy in front of 127.0.0.1:`target`."""
    loop = asyncio.new_event_loop()
    proxy = CutProxy(target)
    loop.run_until_complete(proxy.__aenter__())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Cutter(proxy, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(proxy.__aexit__(None, None, None))
        loop.close()


def owner_of(port: int, far_port: int) -> int:
    """The process whose connection on 127.0.0.1 goes from one port to the other; -1 if it has ended."""
    # Both ends: another connection may have the same port here, and one that waits for its end has no owner.
    ends = [f"0100007F:{port:04X}", f"0100007F:{far_port:04X}"]
    with open("/proc/net/tcp", encoding="ascii") as table:
        inode = next((row.split()[9] for row in table if row.split()[1:3] == ends), "")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") == f"socket:[{inode}]":
                        return int(pid)
    return -1
