"""A broker in a process of its own that measures the turns of its event loop.

    python -m tests.faults.watched_broker FOLDER SETTINGS

SETTINGS: {"broker": {...}, "store": {...}, "loop": "uvloop" or "asyncio"}.

It prints its addresses, the classic one and that for gRPC. A line `worst` of standard input is answered with
the longest turn since the last such question, in ms. The end of standard input stops the broker.

A turn is measured as CPU time of the loop's thread between two ticks of a timer of 1 ms. No client is
answered within a turn, so it is what one makes the others wait for, however busy the machine is.
"""

import asyncio
import json
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

import numpy  # noqa: F401 - the store imports it with the first index entry

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.servers.event_loop import new_loop
from pocketmq.cli.servers.listening import settle
from pocketmq.cli.servers.server_log import start_logging
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.server import GrpcServer
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig
from pocketmq.store import StoreConfig

_TICK_S = 0.001
_LONG_S = 0.03


class Turns:
    """The longest turn of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last_ns = time.thread_time_ns()
        self._worst_ns = 0
        signal.signal(signal.SIGVTALRM, _say_where)
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time_ns()
        self._worst_ns = max(self._worst_ns, now - self._last_ns)
        self._last_ns = now
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        # Who takes longer than this finds the place in the log.
        signal.setitimer(signal.ITIMER_VIRTUAL, _LONG_S)

    def stop(self) -> None:
        """Measure no more."""
        self._timer.cancel()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def take_worst_ms(self) -> float:
        """The longest since the last call."""
        self._tick_now()
        worst, self._worst_ns = self._worst_ns, 0
        return worst / 1e6

    def _tick_now(self) -> None:
        self._timer.cancel()
        self._tick()


def _say_where(_number: int, frame: FrameType | None) -> None:
    sys.stderr.write(f"a long turn is here:\n{''.join(traceback.format_stack(frame)[-8:])}\n")


async def _serve(folder: Path, settings: dict[str, dict[str, object]]) -> None:
    config = BrokerConfig(broker_name="b", listen_port=0, **settings.get("broker", {}))  # type: ignore[arg-type]
    store = StoreConfig(store_path_root_dir=str(folder), **settings.get("store", {}))  # type: ignore[arg-type]
    async with (
        Broker(config, store, tls=ServerTls(TlsConfig())) as broker,
        GrpcServer(broker, GrpcConfig(port=0)) as grpc,
    ):
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        sys.stdout.write(f"{broker.listen_address} {grpc.address}\n")
        sys.stdout.flush()
        settle()
        turns = Turns()
        while line := await lines.readline():
            assert line == b"worst\n", line
            sys.stdout.write(f"{turns.take_worst_ms()}\n")
            sys.stdout.flush()
        turns.stop()


if __name__ == "__main__":
    start_logging(ServerOptions("broker"))
    settings = json.loads(sys.argv[2])
    if settings.pop("loop") == "asyncio":
        # As where it is not installed.
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(Path(sys.argv[1]), settings))
