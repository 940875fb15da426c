"""Bodies as columns: JSON, Avro and Protobuf, and what does not fit."""

import datetime
import io
import json
import pickle
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.bulk.bodies.columns import FAIL, BodyColumns, BodyMismatch
from pocketmq.bulk.bodies.decoder import ERROR
from pocketmq.remoting.errors import IllegalArgument

UTC = datetime.UTC
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}],
        }}},
    ],
}  # fmt: skip


def rows(columns: BodyColumns, bodies: list[bytes], *wanted: str) -> list[dict[str, Any]]:
    names = list(wanted) or columns.schema.names
    arrays = columns.decode(pa.array(bodies, pa.binary()), names)
    found = pa.RecordBatch.from_arrays(arrays, names)
    found.validate(full=True)
    assert found.schema == pa.schema([columns.schema.field(name) for name in names])
    return list(found.to_pylist())


def test_json_of_every_type() -> None:
    columns = BodyColumns.of(
        "id BIGINT, ok BOOLEAN, amount DOUBLE, name STRING, at TIMESTAMP, day DATE, price DECIMAL(10,2), "
        "lines ARRAY<STRUCT<sku: STRING, n: INT>>"
    )
    body = {
        "id": 1 << 40, "ok": True, "amount": 2.5, "name": "é\n", "at": "2026-01-02T03:04:05.5Z",
        "day": "2026-01-02", "price": "1.25", "lines": [{"sku": "a", "n": 1}, {"n": 2}], "more": {"x": []},
    }  # fmt: skip
    (found,) = rows(columns, [json.dumps(body, indent=1).encode()])
    assert found == {
        "id": 1 << 40, "ok": True, "amount": 2.5, "name": "é\n",
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000, UTC), "day": datetime.date(2026, 1, 2),
        "price": Decimal("1.25"), "lines": [{"sku": "a", "n": 1}, {"sku": None, "n": 2}], ERROR: None,
    }  # fmt: skip


def test_bodies_that_do_not_fit_shift_no_other_row() -> None:
    columns = BodyColumns.of("id INT")
    bad = [
        b"", b"nope", b"{}{}", b'{"id":"x"}', b"null", b"[1]", b'{"id":1}}{"_":{"id":2}', b"\xff",
        b'{"id":1.5}', b'{"id":99999999999}', b"{} null", b'{"id":1}\nnull{}', b"\n",
        b'{"id":1},"_":{"id":2}', b'{"id":1}\0', b'{"id":1}\0}', b'{"id":"x}', b'{"x}', b'{"id":[{}',
    ]  # fmt: skip
    bodies = [one for n, each in enumerate(bad) for one in (b'{"id":%d}' % n, each)]
    found = rows(columns, bodies)
    assert [row["id"] for row in found[::2]] == list(range(len(bad)))
    for body, row in zip(bad, found[1::2], strict=True):
        assert row["id"] is None, body
        assert row[ERROR], body
    assert found[7][ERROR] == "id is of type string, not number"
    # Pruning changes no verdict of a body that is no JSON.
    assert [r[ERROR] is None for r in rows(columns, bodies[:6], ERROR)] == [True, False] * 3
    with pytest.raises(BodyMismatch, match="do not fit bodySchema"):
        rows(BodyColumns.of("id INT", FAIL), bodies)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


# Pieces of bodies that together could be JSON, shifted.
_TORN = st.lists(st.sampled_from([*'{}[]":,\\ \n1', '{"id":1}', "null", '"x"']), max_size=5).map(
    lambda found: "".join(["{", *found, "}"]).encode()
)


@settings(max_examples=200, deadline=None)
@given(st.lists(
    st.dictionaries(st.sampled_from(["id", "name", "x"]), _VALUES, max_size=3).map(
        lambda value: json.dumps(value).encode()
    ) | st.binary(max_size=12) | _TORN, max_size=12,
))  # fmt: skip
def test_any_bodies_are_judged_as_one_at_a_time(bodies: list[bytes]) -> None:
    """The judge is Python's json. Keys that come twice are left out: the readers differ about them."""
    found = rows(BodyColumns.of("id BIGINT, name STRING"), bodies)
    assert len(found) == len(bodies)
    for body, row in zip(bodies, found, strict=True):
        try:
            judge = json.loads(body)
        except ValueError:
            judge = None
        fits = isinstance(judge, dict) and all(
            value is None or (type(value) is kind)
            for name, kind in (("id", int), ("name", str))
            for value in (judge.get(name),)
        )
        if fits:
            assert judge is not None
            assert row == {"id": judge.get("id"), "name": judge.get("name"), ERROR: None}
        else:
            assert (row["id"], row["name"]) == (None, None)
            assert row[ERROR]


def test_fields_named_as_columns_of_messages_get_a_prefix() -> None:
    columns = BodyColumns.of("tags STRING, body STRING, id INT")
    assert columns.schema.names == ["body_tags", "body_body", "id", ERROR]
    assert rows(columns, [b'{"tags":"t","body":"b"}'], "body_tags", "body_body") == [
        {"body_tags": "t", "body_body": "b"}
    ]
    with pytest.raises(IllegalArgument, match="two columns would be named body_tags"):
        BodyColumns.of("tags STRING, body_tags STRING")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id BIGIN", "did you mean 'BIGINT'"),
        ("id", "ends too early"),
        ("id INT, id INT", "named twice"),
        ("id INT name STRING", "is expected in place of"),
        ("a MAP", "there is no type MAP"),
        ("", "is empty"),
        ("infer", "is not possible here"),
        ("/nowhere/orders.avsc", "cannot read /nowhere/orders.avsc"),
        ('{"type": "string"}', "must be of an object"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}', "union"),
        ("http://127.0.0.1:1/", "name a subject"),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(IllegalArgument, match=why):
        BodyColumns.of(text)


