"""Settings over the wire, of name servers and controllers: shown, and changed where they may change.

Brokers have more to do then: broker/wire/admin/config.py.
"""

import logging

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.serving.log_levels import LogConfig, apply_levels
from pocketmq.remoting.settings import format_properties, parse_properties
from pocketmq.remoting.transport.connection import Connection

log = logging.getLogger(__name__)

_PLACES = {"kvConfigPath", "configStorePath", "configStorePathName", "controllerPath"}


def changed(config: LogConfig, request: RemotingCommand, connection: Connection) -> RemotingCommand:
    """Change runtime settings, all of those in the body, or none (CVE-2023-37582). Returns: the answer."""
    try:
        wanted = parse_properties(bytes(request.body).decode("utf-8"))
    except UnicodeDecodeError as error:
        return request.answer(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}")
    if _PLACES & wanted.keys():
        return request.answer(ResponseCode.NO_PERMISSION, "Can not update config path")
    keys = config.keys()
    fixed = sorted(name for name in wanted if name in keys and not keys[name].runtime)
    if fixed:
        return request.answer(
            ResponseCode.NO_PERMISSION,
            f"{', '.join(fixed)} can only be changed in the configuration file, with a restart",
        )
    known = {name: value for name, value in wanted.items() if name in keys}
    try:
        for name, value in known.items():
            keys[name].parse(value)
    except IllegalArgument as error:
        return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
    for name, value in known.items():
        config.update(name, value)
        log.info("setting changed name=%s value=%r by=%s", name, value, connection.peer)
    if "logLevels" in known:
        apply_levels(config.log_levels)
    for name in sorted(wanted.keys() - keys.keys()):
        log.info("ignored an unknown setting name=%r by=%s", name, connection.peer)
    return request.answer(ResponseCode.SUCCESS)


def shown(config: LogConfig, request: RemotingCommand) -> RemotingCommand:
    """Return the answer with all settings."""
    body = format_properties(config.to_properties())
    return request.answer(ResponseCode.SUCCESS, body=body.encode("utf-8"))
