"""Where topics are: QueryRoute, QueryAssignment. Source: RouteActivity, RocketMQ 5.5.0."""

from typing import Any

from pocketmq.grpc import access
from pocketmq.grpc.answers import OK, Failed
from pocketmq.grpc.call import Call, Method
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.desk import MESSAGE_TYPE, Desk
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import AddressScheme, Code, MessageType, Permission
from pocketmq.remoting.names import MASTER_ID
from pocketmq.remoting.tables import TopicConfig

_MIXED = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_PERMISSIONS = {
    (True, True): Permission.READ_WRITE,
    (True, False): Permission.READ,
    (False, True): Permission.WRITE,
}
# All queues of a broker; its pops share them.
_ALL_QUEUES = -1


def accepted_types(topic: TopicConfig) -> tuple[MessageType, ...]:
    """What may be sent to a topic, by its attribute; without one, plain messages."""
    word = topic.attributes.get(MESSAGE_TYPE, "NORMAL").upper()
    if word == "MIXED":
        return _MIXED
    found = MessageType.__members__.get(word, MessageType.NORMAL)
    return (found or MessageType.NORMAL,)


class Routes:
    """The services."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def methods(self) -> dict[bytes, Method]:
        desk = self._desk
        return {
            **desk.method("QueryRoute", self.route, access.looks_at),
            **desk.method("QueryAssignment", self.assignment, access.consumes),
        }

    def route(self, request: Any, client: GrpcClient, call: Call) -> Any:
        topic = self._desk.known_topic(self._desk.topic_of(request.topic))
        answer = classes["QueryRouteResponse"](status=OK)
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            can = (
                topic.readable and queue_id < topic.read_queues,
                topic.writable and queue_id < topic.write_queues,
            )
            queue = self._queue(answer.message_queues.add(), topic, queue_id, request.endpoints)
            queue.permission = _PERMISSIONS.get(can, Permission.NONE)
        return answer

    def assignment(self, request: Any, client: GrpcClient, call: Call) -> Any:
        desk = self._desk
        topic = desk.known_topic(desk.topic_of(request.topic))
        group = desk.parts.tables.groups.get(desk.group_of(request.group))
        if not topic.readable or not topic.read_queues:
            raise Failed(Code.FORBIDDEN, f"the topic {topic.topic} has no readable queue")
        in_order = group is not None and group.extra.get("consumeMessageOrderly") is True
        answer = classes["QueryAssignmentResponse"](status=OK)
        for queue_id in range(topic.read_queues) if in_order else (_ALL_QUEUES,):
            assigned = answer.assignments.add().message_queue
            queue = self._queue(assigned, topic, queue_id, request.endpoints)
            queue.permission = Permission.READ
        return answer

    def _queue(self, queue: Any, topic: TopicConfig, queue_id: int, endpoints: Any) -> Any:
        desk = self._desk
        queue.topic.name = topic.topic
        queue.id = queue_id
        queue.accept_message_types.extend(accepted_types(topic))
        queue.broker.name = desk.broker_name
        queue.broker.id = MASTER_ID
        if endpoints.addresses:
            # The way that the client came, which works through any translation of addresses.
            queue.broker.endpoints.CopyFrom(endpoints)
            return queue
        host = desk.place.host
        queue.broker.endpoints.scheme = AddressScheme.IPv6 if ":" in host else AddressScheme.IPv4
        queue.broker.endpoints.addresses.add(host=host, port=desk.place.port)
        return queue
