"""Decodes the body of a pull answer into the messages that a listener gets (S49 to S51).

1. An unreadable record ends the pull with MessageCodecError: the same offset is pulled again, so nothing is
   skipped. A body whose compression is corrupt is delivered as stored, since retrying would not help; a
   compression whose library is missing is an error until it is installed.
2. The broker compared hash codes of tags; here the tags themselves are compared, and a message without a
   tag does not pass a subscription that names tags.
3. A message is made without its constructor, with what every consumer needs: topic, body, queue offset. The
   rest waits until a listener reads it, as many listeners read nothing but the body. For a consumer that
   does read it, it is decoded at once (`Habit`).
4. A few KB may unpack to 64 MiB: records of an answer whose bodies would go beyond UNPACKED_MAX together are
   left for later (`UnpackBudget`). The first is always read, so a queue moves on.
tests/client/test_decode.py compares it with message_codec.to_messages.
"""

import dataclasses
import logging
import re
import struct
import threading
from functools import lru_cache
from typing import Any, NamedTuple

from pocketmq.client.pull.pull_result import PullResult
from pocketmq.model.message import MessageExt, Property
from pocketmq.model.message_codec import INFLATED_SIZE_MAX, decompress, to_message, to_messages
from pocketmq.model.record import (
    BORN_V6,
    FIXED_V4,
    MAGIC_V1,
    MAGIC_V2,
    STORE_V6,
    WRAPPED_BATCH,
    Record,
    read_record,
)
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.hosts import unpack_host

log = logging.getLogger(__name__)

_PAIRS = re.compile("(?:\\A|\x02)([^\x01\x02]+)\x01([^\x02]+)").findall
_host = lru_cache(maxsize=4096)(unpack_host)
_host_hex = lru_cache(maxsize=4096)(lambda raw: raw.hex().upper())
_unpack = FIXED_V4.unpack_from
_FIXED_SIZE = FIXED_V4.size
_TAGS = Property.TAGS.value
_KEYS = Property.KEYS.value
_UNIQ_KEY = Property.UNIQ_KEY.value
_TRAN_MSG = Property.TRAN_MSG.value
_TRANSACTION_ID = Property.TRANSACTION_ID.value
_MIN_OFFSET = Property.MIN_OFFSET.value
_MAX_OFFSET = Property.MAX_OFFSET.value


