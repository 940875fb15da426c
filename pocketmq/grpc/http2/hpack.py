"""HPACK: the header blocks of one connection. Source: RFC 7541.

A block is decoded with the table left by the previous blocks. What we send refers to the static table only,
so that a block is a constant.
"""

import re

from pocketmq.grpc.http2 import huffman

Header = tuple[bytes, bytes]

TABLE_SIZE_MAX = 4_096
# What the table counts for an entry beside its texts.
_ENTRY_SIZE = 32
_KNOWN_TEXTS_MAX = 512
# Of one text, in Huffman's code: what repeats is short, and a connection must not keep megabytes of it.
_KNOWN_SIZE_MAX = 256
_INTEGER_MAX = 1 << 28

_STATIC: tuple[Header, ...] = (
    (b"", b""),
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", code) for code in b"200 204 206 304 400 404 500".split()),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization "
            b"cache-control content-disposition content-encoding content-language content-length "
            b"content-location content-range content-type cookie date etag expect expires from host "
            b"if-match if-modified-since if-none-match if-range if-unmodified-since last-modified link "
            b"location max-forwards proxy-authenticate proxy-authorization range referer refresh "
            b"retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary "
            b"via www-authenticate"
        ).split()
    ),
)
assert len(_STATIC) == 62
_STATIC_LARGEST = _ENTRY_SIZE + max(len(name) + len(value) for name, value in _STATIC)
# Static headers, each at the byte that names it by its index; those of the table follow, newest first.
_PLACES: tuple[Header, ...] = (*[_STATIC[0]] * 0x80, *_STATIC)
_FIRST = len(_PLACES)
_CUT = "a header's text goes beyond its block"
# Bytes that name a header by its index each: most headers of most calls.
_NAMED = re.compile(rb"[\x81-\xfe]+")


class HpackError(ValueError):
    """A block that cannot be decoded: the table is unknown from here on, and the connection is closed."""


class HeadersTooLarge(Exception):
    """A block that was decoded, but whose headers exceed the limit."""


class HpackDecoder:
    """The table of one direction of a connection."""

    def __init__(self, *, list_size_max: int) -> None:
        """list_size_max: bytes of all headers of a block, each counted with 32 more."""
        self._list_size_max = list_size_max
        self._places = list(_PLACES)
        self._size = 0
        self._size_max = TABLE_SIZE_MAX
        # No header that a block may refer to is larger.
        self._largest = _STATIC_LARGEST
        # Huffman texts repeat: the same token, the same second.
        self._known: dict[bytes, bytes] = {}

    def decode(self, block: bytes) -> list[Header]:
        """Decode a block. Raises: HpackError, HeadersTooLarge."""
        headers: list[Header] = []
        header_of = self._places.__getitem__
        at, end = 0, len(block)
        try:
            while at < end:
                byte = block[at]
                if byte > 0x80 and (named := _NAMED.match(block, at)):
                    headers += map(header_of, named[0])
                    at = named.end()
                elif byte & 0x80:
                    index, at = _integer(block, at, 0x7F)
                    headers.append(self._entry(index))
                elif byte & 0xE0 == 0x20:
                    if headers:
                        raise HpackError("a table size update after a header")
                    wanted, at = _integer(block, at, 0x1F)
                    self._resize(wanted)
                else:
                    keep = byte & 0xC0 == 0x40
                    header, at = self._literal(block, at, 0x3F if keep else 0x0F)
                    headers.append(header)
                    if keep:
                        self._add(header)
        except (IndexError, ValueError) as error:
            if isinstance(error, HpackError):
                raise
            raise HpackError(f"cannot decode a header block: {error}") from error
        # A Huffman text is at most 8/5 of its code.
        if len(headers) * self._largest + 2 * end > self._list_size_max:
            size = sum([len(name) + len(value) + _ENTRY_SIZE for name, value in headers])
            if size > self._list_size_max:
                raise HeadersTooLarge(
                    f"the headers have {size} bytes, but at most {self._list_size_max} are allowed"
                )
        return headers

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Header, int]:
        index = block[at] & mask
        at += 1
        if index:
            if index == mask:
                index, at = _integer(block, at - 1, mask)
            # A place behind the table is an IndexError.
            name = self._places[0x80 + index][0]
        else:
            size = block[at]
            value_at = at + 1 + size
            if size < 0x7F:
                name, at = block[at + 1 : value_at], value_at
            else:
                name, at = self._text(block, at)
        # A short text as it is, which clients send anew with each call, so without a further call.
        size = block[at]
        end = at + 1 + size
        if size < 0x7F and end <= len(block):
            return (name, block[at + 1 : end]), end
        value, at = self._text(block, at)
        return (name, value), at

    def _text(self, block: bytes, at: int) -> tuple[bytes, int]:
        length = block[at]
        is_huffman = length & 0x80
        length &= 0x7F
        if length == 0x7F:
            length, at = _integer(block, at, 0x7F)
        else:
            at += 1
        end = at + length
        if end > len(block):
            raise HpackError(_CUT)
        raw = block[at:end]
        if not is_huffman:
            return raw, end
        text = self._known.get(raw)
        if text is None:
            text = huffman.decode(raw)
            if len(raw) <= _KNOWN_SIZE_MAX:
                if len(self._known) >= _KNOWN_TEXTS_MAX:
                    self._known.clear()
                self._known[raw] = text
        return text, end

    def _entry(self, index: int) -> Header:
        if not 0 < index < len(self._places) - 0x80:
            raise HpackError(f"no header {index} in the table")
        return self._places[0x80 + index]

    def _add(self, header: Header) -> None:
        name, value = header
        size = len(name) + len(value) + _ENTRY_SIZE
        self._places.insert(_FIRST, header)
        if size > self._largest:
            self._largest = size
        self._size += size
        if self._size > self._size_max:
            self._evict()

    def _resize(self, wanted: int) -> None:
        if wanted > TABLE_SIZE_MAX:
            raise HpackError(
                f"a header table of {wanted} bytes, but at most {TABLE_SIZE_MAX} are allowed"
            )
        self._size_max = wanted
        self._evict()

    def _evict(self) -> None:
        size, pop = self._size, self._places.pop
        while size > self._size_max:
            name, value = pop()
            size -= len(name) + len(value) + _ENTRY_SIZE
        self._size = size


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Decode a number with a prefix of the mask's bits; return it and where it ends."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    if block[at] < 0x80:
        return number + block[at], at + 1
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if number > _INTEGER_MAX or shift > 28:
            raise HpackError("a number in a header block is too large")


def encode(headers: list[Header]) -> bytes:
    """Encode a block without Huffman, which adds nothing to the peer's table.

    >>> encode([(b":status", b"200"), (b"grpc-status", b"0")]).hex()
    '88000b677270632d7374617475730130'
    """
    block = bytearray()
    for header in headers:
        if header in _STATIC[1:]:
            block.append(0x80 | _STATIC.index(header))
            continue
        name, value = header
        block.append(0)
        block += _sized(name)
        block += _sized(value)
    return bytes(block)


def _sized(text: bytes) -> bytes:
    if len(text) < 0x7F:
        return bytes((len(text),)) + text
    rest = len(text) - 0x7F
    size = bytearray((0x7F,))
    while rest >= 0x80:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    size.append(rest)
    return bytes(size) + text
