"""by_pattern: a header that is cut says what a parser says, or is left to it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.quick.by_pattern import (
    CutRule,
    Cuttable,
    Pattern,
    Patterns,
    answered,
    learn_request,
    request_pattern,
)
from pocketmq.remoting.transport.connection import Connection

CODE = 310
PROPERTIES = "UNIQ_KEY\x017F00\x02WAIT\x01true\x02TAGS\x01A1\x02"
BASE = {"a": "group", "b": "Topic", "e": "0", "g": "1790", "i": PROPERTIES, "m": "false"}
ENCODINGS = [SerializeType.JSON, SerializeType.ROCKETMQ]
# What may stand in a header, and what makes it look like more than it is.
TEXTS = st.text(st.sampled_from('ab0"\\:,{}\x01\x02ä\n'), max_size=12) | st.sampled_from(
    ['","e":"7', '"b":"x"', "opaque", '\\","i":"', "\\u0001"]
)
# Values of the lengths that they have in BASE.
FOUR = st.text(st.sampled_from('17aF"\\:,\x01\x02 \n'), min_size=4, max_size=4) | st.sampled_from(
    ["2222", "ä12"]
)


def request(encoding: int, opaque: int = 55, **changes: str) -> RemotingCommand:
    return RemotingCommand(CODE, {**BASE, **changes}, b"body", opaque, encoding=encoding)


def _end(frame: bytes) -> int:
    return 4 + int.from_bytes(frame[1:4], "big")


class Taken:
    """A handler that keeps what was cut."""

    def __init__(self) -> None:
        self.names: Sequence[str] = []
        self.values: list[tuple[Any, ...]] = []

    def fix(self, request: RemotingCommand, names: Sequence[str]) -> object:
        self.names = names
        return "fixed"

    def answer(
        self, fixed: object, values: tuple[bytes, ...], opaque: int, body: bytes, connection: object
    ) -> bytes:
        self.values.append((*(value.decode() for value in values[:-1]), opaque, body))
        return b"cut"


def cuttable(taken: Taken) -> Cuttable:
    return Cuttable(lambda *_: b"parsed", CutRule(("e", "g"), "i", taken.fix, taken.answer))


def learnt(first: RemotingCommand, taken: Taken) -> Pattern | None:
    frame = encode(first)[4:]
    return request_pattern(frame, decode(frame), cuttable(taken))


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(FOUR, FOUR, FOUR, st.integers(-5, 2**31 - 1))
def test_what_is_cut_is_what_a_parser_finds(
    encoding: int, born: str, key: str, a: str, opaque: int
) -> None:
    """Whatever stands in the values, and wherever a value ends: it is the same, or left to the parser."""
    taken = Taken()
    pattern = learnt(request(encoding), taken)
    assert pattern is not None
    assert list(taken.names) == ["UNIQ_KEY", "TAGS"]
    text = PROPERTIES.replace("7F00", key).replace("A1", a[:2])
    frame = encode(request(encoding, opaque, g=born, i=text))[4:]
    if pattern.answer(frame, _end(frame), None) == b"cut":
        parsed = decode(frame)
        assert parsed.ext == {**BASE, "g": born, "i": text}
        assert taken.values == [("0", born, key, a[:2], parsed.opaque, parsed.body)]
    is_plain = all(each.isascii() and each.isprintable() for each in (born, key, a[:2]))
    if is_plain and not set(born + key + a[:2]) & set('"\\') and 10 <= opaque <= 99:
        assert taken.values


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(TEXTS, TEXTS, TEXTS, st.integers(-5, 2**31 - 1))
def test_values_may_have_other_lengths(
    encoding: int, born: str, key: str, tag: str, opaque: int
) -> None:
    """Whatever stands in them: what is cut is what a parser finds; what is plain is cut."""
    taken = Taken()
    pattern = learnt(request(encoding), taken)
    assert pattern is not None
    text = PROPERTIES.replace("7F00", key).replace("A1", tag)
    frame = encode(request(encoding, opaque, g=born, i=text))[4:]
    reply = pattern.answer(frame, _end(frame), None)
    if reply == b"cut":
        parsed = decode(frame)
        assert parsed.ext == {**BASE, "g": born, "i": text}
        assert taken.values == [("0", born, key, tag, parsed.opaque, parsed.body)]
    values = (born, key, tag)
    if opaque > 0 and all(value.isascii() and value.isprintable() and value for value in values):
        assert (reply == b"cut") != bool(set("".join(values)) & set('"\\'))


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(
    st.dictionaries(
        st.sampled_from([*BASE, "opaque", "x"]),
        st.text(st.sampled_from('01"\\:,{}\x01\x02ä'), max_size=9)
        | st.sampled_from(['","g":"7', "opaque"]),
    ),
    st.integers(-5, 99),
)
def test_what_was_learnt_from_fits_itself(encoding: int, ext: dict[str, str], opaque: int) -> None:
    """An odd header is not learnt from, or says of itself what a parser says."""
    taken = Taken()
    first = RemotingCommand(CODE, {**BASE, **ext}, b"", opaque, encoding=encoding)
    pattern = learnt(first, taken)
    if (
        pattern is not None
        and pattern.answer(encode(first)[4:], _end(encode(first)[4:]), None) == b"cut"
    ):
        (born, queue), rest = taken.values[0][1::-1], taken.values[0][-2:]
        parsed = decode(encode(first)[4:])
        assert parsed.ext is not None
        assert (queue, born, *rest) == (parsed.ext["e"], parsed.ext["g"], parsed.opaque, b"")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_differs_elsewhere_is_not_cut(encoding: int) -> None:
    """In a field that is the same in all, in the code, as a one-way request, in its length, or cut off."""
    taken = Taken()
    pattern = learnt(request(encoding), taken)
    assert pattern is not None
    whole = encode(request(encoding, 56))[4:]
    others = [
        encode(request(encoding, a="grouP"))[4:],
        encode(request(encoding, i=PROPERTIES.replace("true", "fals")))[4:],
        encode(RemotingCommand(311, dict(BASE), b"", 55, encoding=encoding))[4:],
        encode(RemotingCommand(CODE, dict(BASE), b"", 55, 2, encoding=encoding))[4:],
        *([_with_wrong_length(whole, *each) for each in ((3, 1), (1, 3))] if encoding else []),
        encode(request(encoding, x="more"))[4:],
        whole[:40],
    ]
    assert [pattern.answer(other, _end(other), None) for other in others] == [None] * len(others)
    assert not taken.values
    assert pattern.answer(whole, _end(whole), None) == b"cut"


def _with_wrong_length(frame: bytes, longer: int, shorter: int) -> bytes:
    """A ROCKETMQ header whose fields say lengths that their values have not."""
    for name, by in ((b"g", longer), (b"e", shorter)):
        at = frame.index(b"\0\x01" + name) + 3
        size = int.from_bytes(frame[at : at + 4], "big")
        frame = frame[:at] + (size + by - 2).to_bytes(4, "big") + frame[at + 4 :]
    return frame


class Asker:
    """Waits for answers, and keeps what came of them: parsed, or cut."""

    cut_names = ("queueId", "queueOffset", "msgId", "transactionId")

    def __init__(self) -> None:
        self.heard: list[dict[str, str] | None] = []
        self.cuts = 0

    def done(self) -> bool:
        return False

    def set_result(self, answer: RemotingCommand) -> None:
        self.heard.append(answer.ext)

    def common(
        self, answer: RemotingCommand, names: Sequence[str]
    ) -> tuple[dict[str, str], Sequence[str]] | None:
        return None if answer.code or answer.ext is None else (answer.ext, names)

    def set_cut(
        self, common: tuple[dict[str, str], Sequence[str]], values: Sequence[bytes]
    ) -> bool:
        self.cuts += 1
        ext, names = common
        cut = {name: value.decode() for name, value in zip(names, values[:-1], strict=True)}
        self.heard.append({**ext, **cut})
        return True


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(
    st.lists(
        st.tuples(FOUR, FOUR, st.sampled_from([0, 10]), st.sampled_from(["", "late"])), min_size=3
    ),
    st.booleans(),
)
def test_answers_that_are_cut_say_what_a_parser_finds(
    encoding: int, answers: list[tuple[str, str, int, str]], has_transaction: bool
) -> None:
    """Each reaches its own waiter once, whichever of them are like an earlier one."""
    pending: dict[int, Any] = {}
    patterns: Patterns | None = None
    for opaque, (offset, msg_id, code, remark) in enumerate(answers, 1_000):
        ext = {"queueId": "3", "TRACE_ON": "true", "msgId": msg_id, "queueOffset": offset}
        if has_transaction:
            ext["transactionId"] = msg_id
        answer = RemotingCommand(code, ext, b"", opaque, 1, remark or None, encoding=encoding)
        frame = encode(answer)[4:]
        asker = pending[opaque] = Asker()
        if patterns is None or patterns.answer(frame, None, {}) is None:
            patterns = answered(pending, frame, decode(frame), patterns)
        assert asker.heard == [ext]
        assert not pending


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_answer_is_cut_if_its_shape_is_known_and_wanted(
    encoding: int,
) -> None:
    def frame(opaque: int) -> bytes:
        ext = {"queueId": "3", "msgId": "7F00", "queueOffset": str(opaque)}
        return encode(RemotingCommand(0, ext, b"", opaque, 1, encoding=encoding))[4:]

    asker = Asker()
    pending: dict[int, Any] = dict.fromkeys(range(100, 103), asker)
    patterns = answered(pending, frame(100), decode(frame(100)), None)
    assert patterns is not None
    assert patterns.answer(frame(101), None, {}) == b""
    assert (asker.cuts, list(pending)) == (1, [102])
    # Its waiter was given up; and the waiter of this one reads all.
    assert patterns.answer(frame(101), None, {}) is None
    pending[102] = object()
    assert patterns.answer(frame(102), None, {}) is None


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


async def test_a_connection_parses_the_first_and_uses_todays_handler() -> None:
    """The second goes the quick way; one whose handler was exchanged meanwhile does not."""
    asked: list[str] = []

    def says(word: str) -> Callable[..., bytes]:
        def handle(*_: object) -> bytes:
            asked.append(word)
            return b"."

        return handle

    handlers: dict[int, Any] = {
        CODE: Cuttable(says("parsed"), CutRule(("e", "g"), "i", lambda *_: True, says("cut")))
    }
    connection = Connection(handlers, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    for opaque in (1, 2, 3):
        connection.data_received(encode(request(SerializeType.JSON, opaque)))
    handlers[CODE] = says("gate")
    connection.data_received(encode(request(SerializeType.JSON, 4)))
    assert asked == ["parsed", "cut", "cut", "gate"]
    assert transport.written == b"...."


async def test_a_connection_that_sends_and_pulls_parses_neither() -> None:
    """Requests of two codes in turn: each has its pattern."""
    asked: list[str] = []

    def handler(code: str) -> Cuttable:
        def says(word: str) -> Callable[..., bytes]:
            return lambda *_: asked.append(code + word) or b"."  # type: ignore[func-returns-value]

        return Cuttable(says(" parsed"), CutRule(("e", "g"), "i", lambda *_: True, says(" cut")))

    handlers = {CODE: handler("send"), 11: handler("pull")}
    connection = Connection(handlers, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    for opaque in range(1, 5):
        connection.data_received(encode(request(SerializeType.JSON, opaque)))
        connection.data_received(encode(RemotingCommand(11, dict(BASE), b"", opaque)))
    assert asked[:2] == ["send parsed", "pull parsed"]
    assert asked[2:] == ["send cut", "pull cut"] * 3


async def test_a_bug_while_a_cut_request_is_answered_is_answered() -> None:
    """As any other handler's: the connection stays open."""

    def broken(*_: object) -> bytes:
        raise KeyError("bug")

    cuttable = Cuttable(lambda *_: b".", CutRule(("e", "g"), "i", lambda *_: True, broken))
    connection = Connection({CODE: cuttable}, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    connection.data_received(encode(request(SerializeType.JSON, 1)))
    connection.data_received(encode(request(SerializeType.JSON, 2)))
    answer = decode(transport.written[5:])
    assert (answer.opaque, answer.code) == (2, 1)
    assert "KeyError" in str(answer.remark)


async def test_requests_that_are_not_answered_now_leave_nothing_behind() -> None:
    """One-way requests, and those whose answers come later: a client may send no others."""
    cuttable = Cuttable(lambda *_: b".", CutRule(("e", "g"), "i", lambda *_: True, lambda *_: b""))
    connection = Connection({CODE: cuttable}, spawn=lambda run: None, monotonic_ms=lambda: 0)
    transport: Any = _Transport()
    connection.connection_made(transport)
    one_way = RemotingCommand(CODE, dict(BASE), b"", 1, 2)
    for command in (one_way, one_way, request(0, 2), request(0, 3)):
        connection.data_received(encode(command))
    assert transport.written == b"."
    assert not connection._outbox._gathered


def test_many_lengths_and_kinds_are_cut_by_few_patterns() -> None:
    """By the latest ones; each size that came before finds its own at once."""
    taken, patterns = Taken(), Patterns()
    handlers = {CODE: cuttable(taken)}
    for kind in ("", "x\x01y\x02", "z\x01z\x02"):
        first = request(0, 9, i=PROPERTIES + kind)
        learn_request(patterns, encode(first)[4:], first, handlers[CODE])
    for number in (1, 10, 200, 3_000):
        for kind in ("z\x01zz\x02", "", "x\x01y\x02"):
            text = PROPERTIES.replace("7F00", "7" * (number % 7 + 1)) + kind
            frame = encode(request(0, number, g=str(number), i=text))[4:]
            assert patterns.answer(frame, None, handlers) == b"cut"
    assert len(taken.values) == 12
