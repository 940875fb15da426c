"""Clients come and go: HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG.

Source: ClientManageProcessor, RocketMQ 4.9.7; wire.md 2.3, acceptance S64.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.client_channel import ClientChannel
from pocketmq.broker.parts import Members, Node, Tables
from pocketmq.broker.sql92 import SelectorError, compile_expression
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import (
    MSGPACK_NAME,
    PEER_ENCODINGS,
    RemotingCommand,
)
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import NotifyConsumerIdsChangedHeader, UnregisterClientHeader
from pocketmq.remoting.names import retry_topic, topic_fault
from pocketmq.remoting.peer import Peer
from pocketmq.remoting.subscription import SubscriptionData

log = logging.getLogger(__name__)

_UNIT_SUB = 2


class ClientManageProcessor:
    """Handlers of the three codes, and the notice to a group whose members changed."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        members: Members,
    ) -> None:
        self._role = node.role
        self._config = node.config
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = members.consumers
        self._producers = members.producers
        self._policies = members.policies

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heart_beat(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A client says that it lives, and what it consumes and produces."""
        data = _object(fastjson.loads_request(request.body), "a heartbeat")
        client_id = _text(data, "clientID")
        refusal: str | None = None
        for consumer in _objects(data, "consumerDataSet"):
            channel = ClientChannel(connection, client_id, request.language, request.version)
            refusal = self._register_consumer(consumer, channel) or refusal
        for producer in _objects(data, "producerDataSet"):
            channel = ClientChannel(connection, client_id, request.language, request.version)
            self._producers.register(_text(producer, "groupName"), channel)
        ext = None
        if request.ext is not None and PEER_ENCODINGS in request.ext:
            # Ours: only a PocketMQ client asks, and only it is told what else we read.
            ext = {PEER_ENCODINGS: MSGPACK_NAME}
        if refusal is not None:
            return request.answer(ResponseCode.NO_PERMISSION, refusal, ext)
        return request.answer(ResponseCode.SUCCESS, None, ext)

    def _register_consumer(self, consumer: Mapping[str, Any], channel: ClientChannel) -> str | None:
        """Take a member into its group; returns why it is not taken in (modes strict and isolate)."""
        name = _text(consumer, "groupName")
        group = self._groups.find(name)
        notify = True
        if group is not None:
            notify = group.notify_consumer_ids_changed_enable
            topic = retry_topic(name)
            # Ours: a name too long for a topic has no retry topic, instead of one that nobody can use.
            if topic_fault(topic) is None and self._role.leads:
                unit = _UNIT_SUB if consumer.get("unitMode") is True else 0
                self._topics.create_internal(topic, group.retry_queue_nums, sys_flag=unit)
        subscriptions = [
            SubscriptionData.from_json(item) for item in _objects(consumer, "subscriptionDataSet")
        ]
        asked = {each.topic: each for each in subscriptions}
        refusal = self._policies.entered(name).admit(name, channel, asked)
        if refusal is not None:
            log.warning("heartbeat refused peer=%s reason=%r", channel.connection.address, refusal)
            self._consumers.unregister(name, channel.connection, notify=notify)
            return refusal
        changed = self._consumers.register(
            name,
            channel,
            str(consumer.get("consumeType")),
            str(consumer.get("messageModel")),
            str(consumer.get("consumeFromWhere")),
            subscriptions,
            notify=notify,
        )
        if changed:
            log.info(
                "registerConsumer info changed group=%s client=%s peer=%s",
                name,
                channel.client_id,
                channel.connection.address,
            )
        return None

    def unregister_client(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """A client leaves a group."""
        header = UnregisterClientHeader.parse(request.ext)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group is not None:
            group = self._groups.find(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, connection, notify=notify)
        return request.answer(ResponseCode.SUCCESS, None, {})

    def check_client_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """A consumer asks whether its expression will do."""
        data = _object(fastjson.loads_request(request.body), "a CHECK_CLIENT_CONFIG body")
        asked = data.get("subscriptionData")
        if asked is None:
            return request.answer(ResponseCode.SUCCESS)
        subscription = SubscriptionData.from_json(asked)
        if subscription.is_tag:
            return request.answer(ResponseCode.SUCCESS)
        if not self._config.enable_property_filter:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}",
            )
        try:
            compile_expression(subscription.sub_string)
        except SelectorError as error:
            log.warning(
                "Client %s@%s filter message, but failed to compile expression! sub=%r, error=%s",
                data.get("clientId"),
                data.get("group"),
                subscription.sub_string[:300],
                error,
            )
            return request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.answer(ResponseCode.SUCCESS)

    def notify_members(self, group: str, peers: list[Peer]) -> None:
        """Tell members to rebalance (NOTIFY_CONSUMER_IDS_CHANGED); one that is gone is skipped."""
        if not self._config.notify_consumer_ids_changed_enable:
            return
        ext = NotifyConsumerIdsChangedHeader(consumer_group=group).ext()
        for peer in peers:
            if peer.writable:
                peer.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext)


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
        raise HeaderError(f"{name} of a heartbeat is missing or no text")
    return found
