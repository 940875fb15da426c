"""fixed_shape: a header cut by place says what a parser says, or is left to it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.quick.by_place import (
    AnswerShapes,
    ByPlace,
    FixedShape,
    answered,
    learn_fixed,
)

CODE = 310
PROPERTIES = "UNIQ_KEY\x017F00\x02WAIT\x01true\x02TAGS\x01A1\x02"
BASE = {"a": "group", "b": "Topic", "e": "0", "g": "1790", "i": PROPERTIES, "m": "false"}
ENCODINGS = [SerializeType.JSON, SerializeType.ROCKETMQ]
# Values of the lengths that they have in BASE, and what makes them look like more than they are.
FOUR = st.text(st.sampled_from('17aF"\\:,\x01\x02 \n'), min_size=4, max_size=4) | st.sampled_from(
    ["2222", "ä12"]
)


def request(encoding: int, opaque: int = 55, **changes: str) -> RemotingCommand:
    return RemotingCommand(CODE, {**BASE, **changes}, b"body", opaque, encoding=encoding)


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
        self.values.append((*(value.decode() for value in values), opaque, body))
        return b"cut"


def learnt(first: RemotingCommand, taken: Taken) -> FixedShape | None:
    frame = encode(first)[4:]
    way = ByPlace(("e", "g"), "i", taken.fix, taken.answer)
    return learn_fixed(frame, decode(frame), way)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(FOUR, FOUR, FOUR, st.integers(-5, 2**31 - 1))
def test_what_is_cut_is_what_a_parser_finds(
    encoding: int, born: str, key: str, a: str, opaque: int
) -> None:
    """Whatever stands in the values, and wherever a value ends: it is the same, or left to the parser."""
    taken = Taken()
    shape = learnt(request(encoding), taken)
    assert shape is not None
    assert list(taken.names) == ["UNIQ_KEY", "TAGS"]
    text = PROPERTIES.replace("7F00", key).replace("A1", a[:2])
    frame = encode(request(encoding, opaque, g=born, i=text))[4:]
    if shape.answer(frame, None) == b"cut":
        parsed = decode(frame)
        assert parsed.ext == {**BASE, "g": born, "i": text}
        assert taken.values == [("0", born, key, a[:2], parsed.opaque, parsed.body)]
    is_plain = all(each.isascii() and each.isprintable() for each in (born, key, a[:2]))
    if is_plain and not set(born + key + a[:2]) & set('"\\') and 10 <= opaque <= 99:
        assert taken.values


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
    shape = learnt(first, taken)
    if shape is not None and shape.answer(encode(first)[4:], None) == b"cut":
        (born, queue), rest = taken.values[0][1::-1], taken.values[0][-2:]
        parsed = decode(encode(first)[4:])
        assert parsed.ext is not None
        assert (queue, born, *rest) == (parsed.ext["e"], parsed.ext["g"], parsed.opaque, b"")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_differs_elsewhere_is_not_cut(encoding: int) -> None:
    """In a field that is the same in all, in the code, as a one-way request, in its length, or cut off."""
    taken = Taken()
    shape = learnt(request(encoding), taken)
    assert shape is not None
    whole = encode(request(encoding, 56))[4:]
    others = [
        encode(request(encoding, a="grouP"))[4:],
        encode(request(encoding, i=PROPERTIES.replace("true", "fals")))[4:],
        encode(RemotingCommand(311, dict(BASE), b"", 55, encoding=encoding))[4:],
        encode(RemotingCommand(CODE, dict(BASE), b"", 55, 2, encoding=encoding))[4:],
        encode(request(encoding, e="00"))[4:],
        whole[:40],
    ]
    assert [shape.answer(other, None) for other in others] == [None] * len(others)
    assert not taken.values
    assert shape.answer(whole, None) == b"cut"


class Asker:
    """Waits for answers, and keeps what it was told of them: parsed, or cut."""

    cut_names = ("queueId", "queueOffset", "msgId", "transactionId")

    def __init__(self) -> None:
        self.told: list[dict[str, str] | None] = []
        self.cuts = 0

    def done(self) -> bool:
        return False

    def set_result(self, answer: RemotingCommand) -> None:
        self.told.append(answer.ext)

    def common(self, answer: RemotingCommand) -> dict[str, str] | None:
        return answer.ext if answer.code == 0 else None

    def set_cut(self, common: dict[str, str], values: Sequence[bytes]) -> bool:
        self.cuts += 1
        names = [name for name in self.cut_names if name in common]
        cut = {name: value.decode() for name, value in zip(names, values, strict=True)}
        self.told.append({**common, **cut})
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
    """Each reaches its own waiter once, whichever of them have the shape of an earlier one."""
    pending: dict[int, Any] = {}
    shapes: AnswerShapes | None = None
    for opaque, (offset, msg_id, code, remark) in enumerate(answers, 1_000):
        ext = {"queueId": "3", "TRACE_ON": "true", "msgId": msg_id, "queueOffset": offset}
        if has_transaction:
            ext["transactionId"] = msg_id
        answer = RemotingCommand(code, ext, b"", opaque, 1, remark or None, encoding=encoding)
        frame = encode(answer)[4:]
        asker = pending[opaque] = Asker()
        if shapes is None or shapes.answer(frame, None, {}) is None:
            shapes = answered(pending, frame, decode(frame), shapes) or shapes
        assert asker.told == [ext]
        assert not pending


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_answer_is_cut_if_one_like_it_came_before_and_somebody_takes_cut_ones(
    encoding: int,
) -> None:
    def frame(opaque: int) -> bytes:
        ext = {"queueId": "3", "msgId": "7F00", "queueOffset": str(opaque)}
        return encode(RemotingCommand(0, ext, b"", opaque, 1, encoding=encoding))[4:]

    asker = Asker()
    pending: dict[int, Any] = dict.fromkeys(range(100, 103), asker)
    shapes = answered(pending, frame(100), decode(frame(100)), None)
    assert shapes is not None
    assert shapes.answer(frame(101), None, {}) == b""
    assert (asker.cuts, list(pending)) == (1, [102])
    # Its waiter was given up; and this one belongs to somebody who reads all.
    assert shapes.answer(frame(101), None, {}) is None
    pending[102] = object()
    assert shapes.answer(frame(102), None, {}) is None
