"""The JSON dialect of RocketMQ's bodies and files: what fastjson writes and reads (wire.md 1.6).

Beyond JSON it has unquoted integer keys (`{0:3,1:4}`), object literals as keys
(`{{"brokerName":"b","queueId":0,"topic":"T"}:5}`), single quotes and trailing commas. `dumps` writes map
keys that are ints unquoted and keys that are `MessageQueue`-like tuples as object literals, with keys
of objects in alphabetical order and no white space, as Java's tools expect byte for byte.

    a Python dict      -> an object; keys: str, int, or ObjectKey
    None in an object  -> left out
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import ProtocolError


class FastjsonError(ProtocolError):
    """Text that neither JSON nor fastjson's dialect explains; the message gives the position."""


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A mapping key that is itself an object: ((name, value), ...) in alphabetical order."""

    __slots__ = ()

    @classmethod
    def of(cls, **fields: Any) -> "ObjectKey":
        """`ObjectKey.of(topic="T", queueId=0)`: hashable, equal whatever the order of the words."""
        return cls(sorted(fields.items()))

    def get(self, name: str, default: Any = None) -> Any:
        """The field's value."""
        for key, value in self:
            if key == name:
                return value
        return default


def dumps(value: Any, *, quote_integer_keys: bool = False) -> bytes:
    """`value` in fastjson's compact form.

    quote_integer_keys: the strict form that name servers give to clients from 4.9.4 on.
    """
    out: list[str] = []
    _write(value, out, quote_integer_keys)
    return "".join(out).encode("utf-8")


_quote = json.encoder.encode_basestring


def _write(value: Any, out: list[str], quote: bool) -> None:
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(_quote(value))
    elif isinstance(value, int):
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        out.append(repr(value))
    elif isinstance(value, Mapping):
        _write_members(value.items(), out, quote)
    elif isinstance(value, ObjectKey):
        _write_members(value, out, quote)
    else:
        out.append("[")
        for i, item in enumerate(value):
            if i:
                out.append(",")
            _write(item, out, quote)
        out.append("]")


def _write_members(members: Any, out: list[str], quote: bool) -> None:
    out.append("{")
    first = True
    for key, item in _alphabetical(members):
        if item is None:
            continue
        if not first:
            out.append(",")
        first = False
        if isinstance(key, str):
            out.append(_quote(key))
        elif isinstance(key, int):
            out.append(f'"{key}"' if quote else str(key))
        else:
            _write(key, out, quote)
        out.append(":")
        _write(item, out, quote)
    out.append("}")


def _alphabetical(members: Any) -> Any:
    pairs = list(members)
    if all(isinstance(key, str) for key, _ in pairs):
        pairs.sort(key=lambda pair: pair[0])
    return pairs


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """The value of `data`; integer keys come back as str, object keys as ObjectKey.

    Raises: FastjsonError.
    """
    try:
        return json_codec.loads(data)
    except (ValueError, RecursionError):
        pass
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FastjsonError(f"a JSON text is not UTF-8: {error}") from error
    return _Reader(text).document()


_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_BARE = re.compile(r"[^\s,:{}\[\]\"']+")
_STRING = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL),
}
_DEPTH_MAX = 64


class _Reader:
    """Recursive descent over one text; only for what the standard reader refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        value = self._value(0)
        self._space()
        if self._at != len(self._text):
            raise self._error("text behind the end of the value")
        return value

    def _error(self, why: str) -> FastjsonError:
        near = self._text[self._at : self._at + 20]
        return FastjsonError(f"not JSON at character {self._at} ({near!r}): {why}")

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match:
            self._at = match.end()

    def _peek(self) -> str:
        self._space()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise self._error(f"nested deeper than {_DEPTH_MAX}")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char in _STRING:
            return self._string(char)
        return self._bare()

    def _string(self, quote: str) -> str:
        match = _STRING[quote].match(self._text, self._at)
        if not match:
            raise self._error("a string without an end")
        self._at = match.end()
        raw = match.group(1)
        if "\\" not in raw:
            return raw
        if quote == "'":
            raw = raw.replace("\\'", "'").replace('"', '\\"')
        try:
            return str(json.loads(f'"{raw}"', strict=False))
        except ValueError as error:
            raise self._error(f"a string with a bad escape: {error}") from error

    def _bare(self) -> Any:
        match = _BARE.match(self._text, self._at)
        if not match:
            raise self._error("a value is missing")
        word = match.group()
        words = {"true": True, "false": False, "null": None}
        if word in words:
            value: Any = words[word]
        else:
            try:
                value = int(word) if re.fullmatch(r"[+-]?\d{1,30}", word) else float(word)
            except ValueError:
                raise self._error(f"unknown word {word[:20]!r}") from None
        self._at = match.end()
        return value

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        while self._peek() != "]":
            items.append(self._value(depth + 1))
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "]":
                raise self._error("expected , or ]")
        self._at += 1
        return items

    def _object(self, depth: int) -> dict[Any, Any]:
        self._at += 1
        members: dict[Any, Any] = {}
        while self._peek() != "}":
            key = self._key(depth)
            if self._peek() != ":":
                raise self._error("expected :")
            self._at += 1
            members[key] = self._value(depth + 1)
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "}":
                raise self._error("expected , or }")
        self._at += 1
        return members

    def _key(self, depth: int) -> Any:
        char = self._peek()
        if char == "{":
            inner = self._object(depth + 1)
            if not all(isinstance(name, str) for name in inner):
                raise self._error("an object key inside an object key")
            try:
                key = ObjectKey(sorted(inner.items()))
                hash(key)
            except TypeError:
                raise self._error("an object key with nested values") from None
            return key
        if char in _STRING:
            return self._string(char)
        match = _BARE.match(self._text, self._at)
        if not match:
            raise self._error("a key is missing")
        self._at = match.end()
        return match.group()
