"""Controller: the tables, their handlers, elections and notices, composed.

    async with Controller(config, clock, FileKeeper(file)) as controller:
        address = await controller.listen()

1. A master is replaced when its heartbeats stop for its own time-out, or when its connection closes and its
   port does not accept connections any more. While the port accepts, only the connection is lost: the broker
   has _AGAIN_S to send a heartbeat over another. RocketMQ elects at once, also after a reset by a middle box.
   Of the others no candidate is one whose machine does not answer at all, though its last heartbeat is less
   than 10 s old. If none does, perhaps for a firewall, those are that send another heartbeat within _AGAIN_S.
2. After each election all living brokers of the name are notified (1008), once and without an answer; a lost
   notice costs a broker its poll's interval.
3. While no controller leads, brokers keep their roles, and no other master is elected (keeping.py).
4. Heartbeats go to every controller, so one that begins to lead knows who lives. It replaces no master for
   its silence before it has led for a heartbeat's time-out: it may have been frozen itself.
Source: ControllerManager, RocketMQ 5.5.0.
"""

import asyncio
import logging
from typing import Any, Self

from pocketmq.controller.config import ControllerConfig
from pocketmq.controller.keeping import Keeper, Load
from pocketmq.controller.living import LiveReplica, Living
from pocketmq.controller.processors import ControllerProcessors, master_header, set_body
from pocketmq.controller.sets import ControllerRefused, ReplicaSet, ReplicaSets
from pocketmq.remoting.admin_headers import NO_BROKER
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.log_levels import start_with_levels
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.server import RemotingServer

log = logging.getLogger(__name__)

_KNOCK_S, _KNOCK_AGAIN_S = 0.5, 0.05
_AGAIN_S = 1.5


