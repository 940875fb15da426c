"""Routes of topics: QueryRoute, QueryAssignment. Source: RouteActivity, RocketMQ 5.5.0."""

from operator import itemgetter
from typing import Any

from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.http2.call import GrpcCall, Method
from pocketmq.grpc.messages import classes
from pocketmq.grpc.remote_routes import RemoteTopic
from pocketmq.grpc.schema import AddressScheme, Code, MessageType, Permission
from pocketmq.grpc.services import access
from pocketmq.grpc.services.context import MESSAGE_TYPE, RequestContext
from pocketmq.model.names import MASTER_ID
from pocketmq.model.tables import TopicConfig

_MIXED = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_PERMISSIONS = {
    (True, True): Permission.READ_WRITE,
    (True, False): Permission.READ,
    (False, True): Permission.WRITE,
}
_ENDPOINTS_SIZE_MAX = 16_384
# All queues of a broker; its pops share them.
_ALL_QUEUES = -1


def accepted_types(topic: TopicConfig) -> tuple[MessageType, ...]:
    """Return the message types that a topic accepts, by its attribute; without one, plain messages."""
    word = topic.attributes.get(MESSAGE_TYPE, "NORMAL").upper()
    if word == "MIXED":
        return _MIXED
    found = MessageType.__members__.get(word, MessageType.NORMAL)
    return (found or MessageType.NORMAL,)


class Routes:
    """The services."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def methods(self) -> dict[bytes, Method]:
        context = self._context
        return {
            **context.method("QueryRoute", self.route, access.looks_at),
            **context.method("QueryAssignment", self.assignment, access.consumes),
        }

    async def route(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        name = self._context.topic_of(request.topic)
        answer = classes["QueryRouteResponse"](status=OK)
        queues = [
            (queue_id, at, topic)
            for at, topic in await self._everywhere(name, request.endpoints)
            for queue_id in range(max(topic.read_queues, topic.write_queues))
        ]
        # Broker by broker, as the proxy has them, a simple consumer that takes them in turn would ask a
        # broker without messages for as many receives as that has queues.
        for queue_id, at, topic in sorted(queues, key=itemgetter(0)):
            can = (
                topic.readable and queue_id < topic.read_queues,
                topic.writable and queue_id < topic.write_queues,
            )
            queue = answer.message_queues.add(
                topic={"name": name},
                id=queue_id,
                broker=at,
                permission=_PERMISSIONS.get(can, Permission.NONE),
            )
            queue.accept_message_types.extend(self._types(name))
        return answer

    async def assignment(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        context = self._context
        name, group = context.topic_of(request.topic), context.group_of(request.group)
        known = context.parts.tables.groups.get(group)
        in_order = known is not None and known.extra.get("consumeMessageOrderly") is True
        # A receive of lite topics looks into all of a client's.
        in_order = in_order and not context.acts.lite.concerns(group)
        answer = classes["QueryAssignmentResponse"](status=OK)
        for at, topic in await self._everywhere(name, request.endpoints):
            readable = range(topic.read_queues) if topic.readable else range(0)
            for queue_id in readable if in_order else (_ALL_QUEUES,) if readable else ():
                queue = answer.assignments.add().message_queue
                queue.topic.name, queue.id, queue.permission = name, queue_id, Permission.READ
                queue.broker.CopyFrom(at)
                queue.accept_message_types.extend(self._types(name))
        if not answer.assignments:
            raise StatusFailure(Code.FORBIDDEN, f"topic {name} has no readable queue")
        return answer

    async def _everywhere(
        self, name: str, endpoints: Any
    ) -> list[tuple[Any, TopicConfig | RemoteTopic]]:
        """Return a topic at each broker that has it, with the Broker of the answer. Raises: StatusFailure."""
        context = self._context
        if endpoints.ByteSize() > _ENDPOINTS_SIZE_MAX:
            # Each queue of the answer has them.
            raise StatusFailure(
                Code.ILLEGAL_ACCESS_POINT,
                f"the endpoints have more than {_ENDPOINTS_SIZE_MAX} bytes: name fewer addresses",
            )
        others = await context.place.remote_routes.of(name)
        found: list[tuple[Any, TopicConfig | RemoteTopic]] = []
        if not others or context.parts.tables.topics.get(name) is not None:
            own = _broker(context.broker_name, context.place.host, context.place.port)
            if endpoints.addresses:
                # The way that the client came, which works through any translation of addresses.
                own.endpoints.CopyFrom(endpoints)
            found.append((own, context.known_topic(name)))
        return found + [(_broker(each.broker, each.host, each.port), each) for each in others]

    def _types(self, name: str) -> tuple[MessageType, ...]:
        """Return the message types that a topic accepts; a foreign topic's are known to its brokers only."""
        topic = self._context.parts.tables.topics.get(name)
        return _MIXED if topic is None else accepted_types(topic)


def _broker(name: str, host: str, port: int) -> Any:
    broker = classes["Broker"](name=name, id=MASTER_ID)
    broker.endpoints.scheme = _scheme(host)
    broker.endpoints.addresses.add(host=host, port=port)
    return broker


def _scheme(host: str) -> AddressScheme:
    if ":" in host:
        return AddressScheme.IPv6
    is_ip = host.replace(".", "").isdigit()
    return AddressScheme.IPv4 if is_ip else AddressScheme.DOMAIN_NAME
