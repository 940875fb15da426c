"""Spark's DDL for columns -> an Arrow schema: `id BIGINT, lines ARRAY<STRUCT<sku: STRING>>`.

Arrow types are those that Spark takes, as in columns/schema.py.
"""

import re

import pyarrow as pa

from pocketmq.bulk.columns.schema import TIMESTAMP
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import nearest

_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(), "BYTE": pa.int8(),
    "SMALLINT": pa.int16(), "SHORT": pa.int16(),
    "INT": pa.int32(), "INTEGER": pa.int32(),
    "BIGINT": pa.int64(), "LONG": pa.int64(),
    "FLOAT": pa.float32(), "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
}  # fmt: skip
_TOKEN = re.compile(r"\s*(`[^`]+`|[A-Za-z_][\w$]*|\d+|[<>(),:])")


def parse_ddl(text: str) -> pa.Schema:
    """Return the columns of a DDL. Raises: IllegalArgument that says where it cannot be read."""
    parser = _Parser(text)
    fields = parser.fields(end=None)
    if not fields:
        raise parser.fail("it names no column")
    return pa.schema(fields)


class _Parser:
    """One text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.fail(f"{text[at:].strip()[:20]!r} is not expected")
            self._tokens.append(found[1])
            at = found.end()

    def fail(self, why: str) -> IllegalArgument:
        return IllegalArgument(
            f"bodySchema must be columns such as `id BIGINT, name STRING`, a file, or a URL of a registry; "
            f"{self._text[:80]!r}: {why}"
        )

    def fields(self, end: str | None) -> list[pa.Field]:
        """Return the fields up to a closing token, which is taken."""
        found: list[pa.Field] = []
        while self._tokens:
            name = self._next().strip("`")
            if self._tokens[:1] == [":"]:
                self._next()
            found.append(pa.field(name, self._type()))
            if [f.name for f in found].count(name) > 1:
                raise self.fail(f"column {name} is named twice")
            if self._tokens[:2] == ["NOT", "NULL"]:
                self._tokens = self._tokens[2:]
            if not self._tokens or self._tokens[0] == end:
                break
            self._expect(",")
        if end is not None:
            self._expect(end)
        return found

    def _type(self) -> pa.DataType:
        word = self._next().upper()
        if word == "ARRAY":
            self._expect("<")
            inner = self._type()
            self._expect(">")
            return pa.list_(pa.field("element", inner))
        if word == "STRUCT":
            self._expect("<")
            return pa.struct(self.fields(end=">"))
        if word == "DECIMAL":
            return self._decimal()
        if word not in _TYPES:
            known = [*_TYPES, "DECIMAL", "ARRAY", "STRUCT"]
            raise self.fail(f"there is no type {word}{nearest(word, known)}")
        return _TYPES[word]

    def _decimal(self) -> pa.DataType:
        if self._tokens[:1] != ["("]:
            return pa.decimal128(10, 0)
        self._expect("(")
        precision = int(self._next())
        scale = 0
        if self._tokens[:1] == [","]:
            self._next()
            scale = int(self._next())
        self._expect(")")
        return pa.decimal128(precision, scale)

    def _next(self) -> str:
        if not self._tokens:
            raise self.fail("it ends too early")
        return self._tokens.pop(0)

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise self.fail(f"{token!r} is expected in place of {found!r}")
