"""InProcess: name server and broker in this process, on free ports, in a thread of their own.

A thread, so that plain tests, blocking clients and other event loops can use it like any server. The store is
a folder with small files, in memory if the machine supports that, and is removed by stop(), or by the next
start if the process was killed. restart() keeps ports and store. Everything else ends with stop(): thread,
loop, sockets, tasks.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from pocketmq.broker.broker import Broker
from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.client.sync.loop_thread import LoopThread
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.server import GrpcServer
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig
from pocketmq.testing.clock import AdvancingClock, AdvancingLoop
from pocketmq.testing.folders import MEMORY, TEMPORARY, RunFolder
from pocketmq.testing.server import PocketMQ
from pocketmq.testing.server_calls import ServerCalls
from pocketmq.testing.settings import check_settings

STORES = (MEMORY, TEMPORARY)

SETTINGS: Mapping[str, object] = {
    "brokerName": "pocketmq",
    "bindAddress": "127.0.0.1",
    "listenPort": 0,
    "fastListenEnable": "false",
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 2_000 * 20,
    "maxHashSlotNum": 2_000,
    "maxIndexNum": 8_000,
    "mappedFileSizeTimerLog": 1 << 20,
    "deliveryRecordSize": 1 << 20,
    # How full the developer's disk is must not decide a test; nor may advanced time delete what it sent.
    "diskMaxUsedSpaceRatio": 99,
    "diskSpaceCleanForciblyRatio": 1.0,
    "diskSpaceWarningLevelRatio": 1.0,
    "fileReservedTime": 24 * 365 * 100,
    # A transaction whose outcome is unknown is asked about as soon as the clock was advanced.
    "transactionCheckInterval": 6_000,
}
"""Keys of broker.conf that a broker of a test has; `config` is laid over them."""

_TURNS = 20


class InProcess(PocketMQ):
    """A server of this process. `running`: the Broker, for tests that look inside, in its own thread."""

    running: Broker

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        store: str = MEMORY,
        clock: AdvancingClock | None = None,
    ) -> None:
        """config: keys of broker.conf. store: "memory", "temporary", or a folder that is kept.

        clock: an own one when not given; brokers that share one advance together.
        Raises: IllegalArgument for a key that does not exist.
        """
        check_settings(config or ())
        self._config = {
            name: _text(value) for name, value in {**SETTINGS, **(config or {})}.items()
        }
        self._clock = clock or AdvancingClock()
        self._store = store
        self._folder: RunFolder | None = None
        self._namesrv_port = self._grpc_port = 0
        self._is_running = False

    @property
    def clock(self) -> AdvancingClock:
        return self._clock

    @property
    def store(self) -> str:
        """Return the folder of the store."""
        if self._store not in STORES:
            return self._store
        if self._folder is None:
            self._folder = RunFolder(self._store)
        return self._folder.path

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start the server. Raises: OSError (a requested port is taken), StoreError, IllegalArgument."""
        if self._is_running:
            raise RuntimeError("this server is running already: stop it first, or make another one")
        self._thread = LoopThread("pocketmq-testing", self._enter, new_loop=AdvancingLoop)
        try:
            self._thread.start()
        except BaseException:
            self._remove()
            raise
        self._is_running = True
        self._clock.on_advance.append(self._advanced)
        return self

    def stop(self) -> None:
        try:
            self._halt()
        finally:
            self._remove()

    def restart(self) -> None:
        """Stop cleanly and start again with the same store and ports."""
        self._halt()
        self.start()

    async def _enter(self, stack: AsyncExitStack) -> None:
        name_server = NameServer(
            NamesrvConfig(listen_port=self._namesrv_port, bind_address="127.0.0.1"), self._clock
        )
        await stack.enter_async_context(name_server)
        self.namesrv = await name_server.listen()
        settings = {**self._config, "storePathRootDir": self.store}
        grpc_config = GrpcConfig.taken_from(settings)
        grpc_config.port = self._grpc_port
        config, store_config = read_broker_conf(settings)
        broker = Broker(config, store_config, clock=self._clock, name_server=name_server.local)
        self.running = await stack.enter_async_context(broker)
        self.broker = broker.address
        grpc = GrpcServer(broker, grpc_config, tls=ServerTls(TlsConfig()))
        self.grpc = (await stack.enter_async_context(grpc)).address
        self._grpc_port = grpc.port
        self._client = await stack.enter_async_context(ServerCalls(self.namesrv, self._clock))
        self._namesrv_port = int(self.namesrv.rpartition(":")[2])
        self._config["listenPort"] = self.broker.rpartition(":")[2]

    def _halt(self) -> None:
        if self._is_running:
            self._is_running = False
            self._clock.on_advance.remove(self._advanced)
            self._thread.close()

    def _remove(self) -> None:
        folder, self._folder = self._folder, None
        # In a forked child both are the parent's.
        if folder is not None and not self._thread.is_inherited:
            folder.remove()

    # ------------------------------------------------------------ time

    def _advanced(self, seconds: float, silent: bool) -> None:
        """Let the broker see the new time, and wait until it has done what became due."""
        self._call(self._catch_up(seconds, silent))

    async def _catch_up(self, seconds: float, silent: bool) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, AdvancingLoop)
        loop.advance(seconds)
        # The services would do the same as soon as their timers fire: this returns when it is done.
        services = self.running.parts.services
        while 0 in (services.delay.step(), services.timer.step(), services.schedules.step()):
            pass
        # Popped messages are due by monotonic time, so that setting the clock delivers nothing twice.
        if not silent:
            services.pop.log.state.hasten(round(seconds * 1000))
        while services.pop.step():
            pass
        # Timers that fire now may close idle connections, our own among them: the next
        # call must not meet one half closed.
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
