"""The vectorised decoder against one record at a time, over records of every shape."""

import struct
import zlib
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq import bulk
from pocketmq.bulk.columns.body import unpack
from pocketmq.bulk.columns.decode import decode
from pocketmq.bulk.columns.properties import PropertyTable
from pocketmq.bulk.columns.schema import ALL, COLUMNS, STANDARD, resolve, schema_of
from pocketmq.bulk.log_walk import record_starts
from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import compress, properties_to_dict
from pocketmq.model.record import encode_batch
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.flags import Compression
from tests.store.bulk_stores import Message, WrittenStore, rows_of_record, table_rows

# Text that may hold the separators, line ends, several alphabets and characters beyond the BMP.
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAG", "xTAGS", "é", "名"])
pairs = st.lists(st.tuples(names | texts, texts), max_size=6)


@st.composite
def properties(draw: st.DrawFn) -> bytes:
    """Property texts as brokers store them, and broken ones."""
    text = "\x02".join(f"{k}\x01{v}" for k, v in draw(pairs))
    return (text + draw(st.sampled_from(["", "\x02", "\x02\x02", "junk"]))).encode()


@st.composite
def messages(draw: st.DrawFn) -> Message:
    topic = draw(st.sampled_from(["T", "Topic-é", "x" * 127]))
    hosts = st.sampled_from(["10.0.0.1:80", "255.1.2.3:65535", "[2001:db8::1]:9", "[::]:1"])
    return Message(
        topic=topic,
        queue_id=draw(st.integers(0, 3)),
        body=draw(st.binary(max_size=40)),
        properties=draw(properties()),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        born_ms=draw(st.integers(0, 4_000_000_000_000)),
        store_ms=draw(st.integers(0, 4_000_000_000_000)),
        born_host=draw(hosts),
        store_host=draw(hosts),
        reconsume_times=draw(st.integers(0, 20)),
        prepared_offset=draw(st.integers(0, 2**62)),
        version_2=draw(st.booleans()),
    )


def fail(place: int, reason: str) -> None:
    raise AssertionError(f"{reason} at {place}")


def _note(bad: list[int], place: int, reason: str) -> None:
    bad.append(place)


def joined(found: list[Message]) -> bytes:
    """Records as a pull reply holds them."""
    return b"".join(WrittenStore.record_of(m, i, 1000 + i) for i, m in enumerate(found))


def decoded(raw: bytes, columns: Any = ALL, order: list[int] | None = None) -> list[dict[str, Any]]:
    data = pa.py_buffer(raw)
    starts = record_starts(data)
    starts = starts if order is None else starts[order]
    batch = decode(data, starts, columns, on_bad=fail, broker_name="b")
    batch.validate(full=True)
    assert batch.schema == schema_of(columns)
    return table_rows(batch)


@settings(max_examples=200, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=8), st.randoms())
def test_any_records_decode_as_one_at_a_time(found: list[Message], chance: Random) -> None:
    """In any order."""
    raw = joined(found)
    wanted: list[dict[str, Any]] = []
    for i, message in enumerate(found):
        (row,) = rows_of_record(WrittenStore.record_of(message, i, 1000 + i), "b", None)
        # As an index would have it.
        wanted.append(row | {"tagsCode": string_hash(row["tags"] or "")})
    assert decoded(raw) == wanted
    order = chance.sample(range(len(found)), len(found))
    assert decoded(raw, order=order) == [wanted[i] for i in order]


@settings(max_examples=300, deadline=None)
@given(st.lists(properties(), min_size=1, max_size=8), st.booleans())
def test_any_properties_split_by_javas_rules(found: list[bytes], layout: bool) -> None:
    table = PropertyTable(pa.array([p.decode() for p in found], pa.string()))
    if layout:
        table.find_layout()
    wanted = [properties_to_dict(p) for p in found]
    maps = table.maps()
    maps.validate(full=True)
    assert [dict(m) for m in maps.to_pylist()] == wanted
    assert all(len({k for k, _ in m}) == len(m) for m in maps.to_pylist())
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "é", "missing"):
        assert table.get(name).to_pylist() == [w.get(name) for w in wanted]


