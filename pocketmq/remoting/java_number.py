"""Whole numbers as Java reads them from a text that a peer, a sender or an operator wrote.

Python's int() also takes blanks around a number, underscores in it, and any size. Every function raises
ValueError where Java throws NumberFormatException. Source: Integer.parseInt, Long.parseLong, JDK 17.
"""

from typing import Any

_SIZE_MAX = 1_000
"""Ours: a longer text is no number; looking through each would cost as much as a sender likes."""

INT_MAX = 0x7FFF_FFFF
LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF


class OutOfRange(ValueError):
    """A number that does not fit in Java's type."""


def integer(text: str) -> int:
    """Decimal digits of any script with a sign, 32 bits.

    >>> integer("-007"), integer("+5")
    (-7, 5)
    """
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return _whole(text, INT_MAX)


def long(text: str) -> int:
    """The same with 64 bits."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return _whole(text, LONG_MAX)


def number(value: Any) -> int:
    """A value of JSON where a number is expected: Java's readers take a text, too. Raises: also TypeError.

    >>> number(7), number("7")
    (7, 7)
    """
    return long(value) if isinstance(value, str) else int(value)


def property_number(raw: bytes | None) -> int | None:
    """The value of a property; None if it is absent or not a long.

    >>> [property_number(raw) for raw in (b"30", b" 30", b"1_000", b"soon", None)]
    [30, None, None, None, None]
    """
    try:
        return None if raw is None else long(raw.decode("utf-8", "replace"))
    except ValueError:
        return None


def _whole(text: str, largest: int) -> int:
    if len(text) > _SIZE_MAX:
        raise ValueError("a text of more than 1,000 characters is not a number")
    # For an odd text only: a start is free of it.
    import unicodedata

    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java calls Character.digit for one UTF-16 unit at a time, so digits beyond the first plane do not count.
    values = [unicodedata.decimal(digit, None) if digit <= "\uffff" else None for digit in digits]
    if not values or None in values:
        raise ValueError(f"{text!r} is not a whole number")
    plain = "".join(map(str, values)).lstrip("0") or "0"
    value = int(plain) if len(plain) < 20 else largest + 2
    if text.startswith("-"):
        value = -value
    if not -largest - 1 <= value <= largest:
        raise OutOfRange(f"{text!r} is outside {-largest - 1} to {largest}")
    return value
