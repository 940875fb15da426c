"""BrokerProcess: one broker of `up --brokers N` in a separate process, kept running.

    parent                                        child
    forks it .....................................  waits
    the name server listens
    its arguments, one line on its standard input .. begins as `pocketmq broker` with them
    reads `ready ...` from its standard output ..... serves

A child that dies is restarted on its port and folder, so its messages are back; the pause before that doubles
with each death in a row.
"""

import asyncio
import json
import logging
import os
import signal
from dataclasses import dataclass
from typing import Protocol

from pocketmq.broker.health import Health
from pocketmq.cli.exits import CannotBegin, ExitCode
from pocketmq.cli.servers.child_process import Child, spawned

log = logging.getLogger(__name__)

COMMAND = "broker-process"
# A clean stop writes the tables and the log's last pages; a disk that needs longer is broken.
STOP_TIME_S = 60
_PAUSE_MIN_MS, _PAUSE_MAX_MS = 200, 30_000
# A broker that served for so long is well: the next death is the first one again.
_WELL_AFTER_MS = 60_000


class Serve(Protocol):
    """Runs one of the servers until it is stopped: pocketmq.cli.servers.server.serve."""

    def __call__(
        self, role: str, arguments: list[str], *, until_input_ends: bool = False
    ) -> ExitCode: ...


def wait_and_serve(serve: Serve) -> ExitCode:
    """Run the child: wait for the arguments, serve until the input ends. Raises: CannotBegin."""
    # Import ahead in a spawned child (a forked one has it already): most of a broker's start.
    import pocketmq.cli.servers.broker_server

    assert pocketmq.cli.servers.broker_server
    with os.fdopen(0, "rb", closefd=False) as given:
        line = given.readline()
    if not line.endswith(b"\n"):
        return ExitCode.OK
    return serve("broker", json.loads(line), until_input_ends=True)


def pause_ms(previous_ms: int, served_ms: int) -> int:
    """Return how long to wait before restarting a broker that died.

    previous_ms: the previous pause, 0 for none. served_ms: how long it served since.

    >>> pause_ms(0, 10), pause_ms(200, 10), pause_ms(25_600, 10), pause_ms(25_600, 60_000)
    (200, 400, 30000, 200)
    """
    if previous_ms == 0 or served_ms >= _WELL_AFTER_MS:
        return _PAUSE_MIN_MS
    return min(previous_ms * 2, _PAUSE_MAX_MS)


def ending(code: int | None) -> str:
    """Describe how a process ended.

    >>> ending(-9), ending(2), ending(0)
    ('SIGKILL', 'exit code 2', 'exit code 0')
    """
    if code is not None and code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


@dataclass(slots=True)
class ManagedBroker:
    """One of the brokers. port: 0 until a free one is chosen; arguments: of `broker`, except for the port."""

    name: str
    folder: str
    port: int
    arguments: list[str]

    def order(self) -> bytes:
        """Return the line that turns a waiting child into this broker."""
        return json.dumps([*self.arguments, "--port", str(self.port)]).encode() + b"\n"


class BrokerProcess:
    """Owner of one child process, from its arguments to its end.

    Attributes: member, address (`ip:port`, empty before it was ready), metrics_url and grpc (of its own
    ports; may be empty), is_ready (an event: it has served once), pid (of the current child).
    """

    def __init__(self, member: ManagedBroker, child: Child) -> None:
        self.member = member
        self.address = ""
        self.metrics_url = self.grpc = ""
        self.is_ready = asyncio.Event()
        self._is_serving = False
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    def reload(self) -> None:
        """Have the process read its certificates and settings again, once it serves."""
        if self._is_serving:
            self._child.signal(signal.SIGHUP)

    def health(self) -> Health:
        """Return whether the current process serves."""
        found = Health(self.member.name, self.address)
        found.check(
            "running",
            ok=self._is_serving,
            reason="its process has ended and is being restarted",
        )
        return found

    async def keep_running(self, stop: asyncio.Event) -> None:
        """Keep the child running until `stop` is set or this is cancelled; then it has ended.

        Raises: CannotBegin if its very first start fails.
        """
        pause = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._live_once(stop)
            finally:
                await self._end_child()
            if stop.is_set():
                return
            how = ending(self._child.returncode)
            if not self.is_ready.is_set():
                raise CannotBegin(
                    f"broker {self.member.name} could not start ({how}); its own last line says why"
                )
            pause = pause_ms(pause, int((loop.time() - began) * 1000))
            log.error(
                "a broker died and is being restarted name=%s how=%s in_ms=%d store=%s",
                self.member.name,
                how,
                pause,
                self.member.folder,
            )
            try:
                async with asyncio.timeout(pause / 1000):
                    await stop.wait()
                return
            except TimeoutError:
                pass
            self._child = spawned([COMMAND])

    async def _live_once(self, stop: asyncio.Event) -> None:
        """Run one life of the child: its arguments, its ready line, its end (or `stop`)."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._child.output
        )
        try:
            self._child.input.write(self.member.order())
            async with asyncio.TaskGroup() as tasks:
                living = tasks.create_task(self._follow(reader), name=f"broker {self.member.name}")
                stopping = tasks.create_task(stop.wait(), name="stop")
                await asyncio.wait((living, stopping), return_when=asyncio.FIRST_COMPLETED)
                living.cancel()
                stopping.cancel()
        except BrokenPipeError:
            # It died before it read its arguments.
            return
        finally:
            self._is_serving = False
            transport.close()

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        """Read the child's output until it closes, which is the child's end."""
        line = await reader.readline()
        if line.startswith(b"ready "):
            said = dict(word.split("=", 1) for word in line.decode().split()[1:])
            self.address = said["broker"]
            self.metrics_url = said.get("metrics", "")
            self.grpc = said.get("grpc", "")
            self._is_serving = True
            # Clients know the address by now: a restart must come back to it.
            self.member.port = int(self.address.rpartition(":")[2])
            if self.is_ready.is_set():
                log.warning("a broker serves again name=%s pid=%d", self.member.name, self.pid)
            self.is_ready.set()
        while await reader.read(4096):
            pass

    async def _end_child(self) -> None:
        """End the process. Even if cancelled, this waits: the child's time is limited, and so is this."""
        ended = asyncio.get_running_loop().run_in_executor(None, self._child.end, STOP_TIME_S)
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                continue
        if not ended.result():
            log.error(
                "a broker did not stop within %d s and was killed name=%s",
                STOP_TIME_S,
                self.member.name,
            )
