"""Accounts over the wire: what mqadmin's updateAclConfig, deleteAclConfig, updateGlobalWhiteAddr,
clusterAclConfigVersion and getAclConfig ask.

1. Accounts are returned without their secrets; RocketMQ includes them.
2. A change is written to the file that has the account, and is in force when the answer leaves. Connections
   that lost rights by it are closed after the answer: the one that asked may be among them.
3. A change that would leave a file that no broker can read is refused; RocketMQ writes it.
4. Where requests are not checked there are no accounts: refused in words, as RocketMQ itself leaves some of
   these unanswered then.
Source: AdminBrokerProcessor, RocketMQ 4.9.7.
"""

import logging
from typing import Any

from pocketmq.broker.access.fronts import AccountFiles
from pocketmq.broker.node import Node
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import (
    AclConfigHeader,
    BrokerAclInfoResponseHeader,
    DeleteAclConfigHeader,
    GlobalWhiteAddrsHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

# 4.x: UPDATE_AND_CREATE_ACL_CONFIG_FAILED, DELETE_ACL_CONFIG_FAILED, UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED.
_FAILED = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: 209,
    RequestCode.DELETE_ACL_CONFIG: 210,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: 211,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: int(ResponseCode.SYSTEM_ERROR),
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: int(ResponseCode.SYSTEM_ERROR),
}


class AdminAccessProcessor:
    """Handlers over the files of accounts."""

    def __init__(self, node: Node) -> None:
        self._config = node.config
        self._address = node.address
        self._accounts = node.files
        self._has_users = node.users is not None

    def handlers(self) -> dict[int, Handler]:
        if self._accounts is None:
            return dict.fromkeys(_FAILED, self.refuse)
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.put_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.set_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_version,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_accounts,
        }

    def put_account(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = AclConfigHeader.parse(request.ext)
        fields: dict[str, Any] = {
            "accessKey": header.access_key,
            "secretKey": header.secret_key or None,
            "whiteRemoteAddress": header.white_remote_address,
            "admin": header.admin,
            "defaultTopicPerm": header.default_topic_perm or None,
            "defaultGroupPerm": header.default_group_perm or None,
            "topicPerms": _listed(header.topic_perms),
            "groupPerms": _listed(header.group_perms),
        }
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            self._known().put_account(given)
        except (IllegalArgument, OSError) as error:
            return _failed(request, error)
        return self._changed(request, connection, f"account {header.access_key}")

    def delete_account(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        key = DeleteAclConfigHeader.parse(request.ext).access_key
        try:
            found = self._known().delete_account(key)
        except (IllegalArgument, OSError) as error:
            return _failed(request, error)
        if not found:
            reason = f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."
            return request.answer(_FAILED[RequestCode(request.code)], reason)
        return self._changed(request, connection, f"account {key} deleted")

    def set_white_addresses(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = GlobalWhiteAddrsHeader.parse(request.ext)
        addresses = _listed(header.global_white_addrs) or []
        try:
            self._known().set_white_addresses(addresses, header.acl_file_full_path or None)
        except (IllegalArgument, OSError) as error:
            return _failed(request, error)
        return self._changed(request, connection, f"white addresses {addresses}")

    def _changed(
        self, request: RemotingCommand, connection: Connection, what: str
    ) -> RemotingCommand:
        log.warning("access control changed what=%r by=%s", what, connection.peer)
        self._known().reload()
        return request.answer(ResponseCode.SUCCESS)

    def get_version(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        versions = self._known().versions()
        newest = max(versions.values(), key=lambda each: each.timestamp)
        header = BrokerAclInfoResponseHeader(
            version=_text(newest.to_json()),
            all_acl_file_version=_text({name: each.to_json() for name, each in versions.items()}),
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
        )
        return request.answer(ResponseCode.SUCCESS, ext=header.ext())

    def get_accounts(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return json_answer(request, self._known().to_json())

    def refuse(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.answer(
            _FAILED[RequestCode(request.code)],
            "this broker has users and policies (authenticationEnabled) instead of plain_acl.yml: use "
            "createUser and createAcl"
            if self._has_users
            else "this broker checks no signatures (aclEnable=false), so it has no accounts: with "
            "aclEnable=true they are those of plain_acl.yml",
        )

    def _known(self) -> AccountFiles:
        assert self._accounts is not None
        return self._accounts


def _failed(request: RemotingCommand, error: Exception) -> RemotingCommand:
    reason = str(error)
    if isinstance(error, OSError):
        reason = f"nothing is changed, the file of accounts cannot be written: {reason}"
    return request.answer(_FAILED[RequestCode(request.code)], reason)


def _listed(text: str | None) -> list[str] | None:
    """Split at commas, as mqadmin joins lists."""
    return None if text is None else [each.strip() for each in text.split(",") if each.strip()]


def _text(value: Any) -> str:
    return fastjson.dumps(value).decode()
