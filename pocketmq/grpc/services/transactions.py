"""EndTransaction and RecallMessage. Source: EndTransactionActivity, RecallMessageActivity, RocketMQ 5.5.0.

A producer names a transaction by its topic and id. Ours: the place of its half message is remembered until
the transaction ends. After a restart of the broker it is that of the question which is answered, or is found
by its key; the proxy forgets it after 30 s, and answers OK whatever the broker did.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.acts.send import SentMessage
from pocketmq.broker.acts.transactions import Decision, HalfPlace
from pocketmq.broker.refused import Refused
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.http2.call import GrpcCall, Method
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import Code, MessageType, TransactionResolution
from pocketmq.grpc.services import access
from pocketmq.grpc.services.context import RequestContext
from pocketmq.grpc.services.routes import accepted_types
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import TRANS_HALF_TOPIC
from pocketmq.model.record import read_record

_KEPT_MAX = 100_000
# Characters of all ids together, which are the clients' choice, and of one: no record has a longer one.
_KEPT_SIZE_MAX = 32 << 20
_ID_SIZE_MAX = 32_767
_DECISIONS = {
    TransactionResolution.COMMIT: Decision.COMMIT,
    TransactionResolution.ROLLBACK: Decision.ROLLBACK,
}


class Transactions:
    """The services."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        # (topic, transaction id) -> its half message.
        self._places: OrderedDict[tuple[str, str], HalfPlace] = OrderedDict()
        self._kept_size = 0

    def methods(self) -> dict[bytes, Method]:
        context = self._context
        return {
            **context.method("EndTransaction", self.end, access.publishes),
            **context.method("RecallMessage", self.recall, access.publishes),
        }

    def began(self, topic: str, transaction_id: str, sent: SentMessage) -> None:
        """Remember a stored half message."""
        self._remember(transaction_id, HalfPlace(topic, sent.queue_offset, sent.position))

    def asked(self, transaction_id: str, fields: Mapping[str, str], topic: str) -> None:
        """Remember the half message that a producer is asked about; fields: of CHECK_TRANSACTION_STATE."""
        offset, position = int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])
        self._remember(transaction_id, HalfPlace(topic, offset, position))

    def _remember(self, transaction_id: str, place: HalfPlace) -> None:
        if self._places.pop((place.producer_group, transaction_id), None) is None:
            self._kept_size += len(transaction_id)
        self._places[place.producer_group, transaction_id] = place
        while len(self._places) > _KEPT_MAX or self._kept_size > _KEPT_SIZE_MAX:
            (_, oldest), _ = self._places.popitem(last=False)
            self._kept_size -= len(oldest)

    def end(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        topic = self._context.topic_of(request.topic)
        name = request.transaction_id
        if len(name) > _ID_SIZE_MAX or not name.strip():
            raise StatusFailure(
                Code.INVALID_TRANSACTION_ID,
                f"the request must name the transaction's id, in 1 to {_ID_SIZE_MAX} characters",
            )
        answer_of = classes["EndTransactionResponse"]
        answer = answer_of(status=OK)
        decision = _DECISIONS.get(request.resolution)
        if decision is None:
            # Not known yet: the producer will be asked again.
            return answer
        place = self._places.get((topic, name)) or self._find(topic, name)
        try:
            end = self._context.acts.transactions.end(place, decision)
        except Refused as refused:
            raise StatusFailure(Code.INVALID_TRANSACTION_ID, str(refused)) from None
        if self._places.pop((topic, name), None) is not None:
            self._kept_size -= len(name)
        return self._context.when_kept(call, end, answer, answer_of())

    def _find(self, topic: str, name: str) -> HalfPlace:
        """Find the newest half message of that id by the key index. Raises: StatusFailure."""
        now_ms = self._context.parts.node.clock.now_ms()
        found = self._context.parts.messages.store.query_by_key(
            TRANS_HALF_TOPIC, name, 64, 0, now_ms + 60_000
        )
        for data in sorted(found.records, key=lambda data: -read_record(data).position):
            record = read_record(data)
            if (
                record.topic == TRANS_HALF_TOPIC
                and get_property(record.properties, b"UNIQ_KEY") == name.encode()
                and get_property(record.properties, b"REAL_TOPIC") == topic.encode()
                and get_property(record.properties, b"PGROUP") == topic.encode()
            ):
                return HalfPlace(topic, record.queue_offset, record.position)
        raise StatusFailure(
            Code.INVALID_TRANSACTION_ID,
            f"topic {topic} has no open transaction {name[:100]!r}: "
            "it was ended already, or its time is over",
        )

    def recall(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        context = self._context
        topic = context.known_topic(context.topic_of(request.topic))
        if context.config.type_check and MessageType.DELAY not in accepted_types(topic):
            raise StatusFailure(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"only delayed messages can be recalled, but topic {topic.topic} takes none "
                "(message.type)",
            )
        recalled = context.acts.recall.recall(
            topic.topic, request.recall_handle, topic.topic, client
        )
        answer_of = classes["RecallMessageResponse"]
        answer = answer_of(status=OK, message_id=recalled.unique_key)
        return context.when_kept(call, recalled.end, answer, answer_of())
