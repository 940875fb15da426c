"""Subscription groups: make, change, delete, list. Source: AdminBrokerProcessor, RocketMQ 4.9.7, 5.3.3.

Codes 200, 201, 207, 225, 352.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.group_mode import merge_attributes
from pocketmq.broker.stats import BrokerStats
from pocketmq.broker.subscription_group import SubscriptionGroupConfig, SubscriptionGroupManager
from pocketmq.broker.wire.admin_answers import json_answer, page
from pocketmq.broker.wire.when_stored import Answer, when_stored
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    DeleteSubscriptionGroupHeader,
    GetAllSubscriptionGroupHeader,
    GetSubscriptionGroupConfigHeader,
)
from pocketmq.remoting.names import group_is_legal

log = logging.getLogger(__name__)


class AdminGroupProcessor:
    """Handlers over the group table."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

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
            raise HeaderError("the body has no groupConfigList")
        return self._update(request, rows, connection)

    def _update(self, request: RemotingCommand, rows: list[Any], connection: Connection) -> Answer:
        try:
            wanted = [SubscriptionGroupConfig.from_json(row) for row in rows]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeaderError(f"a subscription group in the body is broken: {error!r}") from error
        for group in wanted:
            if not group_is_legal(group.group_name):
                return request.answer(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group name {group.group_name[:300]!r} contains illegal characters or is "
                    "too long, allowing only ^[%|a-zA-Z0-9_-]+$",
                )
        for group in wanted:
            merge_attributes(group, self._groups.get(group.group_name))
        for group in wanted:
            self._groups.update(group)
            log.info("group updated group=%s by=%s", group.group_name, connection.peer)
        return when_stored(request, request.answer(ResponseCode.SUCCESS), self._groups.stored())

    def delete_group(self, request: RemotingCommand, connection: Connection) -> Answer:
        header = DeleteSubscriptionGroupHeader.parse(request.ext)
        group = header.group_name
        self._groups.delete(group)
        # removeOffset is 4.x's name of the flag, cleanOffset 5.x's.
        if header.remove_offset or header.clean_offset:
            self._offsets.remove_group(group)
        self._stats.forget_group(group)
        log.info("group deleted group=%s by=%s", group, connection.peer)
        return when_stored(request, request.answer(ResponseCode.SUCCESS), self._groups.stored())

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
