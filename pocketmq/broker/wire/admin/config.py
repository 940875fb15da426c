"""Settings over the wire: UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG.

1. Only settings declared as `runtime` can be changed, each within its type and range, all of a request or
   none (RocketMQ refuses a list of names and accepts the rest: CVE-2023-33246). A change lasts over restarts
   (changed_settings.py); the configuration file belongs to the operator and is never written.
2. Secrets are shown as asterisks (CVE-2024-23321).
Source: AdminBrokerProcessor, RocketMQ 4.9.7.
"""

import asyncio
import logging

from pocketmq.broker.node import Node
from pocketmq.broker.tables.changed_settings import ChangedSettings
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.broker.wire.when_stored import Answer
from pocketmq.model.data_version import DataVersion
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.settings import Settings, format_properties, parse_properties
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store import StoreConfig
from pocketmq.store.side_tasks import SURVIVED

log = logging.getLogger(__name__)

# Of RocketMQ's settings those that we lack and that its tools take for granted: exportConfigs of 4.9 ends
# where one of them is missing.
_ASKED_BY_TOOLS = {"filterServerNums": "0", "useTLS": "false"}
_SECRET_WORDS = ("secret", "password", "credential")


class AdminConfigProcessor:
    """Handlers over the settings."""

    def __init__(
        self,
        node: Node,
        store_config: StoreConfig,
        changes: ChangedSettings,
    ) -> None:
        self._changes = changes
        self._groups: tuple[Settings, ...] = (node.config, store_config)
        self._now_ms = node.clock.now_ms
        self._version = DataVersion(self._now_ms())

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            PocketRequestCode.RELOAD: self.reload,
        }

    def update_config(self, request: RemotingCommand, connection: Connection) -> Answer:
        try:
            wanted = parse_properties(bytes(request.body).decode("utf-8"))
        except UnicodeDecodeError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}")
        known: dict[str, str] = {}
        fixed: list[str] = []
        for name, value in sorted(wanted.items()):
            for group in self._groups:
                key = group.keys().get(name)
                if key is None:
                    continue
                if not key.runtime:
                    fixed.append(f"{name} ({group.FIXED[name]})")
                    continue
                try:
                    key.parse(value)
                except IllegalArgument as error:
                    return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
                known[name] = value
        if fixed:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(fixed)} can only be changed in the configuration file, with a restart",
            )
        changed = self._changes.change(known, connection.peer, self._now_ms())
        for name in sorted(wanted.keys() - changed):
            log.warning("ignored an unknown setting name=%r by=%s", name, connection.peer)
        if changed:
            self._version = self._version.next(self._now_ms())
        answer = request.answer(ResponseCode.SUCCESS)
        saved = self._changes.stored()
        return answer if saved is None else _kept(request, answer, saved)

    def reload(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        log.info("reading certificates and settings again, asked by=%s", connection.peer)
        found = self._changes.read_again()
        return json_answer(
            request,
            {
                "changed": found.changed,
                "needsRestart": found.needs_restart,
                "failure": found.failure,
            },
        )

    def get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        table = dict(_ASKED_BY_TOOLS)
        for group in self._groups:
            table.update(group.to_properties())
        for name, value in table.items():
            if value and any(word in name.lower() for word in _SECRET_WORDS):
                table[name] = "******"
        return request.answer(
            ResponseCode.SUCCESS,
            ext={"version": fastjson.dumps(self._version.to_json()).decode()},
            body=format_properties(table).encode("utf-8"),
        )


async def _kept(
    request: RemotingCommand, answer: RemotingCommand, saved: "asyncio.Future[None]"
) -> RemotingCommand:
    """Return the answer once the change will outlast a restart, or say that it will not."""
    try:
        await asyncio.shield(saved)
    except SURVIVED as error:
        return request.answer(
            ResponseCode.SYSTEM_ERROR,
            f"changed until the broker stops; it cannot be saved: {error}",
        )
    return answer
