"""What is written by hand, read by the protobuf runtime."""

import hashlib
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.grpc import encode as written
from pocketmq.grpc.answers import OK
from pocketmq.grpc.mapping import RESERVED, type_of
from pocketmq.grpc.messages import Message, classes
from pocketmq.grpc.schema import Encoding
from pocketmq.grpc.unpacking import Unpacking
from pocketmq.model.message_codec import compress, offset_msg_id, properties_to_dict
from pocketmq.model.record import MAGIC_V1, Record
from pocketmq.remoting.flags import Compression
from pocketmq.remoting.hosts import unpack_host

_NAMES = (
    *(
        "UNIQ_KEY",
        "__BORNHOST",
        "TAGS",
        "KEYS",
        "PGROUP",
        "TRAN_MSG",
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
    ),
    *("__LITE_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"),
)
_NUMBERS = ("TIMER_DELIVER_MS", "_SYS_MSG_PRIORITY_")
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=150)
_PROPERTIES = st.dictionaries(
    st.sampled_from(_NAMES) | _VALUES.filter(lambda name: name not in _NUMBERS),
    _VALUES | st.just("true"),
    max_size=8,
)


@given(st.text(min_size=1, max_size=300), st.integers(0, (1 << 63) - 1))
def test_the_answer_of_a_send(message_id: str, offset: int) -> None:
    made = classes["SendMessageResponse"](status=OK)
    made.entries.add(status=OK, message_id=message_id, transaction_id=message_id, offset=offset)
    assert classes["SendMessageResponse"].FromString(written.sent(message_id, offset)) == made


@given(st.lists(st.tuples(st.text(max_size=200), st.text(max_size=200)), max_size=40))
def test_the_answer_of_an_acknowledgement(given: list[tuple[str, str]]) -> None:
    request = classes["AckMessageRequest"]()
    made = classes["AckMessageResponse"](status=OK)
    for message_id, handle in given:
        request.entries.add(message_id=message_id, receipt_handle=handle)
        made.entries.add(message_id=message_id, receipt_handle=handle, status=OK)
    data = written.acked([entry.SerializeToString() for entry in request.entries])
    assert classes["AckMessageResponse"].FromString(data) == made


def _record(body: bytes, properties: bytes, **fields: Any) -> Record:
    host = bytes((127, 0, 0, 1, 0, 0, 42, 159))
    record = Record(
        *(0, MAGIC_V1, 0, 3, 0, 7, 1234, 0, 1_700_000_000_123, host, 1_700_000_000_456, host, 0, 0),
        *(memoryview(body), "T", properties),
    )
    return record._replace(**fields)


@given(
    _PROPERTIES,
    st.dictionaries(st.sampled_from(_NUMBERS), st.integers(0, (1 << 31) - 1)),
    st.sampled_from([b"", b"body", b"b" * 20_000]),
    st.sampled_from(["T", "%DLQ%g", "\u00e9"]),
    st.integers(0, (1 << 63) - 1),
    st.integers(-(1 << 40), 1 << 42),
    st.sampled_from([("", 0), ("1 2 3 4 0 b 1 2 3", 1), ("h" * 300, 17)]),
)
def test_a_message_has_every_field_of_its_record(
    properties: dict[str, str],
    numbers: dict[str, int],
    body: bytes,
    topic: str,
    offset: int,
    born_ms: int,
    delivery: tuple[str, int],
) -> None:
    handle, attempt = delivery
    given = {**properties, **numbers}
    text = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
    record = _record(body, text.encode(), queue_offset=offset, position=offset, born_ms=born_ms)
    framed = written.framed_message(record, Unpacking("RUST"), topic, handle, attempt)
    assert framed is not None
    data = b"".join(framed)
    assert data[:5] == b"\0" + (len(data) - 5).to_bytes(4, "big")
    got = classes["ReceiveMessageResponse"].FromString(data[5:]).message
    assert got == _by_the_runtime(record, topic, handle, attempt)


