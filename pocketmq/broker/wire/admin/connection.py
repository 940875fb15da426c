"""Connected clients, and the consumers of topics. Source: AdminBrokerProcessor, RocketMQ 4.9.7, 5.3.3.

Codes 203, 204, 300, 328, 343, 345.
"""

from typing import Any

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.producer_manager import ProducerManager
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.admin_headers import (
    GetConsumerConnectionListHeader,
    GetProducerConnectionListHeader,
    QuerySubscriptionByConsumerHeader,
    QueryTopicConsumeByWhoHeader,
    QueryTopicsByConsumerHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection, Handler


class AdminConnectionProcessor:
    """Handlers over the tables of connected clients. address: this broker's `ip:port`."""

    def __init__(
        self,
        consumers: ConsumerManager,
        producers: ProducerManager,
        offsets: ConsumerOffsetManager,
        address: str,
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._offsets = offsets
        self._address = address

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.get_groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.get_topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.get_subscription,
        }

    def get_consumers(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        name = GetConsumerConnectionListHeader.parse(request.ext).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            return request.answer(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        content = {
            "connectionSet": [_connection(channel) for channel in group.channels.values()],
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {
                topic: subscription.to_json() for topic, subscription in group.subscriptions.items()
            },
        }
        return json_answer(request, content)

    def get_producers(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        name = GetProducerConnectionListHeader.parse(request.ext).producer_group
        members = self._producers.groups.get(name)
        if members is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist"
            )
        found = [_connection(channel) for channel in members.values()]
        return json_answer(request, {"connectionSet": found})

    def get_all_producers(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        table: dict[str, list[dict[str, Any]]] = {}
        for group, channel in self._producers.channels():
            table.setdefault(group, []).append(
                {
                    "clientId": channel.client_id,
                    "language": channel.language,
                    "lastUpdateTimestamp": channel.last_update_ms,
                    "remoteIP": f"/{channel.connection.address}",
                    "version": channel.version,
                }
            )
        return json_answer(request, {"data": table})

    def get_groups_of_topic(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Return the groups that subscribe the topic now, and those that have offsets of it."""
        topic = QueryTopicConsumeByWhoHeader.parse(request.ext).topic
        found = self._offsets.groups_of(topic)
        for group in self._consumers.groups.values():
            if topic in group.subscriptions:
                found.add(group.name)
        return json_answer(request, {"groupList": sorted(found)})

    def get_topics_of_group(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        group = QueryTopicsByConsumerHeader.parse(request.ext).group
        content = {"brokerAddr": self._address, "topicList": sorted(self._offsets.topics_of(group))}
        return json_answer(request, content)

    def get_subscription(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QuerySubscriptionByConsumerHeader.parse(request.ext)
        group = self._consumers.groups.get(header.group)
        found = None if group is None else group.subscriptions.get(header.topic)
        content = {
            "group": header.group,
            "subscriptionData": None if found is None else found.to_json(),
            "topic": header.topic,
        }
        return json_answer(request, content)


def _connection(channel: ClientChannel) -> dict[str, Any]:
    """Return a Connection as RocketMQ's, with the protocol where it is not Remoting (ours)."""
    protocol = channel.connection.protocol
    return {
        **({} if protocol == "remoting" else {"protocol": protocol}),
        "clientAddr": channel.connection.address,
        "clientId": channel.client_id,
        "language": channel.language,
        "version": channel.version,
    }
