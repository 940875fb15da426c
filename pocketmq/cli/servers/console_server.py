"""The web console beside `up` and `broker`: whether to start one, and its port, decided before `ready`."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.listening import cannot_listen
from pocketmq.console.config import OFF, ConsoleConfig
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.transport.tls import TlsConfig, client_context

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.console.remote_broker import RemoteBroker
    from pocketmq.console.server import ConsoleServer

log = logging.getLogger(__name__)

_PORT = "consolePort"


def read_console_config(
    settings: dict[str, str], *, by_default: bool
) -> tuple[ConsoleConfig, bool]:
    """Take the console's settings out of `settings`; also return whether its port was requested.

    by_default: whether there is a console if nothing is said about its port. Raises: IllegalArgument.
    """
    asked = _PORT in settings
    if not asked and not by_default:
        settings[_PORT] = str(OFF)
    if "storePathRootDir" in settings:
        settings.setdefault("consoleFolder", os.path.join(settings["storePathRootDir"], "console"))
    config = ConsoleConfig.from_properties(settings)
    for name in [*ConsoleConfig.keys()]:
        settings.pop(name, None)
    config.secret()
    return config, asked


def bound_console(
    config: ConsoleConfig,
    *,
    port_is_asked: bool,
    name_servers: str,
    tls: TlsConfig,
    here: "Sequence[Broker]" = (),
    elsewhere: "Sequence[RemoteBroker]" = (),
) -> "ConsoleServer | None":
    """Return a console with its port bound, to be entered after `ready`; None if absent.

    name_servers: `host:port;host:port`, with which it finds the brokers. Raises: CannotBegin.
    """
    if config.is_off:
        return None
    # A broker without a console loads none of it.
    from pocketmq.console.server import ConsoleServer, missing_packages

    missing = missing_packages()
    if missing:
        level = logging.WARNING if port_is_asked else logging.INFO
        text = (
            "no web console: %s is not installed; install PocketMQ with its extra: "
            'pip install "FOLDER_OR_WHEEL[broker,console]"'
        )
        log.log(level, text, ", ".join(missing))
        return None
    if not name_servers:
        log.info(
            "no web console: it needs a name server to find brokers, and namesrvAddr is not set"
        )
        return None
    try:
        console = ConsoleServer(
            config, _client_options(config, name_servers, tls, here), here=here, elsewhere=elsewhere
        )
        console.bind(port_is_wish=not port_is_asked)
    except IllegalArgument as error:
        raise CannotBegin(str(error)) from error
    except OSError as error:
        raise cannot_listen(config.host, config.port, "--console-port", error) from error
    return console


def _client_options(
    config: ConsoleConfig, name_servers: str, tls: TlsConfig, here: "Sequence[Broker]"
) -> dict[str, Any]:
    """Return how the console connects to name servers and brokers: as a client, by TLS where required."""
    options: dict[str, Any] = {"name_server": name_servers}
    key, secret = config.access_key, config.secret_key
    if not key and not config.user:
        key, secret = _of_process(here)
    if key:
        # Light to import, unlike the rest of the client.
        from pocketmq.remoting.credentials import Credentials

        options["credentials"] = Credentials(key, secret)
    if tls.mode == "enforcing":
        # A server that wants its clients' certificates is shown the one that this process has.
        own = tls.certificate_path if tls.client_auth == "require" else ""
        try:
            options["tls"] = client_context(
                certificate=Path(own) if own else None,
                key=Path(tls.key_path) if own and tls.key_path else None,
            )
        except OSError as error:
            raise CannotBegin(
                f"the console cannot use the TLS certificate {own}: {error}"
            ) from error
    return options


def _of_process(here: "Sequence[Broker]") -> tuple[str, str]:
    """Return what the brokers of this process sign with among themselves, if they have users: viewers log in
    as themselves then. Empty otherwise.
    """
    for broker in here:
        config = broker.config
        if config.authentication_enabled and config.inner_client_authentication_credentials:
            # The broker has read it before.
            found = json.loads(config.inner_client_authentication_credentials)
            return found["accessKey"], found["secretKey"]
    return "", ""
