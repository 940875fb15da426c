"""How Java parses numbers and booleans from text: a property is text, a literal of the grammar is not.

Every function raises ValueError where Java throws NumberFormatException. Source: Integer.valueOf,
Long.valueOf, Double.valueOf, Boolean.valueOf, Double.compareTo, JDK 17.
"""

import math
import re
import unicodedata

_SIZE_MAX = 1_000
"""Ours: a longer text is no number; looking through each would cost as much as a sender likes."""

INT_MAX = 0x7FFF_FFFF
LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
DOUBLE_MIN = 5e-324
"""The smallest positive double, Java's Double.MIN_VALUE."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_WORD = re.compile(r"([+-]?)(NaN|Infinity)")
# String.trim() takes off everything up to the blank, control characters included.
_TRIMMED = "".join(map(chr, range(0x21)))


def integer(text: str) -> int:
    """Integer.valueOf: decimal digits of any script with a sign, 32 bits.

    >>> integer("-007")
    -7
    """
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return _whole(text, INT_MAX)


def long(text: str) -> int:
    """Long.valueOf: the same with 64 bits."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return _whole(text, LONG_MAX)


def double(text: str) -> float:
    """Double.valueOf: blanks around it, NaN, Infinity, hexadecimal and the suffixes d and f are allowed.

    >>> double(" 1.5e3f ")
    1500.0
    """
    if len(text) > _SIZE_MAX:
        raise ValueError("a text of more than 1,000 characters is not a number")
    text = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    if found := _WORD.fullmatch(text):
        return float(found[1] + found[2])
    raise ValueError(f"{text!r} is not a number")


def boolean(text: str) -> bool:
    """Boolean.valueOf: anything but the word true is false.

    >>> boolean("TRUE"), boolean("yes")
    (True, False)
    """
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo: -0.0 is below 0.0, NaN equals itself and is above everything else."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key = (left != left, math.copysign(1.0, left) if left == 0 else 0.0)
    right_key = (right != right, math.copysign(1.0, right) if right == 0 else 0.0)
    return (left_key > right_key) - (left_key < right_key)


def _whole(text: str, largest: int) -> int:
    if len(text) > _SIZE_MAX:
        raise ValueError("a text of more than 1,000 characters is not a number")
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Character.digit is asked one UTF-16 unit at a time, so digits beyond the first plane are none.
    values = [unicodedata.decimal(digit, None) if digit <= "\uffff" else None for digit in digits]
    if not values or None in values:
        raise ValueError(f"{text!r} is not a whole number")
    plain = "".join(map(str, values)).lstrip("0") or "0"
    value = int(plain) if len(plain) < 20 else largest + 2
    if text.startswith("-"):
        value = -value
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text!r} is outside {-largest - 1} to {largest}")
    return value
