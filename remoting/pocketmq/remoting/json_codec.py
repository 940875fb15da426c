"""JSON by orjson if installed, else by the standard library: same values, same bytes.

`loads` raises ValueError on bad input in both cases (orjson.JSONDecodeError is one).
"""

import json
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def std_dumps(value: Any) -> bytes:
    """Encode compact UTF-8 JSON with the standard library."""
    return _encode(value).encode("utf-8")


def std_loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Decode with the standard library."""
    return json.loads(bytes(data) if isinstance(data, memoryview) else data)


try:
    from orjson import dumps, loads
except ImportError:  # the client's small installation
    dumps, loads = std_dumps, std_loads  # type: ignore[assignment,unused-ignore]

__all__ = ["dumps", "loads", "std_dumps", "std_loads"]
