"""Users and policies of RocketMQ 5.x at brokers; `admin.users`.

Users are UserInfo, policies AclInfo in RocketMQ's JSON: docs/protocol/acl.md.
"""

from collections.abc import Mapping
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.client.errors import NoPermission, RequestNotSupported
from pocketmq.remoting import admin_headers, fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.header import Header

_SUBJECT = "User:"


class UserAdmin:
    """The operations of `admin.users`; brokers are named by `ip:port`."""

    def __init__(self, site: Cluster) -> None:
        self._requests = site.api.requests

    async def are_there(self, address: str) -> bool:
        """Return True if a broker checks requests against users, False if not or against other accounts."""
        try:
            await self.all(address)
        except RequestNotSupported:
            return False
        return True

    async def all(self, address: str) -> list[dict[str, Any]]:
        """Return all users. Raises: RequestNotSupported for a broker without users."""
        answer = await self._requests.ask(address, RequestCode.AUTH_LIST_USER)
        return list(fastjson.loads(answer.body)) if answer.body else []

    async def policies(self, address: str) -> dict[str, list[dict[str, Any]]]:
        """Return the policies of each user that has any."""
        answer = await self._requests.ask(address, RequestCode.AUTH_LIST_ACL)
        found = fastjson.loads(answer.body) if answer.body else []
        return {each["subject"].removeprefix(_SUBJECT): each["policies"] for each in found}

    async def create(self, address: str, name: str, fields: Mapping[str, Any]) -> None:
        """Create a user. Raises: IllegalArgument."""
        await self._change(address, RequestCode.AUTH_CREATE_USER, name, fields)

    async def update(self, address: str, name: str, fields: Mapping[str, Any]) -> None:
        """Change the given fields of a user. Raises: IllegalArgument."""
        await self._change(address, RequestCode.AUTH_UPDATE_USER, name, fields)

    async def delete(self, address: str, name: str) -> None:
        """Delete a user with its policies. Raises: IllegalArgument."""
        await self._change(address, RequestCode.AUTH_DELETE_USER, name)

    async def put_policies(self, address: str, name: str, policies: list[dict[str, Any]]) -> None:
        """Add lines, or replace those of the same resources. Raises: IllegalArgument."""
        header = admin_headers.SubjectHeader(_SUBJECT + name)
        body = {"subject": _SUBJECT + name, "policies": policies}
        await self._ask(address, RequestCode.AUTH_CREATE_ACL, header, body, name)

    async def delete_policy(self, address: str, name: str, kind: str, resource: str) -> None:
        """Delete the line of a resource; kind: Custom or Default. Raises: IllegalArgument."""
        header = admin_headers.DeletePolicyHeader(_SUBJECT + name, kind, resource)
        await self._ask(address, RequestCode.AUTH_DELETE_ACL, header, None, name)

    async def _change(
        self, address: str, code: RequestCode, name: str, fields: Mapping[str, Any] | None = None
    ) -> None:
        body = None if fields is None else {"username": name, **fields}
        await self._ask(address, code, admin_headers.UserHeader(name), body, name)

    async def _ask(
        self, address: str, code: RequestCode, header: Header, body: Any, name: str
    ) -> None:
        data = b"" if body is None else fastjson.dumps(body)
        try:
            await self._requests.ask(address, code, header, data, about=f"user {name!r}")
        except NoPermission as error:
            raise IllegalArgument(f"user {name!r} at {address}: {error.remark}") from error
