"""Models of the codec: what is written is read, and what is broken is refused with a reason."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import (
    add_property,
    compress,
    decompress,
    get_property,
    offset_msg_id,
    parse_offset_msg_id,
    properties_to_dict,
    properties_to_text,
    remove_property,
)
from pocketmq.model.record import (
    MAGIC_V1,
    MAGIC_V2,
    Record,
    body_crc,
    decode_batch,
    encode_batch,
    read_record,
    read_records,
    record_size,
    write_record,
)
from pocketmq.model.subscription import build_subscription, parse_tags
from pocketmq.remoting import fastjson, json_codec
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.errors import (
    FrameError,
    FrameTooLarge,
    HeaderError,
    IllegalArgument,
    MessageCodecError,
    ProtocolError,
)
from pocketmq.remoting.flags import Compression
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.headers import PullMessageHeader, SendMessageV2Header
from pocketmq.remoting.hosts import pack_host, unpack_host
from pocketmq.remoting.settings import format_properties, parse_properties

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
commands = st.builds(
    RemotingCommand,
    st.integers(-(2**15), 2**15 - 1),
    st.dictionaries(texts.filter(bool), texts, min_size=1, max_size=5),
    st.binary(max_size=200),
    opaque=int32,
    flag=st.integers(0, 3),
    remark=st.none() | texts.filter(bool),
    language=st.sampled_from(["JAVA", "GO", "PYTHON"]),
    version=st.integers(0, 600),
    encoding=st.sampled_from(list(SerializeType)),
)


@given(st.lists(commands, max_size=4), st.data())
def test_a_stream_of_commands_survives_any_cut(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(encode(command) for command in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = FrameDecoder()
    frames: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += decoder.feed(stream[start:end])
    assert [decode(frame) for frame in frames] == sent
    assert decoder.pending == 0


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_never_crashes(garbage: bytes) -> None:
    try:
        for frame in FrameDecoder().feed(garbage):
            decode(frame)
    except FrameError:
        pass


@given(st.sampled_from([0, 1, 77]), st.binary(max_size=120))
def test_a_garbage_header_of_any_encoding_is_a_frame_error(encoding: int, header: bytes) -> None:
    frame = (encoding << 24 | len(header)).to_bytes(4, "big") + header
    try:
        decode(frame)
    except FrameError:
        pass


@pytest.mark.parametrize("total", [2**31, 2**32 - 1, 16 * 1024 * 1024, 16_777_213])
def test_an_oversized_length_is_refused_before_buffering(total: int) -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameTooLarge, match="at most 16777216"):
        decoder.feed(total.to_bytes(4, "big") + b"x" * 100)
    assert decoder.pending == 0


def test_numbers_and_booleans_in_ext_fields_read_as_text() -> None:
    """wire.md 1.2: ali-ons sends raw JSON numbers and booleans."""
    header = b'{"code":310,"extFields":{"e":3,"m":false,"k":null,"b":"T"},"opaque":7}'
    command = decode(len(header).to_bytes(4, "big") + header)
    assert command.ext == {"e": "3", "m": "false", "b": "T"}


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"code":"x"}',
        b'{"code":1.5}',
        b'{"opaque":99999999999}',
        b'{"extFields":[1]}',
        b'{"extFields":{"a":{}}}',
        b'{"remark":3}',
        b"{",
        b"\xff\xfe",
        b"[" * 5000,
    ],
)
def test_a_json_header_of_wrong_types_is_a_frame_error(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode(len(header).to_bytes(4, "big") + header)


def test_a_missing_or_wrong_field_is_named() -> None:
    with pytest.raises(HeaderError, match="consumerGroup"):
        PullMessageHeader.parse({})
    fields = dict.fromkeys("abcdefgh", "1")
    assert SendMessageV2Header.parse(fields).queue_id == 1
    with pytest.raises(HeaderError, match="'e' is not a number: 'x'"):
        SendMessageV2Header.parse({**fields, "e": "x"})


# ------------------------------------------------------------ records

hosts = st.sampled_from([pack_host("127.0.0.1:10911"), pack_host("[::1]:10911")])


@st.composite
def records(draw: st.DrawFn) -> Record:
    born, store = draw(hosts), draw(hosts)
    topic = draw(st.text("abcT%_-", min_size=1, max_size=140))
    body = draw(st.binary(max_size=300))
    properties = properties_to_text(
        draw(
            st.dictionaries(
                st.text("abcK", min_size=1), st.text("xyz \u4e2d", min_size=1), max_size=4
            )
        )
    ).encode()
    sys_flag = (16 if len(born) == 20 else 0) | (32 if len(store) == 20 else 0)
    size = record_size(len(topic), len(body), len(properties), sys_flag)
    return Record(
        size,
        MAGIC_V2 if len(topic) > 127 else MAGIC_V1,
        body_crc(body),
        draw(int32),
        draw(int32),
        draw(int64),
        draw(int64),
        sys_flag,
        draw(int64),
        born,
        draw(int64),
        store,
        draw(int32),
        draw(int64),
        memoryview(body),
        topic,
        properties,
    )


@given(st.lists(records(), max_size=3))
def test_records_written_are_the_records_read(written: list[Record]) -> None:
    data = b"".join(write_record(record) for record in written)
    assert [*read_records(data)] == written


@given(records(), st.data())
def test_a_flipped_byte_is_refused_or_spares_the_body(record: Record, data: st.DataObject) -> None:
    raw = bytearray(write_record(record))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read_record(raw)
    except MessageCodecError:
        return
    # An empty body has no bytes to protect; otherwise the body is what was written, or refused.
    assert found.body == record.body or not record.body or not found.body


@given(records(), st.integers(1, 90))
def test_a_cut_record_is_refused(record: Record, cut: int) -> None:
    with pytest.raises(MessageCodecError):
        read_record(write_record(record)[:-cut])


@given(st.lists(st.tuples(int32, st.binary(max_size=50), st.just(b"KEYS\x01k\x02")), max_size=5))
def test_a_batch_gives_its_messages_back(members: list[tuple[int, bytes, bytes]]) -> None:
    decoded = decode_batch(encode_batch(members))
    assert [(m.flag, bytes(m.body), m.properties) for m in decoded] == members


@given(st.binary(min_size=1, max_size=100))
def test_a_garbage_batch_is_refused(garbage: bytes) -> None:
    try:
        decode_batch(garbage)
    except MessageCodecError:
        pass


# ------------------------------------------------------------ properties, ids, hashes


def test_properties_follow_javas_rules() -> None:
    """disk.md 3: with and without the last separator; empty names and values dropped; the last wins."""
    text = b"KEYS\x01k\x02x\x02\x01v\x02e\x01\x02W\x011\x02W\x012"
    assert properties_to_dict(text) == {"KEYS": "k", "W": "2"}
    assert get_property(text, b"W") == b"2"
    assert get_property(text, b"EYS") is None
    assert get_property(b"AKEYS\x01no\x02KEYS\x01yes\x02", b"KEYS") == b"yes"
    assert add_property(b"a\x01b", b"c", b"d") == b"a\x01b\x02c\x01d\x02"
    assert remove_property(b"WAIT\x01true\x02a\x01b", b"WAIT") == b"a\x01b\x02"


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("A", 65),
        ("tagA", 3552231),
        ("tagB", 3552232),
        ("Aa", 2112),
        ("BB", 2112),
        ("TagA", 2598919),
        ("\u4e2d\u6587", 646394),
        ("zzzzzz", -685785664),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
        ("", 0),
    ],
)
def test_tag_hashes_are_javas(tag: str, code: int) -> None:
    """S42, wire.md 9."""
    assert string_hash(tag) == code


def test_known_answers_of_ids_and_checksums() -> None:
    """wire.md 9."""
    host = pack_host("127.0.0.1:27110")
    assert offset_msg_id(host, 0) == "7F000001000069E60000000000000000"
    assert parse_offset_msg_id("C0A8010A00002A9F0000011F71FB04CB") == (
        "192.168.1.10:10911",
        1234567890123,
    )
    assert unpack_host(pack_host("[::1]:80")) == "::1:80"
    for bad in ("", "xyz", "AB", "00" * 17):
        with pytest.raises(MessageCodecError, match="offset message id"):
            parse_offset_msg_id(bad)


def test_known_answer_frames() -> None:
    """wire.md 9: code 30, topic TopicTest, queue 3, opaque 7, in both official encodings."""
    command = RemotingCommand(
        30, {"queueId": "3", "topic": "TopicTest"}, opaque=7, language="JAVA", version=0
    )
    assert encode(command) == bytes.fromhex("000000920000008e") + (
        b'{"code":30,"extFields":{"queueId":"3","topic":"TopicTest"},"flag":0,"language":"JAVA",'
        b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":0}'
    )
    command.encoding = SerializeType.ROCKETMQ
    assert encode(command).hex() == (
        "0000003b01000037" + "001e000000000000070000000000000000"
        "00000022"
        + "0007"
        + b"queueId".hex()
        + "0000000133"
        + "0005"
        + b"topic".hex()
        + "00000009"
        + b"TopicTest".hex()
    )


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        (None, set()),
        ("", set()),
        ("*", set()),
        ("A", {"A"}),
        ("A||B", {"A", "B"}),
        (" A || B ", {"A", "B"}),
        ("A|| ||B", {"A", "B"}),
    ],
)
def test_tag_expressions(expression: str | None, tags: set[str]) -> None:
    """S41: the table for *, empty, A, A||B, ` A || B `."""
    subscription = build_subscription("T", expression)
    assert subscription.tags_set == tags
    assert subscription.code_set == {string_hash(tag) for tag in tags}
    assert subscription.expression_type == "TAG"
    assert subscription.class_filter_mode is False


def test_an_expression_of_separators_is_refused() -> None:
    """S41: `||`."""
    with pytest.raises(IllegalArgument, match="names no tag"):
        parse_tags("||")
    with pytest.raises(IllegalArgument, match="needs an expression"):
        build_subscription("T", "", "SQL92")


# ------------------------------------------------------------ packed bodies


@given(st.binary(max_size=5000), st.sampled_from(list(Compression)))
def test_a_packed_body_unpacks(body: bytes, kind: Compression) -> None:
    assert decompress(compress(body, kind), kind << 8 | 1) == body


@pytest.mark.parametrize("kind", list(Compression))
def test_a_decompression_bomb_is_refused(kind: Compression) -> None:
    bomb = compress(b"\0" * 3_000_000, kind)
    with pytest.raises(MessageCodecError, match="1000000 bytes"):
        decompress(bomb, kind << 8 | 1, size_max=1_000_000)


@given(st.binary(max_size=60), st.integers(0, 7))
def test_a_broken_packed_body_is_refused(body: bytes, kind: int) -> None:
    try:
        decompress(body, kind << 8 | 1)
    except MessageCodecError:
        pass


def test_a_cut_zlib_body_is_refused() -> None:
    with pytest.raises(MessageCodecError, match="truncated"):
        decompress(zlib.compress(b"x" * 1000)[:-4], 1)


# ------------------------------------------------------------ the fastjson dialect

keys = st.text("abc$", min_size=1, max_size=4) | st.integers(0, 20)
values = st.recursive(
    st.none() | st.booleans() | int64 | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def as_read(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): as_read(v) for k, v in value.items() if v is not None}
    return [as_read(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_the_dialect_reads_what_it_writes(value: object) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == as_read(value)


@given(st.text(max_size=60))
def test_garbage_json_is_refused_and_never_crashes(text: str) -> None:
    try:
        fastjson.loads(text)
    except ProtocolError:
        pass


def test_object_keys_and_bare_keys_are_read() -> None:
    """wire.md 1.6: what no JSON library reads."""
    value = fastjson.loads(
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":5}},1:\'x\',"l":[1,]}'
    )
    key = fastjson.ObjectKey.of(topic="T", queueId=0, brokerName="b")
    assert value == {"offsetTable": {key: {"brokerOffset": 5}}, "1": "x", "l": [1]}
    assert key.get("queueId") == 0
    assert fastjson.dumps({1: 3, 3: 5}) == b"{1:3,3:5}"
    assert fastjson.dumps({0: "ip"}, quote_integer_keys=True) == b'{"0":"ip"}'


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb'{"a":"x\ud800"}', {"a": "x?"}),
        (rb"{0:'\udc00\ud83d\ude00'}", {"0": "?\U0001f600"}),
        (rb'{"\udfff":1}', {"?": 1}),
        (b'{"a":1e999}', None),
        (b'{"a":-Infinity}', None),
        (b"{0:NaN}", None),
        (b'{"a":1' + b"0" * 400 + b"}", None),
        (b"\xed\xa0\x80", None),
    ],
    ids=ascii,
)
def test_what_is_read_can_be_written(text: bytes, read: object) -> None:
    """Half of a surrogate pair is `?`, as Java writes it; an invalid number is refused.

    In a table, either would end the broker when the table is saved, or leave a file that cannot be read.
    """
    if read is None:
        with pytest.raises(ProtocolError):
            fastjson.loads(text)
    else:
        assert fastjson.loads(text) == read
        assert fastjson.loads(fastjson.dumps(read)) == read
    # Neither library takes it for plain JSON.
    for loads in (json_codec.loads, json_codec.std_loads):
        with pytest.raises(ValueError, match=r"."):
            loads(text)


def test_fastjson_dialect_has_a_smaller_size_limit() -> None:
    """Reading it costs five times as much: 1 MB of it held up a broker for 1.7 s."""
    plain = b'{"a":[' + b"1," * 100_000 + b"1]}"
    assert len(fastjson.loads_request(plain)["a"]) == 100_001
    with pytest.raises(ProtocolError, match="the limit is 262144"):
        fastjson.loads_request(b'"' + b"x" * 262_143 + b'"')
    dialect = b"{'a':[" + b"1," * 16_000 + b"1]}"
    assert len(fastjson.loads_request(dialect)["a"]) == 16_001
    with pytest.raises(ProtocolError, match="is not plain JSON"):
        fastjson.loads_request(b"{'a':[" + b"1," * 17_000 + b"1]}")


def test_a_number_that_is_none_is_written_as_null() -> None:
    assert fastjson.dumps([float("nan"), float("inf"), 1.5]) == b"[null,null,1.5]"


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_both_json_libraries_read_a_number_beyond_64_bits_alike(number: int) -> None:
    text = b"[%d]" % number
    assert json_codec.std_loads(text) == json_codec.loads(text) == [float(number)]


@given(values.map(as_read))
def test_both_json_libraries_read_what_either_writes(value: object) -> None:
    assert json_codec.std_loads(json_codec.dumps(value)) == value
    assert json_codec.loads(json_codec.std_dumps(value)) == value


# ------------------------------------------------------------ properties files

lines = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20)


@given(st.dictionaries(st.text("abcXYZ.09", min_size=1, max_size=8), lines, max_size=5))
def test_a_properties_file_reads_what_it_writes(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


def test_a_properties_file_as_people_write_it() -> None:
    text = "# c\n! c\n\nbrokerName = a\\\n   b\nx:1\ny 2\nuni=\\u4e2d\nempty=\n"
    assert parse_properties(text) == {
        "brokerName": "ab",
        "x": "1",
        "y": "2",
        "uni": "\u4e2d",
        "empty": "",
    }
    # Java ends a line by these three alone.
    assert parse_properties("a=1\rb=2\u20283\r\nc=4\x855\n") == {
        "a": "1",
        "b": "2\u20283",
        "c": "4\x855",
    }
