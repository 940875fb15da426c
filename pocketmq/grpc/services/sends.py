"""SendMessage. Source: SendMessageActivity, RocketMQ 5.5.0.

1. The server chooses the queue: by the message group, if there is one, so that a group's messages are in
   order whichever client sends them; else round robin.
2. A message's type must be that of its topic (attribute message.type), unless that is MIXED.
3. A single plain message to a known topic takes the short path, like those of classic clients; everything
   else, and every error, takes the long one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pocketmq.broker.acts.plain_topic import PlainTopic
from pocketmq.broker.once.once_topic import OnceTopic, exempt
from pocketmq.broker.refused import Refused
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.encode import sent
from pocketmq.grpc.http2.call import GrpcCall, GrpcError, GrpcStatus, Method
from pocketmq.grpc.mapping import StorableMessage, stored_of
from pocketmq.grpc.messages import SendMessageResponse
from pocketmq.grpc.schema import Code, MessageType
from pocketmq.grpc.services import access
from pocketmq.grpc.services.context import REQUEST_SIZE_MAX, RequestContext, parsed, when_all
from pocketmq.grpc.services.routes import accepted_types
from pocketmq.grpc.services.sessions import Sessions
from pocketmq.grpc.services.transactions import Transactions
from pocketmq.model.java_hash import string_hash
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.headers import SendMessageHeader
from pocketmq.store import StoreError

_MESSAGES_MAX = 1_024
# Of a large send, and of its messages.
_FIELDS_MAX = 32_768
# Keys on the wire: SendMessageRequest.messages, Message.body.
_MESSAGE, _BODY = 1 << 3 | 2, 4 << 3 | 2
# Types that take the short way: without delay, transaction or priority.
_PLAIN = (MessageType.NORMAL, MessageType.FIFO)


class Sends:
    """The service."""

    def __init__(
        self, context: RequestContext, sessions: Sessions, transactions: Transactions
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._transactions = transactions
        self._turns: Counter[str] = Counter()
        # Topics whose plain messages need no check, with what may be sent to them.
        self._plain: dict[str, tuple[TopicConfig, PlainTopic, tuple[MessageType, ...]]] = {}
        context.parts.node.events.settings_changed.to(lambda changed: self._plain.clear())

    def methods(self) -> dict[bytes, Method]:
        send = self._context.method
        return send("SendMessage", self.send, access.publishes_messages, large=_parse_large)

    def send(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        messages = request.messages
        if not messages or len(messages) > _MESSAGES_MAX:
            raise StatusFailure(
                Code.MESSAGE_CORRUPTED,
                f"a send has 1 to {_MESSAGES_MAX} messages, not {len(messages)}",
            )
        if len(messages) == 1:
            answer = self._send_plain(messages[0], client)
            if answer is not None:
                return answer
        context = self._context
        name = context.topic_of(messages[0].topic)
        if any(each.topic.name != name for each in messages[1:]):
            raise StatusFailure(
                Code.MESSAGE_CORRUPTED, "the messages of one send must have the same topic"
            )
        now_ms = context.parts.node.clock.now_ms()
        stored = [stored_of(each, name, client.address, now_ms) for each in messages]
        topic = context.known_topic(name)
        if not topic.writable or not topic.write_queues:
            raise StatusFailure(Code.FORBIDDEN, f"topic {name} has no writable queue")
        for each in stored:
            self._check_type(topic, each)
        saving = context.acts.send.unsaved(topic)
        if saving is None:
            return self._store(request, stored, topic, client, call)

        def saved() -> None:
            answer = self._store(request, stored, topic, client, call)
            if answer is not None:
                call.reply(answer.SerializeToString())

        when_all((saving,), saved)
        return None

    def _send_plain(self, message: Any, client: GrpcClient) -> bytes | None:
        """Send by the short path (invariant 3); None: nothing was done. Raises: StatusFailure."""
        name = message.topic.name
        found = self._plain.get(name)
        context = self._context
        parts = context.parts
        if found is None or parts.messages.durability.waits:
            return None
        topic, plain, accepted = found
        if parts.tables.topics.get(name) is not topic:
            del self._plain[name]
            return None
        stored = stored_of(message, name, client.address, parts.node.clock.now_ms())
        if stored.kind not in accepted:
            return None
        once = plain.once
        if once is not None and not _is_new(once, stored):
            return None
        try:
            put = context.acts.send.send_plain(
                plain,
                self._queue_id(topic, stored),
                message.body,
                stored.properties,
                sys_flag=stored.sys_flag,
                born_ms=stored.born_ms,
                peer=client,
            )
        except StoreError:
            return None
        if put is None:
            return None
        if once is not None:
            once.latest[stored.message_id.encode()] = put.position
        return sent(stored.message_id, put.queue_offset)

    def _remember(self, topic: TopicConfig) -> None:
        """Let the next plain message to this topic take the short path."""
        plain = self._context.acts.send.plain_topic(topic.topic)
        if plain is not None and topic.writable:
            checks = self._context.config.type_check
            accepted = [each for each in _PLAIN if not checks or each in accepted_types(topic)]
            self._plain[topic.topic] = topic, plain, tuple(accepted)

    def _check_type(self, topic: TopicConfig, stored: StorableMessage) -> None:
        """Check invariant 2. Raises: StatusFailure."""
        if not self._context.config.type_check:
            return
        accepted = accepted_types(topic)
        if stored.kind not in accepted:
            expected = " or ".join(each.name for each in accepted)
            raise StatusFailure(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is "
                f"{stored.kind.name}; set the topic's attribute message.type",
            )

    def _store(
        self,
        request: Any,
        stored: list[StorableMessage],
        topic: TopicConfig,
        client: GrpcClient,
        call: GrpcCall,
    ) -> Any:
        """Store messages; answers later, with None, if it must wait for the disk."""
        answer, late = SendMessageResponse(), SendMessageResponse()
        end: int | None = None
        for message, each in zip(request.messages, stored, strict=True):
            entry = answer.entries.add()
            try:
                end = self._store_one(message, each, topic, client, entry) or end
            except Refused as refused:
                entry.status.CopyFrom(StatusFailure.by(refused).status)
        codes = {entry.status.code for entry in answer.entries}
        if len(codes) == 1:
            answer.status.CopyFrom(answer.entries[0].status)
        else:
            answer.status.code = Code.MULTIPLE_RESULTS
        if end is not None:
            late.CopyFrom(answer)
        return self._context.when_kept(call, end, answer, late)

    def _store_one(
        self,
        message: Any,
        stored: StorableMessage,
        topic: TopicConfig,
        client: GrpcClient,
        entry: Any,
    ) -> int | None:
        """Store a message and fill its entry. Returns: the log position to flush first. Raises: Refused."""
        ask = SendMessageHeader(
            producer_group=topic.topic,
            topic=topic.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=0,
            queue_id=self._queue_id(topic, stored),
            sys_flag=stored.sys_flag,
            born_timestamp=stored.born_ms,
            flag=0,
            properties=stored.properties,
        )
        acts = self._context.acts.send
        if stored.kind is MessageType.TRANSACTION:
            # It may have said nothing of this topic in its settings, and is to be asked all the same.
            self._sessions.produces(client, topic.topic)
        found = acts.check(ask, client)
        if topic.topic not in self._plain:
            self._remember(found)
        put = acts.send(ask, found, message.body, client)
        if stored.kind is MessageType.TRANSACTION:
            self._transactions.began(topic.topic, stored.message_id, put)
        entry.status.CopyFrom(OK)
        entry.message_id = stored.message_id
        entry.transaction_id = stored.message_id
        entry.offset = put.queue_offset
        if put.recall_handle is not None:
            entry.recall_handle = put.recall_handle
        return put.end

    def _queue_id(self, topic: TopicConfig, stored: StorableMessage) -> int:
        """Apply invariant 1."""
        count = topic.write_queues
        if stored.group is not None:
            return jump_hash(string_hash(stored.group), count)
        self._turns[topic.topic] += 1
        return self._turns[topic.topic] % count


def jump_hash(key: int, buckets: int) -> int:
    """Return a bucket that changes for few keys if one bucket is added: Guava's Hashing.consistentHash.

    Source: J. Lamping, E. Veach, A Fast, Minimal Memory, Consistent Hash Algorithm, 2014.

    >>> [jump_hash(string_hash(group), 8) for group in ("a", "b", "order-1")]
    [0, 5, 3]
    """
    state = key & 0xFFFF_FFFF_FFFF_FFFF
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        state = (state * 2_862_933_555_777_941_757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        following = int((bucket + 1) / (((state >> 33) + 1) / (1 << 31)))
    return bucket


def _is_new(once: OnceTopic, message: StorableMessage) -> bool:
    """Return True if a message repeats none that is known."""
    key = message.message_id.encode()
    return bool(key) and not exempt(message.properties.encode()) and once.is_new(key)


def _parse_large(asked: Any, data: bytes) -> Any:
    """Parse a send of which the bodies may be large; nothing else. Raises: GrpcError."""
    size = _size_without_bodies(data)
    if size > REQUEST_SIZE_MAX:
        raise GrpcError(
            GrpcStatus.RESOURCE_EXHAUSTED,
            f"a send has at most {REQUEST_SIZE_MAX} bytes besides the bodies of its messages: split it",
        )
    return parsed(asked, data, len(data))


def _size_without_bodies(data: bytes) -> int:
    """Return the bytes of a SendMessageRequest besides bodies; all, if it has too many fields or is cut."""
    size = count = 0
    try:
        for key, begin, end in _fields(data, 0, len(data)):
            inner = _fields(data, begin, end) if key == _MESSAGE else ()
            size += 0 if key == _MESSAGE else end - begin
            count += 1
            for name, first, last in inner:
                size += 0 if name == _BODY else last - first
                count += 1
                if count > _FIELDS_MAX:
                    break
            if count > _FIELDS_MAX:
                return len(data)
    except (IndexError, ValueError):
        return len(data)
    return size


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield key, first byte and end of each field. Raises: IndexError, ValueError for malformed data."""
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            _, stop = _varint(data, at)
        elif kind == 1:
            stop = at + 8
        elif kind == 2:
            size, at = _varint(data, at)
            stop = at + size
        elif kind == 5:
            stop = at + 4
        else:
            raise ValueError("a group, which proto3 has not")
        if stop > end:
            raise ValueError("a field reaches over the end")
        yield key, at, stop
        at = stop


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for place in range(1, 10):
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise ValueError("a number of more than ten bytes")
