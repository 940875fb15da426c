"""Nodes: the processes of a run, each on a host of its own: name server and brokers; clients.py has more.

A node lives by start(); it ends by stop(), as by SIGTERM, or by a crash. What a crashed process would
still do it does on a network and a disk that are not looked at: the host is dead, and the next process has
another folder. The code is the product's, its options are an operator's.
"""

import asyncio
import math
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.controller.config import ControllerConfig
from pocketmq.controller.controller import Controller
from pocketmq.controller.keeping import FileKeeper
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.server import GrpcServer
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig
from pocketmq.store import MessageStore, StoreError
from pocketmq.store.config_file import LatestFile
from tests.simulation.disk import Disk
from tests.simulation.ledger import Ledger
from tests.simulation.machine import START_MS, Machine
from tests.simulation.network import HOST, Host, Network

NAME_SERVER = "10.0.0.1:9876"
ADDRESSES = {
    "name-server": "10.0.0.1",
    "controller": "10.0.0.2",
    "broker-a": "10.0.1.1",
    "broker-b": "10.0.1.2",
    "broker-c": "10.0.1.3",
    "producer-1": "10.0.2.1",
    "reader-1": "10.0.3.1",
    "reader-2": "10.0.3.2",
    "reader-3": "10.0.3.3",
    "ordered-1": "10.0.4.1",
    "ordered-2": "10.0.4.2",
    "isolated-1": "10.0.5.1",
    "isolated-2": "10.0.5.2",
    "isolated-3": "10.0.5.3",
    "popper-1": "10.0.6.1",
    "popper-2": "10.0.6.2",
    "sorted-1": "10.0.7.1",
    "receiver-1": "10.0.8.1",
}
BROKER_PORT, GRPC_PORT, CONTROLLER_PORT = 10_911, 8_081, 9_878
HEARTBEAT_MS = 3_000
SETTINGS: dict[str, object] = {
    "listenPort": BROKER_PORT,
    "fastListenEnable": "false",
    "namesrvAddr": NAME_SERVER,
    "mappedFileSizeCommitLog": 32 << 10,
    "mappedFileSizeConsumeQueue": 200 * 20,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
    "mappedFileSizeTimerLog": 64 << 10,
    "deliveryRecordSize": 64 << 10,
    "diskMaxUsedSpaceRatio": 99,
    "diskSpaceCleanForciblyRatio": 1.0,
    "diskSpaceWarningLevelRatio": 1.0,
    "transactionCheckInterval": 6_000,
    "transactionTimeOut": 3_000,
    "isolateKeepTime": 5_000,
}
QUEUE_COUNT = 3
RESTART_MS = 2_000


class NodeClock:
    """The clock of one machine: its wall clock may be wrong."""

    def __init__(self, machine: Machine) -> None:
        self._loop = machine.loop
        self.wrong_ms = 0

    def now_ms(self) -> int:
        return START_MS + round(self._loop.now_s * 1000) + self.wrong_ms

    def monotonic_ms(self) -> int:
        return round(self._loop.now_s * 1000)


