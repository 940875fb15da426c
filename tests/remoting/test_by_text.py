"""json_shape: a header cut by the text of an earlier one says what a parser says, or is left to it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.quick.by_place import ByPlace
from pocketmq.remoting.quick.by_text import JsonShape, Shaped, learn, text_of
from pocketmq.remoting.transport.connection import Connection

FIELDS = ("b", "e", "i")
CODE = 310
BASE = {"a": "group", "b": "Topic", "e": "0", "f": "0", "i": "KEYS\x01k\x02", "m": "false"}
# What may stand in a header, and what makes it look like more than it is.
TEXTS = st.text(st.sampled_from('ab0"\\:,{}\x01\x02ä\n'), max_size=12) | st.sampled_from(
    ['","e":"7', '"b":"x"', "opaque", '\\","i":"', "\\u0001"]
)


def request(opaque: int = 5, **changes: str) -> RemotingCommand:
    return RemotingCommand(CODE, {**BASE, **changes}, b"body", opaque)


def learnt(first: RemotingCommand, taken: list[Any]) -> JsonShape | None:
    def quick(common: object, values: list[str], body: bytes, connection: object) -> bytes:
        try:
            taken.append(([text_of(value) for value in values[:-1]], int(values[-1]), body))
        except ValueError:
            return b""
        return b"quick"

    handler = Shaped(lambda request, connection: b"parsed", FIELDS, lambda request: "all", quick)
    frame = encode(first)[4:]
    return learn(frame, decode(frame), handler)


@given(st.fixed_dictionaries(dict.fromkeys(FIELDS, TEXTS)), st.integers(-5, 2**31 - 1))
def test_what_is_cut_is_what_a_parser_finds(values: dict[str, str], opaque: int) -> None:
    """Whatever stands in the values: either it is the same, or the request is left to the parser."""
    taken: list[Any] = []
    shape = learnt(request(), taken)
    assert shape is not None
    frame = encode(request(opaque, **values))[4:]
    reply = shape.answer(frame, None)
    if reply == b"quick":
        parsed = decode(frame)
        assert parsed.ext is not None
        assert taken == [([parsed.ext[name] for name in FIELDS], parsed.opaque, parsed.body)]
    plain = all(text.isascii() and not set(text) & set('"\\\n') for text in values.values())
    if plain and opaque > 0:
        assert reply == b"quick"


@given(st.dictionaries(st.sampled_from([*BASE, "opaque", "x"]), TEXTS), st.integers(-5, 9))
def test_only_a_header_that_says_everything_once_is_learnt_from(
    ext: dict[str, str], opaque: int
) -> None:
    """A shape learnt from an odd header would read the next one wrongly."""
    taken: list[Any] = []
    first = RemotingCommand(CODE, {**BASE, **ext}, b"", opaque)
    shape = learnt(first, taken)
    if shape is not None:
        frame = encode(first)[4:]
        if shape.answer(frame, None) == b"quick":
            parsed = decode(frame)
            assert taken == [([{**BASE, **ext}[name] for name in FIELDS], parsed.opaque, b"")]


@pytest.mark.parametrize(
    "other",
    [
        request(a="another group"),
        RemotingCommand(CODE, dict(BASE), b"", 5, 2),
        RemotingCommand(311, dict(BASE), b"", 5),
        RemotingCommand(CODE, dict(BASE), b"", 5, encoding=SerializeType.ROCKETMQ),
        RemotingCommand(CODE, {**BASE, "more": "x"}, b"", 5),
    ],
    ids=["field", "one-way", "code", "encoding", "more"],
)
def test_what_differs_elsewhere_is_parsed(other: RemotingCommand) -> None:
    """Invariant 3."""
    taken: list[Any] = []
    shape = learnt(request(), taken)
    assert shape is not None
    assert shape.answer(encode(other)[4:], None) is None
    assert not taken


class _Transport:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...


async def test_a_connection_parses_the_first_and_asks_whoever_handles_now() -> None:
    """The second goes the quick way; one whose handler was exchanged meanwhile does not."""
    asked: list[str] = []

    def says(word: str) -> Callable[..., bytes]:
        def handle(*_: object) -> bytes:
            asked.append(word)
            return b"."

        return handle

    handlers: dict[int, Any] = {
        CODE: Shaped(says("parsed"), FIELDS, lambda request: True, says("quick"))
    }
    connection = Connection(handlers, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    for opaque in (1, 2, 3):
        connection.data_received(encode(request(opaque)))
    handlers[CODE] = says("gate")
    connection.data_received(encode(request(4)))
    assert asked == ["parsed", "quick", "quick", "gate"]
    assert transport.written == b"...."


async def test_a_connection_that_sends_and_pulls_parses_neither() -> None:
    """Requests of two codes in turn: each has its shape."""
    asked: list[str] = []

    def handler(code: str) -> Shaped:
        def says(word: str) -> Callable[..., bytes]:
            return lambda *_: asked.append(code + word) or b"."  # type: ignore[func-returns-value]

        way = ByPlace(FIELDS[:2], "i", lambda *_: True, says(" cut"))
        return Shaped(says(" parsed"), FIELDS, lambda request: True, says(" quick"), way)

    handlers = {CODE: handler("send"), 11: handler("pull")}
    connection = Connection(handlers, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    for opaque in range(1, 5):
        connection.data_received(encode(request(opaque)))
        connection.data_received(encode(RemotingCommand(11, dict(BASE), b"", opaque)))
    assert asked[:2] == ["send parsed", "pull parsed"]
    assert asked[2:] == ["send cut", "pull cut"] * 3


async def test_a_bug_on_the_quick_way_is_answered() -> None:
    """As any other handler's: the connection goes on."""

    def broken(*_: object) -> bytes:
        raise KeyError("bug")

    shaped = Shaped(lambda *_: b".", FIELDS, lambda request: True, broken)
    connection = Connection({CODE: shaped}, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    connection.data_received(encode(request(1)))
    connection.data_received(encode(request(2)))
    answer = decode(transport.written[5:])
    assert (answer.opaque, answer.code) == (2, 1)
    assert "KeyError" in str(answer.remark)


async def test_requests_that_are_not_answered_now_leave_nothing_behind() -> None:
    """One-way requests, and those whose answers come later: a client may send no others."""
    shaped = Shaped(lambda *_: b".", FIELDS, lambda request: True, lambda *_: b"")
    connection = Connection({CODE: shaped}, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    one_way = RemotingCommand(CODE, dict(BASE), b"", 1, 2)
    for command in (one_way, one_way, request(2), request(3)):
        connection.data_received(encode(command))
    assert transport.written == b"."
    assert not connection._outbox._gathered