def test_a_json_schema_and_a_sample(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        },
        "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    }
    (tmp_path / "orders.json").write_text(json.dumps(schema))
    body = b'{"id":7,"at":"2026-01-02T03:04:05Z","lines":[{"sku":"a"}],"either":5}'
    wanted = {
        "id": 7, "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "lines": [{"sku": "a"}],
    }  # fmt: skip
    for text in (str(tmp_path / "orders.json"), json.dumps(schema)):
        assert rows(BodyColumns.of(text), [body]) == [wanted | {ERROR: None}]
    sample = pa.array([body, b"nope", b'{"id":1,"x":null}', b'{"id":2.5}'], pa.binary())
    inferred = BodyColumns.of("infer", sample=lambda: sample)
    assert inferred.schema.field("id").type == pa.float64()
    assert rows(inferred, [body]) == [wanted | {"either": 5, ERROR: None}]


def avro(schema: dict[str, Any], **values: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, values)
    return stream.getvalue()


def test_avro_bodies() -> None:
    columns: BodyColumns = pickle.loads(pickle.dumps(BodyColumns.of(json.dumps(AVRO))))
    at = datetime.datetime(2026, 1, 2, tzinfo=UTC)
    good = avro(AVRO, id=5, name=None, at=at, lines=[{"sku": "a"}])
    found = rows(columns, [good, b"x", good + b"1"])
    assert found[0] == {"id": 5, "name": None, "at": at, "lines": [{"sku": "a"}], ERROR: None}
    assert [row["id"] for row in found[1:]] == [None, None]
    assert "1 bytes are left" in found[2][ERROR]
    assert rows(columns, [good], "lines") == [{"lines": [{"sku": "a"}]}]


_OLDER = {**AVRO, "fields": [f for f in AVRO["fields"] if f["name"] != "name"]}
_PLAIN = {"type": "object", "properties": {"id": {"type": "integer"}}}
#: A registry with two versions of a subject.
ANSWERS: dict[str, dict[str, Any]] = {
    "/subjects/orders-value/versions/latest": {"id": 2, "schema": json.dumps(AVRO)},
    "/schemas/ids/2": {"schema": json.dumps(AVRO)},
    "/schemas/ids/1": {"schema": json.dumps(_OLDER)},
    "/subjects/plain/versions/latest": {"schemaType": "JSON", "schema": json.dumps(_PLAIN)},
}


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = ANSWERS.get(self.path)
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, format: str, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        running.join()


def test_bodies_of_a_registry_are_read_by_their_own_schema(
    registry: str,
) -> None:
    columns = BodyColumns.of(f"{registry}/subjects/orders-value")
    at = datetime.datetime(2026, 1, 2, tzinfo=UTC)
    old = json.loads(ANSWERS["/schemas/ids/1"]["schema"])
    bodies = [
        b"\0\0\0\0\2" + avro(AVRO, id=5, name="n", at=at, lines=[]),
        b"\0\0\0\0\1" + avro(old, id=6, at=at, lines=[]),
        avro(AVRO, id=7, name="n", at=at, lines=[]),
        b"\0\0\0\0\7x",
    ]
    found = rows(columns, bodies)
    assert [(row["id"], row["name"]) for row in found] == [
        (5, "n"), (6, None), (None, None), (None, None),
    ]  # fmt: skip
    assert "does not begin with a zero byte" in found[2][ERROR]
    assert "/schemas/ids/7" in found[3][ERROR]
    plain = BodyColumns.of(f"{registry}/subjects/plain")
    assert [r["id"] for r in rows(plain, [b'\0\0\0\0\3{"id":1}', b'{"id":2}'])] == [1, None]
    with pytest.raises(IllegalArgument, match="does not answer with a schema"):
        rows(BodyColumns.of(f"{registry}/subjects/nope"), [])


def test_protobuf_bodies(tmp_path: Path) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    kinds = descriptor_pb2.FieldDescriptorProto
    line.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    for number, (name, type_, label, of) in enumerate((
        ("id", kinds.TYPE_INT64, kinds.LABEL_OPTIONAL, None),
        ("words", kinds.TYPE_STRING, kinds.LABEL_REPEATED, None),
        ("first", kinds.TYPE_MESSAGE, kinds.LABEL_OPTIONAL, ".shop.Line"),
        ("big", kinds.TYPE_UINT64, kinds.LABEL_OPTIONAL, None),
        ("raw", kinds.TYPE_BYTES, kinds.LABEL_OPTIONAL, None),
    ), 1):  # fmt: skip
        order.field.add(name=name, number=number, type=type_, label=label, type_name=of)
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    columns: BodyColumns = pickle.loads(pickle.dumps(BodyColumns.of(f"{path}#shop.Order")))
    # id 7, words a and b, first.sku s, big 2^64 - 1, raw 01.
    good = b"\x08\x07\x12\x01a\x12\x01b\x1a\x03\x0a\x01s\x20" + b"\xff" * 9 + b"\x01\x2a\x01\x01"
    found = rows(columns, [good, b"\xff\xff", b""])
    assert found[0] == {
        "id": 7, "words": ["a", "b"], "first": {"sku": "s"}, "big": Decimal((1 << 64) - 1), "raw": b"\1",
        ERROR: None,
    }  # fmt: skip
    assert found[1]["id"] is None
    assert "DecodeError" in found[1][ERROR]
    assert (found[2]["id"], found[2]["words"], found[2]["first"], found[2][ERROR]) == (
        0,
        [],
        None,
        None,
    )
    with pytest.raises(IllegalArgument, match=r"has no message 'shop\.Nope'"):
        BodyColumns.of(f"{path}#shop.Nope")
