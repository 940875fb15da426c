"""Settings of a server from all their sources: option > POCKETMQ_* > NAMESRV_ADDR > file > default.

The file is RocketMQ's own broker.conf or namesrv.conf, unchanged. A variable's name is the setting's
in capitals, with or without underscores: POCKETMQ_FLUSH_DISK_TYPE and POCKETMQ_FLUSHDISKTYPE both set
flushDiskType. A few variables name options: POCKETMQ_DATA, POCKETMQ_HOST, POCKETMQ_NAMESRV_PORT,
POCKETMQ_BROKER_PORT, POCKETMQ_BROKERS, POCKETMQ_CONFIG, POCKETMQ_LOG_LEVEL.

An empty variable is one that is not set: compose files and charts pass on values that were left out. Blanks
and a carriage return around a value are not part of it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.server_options import CONTROLLER, NAMESRV, ServerOptions
from pocketmq.remoting.settings import parse_properties

PREFIX = "POCKETMQ_"
_OPTION_VARIABLES = {
    "data": "data",
    "host": "host",
    "namesrvport": "namesrv_port",
    "brokerport": "port",
    "port": "port",
    "brokers": "brokers",
    "config": "config",
    "loglevel": "log_level",
    "logformat": "log_format",
    "logfile": "log_file",
    "logrotate": "log_rotate",
}
_NUMBERS = ("namesrv_port", "port")
_COUNTS = ("brokers", "log_rotate")
# Named so by the tests, the image and the commands of administration, and no setting of a server.
_NOT_SETTINGS = {"peers", "role", "rolefile", "accesskey", "secretkey", "tlsenable"}


def take_variables(options: ServerOptions, environment: Mapping[str, str]) -> None:
    """Fill options that were not given from the variables that name them. Raises: CannotBegin."""
    for variable, value in _variables(environment):
        attribute = _OPTION_VARIABLES.get(_plain(variable))
        if attribute is None:
            continue
        if options.role in (NAMESRV, CONTROLLER) and attribute in _NUMBERS:
            # Alone, a name server or a controller has one port; an image sets the broker's for all its roles.
            if _plain(variable) == "brokerport":
                continue
            attribute = "port"
        if getattr(options, attribute) is not None:
            continue
        if attribute in _COUNTS:
            if not value.isascii() or not value.isdigit() or int(value) == 0:
                raise CannotBegin(f"{variable}={value!r} in the environment is not a count")
            setattr(options, attribute, int(value))
        elif attribute not in _NUMBERS:
            setattr(options, attribute, value)
        elif value.isascii() and value.isdigit() and int(value) <= 65_535:
            setattr(options, attribute, int(value))
        else:
            raise CannotBegin(f"{variable}={value!r} in the environment is not a port")


def read_file(path: str | None) -> dict[str, str]:
    """Return the properties of a file; none if no file was named. Raises: CannotBegin."""
    if path is None:
        return {}
    try:
        return parse_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise CannotBegin(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CannotBegin(f"{path} is not UTF-8 text: {error.reason}") from error


@dataclass(frozen=True, slots=True)
class Merged:
    """Settings by name; origins: where each is from, in words."""

    values: dict[str, str]
    origins: dict[str, str]

    def put(self, name: str, value: str, origin: str) -> None:
        self.values[name] = value
        self.origins[name] = origin


def merge(
    options: ServerOptions,
    environment: Mapping[str, str],
    file: Mapping[str, str],
    known: Iterable[str],
) -> Merged:
    """Merge all settings by name, stronger sources over weaker ones.

    known: the names of existing settings; a variable that fits none of them is left out.
    Raises: CannotBegin for a --set that names no setting.
    """
    known = set(known)
    found = Merged(dict(file), dict.fromkeys(file, f"the file {options.config}"))
    address = environment.get("NAMESRV_ADDR", "").strip()
    if address:
        found.put("namesrvAddr", address, "NAMESRV_ADDR in the environment")
    by_plain_name = {name.replace(".", "").lower(): name for name in known}
    for variable, value in _variables(environment):
        plain = _plain(variable)
        name = by_plain_name.get(plain)
        if plain not in _OPTION_VARIABLES and name is not None:
            found.put(name, value, f"{variable} in the environment")
    given = options.as_settings()
    unknown = sorted(given.keys() - known)
    if unknown:
        from pocketmq.remoting.settings import has_no_effect, nearest

        # As in a file: the log names it.
        unknown = [name for name in unknown if not has_no_effect(name)]
    if unknown:
        hint = nearest(unknown[0], known) or "; all that there are: pocketmq up --print-config"
        raise CannotBegin(f"there is no setting {unknown[0]!r}{hint}")
    for name, value in given.items():
        found.put(name, value, "an option")
    return found


def unknown_variables(environment: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return POCKETMQ_* variables that set nothing, for a warning."""
    plain_names = {name.replace(".", "").lower() for name in known}
    return sorted(
        variable
        for variable, _ in _variables(environment)
        if _plain(variable) not in plain_names
        and _plain(variable) not in _OPTION_VARIABLES
        and _plain(variable) not in _NOT_SETTINGS
    )


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield our variables that are set, with their values."""
    for variable, value in environment.items():
        if variable.startswith(PREFIX) and (trimmed := value.strip()):
            yield variable, trimmed


def _plain(variable: str) -> str:
    return variable.removeprefix(PREFIX).replace("_", "").lower()


def kept_directory(options: ServerOptions, settings: Mapping[str, str]) -> str | None:
    """Return --data, else storePathRootDir, absolute; None if neither is given."""
    chosen = options.data or settings.get("storePathRootDir")
    return os.path.abspath(os.path.expanduser(chosen)) if chosen else None


def early_directory(options: ServerOptions, environment: Mapping[str, str]) -> str:
    """Return the data folder, before the settings' tables are imported. Raises: CannotBegin."""
    found = read_file(options.config)
    for variable, value in _variables(environment):
        if _plain(variable) == "storepathrootdir":
            found["storePathRootDir"] = value
    found.update(options.as_settings())
    return kept_directory(options, found) or os.path.abspath("data")
