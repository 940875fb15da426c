"""Java's String.hashCode: the tag code of a ConsumeQueue entry and of a subscription's codeSet.

h = 31 * h + unit over the UTF-16 code units, wrapped to a signed 32-bit int. The text "Aa" and "BB"
share 2112, so a code is a first filter only (acceptance S42, S49).
"""

from functools import lru_cache


def string_hash(text: str) -> int:
    """String.hashCode of `text`: -2**31 .. 2**31 - 1.

    >>> string_hash("tagA"), string_hash("Aa"), string_hash("BB"), string_hash("")
    (3552231, 2112, 2112, 0)
    >>> string_hash("polygenelubricants")
    -2147483648
    """
    h = 0
    if text.isascii():
        for unit in text.encode():
            h = (31 * h + unit) & 0xFFFF_FFFF
    else:
        # surrogatepass: a lone surrogate is a legal Java char.
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFF_FFFF
    return h - 0x1_0000_0000 if h >= 0x8000_0000 else h


@lru_cache(maxsize=4096)
def tag_code(tag: str) -> int:
    """Return the tag's code as in a ConsumeQueue entry: hash sign-extended; 0 for no tag."""
    return string_hash(tag)
