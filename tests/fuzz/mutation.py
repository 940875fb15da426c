"""Mutated texts: each example begins with one of a corpus, which hypothesis cuts, repeats and overwrites."""

from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Edit = tuple[float, int, bytes, int]
_PIECES = [
    b"\0",
    b"\xff",
    b"\x01",
    b"\x02",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"{",
    b"[",
    b'"',
    b"'",
]
_PIECES += [b"--", b"\\", b",", b":", b"(", b"0" * 40, b"e9", b"\r\n\r\n", b"\xed\xa0\x80", b"null"]


def _edited(seed: bytes, edits: Sequence[Edit]) -> bytes:
    data = bytearray(seed)
    for where, cut, piece, times in edits:
        at = int(where * len(data))
        data[at : at + cut] = piece * times
    return bytes(data)


def mutations(corpus: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of the corpus with up to six edits."""
    edit = st.tuples(
        st.floats(0, 1),
        st.integers(0, 40),
        st.sampled_from(_PIECES) | st.binary(max_size=8),
        st.sampled_from([0, 1, 1, 1, 2, 50]),
    )
    return st.builds(_edited, st.sampled_from(corpus), st.lists(edit, max_size=6))


def fuzz(check: Callable[[bytes], None], corpus: Sequence[bytes], examples: int) -> None:
    """Run `check` with so many mutations; what it raises is shown with the shortest one that does."""
    for seed in corpus:
        check(seed)
    profile = settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)
    )
    profile(given(mutations(corpus))(check))()
