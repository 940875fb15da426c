"""Bodies that a library decodes one at a time into a dictionary: Avro and Protobuf."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.bodies.decoder import DecodedBodies

_REASON_MAX = 160


def decoded(
    bodies: pa.BinaryArray,
    fields: Sequence[pa.Field],
    read: Callable[[bytes], Mapping[str, Any]],
) -> DecodedBodies:
    """Return the fields of bodies. read: raises anything for a body that does not fit."""
    rows: list[Mapping[str, Any] | None] = []
    errors: list[str | None] = []
    for body in bodies.to_pylist():
        try:
            rows.append(read(body or b""))
            errors.append(None)
        except Exception as error:  # noqa: BLE001
            # What a library raises for foreign bytes is not for it to choose.
            rows.append(None)
            errors.append(f"{type(error).__name__}: {error}"[:_REASON_MAX])
    columns = [_column(rows, field, errors) for field in fields]
    bad = [n for n, error in enumerate(errors) if error is not None]
    if bad:
        # A value that its column cannot hold was found after other columns were made.
        keep = pa.array([error is None for error in errors])
        columns = [pc.if_else(keep, c, pa.scalar(None, c.type)) for c in columns]
    return DecodedBodies(columns, pa.array(errors, pa.string()))


def _column(
    rows: Sequence[Mapping[str, Any] | None], field: pa.Field, errors: list[str | None]
) -> pa.Array:
    values = [None if row is None else row.get(field.name) for row in rows]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    for number, value in enumerate(values):
        try:
            pa.scalar(value, field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            values[number] = None
            errors[number] = f"{field.name}: {error}"[:_REASON_MAX]
    return pa.array(values, field.type)
