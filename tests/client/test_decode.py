"""The quick decoder of pull answers against the codec, the tag filter, and recorded answers."""

import copy
import dataclasses
import logging
import pickle
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pocketmq.client.pull.decode import Habit, decode_messages, filter_by_tags
from pocketmq.model.java_hash import string_hash
from pocketmq.model.message import MessageExt, Property
from pocketmq.model.message_codec import properties_to_text, to_messages
from pocketmq.model.record import (
    MAGIC_V1,
    MAGIC_V2,
    Record,
    body_crc,
    encode_batch,
    read_record,
    write_record,
)
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting.errors import MessageCodecError

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
HOST_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)


def record(
    body: bytes = b"hello",
    properties: bytes = b"",
    *,
    topic: str = "T",
    sys_flag: int = 0,
    magic: int = MAGIC_V1,
    queue_offset: int = 3,
    reconsume_times: int = 0,
) -> bytes:
    v6 = sys_flag & 0x30 == 0x30
    host = HOST_V6 if v6 else HOST
    return write_record(
        Record(
            0,
            magic,
            body_crc(body),
            1,
            7,
            queue_offset,
            4711,
            sys_flag,
            1_700_000_000_000,
            host,
            1_700_000_000_123,
            host,
            reconsume_times,
            0,
            memoryview(body),
            topic,
            properties,
        )
    )


def slow(body: bytes, broker: str = "b") -> list[MessageExt]:
    found: list[MessageExt] = []
    at = 0
    while at < len(body):
        each = read_record(body, at, check_crc=False)
        found += to_messages(each, broker)
        at += each.size
    return found


@settings(max_examples=200, deadline=None)
@given(
    bodies=st.lists(
        st.tuples(st.binary(max_size=40), st.dictionaries(TEXT, TEXT, max_size=4), st.booleans()),
        max_size=4,
    ),
    long_topic=st.booleans(),
    v6=st.booleans(),
)
def test_the_quick_decoder_gives_what_the_codec_gives(
    bodies: list[tuple[bytes, dict[str, str], bool]], long_topic: bool, v6: bool
) -> None:
    """S46: any mixture of records, long topics, packed bodies and IPv6 hosts."""
    data = b""
    for body, properties, packed in bodies:
        data += record(
            zlib.compress(body) if packed else body,
            properties_to_text(properties).encode(),
            topic="T" * (200 if long_topic else 3),
            magic=MAGIC_V2 if long_topic else MAGIC_V1,
            sys_flag=(0x301 if packed else 0) | (0x30 if v6 else 0),
        )
    assert decode_messages(data, "b") == slow(data)
    assert decode_messages(data, "b", habit=Habit()) == slow(data)


@settings(deadline=None)
@given(
    differing=st.lists(
        st.sampled_from(["", "", "", "topic", "packed", "longer body", "properties"]), max_size=9
    ),
    magic=st.sampled_from([MAGIC_V1, MAGIC_V2]),
)
def test_records_of_one_size_are_read_as_the_codec_reads_them(
    differing: list[str], magic: int
) -> None:
    """S46: records that are alike are cut together, up to one that differs, though its size is the same."""
    packed = zlib.compress(b"packed")
    data = b""
    for at, what in enumerate(differing):
        body = packed if what == "packed" else bytes([at]) * len(packed)
        properties = f"K\x01{at + 10}"
        if what == "longer body":
            body, properties = body + b"x", properties[:-1]
        data += record(
            body,
            (properties[::-1] if what == "properties" else properties).encode(),
            topic="U" if what == "topic" else "T",
            sys_flag=1 if what == "packed" else 0,
            magic=magic,
            queue_offset=at * 3,
            reconsume_times=at % 2,
        )
    assert decode_messages(data, "b", habit=Habit()) == decode_messages(data, "b") == slow(data)
    late = decode_messages(data, "b", 5, (0, 9), Habit())
    assert late == decode_messages(data, "b", 5, (0, 9))
    assert [message.queue_offset for message in late] == [at * 3 + 5 for at in range(len(late))]


@settings(deadline=None)
@given(properties=st.binary(max_size=60))
def test_any_property_text_is_read_as_the_codec_reads_it(properties: bytes) -> None:
    """S46: pairs without a name, a value or a separator are dropped, the last of two equal names wins."""
    data = record(properties=properties)
    assert decode_messages(data, "b") == slow(data)


@settings(deadline=None)
@given(size=st.integers(0, 190))
def test_an_answer_that_is_cut_off_is_an_error(size: int) -> None:
    """S46: what cannot be read ends the pull, so that the same offset is pulled again, nothing skipped."""
    first, second = record(), record(b"second")
    whole = first + second
    assert len(whole) > 190
    if size in (0, len(first)):
        assert len(decode_messages(whole[:size], "b")) == size // len(first)
        return
    with pytest.raises(MessageCodecError):
        decode_messages(whole[:size], "b")


