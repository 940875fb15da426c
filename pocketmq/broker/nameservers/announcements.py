"""Announcements: what the brokers of a cluster tell each other, as key-value settings of its name servers.

Every name server, Apache's too, stores them and returns them to anyone. Source: KVConfigManager, 4.9.7.
"""

import logging
from collections.abc import Callable, Mapping

from pocketmq.broker.nameservers.registration import LocalNameServer
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import (
    DeleteKVConfigHeader,
    GetKVListByNamespaceHeader,
    PutKVConfigHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.client import RemotingClient

log = logging.getLogger(__name__)

_TIMEOUT_MS = 3_000


class Announcements:
    """addresses: name servers over the wire; local: the one of this process."""

    def __init__(
        self,
        client: RemotingClient,
        addresses: Callable[[], list[str]],
        local: LocalNameServer | None,
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._local = local

    async def announce(self, namespace: str, key: str, value: str | None) -> None:
        """Store a value at every name server; None deletes the key. Failures are logged."""
        if self._local is not None:
            try:
                self._local.announce(namespace, key, value)
            except OSError as error:
                log.warning("cannot announce a change key=%s reason=%s", key, error)
        if value is None:
            code, ext = RequestCode.DELETE_KV_CONFIG, DeleteKVConfigHeader(namespace, key).ext()
        else:
            code, ext = RequestCode.PUT_KV_CONFIG, PutKVConfigHeader(namespace, key, value).ext()
        for address in self._addresses():
            try:
                await self._client.invoke(address, RemotingCommand(code, ext), _TIMEOUT_MS)
            except PocketMQError as error:
                log.warning(
                    "cannot announce a change to a name server namesrv=%s key=%s reason=%s",
                    address,
                    key,
                    error,
                )

    async def announced(self, namespace: str) -> Mapping[str, str] | None:
        """Return keys and values of a namespace; None if no name server answers."""
        if self._local is not None:
            return self._local.announced(namespace)
        ext = GetKVListByNamespaceHeader(namespace).ext()
        for address in self._addresses():
            command = RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, ext)
            try:
                answer = await self._client.invoke(address, command, _TIMEOUT_MS)
                if answer.code == ResponseCode.QUERY_NOT_FOUND:
                    return {}
                if answer.code == ResponseCode.SUCCESS:
                    body = fastjson.loads(answer.body)
                    table = body.get("table") if isinstance(body, Mapping) else None
                    found = table if isinstance(table, Mapping) else {}
                    return {str(key): str(value) for key, value in found.items()}
            except (PocketMQError, fastjson.FastjsonError) as error:
                log.warning(
                    "cannot announce changes to a name server namesrv=%s reason=%s", address, error
                )
        return None
