"""The bytes between a master and its slaves, and what of them is said at once."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.ha.wire import SliceDecoder, head


@given(st.lists(st.binary(max_size=80), max_size=8), st.lists(st.integers(1, 60)))
def test_slices_are_the_same_wherever_the_network_cuts_them(
    pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(head(at, len(piece)) + piece for at, piece in enumerate(pieces))
    slices, found = SliceDecoder(), []
    for size in [*cuts, len(data) + 1]:
        found += [(offset, bytes(piece)) for offset, piece in slices.feed(data[:size])]
        data = data[size:]
    assert found == list(enumerate(pieces))