@lru_cache(maxsize=4096)
def _topic(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageCodecError(f"a topic is not UTF-8: {raw!r}") from error


# IPv6 hosts, inner batches: the general decoder reads those.
_UNUSUAL = BORN_V6 | STORE_V6 | WRAPPED_BATCH
_PACKED = int(MessageSysFlag.COMPRESSED | MessageSysFlag.INNER_BATCH)
# What a message of an inner batch costs besides its body, bytes: 22 in the record become a whole object.
_BESIDES = 1024


class Habit:
    """Whether a consumer asks for more of its messages than `decode_messages` has to read (invariant 3)."""

    __slots__ = ("asked", "left")

    def __init__(self) -> None:
        self.left = self.asked = 0

    @property
    def asks(self) -> bool:
        """True once more was asked for of every sixteenth message: asking costs ten times the reading."""
        return self.asked * 16 > self.left


UNPACKED_MAX = INFLATED_SIZE_MAX
"""Bytes that the compressed bodies of one answer unpack to, but for the last of them."""


class UnpackBudget:
    """How much may still be unpacked (invariant 4); of what was left, first byte and queue offset."""

    __slots__ = ("left", "rest_at", "rest_offset")

    def __init__(self, size: int = UNPACKED_MAX) -> None:
        self.left = size
        self.rest_at: int | None = None
        self.rest_offset: int | None = None

    def ends(self, at: int, queue_offset: int) -> bool:
        """Return whether a compressed record has to be left, with what is behind it."""
        if self.left > 0:
            return False
        self.rest_at, self.rest_offset = at, queue_offset
        return True


class _Pull(NamedTuple):
    """What all messages of an answer have in common; bounds in digits."""

    broker_name: str
    bounds: tuple[str, str] | None
    habit: Habit | None

    def ask(self, message: MessageExt, name: str) -> Any:
        """Return an attribute that was left until now. Raises: AttributeError."""
        with _asking:
            late = message.late
            if late is not None:
                # A listener that reads one attribute may have set another before.
                kept = {each: _own(message, each) for each in _WAITING}
                started = _own(message, "started")
                _fill(message, late, self)
                for each, value in kept.items():
                    if value is not _UNSET:
                        setattr(message, each, value)
                if started is not _UNSET:
                    message.note_start(started)
                assert self.habit is not None
                self.habit.asked += 1
        return object.__getattribute__(message, name)


def decode_messages(
    body: bytes,
    broker_name: str,
    offset_delta: int = 0,
    bounds: tuple[int, int] | None = None,
    habit: Habit | None = None,
    room: UnpackBudget | None = None,
) -> list[MessageExt]:
    """Decode the messages of a pull answer, in order. Raises: MessageCodecError (invariant 1).

    offset_delta: of a 5.x static topic, added to each queue offset. bounds: least and greatest offset of the
    queue, which become properties. habit: the consumer's; without it all is read at once. room: tells what
    was left.
    """
    found: list[MessageExt] = []
    room = room or UnpackBudget()
    shown = None if bounds is None else (str(bounds[0]), str(bounds[1]))
    pull = _Pull(broker_name, shown, habit)
    at_once = habit is None or habit.asks
    at = 0
    end = len(body)
    make = MessageExt.__new__
    last_topic, topic = b"", ""
    while at < end:
        if end - at < _FIXED_SIZE:
            raise MessageCodecError(f"a pull answer ends within the record at byte {at}")
        size, magic, queue_offset, sys_flag, body_size = _needed(body, at)
        if sys_flag & _PACKED and room.ends(at, queue_offset + offset_delta):
            break
        if sys_flag & _UNUSUAL or magic not in (MAGIC_V1, MAGIC_V2):
            at = _unusual(body, at, found, offset_delta, pull, room)
            continue
        body_at = at + _FIXED_SIZE
        topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
        stop = at + size
        if body_size < 0 or topic_at + 2 > stop or stop > end:
            raise MessageCodecError(f"the lengths of the record at byte {at} do not add up")
        topic_size = body[topic_at - 1]
        if magic == MAGIC_V2:
            topic_size |= body[topic_at - 2] << 8
        properties_at = topic_at + topic_size + 2
        if (
            properties_at > stop
            or properties_at + (body[properties_at - 2] << 8 | body[properties_at - 1]) != stop
        ):
            raise MessageCodecError(f"the lengths of the record at byte {at} do not add up")
        if (raw_topic := body[topic_at : topic_at + topic_size]) != last_topic:
            last_topic, topic = raw_topic, _topic(raw_topic)
        if not (at_once or sys_flag & 1) and body[stop : stop + 8] == body[at : at + 8]:
            tail_size = properties_at - body_at - body_size
            row_of = _row(body_size, tail_size, stop - properties_at)
            at = _cut_alike(body, at, row_of, found, topic, offset_delta, pull)
            continue
        content = body[body_at : body_at + body_size]
        message = make(MessageExt)
        message.topic = topic
        message.body = _unpacked(content, sys_flag, room) if sys_flag & 1 else content
        message.queue_offset = queue_offset + offset_delta
        late = body[at:body_at], body[properties_at:stop]
        if at_once:
            _fill(message, late, pull)
        else:
            message.late = late  # type: ignore[misc]
            message.reader = pull  # type: ignore[misc]
        found.append(message)
        at = stop
    if habit is not None and not at_once:
        habit.left += len(found)
    return found


def _unusual(
    body: bytes,
    at: int,
    found: list[MessageExt],
    offset_delta: int,
    pull: _Pull,
    room: UnpackBudget,
) -> int:
    """Add the messages of any record, by the general decoder. Returns: where the next record begins."""
    record = read_record(body, at, check_crc=False)
    for message in _general(record, pull.broker_name):
        if record.sys_flag & _PACKED:
            room.left -= len(message.body) + _BESIDES
        message.queue_offset += offset_delta
        if pull.bounds is not None:
            _complete(message, pull.bounds)
        found.append(message)
    return at + record.size


def decode_pulled(
    result: PullResult, body: bytes, broker_name: str, habit: Habit | None = None
) -> list[MessageExt]:
    """Decode an answer; if it holds too much, `result` continues at the first message that was left."""
    room = UnpackBudget()
    messages = decode_messages(body, broker_name, result.offset_delta, result.bounds, habit, room)
    if room.rest_offset is not None:
        log.warning(
            "the bodies of a pull unpack to more than %s MiB; the rest is pulled again broker=%s messages=%s "
            "next=%s",
            UNPACKED_MAX >> 20,
            broker_name,
            len(messages),
            room.rest_offset,
        )
        result.next_begin_offset = room.rest_offset
    return messages


def _cut_alike(
    body: bytes,
    at: int,
    row_of: struct.Struct,
    found: list[MessageExt],
    topic: str,
    offset_delta: int,
    pull: _Pull,
) -> int:
    """Add the messages of records like that at `at`, as rows of a table. Returns: where one is not alike."""
    size, make = row_of.size, MessageExt.__new__
    alike: tuple[bytes, ...] | None = None
    for row in row_of.iter_unpack(memoryview(body)[at : len(body) - (len(body) - at) % size]):
        mark, _, queue_offset, _, flags, _, body_size, content, tail, _ = row
        same = mark, flags, body_size, tail
        if alike is None:
            alike = same
        elif same != alike:
            break
        message = make(MessageExt)
        message.topic = topic
        message.body = content
        message.queue_offset = queue_offset + offset_delta
        message.late = row  # type: ignore[misc]
        message.reader = pull  # type: ignore[misc]
        found.append(message)
        at += size
    return at


# Size, magic, queue offset, sysFlag and body size of `FIXED_V4`.
_needed = struct.Struct(">ii12xq8xi44xi").unpack_from
assert struct.calcsize(">ii12xq8xi44xi") == _FIXED_SIZE


@lru_cache(maxsize=1024)
def _row(body_size: int, tail_size: int, properties_size: int) -> struct.Struct:
    """Return the columns of records that are alike. Equal in all: mark, flags, body size, and the tail.

    mark: size and magic. tail: topic and the lengths around it.
    """
    return struct.Struct(f">8s12sq8s4s44s4s{body_size}s{tail_size}s{properties_size}s")


def _read(late: tuple[Any, ...]) -> tuple[tuple[Any, ...], bytes]:
    """Return the fixed fields and the properties of a record that was left unread: two pieces, or a row."""
    if len(late) == 2:
        return _unpack(late[0]), late[1]
    mark, ids, queue_offset, position, flags, times, body_size, _, _, text = late
    offset = queue_offset.to_bytes(8, "big", signed=True)
    return _unpack(b"".join((mark, ids, offset, position, flags, times, body_size))), text


def _fill(message: MessageExt, late: tuple[Any, ...], pull: _Pull) -> None:
    """Set what invariant 3 lets wait."""
    fixed, text = _read(late)
    properties: dict[str, str] = dict(_PAIRS(text.decode("utf-8", "replace")))
    message.tags = properties.get(_TAGS)
    message.keys = properties.get(_KEYS)
    message.properties = properties
    message.transaction_id = properties.get(_TRANSACTION_ID)
    message.broker_name = pull.broker_name
    (
        message.stored_size,
        message.magic,
        message.body_crc,
        message.queue_id,
        message.flag,
        _,
        position,
        message.sys_flag,
        message.born_timestamp,
        born_host,
        message.store_timestamp,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        _,
    ) = fixed
    message.commit_log_offset = position
    message.born_host = _host(born_host)
    message.store_host = _host(store_host)
    message.offset_msg_id = f"{_host_hex(store_host)}{position:016X}"
    if pull.bounds is not None:
        _complete(message, pull.bounds)
    message.late = None  # type: ignore[misc]


def _complete(message: MessageExt, bounds: tuple[str, str]) -> None:
    """Add what a puller knows: the queue's bounds, and the id of a transaction."""
    properties = message.properties
    properties[_MIN_OFFSET], properties[_MAX_OFFSET] = bounds
    if properties.get(_TRAN_MSG) == "true":
        message.transaction_id = properties.get(_UNIQ_KEY)


_WAITING = {each.name for each in dataclasses.fields(MessageExt)} - {
    "topic",
    "body",
    "queue_offset",
}
_UNSET = object()
# A listener's thread and the event loop may ask at the same time.
_asking = threading.Lock()


def _own(message: MessageExt, name: str) -> Any:
    try:
        return object.__getattribute__(message, name)
    except AttributeError:
        return _UNSET


def _unpacked(content: bytes, sys_flag: int, room: UnpackBudget) -> bytes:
    try:
        body = decompress(content, sys_flag)
        room.left -= len(body)
        return body
    except MessageCodecError as error:
        if isinstance(error.__cause__, ImportError):
            raise
        log.warning("a compressed body is damaged and is handed out as it is reason=%r", str(error))
        return content


def _general(record: Record, broker_name: str) -> list[MessageExt]:
    """Decode any record, even with inner batches, by the codec that reads everything."""
    try:
        return to_messages(record, broker_name)
    except MessageCodecError as error:
        if isinstance(error.__cause__, ImportError):
            raise
        log.warning("a compressed body is damaged and is handed out as it is reason=%r", str(error))
        return [to_message(record, broker_name, unpack=False)]


def filter_by_tags(messages: list[MessageExt], subscription: SubscriptionData) -> list[MessageExt]:
    """Apply invariant 2. SQL92 is evaluated by the broker, class filters elsewhere."""
    tags = subscription.tags_set
    if not tags or subscription.class_filter_mode:
        return messages
    return [message for message in messages if message.tags in tags]
