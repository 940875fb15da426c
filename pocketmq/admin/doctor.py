"""DoctorAdmin: what only PocketMQ's brokers report: differing members, verdicts, modes of groups.

Requests 900001 and 900002 (PocketRequestCode), and the group attribute `group.mode`. An Apache broker answers
the requests with REQUEST_CODE_NOT_SUPPORTED; it is left out here, so that a mixed cluster works.
"""

from collections.abc import Mapping
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.client.errors import QueryNotFound, RequestNotSupported
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.requests import (
    GetGroupFindingsHeader,
    GetMessageTrackHeader,
    PocketRequestCode,
)

MODE_ATTRIBUTE = "group.mode"


class DoctorAdmin:
    """The operations of `admin.doctor`. Results are the brokers' JSON, see PocketRequestCode."""

    def __init__(self, site: Cluster) -> None:
        self._site = site
        self._api = site.api

    async def groups(self, group: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return everything about one group, or every group with a finding, by broker name.

        A group: {"group", "mode", "members", "findings", "subGroups"}. Brokers that do not know the request
        or do not answer are left out: {} means that no broker knows.
        """
        asked = self._site.ask_each(
            await self._site.masters(),
            PocketRequestCode.GET_GROUP_FINDINGS,
            GetGroupFindingsHeader(group),
            about=f"group {group!r}" if group else "",
            skipping=(RequestNotSupported, RemotingError),
        )
        return {name: [dict(each) for each in told["groups"]] async for name, told in asked}

    async def track(
        self,
        *,
        msg_id: str | None = None,
        topic: str | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        group: str | None = None,
    ) -> dict[str, Any] | None:
        """Track a message by its id (offset id, or unique key with its topic) or its place.

        broker: the name of the one that stores it; else all are asked. Returns: the answer of
        GET_MESSAGE_TRACK; None if no broker that supports this has the message.
        """
        header = GetMessageTrackHeader(msg_id, topic, queue_id, queue_offset, group)
        async for _, told in self._site.ask_each(
            await self._site.masters(None, broker),
            PocketRequestCode.GET_MESSAGE_TRACK,
            header,
            about=f"message {msg_id or queue_offset}, topic {topic!r}",
            skipping=(RequestNotSupported, QueryNotFound, RemotingError),
        ):
            return dict(told)
        return None

    async def set_mode(self, group: str, mode: str | None) -> list[str]:
        """Set how a group treats members that subscribe differently; None: use the broker's groupMode.

        The rest of its configuration is kept; a broker without one creates it with defaults.
        Returns: names of the brokers. Raises: BrokerFailed for an unknown mode.
        """
        attribute = {f"+{MODE_ATTRIBUTE}": mode} if mode else {f"-{MODE_ATTRIBUTE}": ""}
        masters = await self._site.masters()
        for master in masters:
            answer = await self._api.requests.ask(
                master.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            )
            table: Mapping[str, Any] = (
                fastjson.loads(answer.body).get("subscriptionGroupTable") or {}
            )
            config = {**table.get(group, {"groupName": group}), "attributes": attribute}
            await self._api.requests.ask(
                master.address,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                None,
                fastjson.dumps(config),
                about=f"group {group!r}",
            )
        return [master.name for master in masters]

    async def is_pocketmq(self, address: str) -> bool:
        """Return True if a broker knows PocketMQ's own requests. Raises: RemotingError."""
        try:
            await self._api.requests.ask(
                address,
                PocketRequestCode.GET_GROUP_FINDINGS,
                GetGroupFindingsHeader(None),
            )
        except RequestNotSupported:
            return False
        return True
