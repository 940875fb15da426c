"""A JSON Schema -> an Arrow schema. What has no column type of its own (`oneOf`, no `type`) is left out."""

from typing import Any

import pyarrow as pa

from pocketmq.bulk.columns.schema import TIMESTAMP
from pocketmq.remoting.errors import IllegalArgument

_PLAIN = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_FORMATS = {"date-time": TIMESTAMP, "date": pa.date32()}
_DEPTH_MAX = 16


def fields_of(schema: dict[str, Any]) -> pa.Schema:
    """Return the properties of an object's schema as columns. Raises: IllegalArgument."""
    found = _type(schema, schema, 0)
    if found is None or not pa.types.is_struct(found) or not found.num_fields:
        raise IllegalArgument(
            'bodySchema: the JSON Schema must be of an object with properties: {"type": "object", '
            '"properties": {...}}'
        )
    return pa.schema([found.field(n) for n in range(found.num_fields)])


def _type(one: Any, root: dict[str, Any], depth: int) -> pa.DataType | None:
    if not isinstance(one, dict) or depth > _DEPTH_MAX:
        return None
    if "$ref" in one:
        return _type(_target(str(one["$ref"]), root), root, depth + 1)
    kinds = one.get("type")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or [])
    kinds = [kind for kind in kinds if kind != "null"]
    kind = kinds[0] if len(kinds) == 1 else "object" if "properties" in one else None
    if kind == "object":
        inner = {n: _type(p, root, depth + 1) for n, p in (one.get("properties") or {}).items()}
        fields = [pa.field(name, type_) for name, type_ in inner.items() if type_ is not None]
        return pa.struct(fields) if fields else None
    if kind == "array":
        element = _type(one.get("items"), root, depth + 1)
        return None if element is None else pa.list_(pa.field("element", element))
    if kind == "string":
        return _FORMATS.get(one.get("format", ""), pa.string())
    return _PLAIN.get(kind or "")


def _target(reference: str, root: dict[str, Any]) -> Any:
    """Return what a reference inside the schema names. Raises: IllegalArgument."""
    found: Any = root
    path = reference.removeprefix("#/")
    if path == reference:
        raise IllegalArgument(
            f"bodySchema: $ref {reference} is in another file: put it into this one"
        )
    for part in path.split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        raise IllegalArgument(f"bodySchema: $ref {reference} leads nowhere")
    return found
