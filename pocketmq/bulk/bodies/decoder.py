"""What a decoder of bodies is."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

#: The column with the reason why a body did not fit; null if it did.
ERROR = "_body_error"


class DecodedBodies(NamedTuple):
    """Columns of some bodies, and why each did not fit, null if it did."""

    columns: list[pa.Array]
    errors: pa.StringArray


class BodyDecoder(Protocol):
    """Decodes bodies of one kind."""

    @property
    def schema(self) -> pa.Schema:
        """Return the fields of a body; all may be null."""
        ...

    def decode(self, bodies: pa.BinaryArray, wanted: Sequence[str]) -> DecodedBodies:
        """Return the wanted fields of some bodies, in that order."""
        ...
