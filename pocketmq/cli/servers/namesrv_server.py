"""`pocketmq namesrv`: a name server alone."""

import asyncio
import logging
import os
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.hangup import reload_certificates, watch_certificates
from pocketmq.cli.servers.listening import cannot_listen, check_port, say_ready
from pocketmq.cli.servers.server_config import kept_directory, merge, read_file
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.settings import has_no_effect, nearest
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig

log = logging.getLogger(__name__)

# Settings of a file that are no name server's, and yet say where its data is.
_READ_BEFORE = ("storePathRootDir", "namesrvAddr", "rocketmqHome")
_CONTROLLER = "enableControllerInNamesrv"
_VARIABLE = "POCKETMQ_ENABLE_CONTROLLER_IN_NAMESRV"


class NamesrvServer:
    """Settings from all sources, then the server until `stop`."""

    failure = ""

    def __init__(self, options: ServerOptions, environment: Mapping[str, str]) -> None:
        """Read all settings. Raises: CannotBegin."""
        self._as_json = options.as_json
        known = {*NamesrvConfig.keys(), *TlsConfig.keys(), _CONTROLLER}
        file = read_file(options.config)
        if _CONTROLLER in {**file, **options.as_settings()} or _VARIABLE in environment:
            from pocketmq.controller import ControllerConfig

            known.update(ControllerConfig.keys())
        merged = merge(options, environment, file, known)
        settings, self.origins = merged.values, merged.origins
        self._controller = None
        if settings.pop(_CONTROLLER, "").strip().lower() == "true":
            from pocketmq.cli.servers.controller_server import controller_config
            from pocketmq.controller import ControllerConfig

            data = kept_directory(options, settings) or os.path.abspath("data")
            own = ControllerConfig.keys()
            self._controller = controller_config(
                {name: value for name, value in settings.items() if name in own}, data
            )
            settings = {name: value for name, value in settings.items() if name not in own}
        _warn_of_unknown(settings, known)
        folder = kept_directory(options, settings)
        if folder is not None:
            settings.setdefault("kvConfigPath", f"{folder}/namesrv/kvConfig.json")
        try:
            self._config = NamesrvConfig.from_properties(settings)
            self._tls = TlsConfig.read(settings)
        except PocketMQError as error:
            raise CannotBegin(str(error)) from error
        self._server_tls = ServerTls(self._tls)

    def settings(self) -> dict[str, str]:
        """Return every setting with its value."""
        return {**self._config.to_properties(), **self._tls.to_properties()}

    def reload(self) -> None:
        """Read certificates again (hangup.py)."""
        reload_certificates((self._server_tls,))

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        async with AsyncExitStack() as stack:
            await watch_certificates(stack, (self._server_tls,))
            name_server = await start_name_server(stack, self._config, "--port", self._server_tls)
            controller = ""
            if self._controller is not None:
                from pocketmq.cli.servers.controller_server import start_controller

                controller = (await start_controller(stack, self._controller)).address
            say_ready(
                {
                    "namesrv": name_server.address,
                    "controller": controller,
                    "kv": self._config.kv_config_path,
                },
                as_json=self._as_json,
            )
            await stop.wait()


def _warn_of_unknown(settings: Mapping[str, str], known: Collection[str]) -> None:
    for name in sorted(settings.keys() - known - set(_READ_BEFORE)):
        if has_no_effect(name):
            log.info("setting has no effect in PocketMQ: %s", name)
        else:
            log.warning("ignored an unknown setting: %s%s", name, nearest(name, known))


async def start_name_server(
    stack: AsyncExitStack, config: NamesrvConfig, option: str, tls: ServerTls
) -> NameServer:
    """Start a name server that listens, and ends with `stack`.

    option: the command line option for its port, for errors. Raises: CannotBegin.
    """
    check_port(config.bind_address, config.listen_port, option)
    try:
        name_server = await stack.enter_async_context(make_name_server(config, tls))
    except PocketMQError as error:
        raise CannotBegin(str(error)) from error
    try:
        await name_server.listen()
    except OSError as error:
        raise cannot_listen(config.bind_address, config.listen_port, option, error) from error
    return name_server


def make_name_server(config: NamesrvConfig, tls: ServerTls) -> NameServer:
    """Return a name server with its file, if it has one."""
    if not config.kv_config_path:
        return NameServer(config, SystemClock(), tls=tls)
    # Imported late: the store is the larger half of the start, and a name server without a file
    # needs none of it.
    from pocketmq.store import ConfigFile

    return NameServer(config, SystemClock(), kv_file=ConfigFile(config.kv_config_path), tls=tls)