@settings(deadline=None)
@example(where=87, value=2)
@given(where=st.integers(0, 190), value=st.integers(0, 255))
def test_a_broken_byte_gives_messages_or_the_codecs_error(where: int, value: int) -> None:
    """S46: no other exception comes out, whatever the bytes."""
    broken = bytearray(record() + record(b"second"))
    broken[where % len(broken)] = value
    for habit in (None, Habit()):
        try:
            decode_messages(bytes(broken), "b", habit=habit)
        except MessageCodecError:
            pass


def test_an_inner_batch_becomes_its_messages() -> None:
    """S46: 5.x stores a batch as one record; each message has its own offset and properties."""
    body = encode_batch([(1, b"a", b"TAGS\x01x\x02"), (2, b"b", b"TAGS\x01y\x02")])
    found = decode_messages(record(body, b"INNER_BASE\x0110\x02", sys_flag=0xC0), "b")
    assert [(each.body, each.tags, each.queue_offset) for each in found] == [
        (b"a", "x", 10),
        (b"b", "y", 11),
    ]


def test_a_body_that_cannot_be_unpacked_is_handed_out_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S46: it would never get better, and the messages behind it must not wait for it."""
    caplog.set_level(logging.WARNING)
    [found] = decode_messages(record(b"not zlib", sys_flag=0x301), "b")
    assert found.body == b"not zlib"
    assert "compressed body is damaged" in caplog.text


def tagged(*tags: str | None) -> list[MessageExt]:
    return [MessageExt("T", b"x", tags=tag) for tag in tags]


def test_messages_are_filtered_by_the_tag_itself() -> None:
    """S49: Aa and BB have the same hash code, so the broker lets both pass; Aa never delivers BB."""
    assert string_hash("Aa") == string_hash("BB") == 2112
    found = filter_by_tags(tagged("Aa", "BB", None, "C"), build_subscription("T", "Aa || C"))
    assert [each.tags for each in found] == ["Aa", "C"]


def test_all_sql_and_class_filters_bypass_the_tag_filter() -> None:
    """S49: untagged messages pass only where no tag is named; class-filter mode filters elsewhere."""
    messages = tagged("A", None)
    assert filter_by_tags(messages, build_subscription("T", "*")) == messages
    assert filter_by_tags(messages, build_subscription("T", "a > 1", "SQL92")) == messages
    by_class = build_subscription("T", "B")
    by_class.class_filter_mode = True
    assert filter_by_tags(messages, by_class) == messages


def test_a_message_carries_queue_bounds_and_transaction_id() -> None:
    """S51: MIN_OFFSET, MAX_OFFSET, the broker's name, and the transaction id from UNIQ_KEY."""
    text = b"TRAN_MSG\x01true\x02UNIQ_KEY\x01ABC\x02"
    [first, second] = decode_messages(record(properties=text) + record(), "broker-a", 0, (1, 9))
    assert first.transaction_id == "ABC"
    assert second.transaction_id is None
    assert first.properties[Property.MIN_OFFSET.value] == "1"
    assert second.properties[Property.MAX_OFFSET.value] == "9"
    assert first.broker_name == "broker-a"
    assert isinstance(first.body, bytes)


def test_what_nobody_has_asked_for_is_read_when_it_is() -> None:
    """S46: one thing after the other, and what a program or the consumer has set before stays."""
    data = record(properties=b"TAGS\x01x\x02KEYS\x01k\x02", reconsume_times=2)
    message, other = decode_messages(data * 2, "b", 0, (1, 9), Habit())
    message.note_start("17")
    message.keys, message.flag = "mine", 0
    assert (message.tags, message.keys, message.flag, message.reconsume_times) == (
        "x",
        "mine",
        0,
        2,
    )
    assert message.properties == {
        "TAGS": "x",
        "KEYS": "k",
        "MIN_OFFSET": "1",
        "MAX_OFFSET": "9",
        "CONSUME_START_TIME": "17",
    }
    message.note_start("18")
    assert message.properties["CONSUME_START_TIME"] == "18"
    assert other.born_timestamp == 1_700_000_000_000
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = other.colour  # type: ignore[attr-defined]


def test_a_message_with_unread_parts_is_copied_whole() -> None:
    """S46: a program may keep, copy, pickle and replace what it has received."""

    def unpickled(message: MessageExt) -> MessageExt:
        found: MessageExt = pickle.loads(pickle.dumps(message))
        return found

    for made in (copy.copy, copy.deepcopy, unpickled):
        [message] = decode_messages(record(properties=b"TAGS\x01x\x02"), "b", habit=Habit())
        assert made(message) == slow(record(properties=b"TAGS\x01x\x02"))[0]
    [message] = decode_messages(record(), "b", habit=Habit())
    assert dataclasses.replace(message, topic="U").born_host == "127.0.0.1:10911"


def test_a_consumer_that_asks_for_more_gets_it_at_once() -> None:
    """S46: it is read later only where a consumer does without it."""
    habit = Habit()
    first = decode_messages(record() * 31, "b", habit=habit)
    asks: list[bool] = []
    for message in first[:2]:
        assert message.tags is None
        asks.append(habit.asks)
    assert asks == [False, True]
    [later] = decode_messages(record(), "b", habit=habit)
    assert object.__getattribute__(later, "born_timestamp") == 1_700_000_000_000
