"""`pocketmq controller`: a controller alone; and one beside a name server."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.listening import cannot_listen, check_port, say_ready
from pocketmq.cli.servers.server_config import kept_directory, merge, read_file
from pocketmq.cli.servers.server_options import ServerOptions
from pocketmq.controller import Controller, ControllerConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.errors import PocketMQError

FILE = "controller.json"


class ControllerServer:
    """Settings from all sources, then the server until `stop`."""

    failure = ""

    def __init__(self, options: ServerOptions, environment: Mapping[str, str]) -> None:
        """Read all settings. Raises: CannotBegin."""
        self._as_json = options.as_json
        known = {*ControllerConfig.keys()}
        settings = merge(options, environment, read_file(options.config), known)
        data = kept_directory(options, settings) or os.path.abspath("data")
        self._config = controller_config(settings, data)

    def settings(self) -> dict[str, str]:
        """Return every setting with its value."""
        return self._config.to_properties()

    def reload(self) -> None:
        """Nothing is read again: it has no certificates."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises: CannotBegin."""
        async with AsyncExitStack() as stack:
            controller = await start_controller(stack, self._config)
            say_ready(
                {"controller": controller.address, "file": self._config.path},
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
    from pocketmq.store import ConfigFile

    check_port(config.bind_address, config.listen_port, "controllerListenPort")
    controller = Controller(config, SystemClock(), ConfigFile(config.path))
    try:
        await stack.enter_async_context(controller)
    except (PocketMQError, KeyError, TypeError, ValueError) as error:
        raise CannotBegin(f"the controller's file {config.path} cannot be read: {error}") from error
    try:
        await controller.listen()
    except OSError as error:
        raise cannot_listen(
            config.bind_address, config.listen_port, "controllerListenPort", error
        ) from error
    return controller
