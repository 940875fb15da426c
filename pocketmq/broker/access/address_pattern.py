"""AddressPattern: the addresses that an ACL file lets in without a signature (wire.md 7.2).

    (empty)               no address                *  *.*.*.*         every address
    192.168.1.7           that one                  10.1.1.1,10.1.1.2  each of them
    192.168.*.*           any number there          192.168.1-5.*      a range, ends included
    192.168.1.{7,9}       one of these              ::1  1050:*:...    IPv6 likewise, hexadecimal

Source: RemoteAddressStrategyFactory, RocketMQ 4.9.7.
"""

import ipaddress
from collections.abc import Iterator

from pocketmq.remoting.errors import IllegalArgument

_Range = tuple[int, int]


class AddressPattern:
    """One line of an ACL file.

    >>> AddressPattern("192.168.1-5.{7,9}").matches("192.168.3.9")
    True
    >>> AddressPattern("").matches("127.0.0.1"), AddressPattern("*").matches("::1")
    (False, True)
    """

    __slots__ = ("_alternatives", "_everybody", "text")

    def __init__(self, text: str) -> None:
        """Raises: IllegalArgument."""
        self.text = text = text.strip()
        self._everybody = bool(text) and set(text) <= {"*", ".", ":"} and "*" in text
        self._alternatives: list[list[list[_Range]]] = []
        if text and not self._everybody:
            self._alternatives = [_components(each) for each in _split_commas(text)]

    def matches(self, address: str) -> bool:
        """Return True if the pattern covers an IP address; IPv6 with or without brackets."""
        if self._everybody:
            return True
        if not self._alternatives:
            return False
        numbers = _numbers(address)
        return any(
            len(pattern) == len(numbers)
            and all(
                any(low <= number <= high for low, high in ranges)
                for number, ranges in zip(numbers, pattern, strict=True)
            )
            for pattern in self._alternatives
        )


def _numbers(address: str) -> list[int]:
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return []
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return [int(part, 16) for part in ip.exploded.split(":")]
        ip = ip.ipv4_mapped
    return list(ip.packed)


def _split_commas(text: str) -> Iterator[str]:
    """Split at commas outside braces."""
    depth = 0
    start = 0
    for place, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _components(text: str) -> list[list[_Range]]:
    """Return the ranges allowed for each number of the address."""
    text = text.strip()
    six = ":" in text
    base, count, top = (16, 8, 0xFFFF) if six else (10, 4, 255)
    parts = text.split(":" if six else ".")
    if six and "::" in text:
        before, _, after = text.partition("::")
        left = before.split(":") if before else []
        right = after.split(":") if after else []
        parts = [*left, *["0"] * (count - len(left) - len(right)), *right]
    try:
        if len(parts) != count:
            raise ValueError(f"it has {len(parts)} numbers instead of {count}")
        return [list(_ranges(part.strip(), base, top)) for part in parts]
    except ValueError as error:
        raise IllegalArgument(f"{text!r} in an ACL file is not an address: {error}") from error


def _ranges(part: str, base: int, top: int) -> Iterator[_Range]:
    if part.startswith("{") and part.endswith("}"):
        for each in part[1:-1].split(","):
            yield from _ranges(each.strip(), base, top)
        return
    if part == "*":
        yield 0, top
        return
    first, _, last = part.partition("-")
    low, high = int(first, base), int(last or first, base)
    if not 0 <= low <= high <= top:
        raise ValueError(f"{part} is not between 0 and {top}")
    yield low, high
