"""Subscription groups: create, change, delete, list. Source: AdminBrokerProcessor, RocketMQ 4.9.7, 5.3.3.

Codes 200, 201, 207, 225, 352.
"""

from collections.abc import Mapping
from typing import Any

from pocketmq.broker.acts.tables import GroupActs
from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.admin.answers import json_answer, page
from pocketmq.broker.wire.when_stored import Answer, when_stored
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import (
    DeleteSubscriptionGroupHeader,
    GetAllSubscriptionGroupHeader,
    GetSubscriptionGroupConfigHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.transport.connection import Connection, Handler


class AdminGroupProcessor:
    """Handlers over the group table."""

    def __init__(self, acts: GroupActs, groups: SubscriptionGroupManager) -> None:
        self._acts = acts
        self._groups = groups

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
        }

    def update_group(self, request: RemotingCommand, connection: Connection) -> Answer:
        return self._update(request, [fastjson.loads_request(request.body)], connection)

    def update_groups(self, request: RemotingCommand, connection: Connection) -> Answer:
        data = fastjson.loads_request(request.body)
        rows = data.get("groupConfigList") if isinstance(data, Mapping) else None
        if not isinstance(rows, list):
            raise HeaderError("the body lacks groupConfigList")
        return self._update(request, rows, connection)

    def _update(self, request: RemotingCommand, rows: list[Any], connection: Connection) -> Answer:
        from pocketmq.model.row_faults import group_row_fault

        fault = next((fault for row in rows if (fault := group_row_fault(row))), None)
        if fault is not None:
            return request.answer(ResponseCode.SYSTEM_ERROR, fault)
        try:
            wanted = [GroupConfig.from_json(row) for row in rows]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeaderError(f"cannot read a subscription group in the body: {error!r}") from error
        try:
            saved = self._acts.update(wanted, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return when_stored(request, request.answer(ResponseCode.SUCCESS), saved)

    def delete_group(self, request: RemotingCommand, connection: Connection) -> Answer:
        header = DeleteSubscriptionGroupHeader.parse(request.ext)
        # removeOffset is 4.x's name of the flag, cleanOffset 5.x's.
        with_offsets = bool(header.remove_offset or header.clean_offset)
        saved = self._acts.delete(header.group_name, connection, with_offsets=with_offsets)
        return when_stored(request, request.answer(ResponseCode.SUCCESS), saved)

    def get_all_groups(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetAllSubscriptionGroupHeader.parse(request.ext)
        table = self._groups.groups
        ext = None
        content: dict[str, Any] = {"dataVersion": self._groups.data_version.to_json()}
        if header.group_seq is not None:
            ext = {"totalGroupNum": str(len(table))}
            table = page(table, header.group_seq, header.max_group_num)
            content["forbiddenTable"] = {}
        content["subscriptionGroupTable"] = {name: group.to_json() for name, group in table.items()}
        return json_answer(request, content, ext)

    def get_group(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        group = self._groups.get(GetSubscriptionGroupConfigHeader.parse(request.ext).group)
        if group is None:
            return request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker"
            )
        return json_answer(request, group.to_json())
