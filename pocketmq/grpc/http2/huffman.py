"""HPACK's Huffman code. Source: RFC 7541, appendix B.

The code is canonical: shorter codes come first, and among codes of one length the smaller symbol. So the
lengths define it. Padding is up to seven bits of the end mark (all ones).
"""

from functools import cache

_END = 256
# Bits of each symbol's code: bytes 0 to 255, then the end mark.
_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b"
    "0a0a080b080606060505050606060606060607080f060c0a0d060707070707070707070707070707"
    "07070707070707070807080d130d0e060f0506050605060606050707060606050607060505060707"
    "0707070f0b0e0d1c1416141416161617161717171717181718181617181717171715161716171718"
    "16151416161717151716161815161717151516151716171714161616171616171a1a141316171619"
    "1a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a17"
    "1a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
_PADDING_BITS_MAX = 7
_PAIRS_MAX = 1 << 14

# A step of four bits: the next state, what was decoded by it. None: the end mark, which no text has.
_Step = tuple[int, bytes] | None


class _Pairs(dict[int, tuple[int, bytes]]):
    """Steps of whole bytes, by state * 256 + byte, as far as texts have needed them: the next state * 256,
    what was decoded.
    """

    def __missing__(self, at: int) -> tuple[int, bytes]:
        """Raises: ValueError."""
        steps, _ = _machine()
        first = steps[at >> 4]
        second = None if first is None else steps[first[0] << 4 | at & 15]
        if first is None or second is None:
            raise ValueError("a Huffman text contains the end mark")
        step = second[0] << 8, first[1] + second[1]
        if len(self) < _PAIRS_MAX:
            self[at] = step
        return step


_pairs = _Pairs()


def decode(data: bytes) -> bytes:
    """Decode a text. Raises: ValueError if it breaks off or has a wrong padding.

    >>> decode(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff"))
    b'www.example.com'
    """
    pairs, state = _pairs, 0
    decoded: list[bytes] = []
    for byte in data:
        state, text = pairs[state | byte]
        decoded.append(text)
    if state >> 8 not in _machine()[1]:
        raise ValueError("a Huffman text ends with wrong padding")
    return b"".join(decoded)


@cache
def _machine() -> tuple[list[_Step], frozenset[int]]:
    """Return the steps by state * 16 + four bits, and the states in which a text may end."""
    children, symbols = _tree()
    inner = [node for node in range(len(children)) if node not in symbols]
    number = {node: at for at, node in enumerate(inner)}
    steps = [
        _walk(children, symbols, number, node, nibble) for node in inner for nibble in range(16)
    ]
    ends, node = [], 0
    for _ in range(_PADDING_BITS_MAX + 1):
        ends.append(number[node])
        node = children[node][1]
    return steps, frozenset(ends)


def _walk(
    children: list[list[int]],
    symbols: dict[int, int],
    number: dict[int, int],
    node: int,
    nibble: int,
) -> _Step:
    text = b""
    for place in (3, 2, 1, 0):
        node = children[node][nibble >> place & 1]
        symbol = symbols.get(node)
        if symbol == _END:
            return None
        if symbol is not None:
            text += bytes((symbol,))
            node = 0
    return number[node], text


def _tree() -> tuple[list[list[int]], dict[int, int]]:
    """Return the children of each node, the root first, and the symbols of the leaves."""
    children: list[list[int]] = [[0, 0]]
    symbols: dict[int, int] = {}
    code, length = 0, 0
    for symbol in sorted(range(_END + 1), key=lambda each: (_LENGTHS[each], each)):
        code <<= _LENGTHS[symbol] - length
        length = _LENGTHS[symbol]
        node = 0
        for place in range(length - 1, -1, -1):
            bit = code >> place & 1
            if not children[node][bit]:
                children.append([0, 0])
                children[node][bit] = len(children) - 1
            node = children[node][bit]
        symbols[node] = symbol
        code += 1
    return children, symbols
