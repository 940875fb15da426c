"""What may only shrink."""

import pytest

from tests.house import ratchets


@pytest.mark.parametrize("kind", ratchets.KINDS)
def test_no_offender_is_new_or_has_grown(kind: str) -> None:
    """Modules of at most 500 lines, functions of 70, constructors with 6 arguments, and the like."""
    assert ratchets.complaints(kind) == []
