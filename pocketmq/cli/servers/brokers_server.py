"""`pocketmq up --brokers N`, `--replicas N`: a name server here, and N brokers in separate processes.

One command, one ready line, one stop. Which brokers: broker_set. How one is kept running: broker_process.
Leaving stops the brokers first and the name server last, so that each one still unregisters.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from pocketmq.broker.ha.config import SLAVE, SYNC_MASTER
from pocketmq.cli.address import check_advertised
from pocketmq.cli.servers.broker_process import (
    STOP_TIME_S,
    BrokerProcess,
    ManagedBroker,
    Serve,
    wait_and_serve,
)
from pocketmq.cli.servers.broker_server import BrokerServer
from pocketmq.cli.servers.broker_set import check_settings, folder_of, name_of, port_of
from pocketmq.cli.servers.child_process import Child, forked
from pocketmq.cli.servers.controller_server import controller_config, start_controller
from pocketmq.cli.servers.hangup import reload_certificates, watch_certificates
from pocketmq.cli.servers.listening import check_port, say_ready
from pocketmq.cli.servers.namesrv_server import start_name_server
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.controller import Controller
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.transport.tls import ServerTls

log = logging.getLogger(__name__)

# With a controller: how long the line `ready` waits until a broker leads and all are in sync.
_ELECTION_S = 20.0
_LOOK_S = 0.05
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "[::1]"}


def begin(
    options: ServerOptions, environment: Mapping[str, str], count: int, serve: Serve
) -> "BrokersServer":
    """Return the server of `count` brokers, whose processes wait for their arguments. Raises: CannotBegin."""
    checked = BrokerServer(options, environment)
    check_settings(checked.settings(), checked.parts[0].listen_port, count)
    children: list[Child] = []
    for _ in range(count):
        # Now or never: soon this process has an event loop.
        children.append(forked(partial(wait_and_serve, serve), children))
    return BrokersServer(options, checked, children)


class BrokersServer:
    """Owner of the name server and of the broker processes."""

    failure = ""

    def __init__(
        self,
        options: ServerOptions,
        checked: BrokerServer,
        children: Sequence[Child],
    ) -> None:
        """checked: the settings as a single broker would use them."""
        config, store_config, namesrv, tls = checked.parts
        assert namesrv is not None
        self._checked = checked
        self._options = options
        self._config = config
        self._data = store_config.store_path_root_dir
        self._namesrv = namesrv
        self._server_tls = ServerTls(tls)
        self._processes: list[BrokerProcess] = []
        self._children = children
        self._replicas = options.replicas is not None
        # Those that follow are there for the messages that they have (broker_set, invariant 3).
        self._writable = options.brokers or len(children)

    def settings(self) -> dict[str, str]:
        """Return every setting of the first broker."""
        return self._checked.settings()

    @property
    def origins(self) -> dict[str, str]:
        """Return where settings that are not defaults are from."""
        return self._checked.origins

    def reload(self) -> None:
        """Read certificates and settings again, here and in each process (hangup.py)."""
        reload_certificates((self._server_tls,))
        for process in self._processes:
            process.reload()

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        async with AsyncExitStack() as stack:
            await watch_certificates(stack, (self._server_tls,))
            for child in self._children:
                stack.callback(child.end, STOP_TIME_S)
            check_advertised(self._config.broker_ip1)
            for number in range(len(self._children)):
                port = port_of(self._config.listen_port, number)
                check_port(self._config.listen_address, port, "--broker-port")
            name_server = await start_name_server(
                stack, self._namesrv, "--namesrv-port", self._server_tls
            )
            controller = await self._start_controller(stack)
            self._processes = processes = [
                BrokerProcess(self._member(number, name_server.address, controller), child)
                for number, child in enumerate(self._children)
            ]
            console = self._checked.console(_reachable(name_server.address), elsewhere=processes)
            async with asyncio.TaskGroup() as tasks:
                for each in processes:
                    tasks.create_task(each.keep_running(stop), name=f"keep {each.member.name}")
                await self._all_ready(processes, stop)
                await self._one_leads(controller, len(processes), stop)
                if not stop.is_set():
                    say_ready(
                        {
                            "namesrv": name_server.address,
                            "controller": "" if controller is None else controller.address,
                            "broker": ",".join(each.address for each in processes),
                            "grpc": ",".join(each.grpc for each in processes if each.grpc),
                            "name": ",".join(dict.fromkeys(each.member.name for each in processes)),
                            "cluster": self._config.broker_cluster_name,
                            "store": self._data,
                            "console": "" if console is None else console.address,
                            "replicas" if self._replicas else "brokers": len(processes),
                            "readonly": ",".join(self._read_only(processes)),
                            "metrics": ",".join(each.metrics_url for each in processes)
                            if self._checked.metrics.is_on
                            else "",
                            "pids": ",".join(str(each.pid) for each in processes),
                        },
                        as_json=self._options.as_json,
                    )
                    if read_only := self._read_only(processes):
                        log.warning(
                            "there are more stores than requested brokers: read_only=%s accept no "
                            "new messages; once their groups have read everything (group "
                            "progress) and their delayed messages have been delivered, stop, and "
                            "move their folders away",
                            ",".join(read_only),
                        )
                    if console is not None:
                        await stack.enter_async_context(console)

    async def _start_controller(self, stack: AsyncExitStack) -> Controller | None:
        if not self._options.controller:
            return None
        config = controller_config({}, self._data)
        # All brokers are on this machine, and the controller checks no accounts.
        if not self._namesrv.listen_port:
            config.listen_port = 0
        return await start_controller(stack, config)

    async def _one_leads(
        self, controller: Controller | None, count: int, stop: asyncio.Event
    ) -> None:
        """Wait until the controller has a master, and all brokers are in sync, or for _ELECTION_S."""
        if controller is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ELECTION_S):
                while not stop.is_set():
                    known = controller.sets.sets.get(self._config.broker_name)
                    if known is not None and known.master and len(known.in_sync) >= count:
                        return
                    await asyncio.sleep(_LOOK_S)

    def _read_only(self, processes: Sequence[BrokerProcess]) -> list[str]:
        return [each.member.name for each in processes[self._writable :] if not self._replicas]

    async def _all_ready(self, processes: Sequence[BrokerProcess], stop: asyncio.Event) -> None:
        """Wait until all serve, or `stop` is set."""

        async def each_ready() -> None:
            for process in processes:
                await process.is_ready.wait()

        async with asyncio.TaskGroup() as tasks:
            waits = (
                tasks.create_task(each_ready(), name="ready"),
                tasks.create_task(stop.wait(), name="stop"),
            )
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    def _member(self, number: int, namesrv: str, controller: Controller | None) -> ManagedBroker:
        """Return one of the brokers, with the options given for all."""
        name = self._config.broker_name
        folder = folder_of(self._data, number, "replica" if self._replicas else "broker")
        options = self._options
        if not self._replicas:
            name = name_of(name, number)
        # The one console is this process's.
        arguments = ["--namesrv", _reachable(namesrv), "--no-console"]
        arguments += ["--broker-name", name, "--data", folder]
        for flag, value in (
            ("--host", options.host),
            ("--cluster", options.cluster),
            ("--config", options.config),
            ("--log-level", options.log_level),
            ("--log-format", options.log_format),
            ("--log-file", options.log_file),
            ("--log-rotate", options.log_rotate),
        ):
            if value is not None:
                arguments += [flag, str(value)]
        brokers_own = self._checked.settings().keys()
        for text in options.settings or ():
            # What only the name server knows is for the one in this process.
            if text.partition("=")[0].strip() in brokers_own:
                arguments += ["--set", text]
        if number >= self._writable and not self._replicas:
            arguments += ["--set", f"brokerPermission={int(Perm.READ)}"]
        if controller is not None:
            arguments += ["--set", "enableControllerMode=true"]
            arguments += ["--set", f"controllerAddr={_reachable(controller.address)}"]
        elif self._replicas:
            # Unless set otherwise, no acknowledged message dies with its process.
            role = options.as_settings().get("brokerRole", SYNC_MASTER)
            arguments += ["--set", f"brokerRole={SLAVE if number else role}"]
            arguments += ["--set", f"brokerId={number}"]
        if self._config.acl_enable and not self._config.acl_file:
            # One list of accounts for all: the first broker's.
            file = os.path.join(self._data, "config", "plain_acl.yml")
            arguments += ["--set", f"aclFile={file}"]
        base = self._config.listen_port
        if base == 0:
            # Free ports lie close together: one broker's second port could be another's first.
            arguments += ["--set", "fastListenEnable=false"]
        arguments += self._metrics_of(number)
        arguments += self._grpc_of(number)
        return ManagedBroker(name, folder, port_of(base, number), arguments)

    def _grpc_of(self, number: int) -> list[str]:
        """Return where a broker serves gRPC clients; any free port does if none was requested."""
        config, is_asked = self._checked.grpc
        port = config.port if config.is_off else port_of(config.port, number)
        return ["--grpc-port", str(port)] + ([] if is_asked else ["--grpc-port-is-wish"])

    def _metrics_of(self, number: int) -> list[str]:
        """Return where a broker's figures are: as configured, else on a port for this process only."""
        metrics = self._checked.metrics
        if metrics.is_on:
            port = metrics.prom_exporter_port
            return ["--set", f"metricsPromExporterPort={port + number}"] if port else []
        return ["--figures"] if self._checked.asks_for_figures else []


def _reachable(address: str) -> str:
    """Return the address for connecting locally to a server that listens at `address`."""
    host, _, port = address.rpartition(":")
    return f"{_WILDCARDS.get(host, host)}:{port}"