class Node:
    """One process after the other on one machine."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        network: Network,
        tasks: asyncio.TaskGroup,
        ledger: Ledger,
    ) -> None:
        self.name = name
        self.ip = ADDRESSES[name]
        self.clock = NodeClock(machine)
        self.ledger = ledger
        self._machine = machine
        self._network = network
        self._tasks = tasks
        self._generation = 0
        self._ending = asyncio.Event()
        self.host: Host | None = None
        self.ready = False
        # Wanted: should it end by itself, it is started again, as by systemd.
        self.wanted = False

    @property
    def now_s(self) -> float:
        return self._machine.loop.now_s

    def start(self) -> None:
        if self.host is not None and self.host.up:
            return
        self.wanted = True
        self._generation += 1
        self.host = self._network.host(self.ip)
        self._ending = asyncio.Event()
        self._tasks.create_task(self._live(self.host, self._ending), name=self.name)

    def stop(self) -> None:
        """As SIGTERM: it ends in its own time."""
        self.wanted = False
        self._ending.set()

    def crash(self, *, silently: bool) -> None:
        self.wanted = False
        if self.host is not None and self.host.up:
            self.ledger.say(self.now_s, f"{self.name} is down")
            self.host.die(silently=silently)
            self.ready = False
            # Not at once: this may be called amid one of its own calls.
            self._machine.loop.call_soon(self._ending.set)

    async def _live(self, host: Host, ending: asyncio.Event) -> None:
        HOST.set(host)
        try:
            await self._process(host, ending)
        except (OSError, StoreError, PocketMQError) as error:
            if host.up:
                # Not the place of this run's files, which no other run has.
                why = re.sub(r"/\S*/pocketmq-simulation-[^/]+/", "", repr(error))
                self.ledger.say(self.now_s, f"{self.name} ended by itself: {why}")
                if self.ready:
                    self.ledger.fault(self.now_s, f"{self.name} served and ended by {error!r}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            if host.up:
                self.ledger.fault(self.now_s, f"{self.name} died of {_cause(error)}")
        if host.up:
            host.die(silently=False)
            self.ready = False
            self.ledger.say(self.now_s, f"{self.name} ended")
            if self.wanted:
                self._machine.loop.call_later(RESTART_MS / 1000, self.start_again)

    def start_again(self) -> None:
        if self.wanted:
            self.start()

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        raise NotImplementedError


def _cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)


class NameServerNode(Node):
    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        config = NamesrvConfig(listen_port=9876, bind_address=self.ip)
        async with NameServer(config, self.clock) as server:
            await server.listen()
            self.ready = True
            await ending.wait()


class ControllerNode(Node):
    """One controller with a file. running: what runs."""

    def __init__(self, *parts: Any) -> None:
        super().__init__("controller", *parts)
        self.disk: Disk = self._machine.disk(self.name)
        self.running: Controller | None = None

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        config = ControllerConfig(
            bind_address=self.ip, heartbeat_timeout=HEARTBEAT_MS, listen_port=CONTROLLER_PORT
        )
        keeper = FileKeeper(LatestFile(os.path.join(self.disk.root, "controller.json")))
        async with Controller(config, self.clock, keeper) as running:
            await running.listen()
            if host.up:
                self.running, self.ready = running, True
            await ending.wait()

    def kill(self) -> None:
        self._end(self.disk.after_kill, silently=False)

    def cut_power(self) -> None:
        self._end(self.disk.after_power_cut, silently=True)

    def _end(self, disk: Callable[[], object], *, silently: bool) -> None:
        if self.host is not None and self.host.up:
            disk()
            self.running = None
            self.crash(silently=silently)


class BrokerNode(Node):
    """disk: of its machine. broker: what runs; store, offsets: of that, for the checks."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        network: Network,
        tasks: asyncio.TaskGroup,
        ledger: Ledger,
        settings: dict[str, object],
    ) -> None:
        super().__init__(name, machine, network, tasks, ledger)
        self.disk: Disk = machine.disk(name)
        self.broker: Broker | None = None
        # Set by the run.
        self.serves_sdks = False
        self.before_kill: Callable[[], None] = lambda: None
        self.before_cut: Callable[[], None] = lambda: None
        # When its power was cut; when its processes began and ended to serve.
        self.power_cuts_s: list[float] = []
        self._lives_s: list[tuple[float, float]] = []
        # When its processes were started: they take messages before they say that they serve.
        self._starts_s: list[float] = []
        # When an fsync of the log failed.
        self._failed_syncs_s: list[float] = []
        self.disk.on_failed_sync = self._note_failed_sync
        own = {"brokerName": name, "bindAddress": self.ip}
        self.settings: dict[str, object] = {**SETTINGS, **own, **settings}

    async def _process(self, host: Host, ending: asyncio.Event) -> None:
        self._starts_s.append(self.now_s)
        values = {name: str(value) for name, value in self.settings.items()}
        config, store_config = read_broker_conf({**values, "storePathRootDir": self.disk.root})
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(Broker(config, store_config, clock=self.clock))
            if self.serves_sdks:
                front = GrpcServer(broker, GrpcConfig(port=GRPC_PORT), tls=ServerTls(TlsConfig()))
                await stack.enter_async_context(front)
            if host.up:
                self.broker = broker
                self.ready = True
                self._lives_s.append((self.now_s, math.inf))
                self.ledger.say(self.now_s, f"{self.name} serves")
            await ending.wait()
        if host.up:
            self.ledger.say(
                self.now_s, f"{self.name} clean={broker.parts.messages.store.closed_cleanly}"
            )

    def delete_old_files(self) -> None:
        """As retention does with all files but the last, which nothing else does: they have real dates."""
        folder = os.path.join(self.disk.root, "commitlog")
        for name in sorted(os.listdir(folder))[:-1]:
            os.utime(os.path.join(folder, name), (0, 0))
        self.store.delete_expired_files()

    @property
    def store(self) -> MessageStore:
        assert self.broker is not None
        return self.broker.parts.messages.store

    @property
    def offsets(self) -> ConsumerOffsetManager:
        assert self.broker is not None
        return self.broker.parts.tables.offsets

    def knows(self, topic: str) -> bool:
        """Whether clients can get a route to the topic."""
        assert self.broker is not None
        return self.broker.parts.tables.topics.get(topic) is not None

    def kill(self) -> None:
        """The process ends between two of its instructions; the machine stays up."""
        if self.host is not None and self.host.up:
            self.before_kill()
            self.disk.after_kill()
            self._gone()
            self.crash(silently=False)

    def cut_power(self) -> None:
        if self.host is not None and self.host.up:
            self.power_cuts_s.append(self.now_s)
            self.before_cut()
            self.disk.after_power_cut()
            self._gone()
            self.crash(silently=True)

    def longest_life_s(self, low_s: float, high_s: float) -> float:
        """How long one process could flush without a break between two times: no other process flushes."""
        return max(
            (min(end, high_s) - max(begin, low_s) for begin, end in self._lives_s), default=0
        )

    def failed_syncs_s(self) -> list[tuple[float, float]]:
        """When an fsync of the log failed, and when the next process was started."""
        return [
            (failed, min((start for start in self._starts_s if start > failed), default=math.inf))
            for failed in self._failed_syncs_s
        ]

    def _note_failed_sync(self, path: str) -> None:
        """After a failed fsync the store takes no messages; what the log had not written may be gone."""
        if "commitlog" in path:
            self._failed_syncs_s.append(self.now_s)
            self._no_more_flushes()

    def _no_more_flushes(self) -> None:
        if self._lives_s:
            began_s, ended_s = self._lives_s[-1]
            self._lives_s[-1] = began_s, min(ended_s, self.now_s)

    def _gone(self) -> None:
        if self.broker is not None:
            self._no_more_flushes()
        self.broker = None
        self.disk.on_call = None

    def crash_at_call(self, number: int, *, power: bool, then: Callable[[], None]) -> None:
        """Crash before the disk is asked for the `number`th time from now."""
        left = number

        def on_call(call: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.ledger.say(self.now_s, f"{self.name} crashes before {call}")
                if power:
                    self.cut_power()
                else:
                    self.kill()
                then()

        self.disk.on_call = on_call