class Controller:
    """One controller. address: `ip:port` as brokers are given it, once it listens."""

    def __init__(self, config: ControllerConfig, clock: Clock, keeper: Keeper) -> None:
        self.config = config
        self.group = config.group
        self.address = ""
        self._clock = clock
        self.keeper = keeper
        self.sets = ReplicaSets(keeper.keep)
        self.living = Living(clock.monotonic_ms(), config.heartbeat_timeout)
        processors = ControllerProcessors(self.sets, self.living, self, clock.monotonic_ms, config)
        self._server = RemotingServer(processors.handlers(), clock, on_close=self._closed)
        self._client = RemotingClient({}, clock)
        self._is_closing = False

    async def __aenter__(self) -> Self:
        start_with_levels(self.config.log_levels)
        await self._client.__aenter__()
        await self._server.__aenter__()
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._running: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        for task in list(self._running):
            task.cancel()
        # The body's exception is not passed in: it propagates as itself, not in an ExceptionGroup.
        await self._tasks.__aexit__(None, None, None)
        await self._server.__aexit__(None, None, None)
        await self._client.__aexit__(None, None, None)

    async def listen(self) -> str:
        """Listen on the configured address, and begin; return the address for brokers.

        Raises: OSError; KeyError, TypeError, ValueError: the sets cannot be read.
        """
        config = self.config
        host, port = await self._server.listen(config.bind_address, config.listen_port)
        own = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.address = config.advertised_address or own
        await self.keeper.start(self.address, self._begin_to_lead)
        self._begin(self.keeper.run(), "controller-keeper")
        self._begin(self._scan(), "controller-scan")
        return self.address

    async def _begin_to_lead(self, load: Load) -> None:
        await self.sets.begin(load)
        self.living.begin(self._clock.monotonic_ms())

    # ------------------------------------------------------------ elections

    async def elect(self, name: str, broker_id: int, *, designated: bool) -> ReplicaSet:
        """See processors.Electing."""
        known = self.sets.sets.get(name)
        master = None if known is None else known.master
        silent = master is not None and self.living.get(name, master) is None
        unheard = silent and self.living.may_be_alive(name, master or 0, self._clock.monotonic_ms())
        found = await self.sets.elect(
            name,
            broker_id,
            await self._candidates(name, None if designated else known),
            designated=designated,
            may_replace=designated or not unheard,
        )
        log.warning(
            "elected name=%s master=%s epoch=%d before=%s",
            name,
            found.master,
            found.master_epoch,
            master,
        )
        self._notify(found)
        return found

    async def _candidates(self, name: str, known: ReplicaSet | None) -> dict[int, LiveReplica]:
        """Return the brokers that may be elected for a dead master (invariant 1)."""
        live = self.living.of(name)
        if known is None or not known.master_epoch or known.master in live:
            return live
        live = {n: each for n, each in live.items() if n in known.in_sync}
        silent = await asyncio.gather(*(_is_silent(each.address) for each in live.values()))
        found = {n: live[n] for n, is_silent in zip(live, silent, strict=True) if not is_silent}
        until_s = asyncio.get_running_loop().time() + _AGAIN_S
        while live and not found and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(_KNOCK_AGAIN_S)
            now = self.living.of(name)
            found = {n: now[n] for n, each in live.items() if n in now and now[n] is not each}
        return found

    def _notify(self, found: ReplicaSet) -> None:
        """Apply invariant 2."""
        header, body = master_header(found).ext(), set_body(found)
        for broker_id in self.living.of(found.name):
            replica = found.replicas.get(broker_id)
            if replica is not None:
                notice = RemotingCommand(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, dict(header), body)
                self._begin(self._tell(replica.address, notice), f"notify {replica.address}")

    async def _tell(self, address: str, notice: RemotingCommand) -> None:
        try:
            await self._client.oneway(address, notice)
        except (OSError, RemotingError) as error:
            log.warning("not notified address=%s reason=%s", address, error)

    async def _replace(self, dead: LiveReplica) -> None:
        """Elect another master for a broker that has died, if it led."""
        known = self.sets.sets.get(dead.name)
        if not self.keeper.leads or known is None or known.master != dead.broker_id:
            return
        try:
            await self.elect(dead.name, NO_BROKER, designated=False)
        except ControllerRefused as refused:
            log.error("no master name=%s reason=%s", dead.name, refused)
            self._notify(self.sets.sets[dead.name])
        except OSError:
            log.exception("the sets cannot be kept: no election name=%s", dead.name)

    # ------------------------------------------------------------ deaths

    def _begin(self, coroutine: Any, name: str) -> None:
        if self._is_closing:
            coroutine.close()
            return
        task = self._tasks.create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _closed(self, connection: Connection) -> None:
        for live in self.living.over(connection):
            self._begin(self._look_after(live), f"look after {live.address}")

    async def _look_after(self, live: LiveReplica) -> None:
        """Find out whether a broker whose connection closed has died (invariant 1)."""
        # A process that is killed closes its sockets one by one: the port may accept a moment longer.
        until_s = asyncio.get_running_loop().time() + _AGAIN_S
        while await _accepts(live.address) and not self.living.is_newer(live):
            if asyncio.get_running_loop().time() > until_s:
                break
            await asyncio.sleep(_KNOCK_AGAIN_S)
        if not self.living.is_newer(live) and self.living.get(live.name, live.broker_id):
            log.warning("a broker has died name=%s id=%d", live.name, live.broker_id)
            self.living.declare_dead(live)
            await self._replace(live)

    async def _scan(self) -> None:
        """Declare brokers dead whose heartbeats have stopped, and replace masters never heard of."""
        last_ms = self._clock.monotonic_ms()
        while True:
            await asyncio.sleep(self.config.scan_not_active_broker_interval / 1000)
            now_ms = self._clock.monotonic_ms()
            if now_ms - last_ms > self.config.heartbeat_timeout:
                log.warning(
                    "this controller was frozen for %d ms: deaths are not counted", now_ms - last_ms
                )
                self.living.begin(now_ms)
            last_ms = now_ms
            for live in self.living.expire(now_ms):
                log.warning("no heartbeat any more name=%s id=%d", live.name, live.broker_id)
                await self._replace(live)
            for name, known in list(self.sets.sets.items()) if self.keeper.leads else ():
                master = known.master
                if master is None:
                    ready = any(n in known.in_sync for n in self.living.of(name))
                else:
                    ready = not self.living.may_be_alive(name, master, now_ms)
                if ready:
                    await self._elect_by_itself(name)

    async def _elect_by_itself(self, name: str) -> None:
        try:
            await self.elect(name, NO_BROKER, designated=False)
        except ControllerRefused as refused:
            log.info("no master yet name=%s reason=%s", name, refused)
        except OSError:
            log.exception("the sets cannot be kept: no election name=%s", name)


async def _accepts(address: str) -> bool:
    """Return True if a port accepts connections."""
    return await _knock(address) is None


async def _is_silent(address: str) -> bool:
    """Return True if a machine neither accepts nor refuses a connection."""
    return isinstance(await _knock(address), TimeoutError)


async def _knock(address: str) -> Exception | None:
    """Return why a port accepts no connection; None: it does."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_KNOCK_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError) as error:
        return error
    writer.close()
    return None
