"""Connection options of a command: account, TLS and CA certificates from the user's context."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketmq.cli import contexts
from pocketmq.cli.exits import CannotBegin
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    import ssl


def client_options(namesrv: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return how a command connects: POCKETMQ_ACCESS_KEY and POCKETMQ_SECRET_KEY sign its requests, and
    POCKETMQ_TLS_ENABLE=true encrypts them; POCKETMQ_TLS_CA, a file of authorities (--tls-ca), makes it
    verify the servers' certificates, too. Raises: IllegalArgument if one of the keys, or that file, is
    missing.
    """
    options: dict[str, Any] = {"name_server": namesrv}
    if environment is None:
        environment = contexts.environment()
    keys = [environment.get(f"POCKETMQ_{name}_KEY", "") for name in ("ACCESS", "SECRET")]
    if any(keys):
        from pocketmq.remoting.credentials import Credentials

        options["credentials"] = Credentials(*keys)
    if environment.get("POCKETMQ_TLS_ENABLE", "").lower() == "true":
        options["tls"] = True
    authorities = environment.get("POCKETMQ_TLS_CA", "")
    if authorities:
        options["tls"] = _verifying(authorities)
    return options


def asking_options(timeout_ms: int) -> dict[str, Any]:
    """Return how `ask` connects, as every command does. Raises: CannotBegin."""
    try:
        set_up = client_options("")
    except IllegalArgument as error:
        raise CannotBegin(str(error)) from error
    tls = set_up.get("tls")
    if tls is True:
        from pocketmq.remoting.transport.tls import client_context

        tls = client_context()
    return {"timeout_ms": timeout_ms, "credentials": set_up.get("credentials"), "tls": tls}


def _verifying(authorities: str) -> "ssl.SSLContext":
    from pocketmq.remoting.transport.tls import client_context

    try:
        return client_context(verify=True, trust=Path(authorities))
    except OSError as error:
        raise CannotBegin(f"cannot read the authorities in {authorities}: {error}") from error
