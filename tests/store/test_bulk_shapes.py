"""Single properties by shapes: what is found at a few places is what splitting each record's text says."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.bulk.columns import decode as decode_module
from pocketmq.bulk.columns.decode import decode
from pocketmq.bulk.columns.properties import PropertyTable
from pocketmq.bulk.columns.property_shapes import ShapedProperties, shape_of
from pocketmq.bulk.log_walk import record_starts
from pocketmq.model.message_codec import properties_to_dict
from tests.store.bulk_stores import Message, WrittenStore

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "é", "missing")


def shaped(texts: list[bytes], before: bytes = b"head") -> ShapedProperties | None:
    """With something before each text, as the rest of a record is."""
    ends = np.cumsum([len(before) + len(t) for t in texts]).astype(np.int64)
    starts = ends - np.array([len(t) for t in texts])
    return ShapedProperties.of(pa.py_buffer(b"".join(before + t for t in texts)), starts, ends)


def of(*pairs: tuple[str, str], closed: bool = True) -> bytes:
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    return (text + "\x02" * (closed and bool(pairs))).encode()


def check(texts: list[bytes]) -> bool:
    """Returns whether shapes had an answer, which must be the right one."""
    found = shaped(texts)
    if found is None:
        return False
    wanted = [properties_to_dict(t) for t in texts]
    for name in NAMES:
        column = found.get(name)
        column.validate(full=True)
        assert column.type == pa.string()
        assert column.to_pylist() == [w.get(name) for w in wanted]
    return True


values = st.text("ab\x01\x02é", min_size=0, max_size=3)
pairs = st.lists(st.tuples(st.sampled_from([*NAMES, ""]), values), max_size=4)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(pairs, st.booleans()), min_size=1, max_size=4),
    st.integers(1, 700),
    st.randoms(use_true_random=False),
)
def test_any_mixture_is_split_by_javas_rules(
    kinds: list[tuple[list[tuple[str, str]], bool]], count: int, rng: random.Random
) -> None:
    texts = [of(*found, closed=closed) for found, closed in kinds]
    check(rng.choices(texts, k=count))


@pytest.mark.parametrize("closed", [True, False])
def test_values_of_one_size(closed: bool) -> None:
    texts = [
        of(("UNIQ_KEY", f"{i:032d}"), ("TAGS", f"é{i % 7}"), ("KEYS", f"k{i:05d}"), closed=closed)
        for i in range(1_000)
    ]
    assert check(texts)
    assert check(texts[:1])


def test_a_few_sizes_and_layouts_each_with_other_names() -> None:
    rng = random.Random(1)
    texts = [
        rng.choice((
            of(("KEYS", f"k{i}"), ("TAGS", "a")),
            of(("TAGS", "bb"), ("WAIT", "true")),
            # As large as the one before.
            of(("TAGS", "bbb"), ("WAIT", "yes")),
            of(("WAIT", "true"), ("TAGS", "bb"), closed=False),
            b"",
        ))
        for i in range(5_000)
    ]  # fmt: skip
    assert check(texts)
    assert check(sorted(texts))


@pytest.mark.parametrize(
    "other",
    [
        of(("TAGS", "a\x02b"), ("KEYS", "k")),
        of(("TAGS", "a\x01b"), ("KEYS", "k")),
        of(("TAG", "a12b"), ("KEYS", "k")),
        of(("tAGS", "a1b"), ("KEYS", "k")),
        of(("TAGS", "a1b"), ("KEYS", "k"))[:-1] + b"x",
        of(("TAGS", "a1b"), ("KEY", "k\x02")),
    ],
)
@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_record_of_the_same_size_is_another(other: bytes, place: int) -> None:
    texts = [of(("TAGS", f"{i:03d}"), ("KEYS", "k")) for i in range(1_000)]
    assert len(other) == len(texts[0])
    texts[place] = other
    # Only Java's rules say what some of them are; then shapes have no answer.
    check(texts)


def test_what_shapes_have_no_answer_for() -> None:
    assert shape_of(of(("TAGS", "a"), ("TAGS", "b"))) is None
    assert shape_of(b"TAGS\x01a\x02\x02") is None
    assert shape_of(b"TAGS\x01a\x02junk") is None
    assert shape_of(b"\x01a\x02") is None
    # Many sizes, many layouts of one size, and more bytes than are worth a copy.
    assert shaped([of(("KEYS", "k" * (1 + i % 40))) for i in range(10_000)]) is None
    layouts = [
        of(("TAGS", "t" * (1 + i % 40)), ("KEYS", "k" * (40 - i % 40))) for i in range(10_000)
    ]
    assert shaped(layouts) is None
    assert shaped([of(("KEYS", "k" * 10_000))] * 2_000) is None


def test_bytes_that_are_no_utf_8_become_replacement_characters() -> None:
    found = shaped([b"TAGS\x01\xff\xe2\x02KEYS\x01k1\x02", b"TAGS\x01ab\x02KEYS\x01k2\x02"] * 9)
    assert found is not None
    assert found.get("TAGS").to_pylist() == ["��", "ab"] * 9
    assert found.get("KEYS").to_pylist() == ["k1", "k2"] * 9


def test_shapes_serve_tags_and_keys_but_not_whole_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    class Counted(PropertyTable):
        def __init__(self, texts: pa.StringArray) -> None:
            made.append(len(texts))
            super().__init__(texts)

    monkeypatch.setattr(decode_module, "PropertyTable", Counted)
    messages = [
        Message(properties=of(("TAGS", f"t{i % 3}"), ("KEYS", f"k{i:03d}"))) for i in range(200)
    ]
    raw = b"".join(WrittenStore.record_of(m, i, 1000 + i) for i, m in enumerate(messages))
    data = pa.py_buffer(raw)
    starts = record_starts(data)

    def fail(place: int, reason: str) -> None:
        raise AssertionError((place, reason))

    batch = decode(data, starts, ["keys", "body", "tags", "uniqKey"], on_bad=fail)
    assert not made
    assert batch.column("tags").to_pylist() == [f"t{i % 3}" for i in range(200)]
    assert batch.column("keys").to_pylist() == [f"k{i:03d}" for i in range(200)]
    assert batch.column("uniqKey").null_count == 200
    again = decode(data, starts, ["keys", "propertiesRaw"], on_bad=fail)
    assert made == [200]
    assert again.column("keys") == batch.column("keys")
