"""JSON by orjson if installed, else by the standard library: same values, same bytes.

`loads` raises ValueError on bad input in both cases (orjson.JSONDecodeError is one).
"""

import json
from math import isfinite
from typing import Any

_DIGITS_MAX = 20
_ENDLESS = 1 << 64
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def std_dumps(value: Any) -> bytes:
    """Encode compact UTF-8 JSON with the standard library."""
    return _encode(value).encode("utf-8")


def std_loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Decode with the standard library, as strictly as orjson does."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    value = json.loads(text, parse_float=_finite, parse_int=_bounded, parse_constant=_finite)
    if "\\u" in text:
        # Raises ValueError if half of a surrogate pair is in it.
        std_dumps(value)
    return value


def _finite(token: str) -> float:
    number = float(token)
    if not isfinite(number):
        raise ValueError(f"{token[:20]} is no number, or too large")
    return number


def _bounded(token: str) -> int | float:
    """Return an integer of 64 bits, signed or not; a larger one becomes a float."""
    number = int(token) if len(token) <= _DIGITS_MAX else _ENDLESS
    return number if -(1 << 63) <= number < 1 << 64 else _finite(token)


try:
    from orjson import dumps, loads
except ImportError:  # the client's small installation
    dumps, loads = std_dumps, std_loads  # type: ignore[assignment,unused-ignore]

__all__ = ["dumps", "loads", "std_dumps", "std_loads"]