def test_the_last_of_two_equal_names_wins() -> None:
    """4.9 writes WAIT and CLUSTER twice in batches."""
    one = "WAIT\x01true\x02TAGS\x01a\x02WAIT\x01false\x02TAGS\x01b"
    table = PropertyTable(pa.array([one, "TAGS\x01c\x02"] * 3, pa.string()))
    assert table.get("TAGS").to_pylist() == ["b", "c"] * 3
    assert table.maps().to_pylist()[0] == [("WAIT", "false"), ("TAGS", "b")]


def test_more_names_than_an_integer_has_bits() -> None:
    text = "".join(f"n{i}\x01{i}\x02" for i in range(100)) + "n7\x01again\x02"
    (only,) = PropertyTable(pa.array([text], pa.string())).maps().to_pylist()
    assert len(only) == 100
    assert dict(only)["n7"] == "again"


def test_bytes_that_are_no_utf_8_become_replacement_characters() -> None:
    rows = decoded(joined([Message(properties=b"TAGS\x01\xff\xfe\x02k\x01ok\x02"), Message()]))
    assert rows[0]["tags"] == "��"
    assert rows[0]["properties"] == {"TAGS": "��", "k": "ok"}
    assert rows[1]["tags"] == "a"


def test_times_that_no_calendar_has_are_null() -> None:
    rows = decoded(joined([Message(born_ms=2**62), Message(born_ms=-(2**62)), Message(born_ms=7)]))
    assert [r["bornTimestamp"] is None for r in rows] == [True, True, False]


@pytest.mark.parametrize("kind", [Compression.ZLIB, Compression.LZ4, Compression.ZSTD])
def test_packed_bodies_are_unpacked(kind: Compression) -> None:
    body = b"again and " * 1000
    packed = Message(body=compress(body, kind), sys_flag=1 | kind << 8)
    old = Message(body=zlib.compress(body), sys_flag=1)
    raw = joined([Message(), packed, old, Message(body=b"")])
    assert [r["body"] for r in decoded(raw, ["body"])] == [b"body", body, body, b""]
    data = pa.py_buffer(raw)
    kept = decode(data, record_starts(data), ["body"], on_bad=fail, unpack=False)
    assert kept.column("body").to_pylist()[1] == packed.body


@pytest.mark.parametrize("kind", [1, 2, 3, 5])
def test_a_packed_body_that_is_none_is_a_bad_record(kind: int) -> None:
    with pytest.raises(MessageCodecError):
        unpack(b"neither", 1 | kind << 8)
    bad: list[int] = []
    raw = joined([Message(), Message(body=b"neither", sys_flag=1 | kind << 8), Message(body=b"x")])
    data = pa.py_buffer(raw)
    starts = record_starts(data)
    batch = decode(data, starts, ["body", "tags"], on_bad=lambda place, reason: bad.append(place))
    assert batch.column("body").to_pylist() == [b"body", b"x"]
    assert bad == [starts[1]]


def test_inner_batches_become_their_messages() -> None:
    """5.x, sysFlag 0xC0: own body, flag, properties, and queue offsets from the record's on."""
    inner = encode_batch([(3, b"one", b"TAGS\x01x\x02"), (4, b"two", b"")])
    batch = Message(body=inner, sys_flag=0xC0, properties=b"INNER_NUM\x012\x02TAGS\x01outer\x02")
    raw = joined([Message(), batch, Message()])
    rows = decoded(raw, ["queueOffset", "body", "flag", "tags", "commitLogOffset", "properties"])
    assert [(r["queueOffset"], r["body"], r["flag"], r["tags"]) for r in rows] == [
        (0, b"body", 0, "a"), (1, b"one", 3, "x"), (2, b"two", 4, None), (2, b"body", 0, "a"),
    ]  # fmt: skip
    assert [r["commitLogOffset"] for r in rows] == [1000, 1001, 1001, 1002]


