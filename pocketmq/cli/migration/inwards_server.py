"""The process of `pocketmq migrate --from`: a slave of the old broker first, then the broker itself.

Its settings come from DIR/broker.conf, which is written from the source's settings, and again when this
broker leads: starting a broker with that file gives the same one.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pocketmq.admin import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.config import ASYNC_MASTER, SLAVE
from pocketmq.cli.connecting import client_options
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.migration.inwards import Inwards
from pocketmq.cli.migration.report import MigrationReport, asked, said
from pocketmq.cli.migration.request import MigrationRequest, conf_in
from pocketmq.cli.migration.source import Source
from pocketmq.cli.servers.broker_server import BrokerServer
from pocketmq.cli.servers.event_loop import run
from pocketmq.cli.servers.server_config import read_file
from pocketmq.cli.servers.server_log import start_logging
from pocketmq.cli.servers.server_options import parse
from pocketmq.remoting.settings import format_properties
from pocketmq.store import StoreConfig

# Settings of the source that this broker takes over.
_CARRIED = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerPermission",
    "defaultTopicQueueNums",
    "deleteWhen",
    "enablePropertyFilter",
    "fileReservedTime",
    "flushDiskType",
    "inSyncReplicas",
    "mappedFileSizeCommitLog",
    "maxMessageSize",
    "messageDelayLevel",
    "messageIndexEnable",
    "msgTraceTopicName",
    "regionId",
    "rejectTransactionMessage",
    "slaveTimeout",
    "timerMaxDelaySec",
    "traceTopicEnable",
    "transactionCheckInterval",
    "transactionCheckMax",
    "transactionTimeOut",
)


class InwardsServer:
    """Owner of DIR/broker.conf."""

    def __init__(self, wish: MigrationRequest) -> None:
        self._wish = wish
        self._conf = conf_in(wish.data)
        self._settings: dict[str, str] = {}
        self._leads = False

    def serve(self, source: Source, settings: Mapping[str, str]) -> bool:
        """Serve until stopped. settings: the source's. Returns: whether this broker leads.

        Raises: CannotBegin, PocketMQError, ExceptionGroup of them.
        """
        wish = self._wish
        known = {*BrokerConfig.keys(), *StoreConfig.keys()}
        self._settings = {
            **{name: settings[name] for name in _CARRIED if name in settings and name in known},
            **read_file(wish.config),
            "brokerName": source.name,
            "brokerClusterName": source.cluster,
            "namesrvAddr": wish.name_servers,
            "storePathRootDir": str(self._conf.parent),
        }
        self._write(brokerRole=SLAVE, brokerId=str(source.free_number))
        arguments = ["-c", str(self._conf), "--log-level", "WARNING"]
        # Not for ever: the tables are to be here soon after the log.
        arguments += ["--set", "slaveSyncInterval=500"]
        if wish.port is not None:
            arguments += ["--port", str(wish.port)]
        options = parse("broker", arguments)
        start_logging(options)
        server = BrokerServer(options, os.environ)
        role = settings.get("brokerRole", ASYNC_MASTER)

        def beside(broker: Broker, stop: asyncio.Event) -> AbstractAsyncContextManager[None]:
            return self._migrate(broker, stop, role)

        run(lambda stop: server.serve(stop, beside))
        if server.failure:
            raise CannotBegin(server.failure)
        return self._leads

    def _write(self, **more: str) -> None:
        self._conf.parent.mkdir(parents=True, exist_ok=True)
        self._conf.write_text(format_properties({**self._settings, **more}), "utf-8")

    @asynccontextmanager
    async def _migrate(self, broker: Broker, stop: asyncio.Event, role: str) -> AsyncIterator[None]:
        """Run the migration; entered once this broker leads, or `stop` is set."""
        wish = self._wish
        async with (
            Admin(**client_options(wish.name_servers)) as admin,
            asyncio.TaskGroup() as tasks,
        ):
            source = await Source.found(admin, wish.name)
            inwards = Inwards(
                broker,
                source,
                MigrationReport(said, self._confirm),
                route_ms=wish.route_ms,
                role=role,
            )
            work = tasks.create_task(inwards.run(), name="migrate")
            stopping = tasks.create_task(stop.wait(), name="stop")
            await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not (work.done() or inwards.leads):
                work.cancel()
            await asyncio.wait((work,))
            self._leads = inwards.leads and not work.cancelled() and work.exception() is None
            if not self._leads:
                stop.set()
                if not source.refuses_sends:
                    said("nothing was changed at the source")
                yield
                return
            config = broker.config
            self._write(
                brokerRole=role,
                brokerId="0",
                listenPort=str(config.listen_port),
                bindAddress=config.listen_address,
                brokerIP1=config.broker_ip1,
            )
            said(f"from now on, start it with: pocketmq broker -c {self._conf}")
            seeing_out = tasks.create_task(
                self._see_out(inwards, source), name="wait for the source to stop"
            )
            try:
                yield
            finally:
                seeing_out.cancel()

    async def _confirm(self, what: str) -> None:
        """Ask, while the broker keeps following. Raises: MigrationRefused."""
        if not self._wish.yes:
            await asked(what)

    async def _see_out(self, inwards: Inwards, source: Source) -> None:
        """Have the source stopped, by the command or by the user."""
        command = self._wish.stop_command
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(inwards.keep_route(), name="keep the route")
            if command is None:
                said(
                    f"stop the old broker at {source.address} now: it refuses sends, and no "
                    f"client is directed to it"
                )
                return
            process = await asyncio.create_subprocess_shell(
                command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr
            )
            code = await process.wait()
            said(f"the old broker is stopped: {command!r} ended with {code}")
