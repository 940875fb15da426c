"""ROCKETMQ headers that are cut by the shape of the one before; wire.md 1.4."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.errors import FrameError
from pocketmq.remoting.quick import by_walk as header_shape

fields = st.dictionaries(st.text(max_size=4), st.text(max_size=6), min_size=1, max_size=5)


def again(ext: dict[str, str], remark: str | None = None) -> dict[str, str] | None:
    """`ext` after the wire."""
    command = RemotingCommand(10, ext, remark=remark, encoding=SerializeType.ROCKETMQ)
    return decode(encode(command)[4:]).ext


@given(st.lists(st.tuples(fields, st.sampled_from([None, "r", "remark"])), max_size=12))
def test_fields_come_through_whatever_was_read_before(
    headers: list[tuple[dict[str, str], str | None]],
) -> None:
    """The same header first by the walk, then by its shape, and others of its size between them."""
    for ext, remark in headers + headers:
        assert again(ext, remark) == ext


def test_two_shapes_of_one_size_do_not_mix() -> None:
    """Invariant 2: keys and lengths decide, not the size alone."""
    one, other, third = {"a": "xx", "b": "y"}, {"a": "x", "b": "yy"}, {"b": "xx", "a": "y"}
    for _ in range(3):
        for ext in (one, one, other, other, third, one):
            assert again(ext) == ext


def test_learning_stops_being_eager_when_shapes_keep_changing() -> None:
    """Invariant 3."""
    header_shape._shapes.clear()
    headers = [{f"k{n:02d}": "v" * 8} for n in range(90)]
    for ext in headers:
        assert again(ext) == ext
    (shape,) = header_shape._shapes.values()
    assert shape.misses == len(headers)
    assert shape.keys == ["k64"]


def test_the_table_of_shapes_stays_small() -> None:
    """A peer that sends every size there is costs a bounded table."""
    for size in range(1_500):
        assert again({"a": "v" * size}) == {"a": "v" * size}
    assert len(header_shape._shapes) <= 512


def test_a_broken_length_is_refused_also_after_a_good_header() -> None:
    """Bad input: what fitted once is no excuse."""
    good = encode(RemotingCommand(10, {"abc": "defg"}, encoding=SerializeType.ROCKETMQ))[4:]
    for _ in range(3):
        assert decode(good).ext == {"abc": "defg"}
    at = good.index(b"abc") + 3
    for length in (5, 0x7FFF_FFFF):
        with pytest.raises(FrameError):
            decode(good[:at] + struct.pack(">i", length) + good[at + 4 :])
    with pytest.raises(FrameError):
        decode(good[:at] + struct.pack(">i", 3) + good[at + 4 :])
    bad_text = good.replace(b"defg", b"\xff\xfe\xfd\xfc")
    with pytest.raises(FrameError):
        decode(bad_text)