def test_an_inner_batch_that_is_none_is_a_bad_record() -> None:
    raw = joined([Message(), Message(body=b"\0\0\0\x09", sys_flag=0xC0)])
    data = pa.py_buffer(raw)
    bad: list[str] = []
    batch = decode(
        data, record_starts(data), ["body"], on_bad=lambda place, reason: bad.append(reason)
    )
    assert batch.num_rows == 1
    assert len(bad) == 1


@pytest.mark.parametrize("columns", [["flag"], ["body"], ["tags"], list(STANDARD)])
def test_damage_in_a_record_never_changes_other_rows(
    columns: list[str],
) -> None:
    """A byte of the length fields changed: the record is reported or its own values differ; no more."""
    found = [Message(body=b"first"), Message(body=b"second"), Message(body=b"third")]
    raw = joined(found)
    starts = record_starts(pa.py_buffer(raw))
    clean = decoded(raw, columns)
    for place in range(int(starts[1]), int(starts[2])):
        broken = bytearray(raw)
        broken[place] ^= 0x5A
        data = pa.py_buffer(bytes(broken))
        bad: list[int] = []
        report = partial(_note, bad)
        batch = decode(data, starts, columns, on_bad=report, broker_name="b")
        rows = table_rows(batch)
        assert bad in ([], [int(starts[1])]), place
        assert rows[0] == clean[0]
        assert rows[-1] == clean[2]
        assert len(rows) == 3 - len(bad)


def test_checksums_are_compared_when_asked() -> None:
    raw = bytearray(joined([Message(body=b"first"), Message(body=b"second"), Message(body=b"")]))
    data = pa.py_buffer(bytes(raw))
    starts = record_starts(data)
    assert decode(data, starts, ["flag"], on_bad=fail, verify_crc=True).num_rows == 3
    raw[raw.index(b"second")] ^= 1
    data = pa.py_buffer(bytes(raw))
    reasons: list[str] = []
    batch = decode(
        data, starts, ["flag"], on_bad=lambda p, reason: reasons.append(reason), verify_crc=True
    )
    assert batch.num_rows == 2
    assert reasons == ["the body does not match its checksum"]


def test_joined_records_must_be_whole() -> None:
    raw = joined([Message(), Message()])
    assert len(record_starts(pa.py_buffer(raw))) == 2
    with pytest.raises(MessageCodecError):
        record_starts(pa.py_buffer(raw[:-1]))
    with pytest.raises(MessageCodecError):
        record_starts(pa.py_buffer(raw[:130] + b"\0" * 130))
    assert len(record_starts(pa.py_buffer(b""))) == 0


def test_columns_are_named_once_and_exist() -> None:
    assert resolve(None) == STANDARD
    assert len(STANDARD) == 11
    assert resolve("all") == tuple(COLUMNS)
    assert resolve(" body, tags ") == ("body", "tags")
    for bad in ("bodi", "tags,tags", " , "):
        with pytest.raises(ValueError, match=r"the columns are|named twice"):
            resolve(bad)


def test_no_column_of_the_index_touches_the_log(tmp_path: Path) -> None:
    """Cost grows with what is asked for."""
    store = WrittenStore(tmp_path / "b" / "store")
    store.add(Message(queue_id=i % 2) for i in range(10))
    index_only = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "tagsCode"]
    before = bulk.scan(str(store.root), columns=index_only).read_all()
    reader = bulk.scan(str(store.root), columns=index_only)
    # Reading looks at the log's first 128 bytes to know the store again, and at no record.
    store.patch(128, struct.pack(">i", 7) * 20)
    assert reader.read_all() == before
    assert before.num_rows == 10
    assert np.array_equal(np.sort(before["queueOffset"].to_numpy()), np.repeat(np.arange(5), 2))
