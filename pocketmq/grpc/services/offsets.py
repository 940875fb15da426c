"""Offsets of groups, and the ends of queues: UpdateOffset, GetOffset, QueryOffset.

Ours: the proxy 5.5.0 does not serve them.
"""

from typing import Any

from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.http2.call import GrpcCall, Method
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import Code, QueryOffsetPolicy
from pocketmq.grpc.services import access
from pocketmq.grpc.services.context import RequestContext


class Offsets:
    """The services."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def methods(self) -> dict[bytes, Method]:
        context = self._context
        return {
            **context.method("UpdateOffset", self.update, access.consumes_queue),
            **context.method("GetOffset", self.get, access.consumes_queue),
            **context.method("QueryOffset", self.query, access.looks_at_queue),
        }

    def _queue(self, queue: Any) -> tuple[str, int]:
        """Return topic and queue id. Raises: StatusFailure."""
        topic = self._context.known_topic(self._context.topic_of(queue.topic))
        if not 0 <= queue.id < topic.read_queues:
            raise StatusFailure(
                Code.BAD_REQUEST,
                f"topic {topic.topic} has the queues 0 to {topic.read_queues - 1}, but no queue "
                f"{queue.id}",
            )
        return topic.topic, queue.id

    def update(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        queue = GroupQueue(
            self._context.group_of(request.group), *self._queue(request.message_queue)
        )
        if request.offset < 0:
            raise StatusFailure(
                Code.ILLEGAL_OFFSET, f"an offset must be 0 or more, not {request.offset}"
            )
        self._context.acts.offsets.commit(queue, request.offset, client, as_member=True)
        return classes["UpdateOffsetResponse"](status=OK)

    def get(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        queue = GroupQueue(
            self._context.group_of(request.group), *self._queue(request.message_queue)
        )
        offset = self._context.acts.offsets.query(queue, client, or_zero=False)
        return classes["GetOffsetResponse"](status=OK, offset=offset)

    def query(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        topic, queue_id = self._queue(request.message_queue)
        store = self._context.parts.messages.store
        if request.query_offset_policy == QueryOffsetPolicy.BEGINNING:
            offset = store.min_offset(topic, queue_id)
        elif request.query_offset_policy == QueryOffsetPolicy.END:
            offset = store.max_offset(topic, queue_id)
        else:
            moment = request.timestamp
            ms = moment.seconds * 1000 + moment.nanos // 1_000_000
            offset = store.offset_by_time(topic, queue_id, ms, "LOWER")
        return classes["QueryOffsetResponse"](status=OK, offset=offset)
