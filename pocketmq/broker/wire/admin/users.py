"""Users and policies over the wire: what the twelve commands of mqadmin 5.x ask (createUser ... copyAcl).

1. Only super users get here (access/users/asked.py): a policy that may be changed would allow everything.
2. A change is on the disk when the answer leaves. Connections whose user lost rights are closed after it.
3. Refused, where RocketMQ takes them: user types, states and actions that do not exist, names that a gRPC
   header cannot carry, a * within a name, the end of the last super user.
Source: AdminBrokerProcessor, RocketMQ 5.5.0.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pocketmq.broker.node import Node
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting import admin_headers as ah
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import IllegalArgument, ProtocolError
from pocketmq.remoting.transport.connection import Connection, Handler

if TYPE_CHECKING:
    from pocketmq.broker.access.users.table import UserTable

log = logging.getLogger(__name__)

_CODES = tuple(code for code in RequestCode if code.name.startswith("AUTH_"))
_INVALID_PARAMETER = 29


def user_handlers(node: Node) -> dict[int, Handler]:
    """Return the handlers by request code."""
    if node.users is None:
        return dict.fromkeys(_CODES, _refuse)
    return _Users(node.users).handlers()


def _refuse(request: RemotingCommand, connection: Connection) -> RemotingCommand:
    return request.answer(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "this broker has no users: start it with authenticationEnabled=true and initAuthenticationUser",
    )


class _Users:
    """Handlers over a table of users."""

    def __init__(self, table: "UserTable") -> None:
        self._table = table

    def handlers(self) -> dict[int, Handler]:
        changes: dict[int, Callable[[RemotingCommand], str]] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_CREATE_ACL: self._put_policies,
            RequestCode.AUTH_UPDATE_ACL: self._put_policies,
            RequestCode.AUTH_DELETE_ACL: self._delete_policies,
        }
        questions: dict[int, Callable[[RemotingCommand], Any]] = {
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_GET_ACL: self._get_policies,
            RequestCode.AUTH_LIST_ACL: self._list_policies,
        }
        return {
            **{code: _changing(change) for code, change in changes.items()},
            **{code: _answering(question) for code, question in questions.items()},
        }

    # ------------------------------------------------------------ changes

    def _create_user(self, request: RemotingCommand) -> str:
        from pocketmq.broker.access.users.user import User

        name = _name(request)
        user = User.parse({**_body(request), "username": name})
        self._table.create_user(user)
        return f"user {name} created ({user.type})"

    def _update_user(self, request: RemotingCommand) -> str:
        name, data = _name(request), _body(request)
        self._table.update_user(name, data)
        return f"user {name} changed ({', '.join(sorted(data.keys() - {'username'}))})"

    def _delete_user(self, request: RemotingCommand) -> str:
        name = _name(request)
        self._table.delete_user(name)
        return f"user {name} deleted"

    def _put_policies(self, request: RemotingCommand) -> str:
        from pocketmq.broker.access.users.policy import UserPolicies

        name = _subject(request)
        policies = UserPolicies.parse(_body(request).get("policies"))
        self._table.put_policies(name, policies)
        lines = [*policies.custom, *policies.default]
        return f"policies of {name}: {'; '.join(map(str, lines))}"

    def _delete_policies(self, request: RemotingCommand) -> str:
        from pocketmq.broker.access.users.policy import PolicyType, ResourcePattern, word

        header = ah.DeletePolicyHeader.parse(request.ext)
        name = _subject(request)
        kind = word(PolicyType, header.policy_type or PolicyType.CUSTOM, "policy type")
        resource = ResourcePattern.parse(header.resource) if header.resource else None
        self._table.delete_policies(name, kind, resource)
        return f"policies of {name} deleted: {resource or 'all'}"

    # ------------------------------------------------------------ questions

    def _get_user(self, request: RemotingCommand) -> Any:
        user = self._table.state.users.get(_name(request))
        return None if user is None else user.to_json(secret=True)

    def _list_users(self, request: RemotingCommand) -> Any:
        wanted = ah.ListUsersHeader.parse(request.ext).filter or ""
        users = self._table.state.users
        return [users[name].to_json(secret=True) for name in sorted(users) if wanted in name]

    def _get_policies(self, request: RemotingCommand) -> Any:
        name, state = _subject(request), self._table.state
        if name not in state.users:
            raise IllegalArgument("The subject is not exist.")
        return state.acl(name) if name in state.acls else None

    def _list_policies(self, request: RemotingCommand) -> Any:
        header = ah.ListPoliciesHeader.parse(request.ext)
        found = []
        for name in sorted(self._table.state.acls):
            acl = self._table.state.acl(name)
            subject, wanted = acl["subject"], header.resource_filter or ""
            if (header.subject_filter or "") not in subject:
                continue
            if wanted not in subject:
                acl["policies"] = self._table.state.acls[name].only(wanted).to_json()
            if acl["policies"]:
                found.append(acl)
        return found


def _changing(change: Callable[[RemotingCommand], str]) -> Handler:
    def handler(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            what = change(request)
        except (IllegalArgument, ProtocolError) as error:
            return _failed(request, error)
        except OSError as error:
            reason = f"nothing is changed, the file of users cannot be written: {error}"
            return request.answer(ResponseCode.SYSTEM_ERROR, reason)
        log.warning("access control changed what=%r by=%s", what, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

    return handler


def _answering(question: Callable[[RemotingCommand], Any]) -> Handler:
    def handler(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            found = question(request)
        except (IllegalArgument, ProtocolError) as error:
            return _failed(request, error)
        return json_answer(request, found) if found else request.answer(ResponseCode.SUCCESS)

    return handler


class _Blank(IllegalArgument):
    """The request does not name its user."""


def _failed(request: RemotingCommand, error: Exception) -> RemotingCommand:
    code = _INVALID_PARAMETER if isinstance(error, _Blank) else ResponseCode.NO_PERMISSION
    return request.answer(code, str(error))


def _name(request: RemotingCommand) -> str:
    name = ah.UserHeader.parse(request.ext).username
    if not name or not name.strip():
        raise _Blank("The username is blank")
    return name


def _subject(request: RemotingCommand) -> str:
    from pocketmq.broker.access.users.user import name_of

    return name_of(ah.SubjectHeader.parse(request.ext).subject)


def _body(request: RemotingCommand) -> dict[str, Any]:
    data = fastjson.loads_request(request.body)
    if not isinstance(data, dict):
        raise IllegalArgument("the body is not an object")
    return data
