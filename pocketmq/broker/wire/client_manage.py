"""Clients register and leave: HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG."""

import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.acts.clients import ClientActs, Heartbeat, Membership
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.when_stored import when_tried
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import UnregisterClientHeader
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Steps

log = logging.getLogger(__name__)

# Ours: what one heartbeat may cost. Topics of one group, and characters of all its SQL92 expressions.
_SUBSCRIPTIONS_MAX = 1_000
_FILTERS_SIZE_MAX = 65_536


class ClientManageProcessor:
    """Handlers of the three codes."""

    def __init__(self, clients: ClientActs) -> None:
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heart_beat(self, request: RemotingCommand, connection: Connection) -> Steps:
        data = _object(fastjson.loads_request(request.body), "a heartbeat")
        memberships: list[Membership] = []
        filters_size = 0
        for each in _objects(data, "consumerDataSet"):
            membership = _membership(each)
            memberships.append(membership)
            filters_size += sum(
                len(asked.sub_string) for asked in membership.subscriptions if not asked.is_tag
            )
            yield
        if filters_size > _FILTERS_SIZE_MAX:
            raise HeaderError(
                f"the heartbeat has {filters_size} characters of SQL92, but at most {_FILTERS_SIZE_MAX} "
                "are read"
            )
        beat = Heartbeat(
            _text(data, "clientID"),
            request.language,
            request.version,
            memberships,
            [_text(each, "groupName") for each in _objects(data, "producerDataSet")],
        )
        try:
            yield from self._clients.heartbeat(beat, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        answer = request.answer(ResponseCode.SUCCESS)
        saves = self._clients.saves()
        return when_tried(answer, saves) if saves else answer

    def unregister_client(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = UnregisterClientHeader.parse(request.ext)
        self._clients.leave(
            connection, consumer=header.consumer_group, producer=header.producer_group
        )
        return request.answer(ResponseCode.SUCCESS, None, {})

    def check_client_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Check whether a consumer's expression can be evaluated."""
        data = _object(fastjson.loads_request(request.body), "a CHECK_CLIENT_CONFIG body")
        asked = data.get("subscriptionData")
        if asked is None:
            return request.answer(ResponseCode.SUCCESS)
        subscription = SubscriptionData.from_json(asked)
        try:
            self._clients.check_subscription(subscription)
        except Refused as refused:
            log.warning(
                "Client %s@%s filter message, but failed to compile expression! sub=%r, error=%s",
                data.get("clientId"),
                data.get("group"),
                subscription.sub_string[:300],
                refused.remark,
            )
            return request.answer(refused.code, refused.remark)
        return request.answer(ResponseCode.SUCCESS)


def _membership(data: Mapping[str, Any]) -> Membership:
    asked = _objects(data, "subscriptionDataSet")
    if len(asked) > _SUBSCRIPTIONS_MAX:
        raise HeaderError(
            f"a group has {len(asked)} subscriptions, but at most {_SUBSCRIPTIONS_MAX} are read"
        )
    return Membership(
        _text(data, "groupName"),
        str(data.get("consumeType")),
        str(data.get("messageModel")),
        str(data.get("consumeFromWhere")),
        [SubscriptionData.from_json(each) for each in asked],
        data.get("unitMode") is True,
    )


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise HeaderError(f"{what} is not a JSON object")
    return value


def _objects(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = data.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise HeaderError(f"{name} of a heartbeat is not a list")
    return [_object(item, f"an entry of {name}") for item in found]


def _text(data: Mapping[str, Any], name: str) -> str:
    found = data.get(name)
    if not isinstance(found, str) or not found:
        raise HeaderError(f"{name} of a heartbeat is missing or not a text")
    return found
