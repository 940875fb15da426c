"""Bytes of equal shape, one behind the other, as rows of a numpy array; numpy itself is not imported."""

from collections.abc import Mapping
from typing import Any


def row_fields(size: int, fields: Mapping[str, tuple[int, Any]]) -> Any:
    """Return what makes numpy's dtype of rows of so many bytes with these fields: start, format."""
    return {
        "names": list(fields),
        "formats": [code for _, code in fields.values()],
        "offsets": [start for start, _ in fields.values()],
        "itemsize": size,
    }
