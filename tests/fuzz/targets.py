"""What is fuzzed: for each parser the bytes to begin with, and what must be true of any bytes.

A check raises when a parser does what it may not: another error than its own, or an invalid value.
"""

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pocketmq.grpc.http2.frames import PREFACE, Flag, FrameType, Http2Error, head
from pocketmq.grpc.http2.frames import settings as settings_frame
from pocketmq.grpc.http2.hpack import HeadersTooLarge, HpackDecoder, HpackError
from pocketmq.grpc.http2.hpack import encode as encode_headers
from pocketmq.grpc.http2.protocol import Http2Server
from pocketmq.model.message_codec import (
    add_property,
    get_property,
    properties_to_dict,
    remove_property,
)
from pocketmq.model.record import (
    MAGIC_V1,
    MAGIC_V2,
    Record,
    decode_batch,
    encode_batch,
    read_records,
    write_record,
)
from pocketmq.model.sql92 import SelectorError
from pocketmq.model.sql92.filter import CompileCache
from pocketmq.remoting import fastjson
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import MessageCodecError, ProtocolError
from pocketmq.remoting.frames import FrameDecoder
from tests.store.stores import HOST


class Target(NamedTuple):
    corpus: Sequence[bytes]
    check: Callable[[bytes], None]


CORPUS = Path(__file__).with_name("corpus")
EXT = {"a": "group", "b": "topic", "e": "0", "i": "KEYS\x01k\x02TAGS\x01t\x02", "empty": ""}
COMMANDS = [
    encode(RemotingCommand(code, EXT, b"body", opaque=7, remark=remark, encoding=encoding))[4:]
    for code in (10, 310)
    for remark in (None, "a remark \u00fc")
    for encoding in (0, 1, 77)
]
PROPERTIES = [b"KEYS\x01a b\x02TAGS\x01t\x02WAIT\x01true", b"", b"a\x01\x02", b"UNIQ_KEY\x01k\x02"]
BATCHES = [encode_batch([(0, b"body", text) for text in PROPERTIES]), encode_batch([(1, b"", b"")])]
TEXTS = [
    b"a > 5 AND b = 'it''s' OR NOT c BETWEEN -1 AND 2.5e3",
    b"a IN ('x','y') AND b IS NOT NULL OR c NOT IN ('1') -- end\n",
    b"(a CONTAINS 'x' OR b STARTSWITH 'y') AND c <> TRUE /* no */ = FALSE",
    b"((((a = 1))))",
]
JSONS = [
    b'{"offsetTable":{"T@g":{0:3,1:4}}}',
    b'{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"a":1}:[1,2.5,true,null]}',
    b"{'a':'it\\'s','b':[1,2,],\"c\":\"\\u00e9\\n\"}",
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[]}]}',
]
ASKED = encode_headers(
    [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/s/M"),
        (b":authority", b"a"),
        (b"te", b"trailers"),
    ]
)
# What the official SDKs sent in a conversation each, as it came.
RECORDED = [path.read_bytes() for path in sorted(CORPUS.glob("grpc/*.bin"))]
HTTP2 = [
    *RECORDED,
    PREFACE
    + settings_frame({})
    + head(len(ASKED), FrameType.HEADERS, Flag.END_HEADERS, 1)
    + ASKED
    + head(9, FrameType.DATA, Flag.END_STREAM, 1)
    + bytes(9)
    + head(8, FrameType.PING, 0, 0)
    + bytes(8)
    + head(4, FrameType.WINDOW_UPDATE, 0, 0)
    + bytes((0, 0, 1, 0)),
]


def _written(magic: int) -> bytes:
    return write_record(
        Record(
            *(0, magic, 0, 1, 0, 5, 77, 0, 1, HOST, 2, HOST, 0, 0),
            memoryview(b"body"),
            "topic",
            PROPERTIES[0],
        )
    )


_STREAM = b"".join(struct.pack(">I", len(frame)) + frame for frame in COMMANDS[:3])


def _frames(data: bytes) -> None:
    whole: list[bytes] | None = None
    with suppress(ProtocolError):
        whole = FrameDecoder(4096).feed(data)
    decoder, found = FrameDecoder(4096), list[bytes]()
    try:
        for at in range(0, len(data), 7):
            found += decoder.feed(data[at : at + 7])
            assert decoder.pending <= 4096
    except ProtocolError:
        assert whole is None
    else:
        assert found == whole


def _header(data: bytes) -> None:
    try:
        command = decode(data)
    except ProtocolError:
        return
    assert command.ext is None or all(isinstance(text, str) for text in command.ext.values())
    with suppress(UnicodeEncodeError, struct.error):
        encode(command.answer(0, command.remark, command.ext))


def _json(data: bytes) -> None:
    try:
        value = fastjson.loads(data)
    except fastjson.FastjsonError:
        return
    with suppress(UnicodeEncodeError, TypeError):
        fastjson.loads(fastjson.dumps(value))


def _properties(data: bytes) -> None:
    found = properties_to_dict(data)
    assert all(name for name in found) or "" in found
    for name in (b"KEYS", b"TAGS", b"WAIT"):
        get_property(data, name)
        assert get_property(remove_property(data, name), name) is None
        assert get_property(add_property(remove_property(data, name), name, b"v"), name) == b"v"


def _record(data: bytes) -> None:
    with suppress(MessageCodecError):
        for record in read_records(data):
            assert len(record.body) <= len(data)
    with suppress(MessageCodecError):
        decode_batch(data)


def _expression(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        compiled = CompileCache().compiled(text)
    except SelectorError:
        return
    for value in ("1", "", text[:50], "1e400"):
        assert compiled.matches({"a": value, "b": value}) in (True, False)


def _http2(data: bytes) -> None:
    http2 = Http2Server()
    with suppress(Http2Error):
        for at in range(0, len(data), 50):
            http2.receive(data[at : at + 50])
            while http2.next_event() is not None:
                assert http2.pending <= 1 << 21
    http2.take()


def _hpack(data: bytes) -> None:
    decoder = HpackDecoder(list_size_max=16_384)
    with suppress(HpackError, HeadersTooLarge):
        for _ in range(2):
            found = decoder.decode(data)
            assert HpackDecoder(list_size_max=1 << 24).decode(encode_headers(found)) == found


TARGETS = {
    "frames": Target([_STREAM, _STREAM[:-3]], _frames),
    "header": Target(COMMANDS, _header),
    "json": Target(JSONS, _json),
    "properties": Target(PROPERTIES, _properties),
    "record": Target([_written(MAGIC_V1), _written(MAGIC_V2), *BATCHES], _record),
    "expression": Target(TEXTS, _expression),
    "http2": Target(HTTP2, _http2),
    "hpack": Target([ASKED], _hpack),
}
