"""`pocketmq controller`: a controller alone; and one beside a name server."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.listening import cannot_listen, check_port, say_ready
from pocketmq.cli.servers.server_config import kept_directory, merge, read_file
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.controller import Controller, ControllerConfig
from pocketmq.controller.keeping import FileKeeper, Keeper
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.errors import PocketMQError

FILE = "controller.json"


class ControllerServer:
    """Settings from all sources, then the server until `stop`."""

    failure = ""

    def __init__(self, options: ServerOptions, environment: Mapping[str, str]) -> None:
        """Read all settings. Raises: CannotBegin."""
        self._as_json = options.as_json
        known = {*ControllerConfig.keys()}
        merged = merge(options, environment, read_file(options.config), known)
        self.origins = merged.origins
        data = kept_directory(options, merged.values) or os.path.abspath("data")
        self._config = controller_config(merged.values, data)

    def settings(self) -> dict[str, str]:
        """Return every setting with its value."""
        return self._config.to_properties()

    def reload(self) -> None:
        """Nothing is read again: it has no certificates."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        async with AsyncExitStack() as stack:
            controller = await start_controller(stack, self._config)
            kept = self._config.etcd or self._config.path
            say_ready(
                {"controller": controller.address, "etcd" if self._config.etcd else "file": kept},
                as_json=self._as_json,
            )
            await stop.wait()


def controller_config(settings: Mapping[str, str], data: str) -> ControllerConfig:
    """Return a controller's settings, with its file under `data`. Raises: CannotBegin."""
    try:
        config = ControllerConfig.from_properties(settings)
    except PocketMQError as error:
        raise CannotBegin(str(error)) from error
    config.path = config.path or os.path.join(data, FILE)
    return config


async def start_controller(stack: AsyncExitStack, config: ControllerConfig) -> Controller:
    """Start a controller that listens, and ends with `stack`. Raises: CannotBegin."""
    check_port(config.bind_address, config.listen_port, "controllerListenPort")
    clock = SystemClock()
    controller = await stack.enter_async_context(Controller(config, clock, _keeper(config, clock)))
    try:
        await controller.listen()
    except OSError as error:
        raise cannot_listen(
            config.bind_address, config.listen_port, "controllerListenPort", error
        ) from error
    except (PocketMQError, KeyError, TypeError, ValueError) as error:
        raise CannotBegin(f"the controller's file {config.path} cannot be read: {error}") from error
    return controller


def _keeper(config: ControllerConfig, clock: Clock) -> Keeper:
    """Return where the sets are kept. Raises: CannotBegin."""
    if not config.etcd:
        from pocketmq.store.config_file import LatestFile

        return FileKeeper(LatestFile(config.path))
    try:
        from pocketmq.controller.etcd_gateway import EtcdGateway
        from pocketmq.controller.etcd_keeper import EtcdKeeper
    except ImportError as error:
        raise CannotBegin(
            f'controllerEtcd needs {error.name}: pip install "FOLDER_OR_WHEEL[broker,etcd]"'
        ) from error
    try:
        etcd = EtcdGateway(config.etcd_endpoints(), _etcd_tls(config))
    except (OSError, ValueError) as error:
        raise CannotBegin(f"controllerEtcd: {error}") from error
    own_id = config.own_id or f"{socket.gethostname()}-{os.getpid()}"
    return EtcdKeeper(etcd, config.group, own_id, clock.monotonic_ms)


def _etcd_tls(config: ControllerConfig) -> ssl.SSLContext | None:
    """Return how to trust etcd; None: as the system does. Raises: OSError, ValueError."""
    if not config.etcd_ca_path and not config.etcd_cert_path:
        return None
    context = ssl.create_default_context(cafile=config.etcd_ca_path or None)
    if config.etcd_cert_path:
        context.load_cert_chain(config.etcd_cert_path, config.etcd_key_path or None)
    return context
