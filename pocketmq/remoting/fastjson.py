"""The JSON dialect of RocketMQ's bodies and files: what fastjson writes and reads (wire.md 1.6).

Beyond JSON it has unquoted integer keys (`{0:3,1:4}`), object literals as keys
(`{{"brokerName":"b","queueId":0,"topic":"T"}:5}`), single quotes, trailing commas, comments as in Java, a
byte order mark before the text and zeros behind it. `dumps` writes map
keys that are ints unquoted and keys that are `MessageQueue`-like tuples as object literals, with keys
of objects in alphabetical order and no white space, as Java's tools expect byte for byte.

    a Python dict      -> an object; keys: str, int, or ObjectKey
    None in an object  -> left out

Whatever is read can be written: half of a surrogate pair is read as `?`, which Java writes for it, and
numbers beyond those of a double are refused; NaN and infinities are written as null.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from math import isfinite
from operator import length_hint
from typing import Any

from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import ProtocolError


class FastjsonError(ProtocolError):
    """Text that is neither JSON nor fastjson's dialect; the message gives the position."""


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A mapping key that is itself an object: ((name, value), ...) in alphabetical order."""

    __slots__ = ()

    @classmethod
    def of(cls, **fields: Any) -> "ObjectKey":
        """`ObjectKey.of(topic="T", queueId=0)`: hashable, equal whatever the order of the arguments."""
        return cls(sorted(fields.items()))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field's value."""
        for key, value in self:
            if key == name:
                return value
        return default


def dumps(value: Any, *, quote_integer_keys: bool = False) -> bytes:
    """Encode `value` in fastjson's compact form.

    quote_integer_keys: the strict form that name servers send to clients from 4.9.4 on.
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
        out.append(repr(value) if isfinite(value) else "null")
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


def loads(
    data: bytes | bytearray | memoryview | str,
    *,
    size_max: int | None = None,
    dialect_size_max: int | None = None,
) -> Any:
    """Decode `data`; integer keys become str, object keys ObjectKey.

    size_max, dialect_size_max: bytes of the text, and of one that is not plain JSON; None: no limit. The
    cost is linear: at most 0.1 us per byte, 0.5 us if it is not plain JSON.
    Raises: FastjsonError.
    """
    size = len(data)
    if size_max is not None and size > size_max:
        raise FastjsonError(f"a JSON text of {size} bytes; the limit is {size_max}")
    try:
        return json_codec.loads(data)
    except (ValueError, RecursionError) as error:
        if dialect_size_max is not None and size > dialect_size_max:
            raise FastjsonError(f"a text of {size} bytes is not plain JSON: {error}") from None
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FastjsonError(f"a JSON text is not UTF-8: {error}") from error
    return _Reader(text.removeprefix("\ufeff").rstrip("\0")).document()


REQUEST_SIZE_MAX = 256 << 10
"""Bytes of a JSON body that a server takes. Ours: a longer one would hold up its event loop."""
_REQUEST_DIALECT_SIZE_MAX = 32 << 10


def loads_request(data: bytes | bytearray | memoryview) -> Any:
    """Decode the body of a request like `loads`, but bounded in size, since any client may have sent it.

    Raises: FastjsonError.
    """
    return loads(data, size_max=REQUEST_SIZE_MAX, dialect_size_max=_REQUEST_DIALECT_SIZE_MAX)


# Any other character, above all a quote without an end, is a token by itself: a syntax error.
_TOKEN = re.compile(
    r"""
      //[^\n]*+
    | /\*(?:[^*]|\*(?!/))*+(?:\*/)?+
    | "(?:[^"\\]++|\\.)*+"
    | '(?:[^'\\]++|\\.)*+'
    | [{}\[\]:,]
    | [^\s,:{}\[\]"']++
    | [^\ \t\r\n\f\b]
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENTS = ("//", "/*")
_DEPTH_MAX = 64
_WORDS = {"true": True, "false": False, "null": None}
_INTEGER = re.compile(r"[+-]?\d{1,30}")


class _Reader:
    """Recursive descent over the tokens of one text; only for what the standard parser refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [t for t in _TOKEN.findall(text) if not t.startswith(_COMMENTS)]
        self._iterator = iter(self._tokens)
        self._next = self._iterator.__next__

    def document(self) -> Any:
        try:
            value = self._value(self._next(), 0)
        except StopIteration:
            raise self._error("the text ends too early") from None
        if next(self._iterator, None) is not None:
            raise self._error("text after the end of the value")
        return value

    def _error(self, why: str) -> FastjsonError:
        """Return an error that names the place of the last token."""
        taken = len(self._tokens) - length_hint(self._iterator)
        tokens = (m for m in _TOKEN.finditer(self._text) if not m[0].startswith(_COMMENTS))
        found = list(islice(tokens, max(taken - 1, 0), taken))
        at = found[0].start() if found else 0
        near = self._text[at : at + 20]
        return FastjsonError(f"not JSON at character {at} ({near!r}): {why}")

    def _value(self, token: str, depth: int) -> Any:
        first = token[0]
        if first == '"' or first == "'":
            return self._string(token)
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if token in _WORDS:
            return _WORDS[token]
        if first in "]}:,":
            raise self._error("a value is missing")
        try:
            number = int(token) if _INTEGER.fullmatch(token) else float(token)
        except ValueError:
            raise self._error(f"unknown word {token[:20]!r}") from None
        if not isfinite(number):
            raise self._error(f"{token[:20]!r} is no number, or too large")
        return number

    def _string(self, token: str) -> str:
        if len(token) == 1:
            raise self._error("an unterminated string")
        if "\\" not in token:
            return token[1:-1]
        if token[0] == "'":
            token = '"' + token[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            text = str(json.loads(token, strict=False))
        except ValueError as error:
            raise self._error(f"a string with an invalid escape: {error}") from error
        # A lone surrogate, which no file and no answer could hold.
        return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")

    def _array(self, depth: int) -> list[Any]:
        if depth >= _DEPTH_MAX:
            raise self._error(f"nested deeper than {_DEPTH_MAX}")
        following = self._next
        items: list[Any] = []
        token = following()
        while token != "]":
            items.append(self._value(token, depth + 1))
            token = following()
            if token == ",":
                token = following()
            elif token != "]":
                raise self._error("expected , or ]")
        return items

    def _object(self, depth: int) -> dict[Any, Any]:
        if depth >= _DEPTH_MAX:
            raise self._error(f"nested deeper than {_DEPTH_MAX}")
        following = self._next
        members: dict[Any, Any] = {}
        token = following()
        while token != "}":
            key = self._key(token, depth)
            if following() != ":":
                raise self._error("expected :")
            members[key] = self._value(following(), depth + 1)
            token = following()
            if token == ",":
                token = following()
            elif token != "}":
                raise self._error("expected , or }")
        return members

    def _key(self, token: str, depth: int) -> Any:
        first = token[0]
        if first == "{":
            inner = self._object(depth + 1)
            if not all(isinstance(name, str) for name in inner):
                raise self._error("an object key inside an object key")
            try:
                key = ObjectKey(sorted(inner.items()))
                hash(key)
            except TypeError:
                raise self._error("an object key with nested values") from None
            return key
        if first == '"' or first == "'":
            return self._string(token)
        if first in "[]:,":
            raise self._error("a key is missing")
        return token