def _by_the_runtime(record: Record, topic: str, handle: str, attempt: int) -> Any:
    properties = properties_to_dict(record.properties)
    body = bytes(record.body)
    made = Message(topic={"name": topic}, body=body)
    for name in properties.keys() - RESERVED:
        made.user_properties[name] = properties[name]
    system = made.system_properties
    system.message_id = properties.get("UNIQ_KEY") or offset_msg_id(
        record.store_host, record.position
    )
    system.body_digest.type = 2
    system.body_digest.checksum = hashlib.md5(body).hexdigest().upper()
    system.body_encoding = 1
    system.message_type = type_of(properties)
    _set_ms(system.born_timestamp, record.born_ms)
    _set_ms(system.store_timestamp, record.store_ms)
    system.born_host = properties.get("__BORNHOST") or unpack_host(record.born_host)
    system.store_host = unpack_host(record.store_host)
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    if "TAGS" in properties:
        system.tag = properties["TAGS"]
    system.keys.extend(part for part in properties.get("KEYS", "").encode().split())
    if "__SHARDINGKEY" in properties:
        system.message_group = properties["__SHARDINGKEY"]
    if "__LITE_TOPIC" in properties:
        system.lite_topic = properties["__LITE_TOPIC"]
    if "TRACE_CONTEXT" in properties:
        system.trace_context = properties["TRACE_CONTEXT"]
    due, priority = properties.get("TIMER_DELIVER_MS"), properties.get("_SYS_MSG_PRIORITY_")
    if due:
        _set_ms(system.delivery_timestamp, int(due))
    if priority:
        system.priority = int(priority)
    if topic == "%DLQ%g" and "RETRY_TOPIC" in properties:
        dead = system.dead_letter_queue
        dead.topic = properties["RETRY_TOPIC"]
        dead.message_id = properties.get("UNIQ_KEY") or properties.get("ORIGIN_MESSAGE_ID", "")
    if handle:
        system.receipt_handle, system.delivery_attempt = handle, attempt
    return made


def _set_ms(timestamp: Any, ms: int) -> None:
    timestamp.seconds, timestamp.nanos = ms // 1000, ms % 1000 * 1_000_000


@pytest.mark.parametrize("due", ["\u00b2", "9" * 5_000, "-1", "soon"])
def test_a_time_that_is_none_holds_up_no_message(due: str) -> None:
    record = _record(b"b", f"TIMER_DELIVER_MS\x01{due}\x02".encode())
    got = Message.FromString(written.message_alone(record, "", "T"))
    assert not got.system_properties.HasField("delivery_timestamp")
    assert got.body == b"b"


def test_text_that_is_no_utf8_is_delivered_as_java_reads_it() -> None:
    record = _record(b"b", b"TAGS\x01a\xff\x02own\x01\xfe\x02")
    got = Message.FromString(written.message_alone(record, "", "T"))
    assert (got.system_properties.tag, dict(got.user_properties)) == ("a\ufffd", {"own": "\ufffd"})


@pytest.mark.parametrize(
    ("stored", "body", "encoding"),
    [(zlib.compress(b"body"), b"body", Encoding.IDENTITY), (b"body", b"body", Encoding.GZIP)],
    ids=["packed", "said to be packed"],
)
def test_a_body_that_cannot_be_unpacked_keeps_its_encoding(
    stored: bytes, body: bytes, encoding: Encoding
) -> None:
    got = Message.FromString(written.message_alone(_record(stored, b"", sys_flag=1), "", "T"))
    assert (got.body, got.system_properties.body_encoding) == (body, encoding)


def _packed(size: int, kind: Compression = Compression.ZLIB) -> Record:
    return _record(compress(bytes(size), kind), b"", sys_flag=1 | kind << 8)


@pytest.mark.parametrize(
    ("language", "kind"),
    [
        *(("JAVA", kind) for kind in Compression),
        *((each, Compression.ZLIB) for each in ("GO", "PYTHON", "DOTNET", "CPP")),
    ],
)
def test_bodies_beyond_the_bound_stay_packed_for_capable_sdks(
    language: str, kind: Compression
) -> None:
    unpacking = Unpacking(language, 1_000)
    small, large = _packed(400, kind), _packed(5_000, kind)
    assert unpacking.body_of(small) == (bytes(400), Encoding.IDENTITY)
    assert unpacking.body_of(large) == (large.body, Encoding.GZIP)
    # After one that had no room, no other is tried.
    assert unpacking.body_of(small) == (small.body, Encoding.GZIP)
    assert unpacking.body_of(_record(b"plain", b"")) == (b"plain", Encoding.IDENTITY)
    assert not unpacking.is_cut
    content = large.body, Encoding.GZIP
    got = Message.FromString(b"".join(written.message(large, content, "T")))
    assert got.system_properties.body_encoding == Encoding.GZIP
    assert got.body == large.body
    assert got.system_properties.body_digest.checksum == hashlib.md5(large.body).hexdigest().upper()


@pytest.mark.parametrize(
    ("language", "kind"),
    [
        ("HTTP", Compression.ZLIB),
        ("RUST", Compression.ZLIB_OLD),
        ("OTHER", Compression.ZLIB),
        ("PYTHON", Compression.LZ4),
        ("GO", Compression.ZSTD),
    ],
)
def test_other_sdks_get_what_is_beyond_the_bound_alone(language: str, kind: Compression) -> None:
    large = _packed(5_000, kind)
    assert Unpacking(language, 1_000).body_of(large) == (bytes(5_000), Encoding.IDENTITY)
    for before in (_record(b"plain", b""), _packed(400, kind)):
        unpacking = Unpacking(language, 1_000)
        assert unpacking.body_of(before) is not None
        assert unpacking.body_of(large) is None
        assert unpacking.is_cut
