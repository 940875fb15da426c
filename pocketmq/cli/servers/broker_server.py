"""`pocketmq up` and `pocketmq broker`: a broker, with or without a name server in the same process."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from typing import TYPE_CHECKING

from pocketmq.broker.broker import Broker
from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.broker.tables.changed_settings import FILE as CHANGED_SETTINGS
from pocketmq.broker.tables.changed_settings import ChangedSetting, ChangedSettings, Reloaded
from pocketmq.cli.address import check_advertised, container_warning
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.console_server import bound_console, read_console_config
from pocketmq.cli.servers.grpc_server import grpc_port, read_grpc_config
from pocketmq.cli.servers.hangup import reload_certificates, watch_certificates
from pocketmq.cli.servers.listening import cannot_listen, check_port, say_ready, settle
from pocketmq.cli.servers.metrics_server import metrics_port, read_metrics_config
from pocketmq.cli.servers.namesrv_server import start_name_server
from pocketmq.cli.servers.server_config import kept_directory, merge, read_file, unknown_variables
from pocketmq.cli.servers.server_options import UP, ServerOptions
from pocketmq.console.config import ConsoleConfig
from pocketmq.files.broker_name import kept_name
from pocketmq.grpc.config import GrpcConfig
from pocketmq.namesrv import NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig
from pocketmq.store import ConfigFile, StoreConfig
from pocketmq.store.errors import StoreError
from pocketmq.store.log.descriptors import raise_limit

if TYPE_CHECKING:
    from pocketmq.console.remote_broker import RemoteBroker
    from pocketmq.console.server import ConsoleServer

log = logging.getLogger(__name__)

# Entered when the broker serves, and before it says so: (the broker, what stops it).
Beside = Callable[[Broker, asyncio.Event], AbstractAsyncContextManager[None]]
_NAMESRV_PORT = 9876
# A file of `up` is a broker.conf: these names in it are the broker's.
_NOT_NAMESRVS = ("listenPort", "bindAddress", "kvConfigPath")


class BrokerServer:
    """Settings from all sources, then the servers until `stop`. metrics: those of the metrics port."""

    failure = ""

    def __init__(self, options: ServerOptions, environment: Mapping[str, str]) -> None:
        """Read all settings. Raises: CannotBegin."""
        self._options, self._environment = options, environment
        self._changes: ChangedSettings | None = None
        self._is_up = options.role == UP
        self._as_json = options.as_json
        self._figures = options.figures
        self._broker_option = "--broker-port" if self._is_up else "--port"
        known = {
            *BrokerConfig.keys(),
            *StoreConfig.keys(),
            *TlsConfig.keys(),
            *ConsoleConfig.keys(),
            *MetricsConfig.keys(),
            *GrpcConfig.keys(),
        }
        if self._is_up:
            known |= NamesrvConfig.keys().keys()
        merged = merge(options, environment, read_file(options.config), known)
        settings, self._origins = merged.values, merged.origins
        for name in unknown_variables(environment, known):
            log.warning("%s in the environment has no effect: there is no such setting", name)
        folder = kept_directory(options, settings) or os.path.abspath("data")
        settings["storePathRootDir"] = folder
        try:
            self._namesrv = self._namesrv_config(settings, folder, options.namesrv_port)
            self._console, self._console_port_is_asked = read_console_config(
                settings, by_default=self._is_up
            )
            self.metrics = read_metrics_config(settings)
            self._grpc, is_asked = read_grpc_config(settings, by_default=self._is_up)
            self._grpc_port_is_asked = is_asked and not options.grpc_port_is_wish
            self._tls = TlsConfig.read(settings)
            for name in [*TlsConfig.keys()]:
                settings.pop(name, None)
            self._config, self._store_config = self._read(settings)
        except (IllegalArgument, StoreError) as error:
            raise CannotBegin(str(error)) from error
        self._server_tls = ServerTls(self._tls)
        # Settings that may change do so in the parts' own objects.
        self._as_configured = self._configured()

    def _namesrv_config(
        self, settings: Mapping[str, str], folder: str, port: int | None
    ) -> NamesrvConfig | None:
        if not self._is_up:
            return None
        own = {name: value for name, value in settings.items() if name not in _NOT_NAMESRVS}
        own["kvConfigPath"] = os.path.join(folder, "namesrv", "kvConfig.json")
        host = settings.get("bindAddress")
        if host is not None:
            own["bindAddress"] = host
        return NamesrvConfig.from_properties(
            own, listen_port=_NAMESRV_PORT if port is None else port
        )

    def _read(self, settings: dict[str, str]) -> tuple[BrokerConfig, StoreConfig]:
        if self._is_up and settings.pop("namesrvAddr", ""):
            log.info("namesrvAddr is not used by `up`: the broker registers in this process")
        own = {*BrokerConfig.keys(), *StoreConfig.keys()}
        if not settings.get("brokerName"):
            settings["brokerName"] = kept_name(settings["storePathRootDir"])
        theirs = set() if self._namesrv is None else NamesrvConfig.keys().keys() - own
        return read_broker_conf(
            {name: value for name, value in settings.items() if name not in theirs}
        )

    def console(
        self,
        name_servers: str,
        brokers: Sequence[Broker] = (),
        elsewhere: "Sequence[RemoteBroker]" = (),
    ) -> "ConsoleServer | None":
        """Return the configured console, to be entered after `ready`. Raises: CannotBegin."""
        return bound_console(
            self._console,
            port_is_asked=self._console_port_is_asked,
            name_servers=name_servers,
            tls=self._tls,
            here=brokers,
            elsewhere=elsewhere,
        )

    @property
    def asks_for_figures(self) -> bool:
        """Return True if a console here shows the figures of brokers in other processes.

        Not if it has a login: the ports that these brokers need for it ask for no login.
        """
        if self._console.is_off or self._console.user:
            return False
        # A broker without a console loads none of it.
        from pocketmq.console.server import missing_packages

        return not missing_packages()

    @property
    def parts(self) -> tuple[BrokerConfig, StoreConfig, NamesrvConfig | None, TlsConfig]:
        """Return the settings of each part, for callers that run them in separate processes."""
        return self._config, self._store_config, self._namesrv, self._tls

    @property
    def grpc(self) -> tuple[GrpcConfig, bool]:
        """Return the settings of the gRPC port, and whether it was requested."""
        return self._grpc, self._grpc_port_is_asked

    def settings(self) -> dict[str, str]:
        """Return every setting with its value, also those that were changed while the broker ran."""
        return self._configured() | {name: row.value for name, row in self._changed().items()}

    @property
    def origins(self) -> dict[str, str]:
        """Return where settings that are not defaults are from."""
        changed = {
            name: f"a change while the broker ran (by {row.by}, in the place of {row.was!r})"
            for name, row in self._changed().items()
        }
        return self._origins | changed

    def _configured(self) -> dict[str, str]:
        return {
            **self._store_config.to_properties(),
            **self._config.to_properties(),
            **self._tls.to_properties(),
            **self._console.to_properties(),
            **self.metrics.to_properties(),
            **self._grpc.to_properties(),
        }

    def _changed(self) -> dict[str, ChangedSetting]:
        path = os.path.join(self._store_config.store_path_root_dir, "config", CHANGED_SETTINGS)
        changes = ChangedSettings(ConfigFile(path), (self._config, self._store_config))
        changes.load()
        return changes.holding()

    def reload(self) -> Reloaded:
        """Read certificates and settings again: what may change while the broker runs changes."""
        reload_certificates((self._server_tls,))
        try:
            again = BrokerServer(self._options, self._environment)
        except CannotBegin as error:
            log.error("the settings cannot be read again, the old ones stay reason=%s", error)
            return Reloaded(failure=str(error))
        now = again._configured()
        different = {
            name: value for name, value in now.items() if self._as_configured.get(name) != value
        }
        taken = set() if self._changes is None else self._changes.configured_anew(different)
        self._as_configured.update({name: now[name] for name in taken})
        kept = sorted(different.keys() - taken)
        if kept:
            log.warning("settings that change with a restart only: %s", ", ".join(kept))
        return Reloaded(sorted(taken), kept)

    async def serve(self, stop: asyncio.Event, beside: Beside | None = None) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        config = self._config
        check_advertised(config.broker_ip1)
        is_automatic = not config.broker_ip1
        check_port(config.listen_address, config.listen_port, self._broker_option)
        tls = self._server_tls
        log.info("descriptors limit=%d", raise_limit())
        async with AsyncExitStack() as stack:
            await watch_certificates(stack, (tls,))
            name_server = None
            if self._namesrv is not None:
                name_server = await start_name_server(stack, self._namesrv, "--namesrv-port", tls)
            broker = Broker(
                config,
                self._store_config,
                clock=SystemClock(),
                name_server=None if name_server is None else name_server.local,
                tls=tls,
            )
            namesrv = name_server.address if name_server else config.namesrv_addr
            console = self.console(namesrv, (broker,))
            try:
                await stack.enter_async_context(broker)
            except (IllegalArgument, StoreError) as error:
                raise CannotBegin(str(error)) from error
            except OSError as error:
                raise cannot_listen(
                    config.listen_address, config.listen_port, self._broker_option, error
                ) from error
            self._changes = broker.parts.tables.changed
            self._changes.configured_by(self.reload)
            grpc = await grpc_port(
                stack, self._grpc, broker, tls, port_is_asked=self._grpc_port_is_asked
            )
            metrics = await metrics_port(
                stack, self.metrics, config.listen_address, broker, figures=self._figures
            )
            await stack.enter_async_context(
                nullcontext() if beside is None else beside(broker, stop)
            )
            if stop.is_set():
                return
            settle()
            say_ready(
                {
                    "namesrv": namesrv,
                    "broker": broker.address,
                    "grpc": grpc,
                    "name": config.broker_name,
                    "cluster": config.broker_cluster_name,
                    "store": self._store_config.store_path_root_dir,
                    "console": "" if console is None else console.address,
                    "metrics": metrics,
                },
                as_json=self._as_json,
            )
            warning = container_warning(config.listen_address, not is_automatic, broker.address)
            if warning:
                log.warning("%s", warning)
            if console is not None:
                await stack.enter_async_context(console)
            await stop.wait()
        if not broker.parts.messages.store.closed_cleanly:
            self.failure = (
                f"not everything reached the disk when {config.broker_name} stopped: see the log "
                f"for the reason; the next start recovers the store"
            )
