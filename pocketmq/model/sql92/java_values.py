"""How Java parses numbers and booleans from text: a property is text, a literal of the grammar is not.

Every function raises ValueError where Java throws NumberFormatException. Source: Integer.valueOf,
Long.valueOf, Double.valueOf, Boolean.valueOf, Double.compareTo, JDK 17.
"""

import math
import re

from pocketmq.remoting.java_number import INT_MAX, LONG_MAX, integer, long

__all__ = (
    "DOUBLE_MIN",
    "INT_MAX",
    "LONG_MAX",
    "boolean",
    "compare_doubles",
    "double",
    "integer",
    "long",
)

_SIZE_MAX = 1_000
"""Ours: a longer text is no number; looking through each would cost as much as a sender likes."""

DOUBLE_MIN = 5e-324
"""The smallest positive double, Java's Double.MIN_VALUE."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_WORD = re.compile(r"([+-]?)(NaN|Infinity)")
# String.trim() takes off everything up to the blank, control characters included.
_TRIMMED = "".join(map(chr, range(0x21)))


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
