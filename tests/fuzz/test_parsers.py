"""R12: whatever bytes come, each parser gives a value or its own error, and nothing else."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fuzz.mutation import fuzz
from tests.store.stores import HOST, open_store

from pocketmq.broker.sql92 import SelectorError
from pocketmq.broker.sql92.filter import CompileCache
from pocketmq.remoting import fastjson
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.errors import MessageCodecError, ProtocolError
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.message_codec import (
    add_property,
    get_property,
    properties_to_dict,
    remove_property,
)
from pocketmq.remoting.record import (
    MAGIC_V1,
    MAGIC_V2,
    Record,
    decode_batch,
    encode_batch,
    read_records,
    write_record,
)
from pocketmq.store import MessageStore, StoreError

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


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--fuzz-examples"))


def _record(magic: int) -> bytes:
    return write_record(
        Record(
            *(0, magic, 0, 1, 0, 5, 77, 0, 1, HOST, 2, HOST, 0, 0),
            memoryview(b"body"),
            "topic",
            PROPERTIES[0],
        )
    )


def test_frames_come_out_the_same_however_they_are_cut(examples: int) -> None:
    stream = b"".join(struct.pack(">I", len(frame)) + frame for frame in COMMANDS[:3])

    def check(data: bytes) -> None:
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

    fuzz(check, [stream, stream[:-3]], examples)


def test_a_header_is_decoded_or_refused(examples: int) -> None:
    def check(data: bytes) -> None:
        try:
            command = decode(data)
        except ProtocolError:
            return
        assert command.ext is None or all(isinstance(text, str) for text in command.ext.values())
        with suppress(UnicodeEncodeError, struct.error):
            encode(command.answer(0, command.remark, command.ext))

    fuzz(check, COMMANDS, examples)


def test_json_is_read_or_refused(examples: int) -> None:
    def check(data: bytes) -> None:
        try:
            value = fastjson.loads(data)
        except fastjson.FastjsonError:
            return
        with suppress(UnicodeEncodeError, TypeError):
            fastjson.loads(fastjson.dumps(value))

    fuzz(check, JSONS, examples)


def test_properties_are_any_bytes(examples: int) -> None:
    def check(data: bytes) -> None:
        found = properties_to_dict(data)
        assert all(name for name in found) or "" in found
        for name in (b"KEYS", b"TAGS", b"WAIT"):
            get_property(data, name)
            assert get_property(remove_property(data, name), name) is None
            assert get_property(add_property(remove_property(data, name), name, b"v"), name) == b"v"

    fuzz(check, PROPERTIES, examples)


def test_a_record_is_read_or_refused(examples: int) -> None:
    def check(data: bytes) -> None:
        with suppress(MessageCodecError):
            for record in read_records(data):
                assert len(record.body) <= len(data)
        with suppress(MessageCodecError):
            decode_batch(data)

    fuzz(check, [_record(MAGIC_V1), _record(MAGIC_V2), *BATCHES], examples)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    found = open_store(tmp_path, mapped_file_size_commit_log=1 << 24)
    yield found
    found.close()


def test_a_batch_is_stored_whole_or_refused(store: MessageStore, examples: int) -> None:
    def check(data: bytes) -> None:
        before = store.max_offset("T", 0)
        try:
            stored = store.append_batch("T", 0, data, b"CLUSTER\x01c\x02", 0, 1, HOST)
        except StoreError:
            assert store.max_offset("T", 0) == before
        else:
            assert store.max_offset("T", 0) == before + stored.count

    fuzz(check, BATCHES, examples)


def test_an_expression_is_compiled_or_refused(examples: int) -> None:
    def check(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        try:
            compiled = CompileCache().compiled(text)
        except SelectorError:
            return
        for value in ("1", "", text[:50], "1e400"):
            assert compiled.matches({"a": value, "b": value}) in (True, False)

    fuzz(check, TEXTS, examples)
