"""Packing: checks a Message and encodes it, with its unique key (wire.md 3.1, 5.4).

1. A message keeps its unique key through all attempts of one send, so that consumers can detect duplicates.
2. The caller's Message is never changed.
3. The frame of a plain message is assembled from pieces that are encoded once per queue; they are cut out of
   a frame made by the ordinary codec, so they cannot differ from it.
Source: DefaultMQProducerImpl, RocketMQ 4.9.7.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pocketmq.client.argument_types import check_tags
from pocketmq.client.errors import IllegalMessage, MessageTooLarge
from pocketmq.client.network.namespace import with_namespace
from pocketmq.client.options import SendOptions
from pocketmq.client.send import batch
from pocketmq.model.message import Message, MessageQueue, Property
from pocketmq.model.message_codec import compress, properties_to_text
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.model.record import PROPERTIES_SIZE_MAX
from pocketmq.model.unique_key import UniqueKeys
from pocketmq.remoting import json_codec
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, encode_header
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.frames import FRAME_SIZE_MAX

REPLY = "reply"
COMPRESS_LEVEL = 5
# What a header takes beside its properties stays below that.
_BODY_SIZE_MAX = FRAME_SIZE_MAX - 2 * PROPERTIES_SIZE_MAX - 4096
# Plain strings: asking an enum member for its value costs as much as the look-up it is for.
_TAGS = Property.TAGS.value
_KEYS = Property.KEYS.value
_UNIQ_KEY = Property.UNIQ_KEY.value
_MSG_TYPE = Property.MSG_TYPE.value
_INSTANCE_ID = Property.INSTANCE_ID.value
_SEND = int(RequestCode.SEND_MESSAGE_V2)
_SEND_REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)
_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_PREPARED = int(MessageSysFlag.TRANSACTION_PREPARED)
_COMPRESSED = int(MessageSysFlag.COMPRESSED)
_DELAYING = (
    Property.DELAY.value,
    Property.TIMER_DELAY_MS.value,
    Property.TIMER_DELAY_SEC.value,
    Property.TIMER_DELIVER_MS.value,
    "__STARTDELIVERTIME",
)


class OutgoingMessage:
    """A message or batch ready to be sent to any queue.

    Attributes: topic (as it travels), code, body (compressed if large), sys_flag, flag, born_ms, properties
    (as text), more (further header fields), unique_key (of a batch all, joined by commas), message (the
    caller's), body_size (uncompressed, bytes).
    """

    __slots__ = (
        "body",
        "body_size",
        "born_ms",
        "code",
        "flag",
        "message",
        "more",
        "properties",
        "sys_flag",
        "topic",
        "unique_key",
    )

    def __init__(
        self,
        topic: str,
        code: int,
        body: bytes,
        properties: str,
        unique_key: str,
        message: Message,
        body_size: int,
        born_ms: int,
        sys_flag: int = 0,
        flag: int = 0,
        more: dict[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.code = code
        self.body = body
        self.properties = properties
        self.unique_key = unique_key
        self.message = message
        self.body_size = body_size
        self.born_ms = born_ms
        self.sys_flag = sys_flag
        self.flag = flag
        self.more = more

    @property
    def message_type(self) -> int:
        """Return MessageType of a trace: 0 normal, 1 transaction half, 3 delayed."""
        if self.sys_flag & _PREPARED:
            return 1
        names = {pair.partition("\x01")[0] for pair in self.properties.split("\x02")}
        return 0 if names.isdisjoint(_DELAYING) else 3


class _Pieces(NamedTuple):
    """A JSON header, cut at the born time, the properties and the opaque."""

    before_time: bytes
    before_properties: bytes
    before_opaque: bytes
    end: bytes


_HEAD = struct.Struct(">II")
_TIME_MARK, _PROPERTIES_MARK, _OPAQUE_MARK = "<\x03time>", "<\x03properties>", 2_147_483_646
_PIECES_MAX = 4_096


Carry = Callable[[Message, dict[str, str]], None]


class Packer:
    """Packs for one producer group. Owner: a SendEngine."""

    def __init__(
        self,
        group: str,
        options: SendOptions,
        clock: Clock,
        client_ip: str,
        *,
        namespace: str | None = None,
        carry: Carry | None = None,
    ) -> None:
        """carry: called with each message and the properties that travel, to which it may add."""
        self.group = group
        self.options = options
        self._namespace = namespace
        self._clock = clock
        self._keys = UniqueKeys(client_ip, clock)
        self._pieces: dict[MessageQueue, _Pieces] = {}
        self._carry = carry

    def pack(self, message: Message, sys_flag: int = 0) -> OutgoingMessage:
        """Check and pack one message. Raises: IllegalMessage, MessageTooLarge."""
        topic = message.topic
        body = message.body
        options = self.options
        if body.__class__ is not bytes or not 0 < len(body) <= options.max_message_size:
            self._check_body(body, topic)
        if self._namespace:
            topic = with_namespace(self._namespace, topic)
        properties = self._properties(message)
        body_size = len(body)
        if body_size >= options.compress_over:
            packed = compress(body, options.compression, COMPRESS_LEVEL)
            if len(packed) < body_size:
                body = packed
                sys_flag |= _COMPRESSED | int(options.compression) << 8
        if len(body) > _BODY_SIZE_MAX:
            raise MessageTooLarge(
                f"the body has {len(body)} bytes as it would be sent, and no frame of RocketMQ's protocol "
                f"has room for more than {_BODY_SIZE_MAX}. Split it, or send the address of it"
            )
        more = _retry_fields(properties) if topic.startswith(RETRY_PREFIX) else None
        # By place: names cost a dictionary a call.
        return OutgoingMessage(
            topic,
            _SEND_REPLY if properties.get(_MSG_TYPE) == REPLY else _SEND,
            body,
            _text(properties),
            properties[_UNIQ_KEY],
            message,
            body_size,
            self._clock.now_ms(),
            sys_flag,
            message.flag,
            more,
        )

    def pack_batch(self, messages: Sequence[Message]) -> OutgoingMessage:
        """Check and pack a batch that fits. Raises: IllegalMessage, MessageTooLarge."""
        topic = with_namespace(self._namespace, messages[0].topic)
        members: list[Message] = []
        keys: list[str] = []
        for message in messages:
            self._check_body(message.body, message.topic)
            properties = self._properties(message)
            _text(properties)
            keys.append(properties[_UNIQ_KEY])
            members.append(Message(topic, message.body, flag=message.flag, properties=properties))
        outer = {}
        if Property.WAIT.value in members[0].properties:
            outer[Property.WAIT.value] = members[0].properties[Property.WAIT.value]
        return OutgoingMessage(
            topic,
            _SEND_BATCH,
            batch.encode(members),
            properties_to_text(outer),
            ",".join(keys),
            members[0],
            sum(len(member.body) for member in members),
            self._clock.now_ms(),
            flag=messages[0].flag,
            more={"m": "true"},
        )

    def _properties(self, message: Message) -> dict[str, str]:
        properties = message.properties.copy()
        # The attributes win: they are what the caller sees and may have changed.
        tags, keys = message.tags, message.keys
        if tags is not None:
            properties[_TAGS] = tags
            if message.__class__ is Message:
                check_tags(tags)
        if keys is not None:
            properties[_KEYS] = keys
        if _UNIQ_KEY not in properties:
            properties[_UNIQ_KEY] = self._keys.make()
        if self._namespace:
            properties[_INSTANCE_ID] = self._namespace
        if self._carry is not None:
            self._carry(message, properties)
        return properties

    def _check_body(self, body: object, topic: str) -> None:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise IllegalMessage(f"the body must be bytes, not {type(body).__name__}: encode it")
        if not body:
            raise IllegalMessage(
                f"a message to topic {topic!r} has no body; it needs at least one byte"
            )
        if len(body) > self.options.max_message_size:
            raise MessageTooLarge(
                f"the body has {len(body)} bytes, but the limit is {self.options.max_message_size}. Split it,"
                " or raise max_message_size here and maxMessageSize at the broker"
            )

    # ------------------------------------------------------------ header and frame

    def ext(self, outgoing: OutgoingMessage, queue: MessageQueue) -> dict[str, str]:
        """Return the fields of SendMessageV2Header for one queue."""
        options = self.options
        ext = {
            "a": self.group,
            "b": outgoing.topic,
            "c": options.create_topic_key,
            "d": str(options.default_topic_queue_nums),
            "e": str(queue.queue_id),
            "f": str(outgoing.sys_flag),
            "g": str(outgoing.born_ms),
            "h": str(outgoing.flag),
            "i": outgoing.properties,
            "j": "0",
            "k": "false",
            "m": "false",
            "n": queue.broker_name,
        }
        if outgoing.more is not None:
            ext.update(outgoing.more)
        return ext

    def frame(self, outgoing: OutgoingMessage, queue: MessageQueue, opaque: int) -> bytes | None:
        """Return the whole frame of a plain message, JSON header, unsigned; None if it is not plain."""
        if outgoing.code != _SEND or outgoing.sys_flag or outgoing.flag or outgoing.more:
            return None
        pieces = self._pieces.get(queue)
        if pieces is None:
            pieces = self._cut(outgoing, queue)
            if len(self._pieces) >= _PIECES_MAX:
                self._pieces.clear()
            self._pieces[queue] = pieces
        header = b"%b%d%b%b%b%d%b" % (
            pieces.before_time,
            outgoing.born_ms,
            pieces.before_properties,
            json_codec.dumps(outgoing.properties),
            pieces.before_opaque,
            opaque,
            pieces.end,
        )
        size = len(header)
        body = outgoing.body
        return b"".join((_HEAD.pack(4 + size + len(body), size), header, body))

    def _cut(self, outgoing: OutgoingMessage, queue: MessageQueue) -> _Pieces:
        ext = self.ext(outgoing, queue)
        # The marks hold a character that no name has, and the opaque is the last of its kind.
        ext["g"], ext["i"] = _TIME_MARK, _PROPERTIES_MARK
        header = encode_header(RemotingCommand(_SEND, ext, opaque=_OPAQUE_MARK))
        before_time, _, rest = header.partition(json_codec.dumps(_TIME_MARK))
        before_properties, _, rest = rest.partition(json_codec.dumps(_PROPERTIES_MARK))
        before_opaque, _, end = rest.rpartition(b"%d" % _OPAQUE_MARK)
        return _Pieces(before_time + b'"', b'"' + before_properties, before_opaque, end)


def _text(properties: dict[str, str]) -> str:
    text = properties_to_text(properties)
    count = len(properties)
    if text.count("\x01") != count or text.count("\x02") != count:
        raise IllegalMessage(
            "a property's name or value holds the character 1 or 2, which separate properties"
        )
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    if size > PROPERTIES_SIZE_MAX:
        raise IllegalMessage(
            f"the properties have {size} bytes in total, but the limit is {PROPERTIES_SIZE_MAX}. "
            f"Put large values into the body"
        )
    return text


def _retry_fields(properties: dict[str, str]) -> dict[str, str]:
    """Move the retry counts of a client's own retry message from its properties to header fields."""
    more = {}
    times = properties.pop(Property.RECONSUME_TIME.value, None)
    times_max = properties.pop(Property.MAX_RECONSUME_TIMES.value, None)
    if times is not None:
        more["j"] = times
    if times_max is not None:
        more["l"] = times_max
    return more
