"""HPACK: the header blocks of one connection. Source: RFC 7541.

A block is decoded with the table left by the previous blocks. What we send refers to the static table only,
so that a block is a constant.
"""

from pocketmq.grpc import huffman

Header = tuple[bytes, bytes]

TABLE_SIZE_MAX = 4_096
# What the table counts for an entry beside its texts.
_ENTRY_SIZE = 32
_KNOWN_TEXTS_MAX = 512
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
# The byte that refers to the newest header of the table.
_FIRST_ENTRY = 0x80 + len(_STATIC)
# Headers that have left the table and are still in the list: taken out many at a time.
_GONE_MAX = 128


class HpackError(ValueError):
    """A block that cannot be decoded: the table is unknown from here on, and the connection is closed."""


class HeadersTooLarge(Exception):
    """A block that was decoded, but whose headers exceed the limit."""


class HpackDecoder:
    """The table of one direction of a connection."""

    def __init__(self, *, list_size_max: int) -> None:
        """list_size_max: bytes of all headers of a block, each counted with 32 more."""
        self._list_size_max = list_size_max
        # The newest last; those before `_first` are no longer in the table.
        self._entries: list[Header] = []
        self._first = 0
        self._size = 0
        self._size_max = TABLE_SIZE_MAX
        # No header that a block may refer to is larger.
        self._largest = _STATIC_LARGEST
        # Huffman texts repeat: the same token, the same second.
        self._known: dict[bytes, bytes] = {}

    def decode(self, block: bytes) -> list[Header]:
        """Decode a block. Raises: HpackError, HeadersTooLarge."""
        headers: list[Header] = []
        entries = self._entries
        at, end = 0, len(block)
        # Up to here a byte names a header of the table.
        known = _FIRST_ENTRY + len(entries) - self._first
        try:
            while at < end:
                byte = block[at]
                if _FIRST_ENTRY <= byte < known and byte < 0xFF:
                    # The short form of most headers of most calls.
                    at += 1
                    headers.append(entries[_FIRST_ENTRY - 1 - byte])
                elif 0x80 < byte < _FIRST_ENTRY:
                    at += 1
                    headers.append(_STATIC[byte & 0x7F])
                elif byte & 0x80:
                    index, at = _integer(block, at, 0x7F)
                    headers.append(self._entry(index))
                elif byte & 0xE0 == 0x20:
                    if headers:
                        raise HpackError("the size of the table changes after a header")
                    wanted, at = _integer(block, at, 0x1F)
                    self._resize(wanted)
                    known = _FIRST_ENTRY + len(entries) - self._first
                else:
                    keep = byte & 0xC0 == 0x40
                    header, at = self._literal(block, at, 0x3F if keep else 0x0F)
                    headers.append(header)
                    if keep:
                        self._add(header)
                        known = _FIRST_ENTRY + len(entries) - self._first
        except (IndexError, ValueError) as error:
            if isinstance(error, HpackError):
                raise
            raise HpackError(f"a header block is broken: {error}") from error
        # A Huffman text is at most 8/5 of its code.
        if len(headers) * self._largest + 2 * end > self._list_size_max:
            size = sum([len(name) + len(value) + _ENTRY_SIZE for name, value in headers])
            if size > self._list_size_max:
                raise HeadersTooLarge(
                    f"{size} bytes of headers; at most {self._list_size_max} are read"
                )
        return headers

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Header, int]:
        if block[at] & mask:
            index, at = _integer(block, at, mask)
            name = self._entry(index)[0]
        else:
            name, at = self._text(block, at + 1)
        value, at = self._text(block, at)
        return (name, value), at

    def _text(self, block: bytes, at: int) -> tuple[bytes, int]:
        is_huffman, length = block[at] & 0x80, block[at] & 0x7F
        if length < 0x7F:
            at += 1
        else:
            length, at = _integer(block, at, 0x7F)
        end = at + length
        if end > len(block):
            raise HpackError("a header's text ends behind its block")
        raw = block[at:end]
        if not is_huffman:
            return raw, end
        text = self._known.get(raw)
        if text is None:
            text = huffman.decode(raw)
            if len(self._known) >= _KNOWN_TEXTS_MAX:
                self._known.clear()
            self._known[raw] = text
        return text, end

    def _entry(self, index: int) -> Header:
        if 0 < index < len(_STATIC):
            return _STATIC[index]
        if not 0 < index < len(_STATIC) + len(self._entries) - self._first:
            raise HpackError(f"there is no header {index} in the table")
        return self._entries[len(_STATIC) - 1 - index]

    def _add(self, header: Header) -> None:
        size = len(header[0]) + len(header[1]) + _ENTRY_SIZE
        self._entries.append(header)
        self._size += size
        self._largest = max(self._largest, size)
        if self._size > self._size_max:
            self._evict()

    def _resize(self, wanted: int) -> None:
        if wanted > TABLE_SIZE_MAX:
            raise HpackError(f"a table of {wanted} bytes; at most {TABLE_SIZE_MAX} are kept")
        self._size_max = wanted
        self._evict()

    def _evict(self) -> None:
        while self._size > self._size_max:
            name, value = self._entries[self._first]
            self._entries[self._first] = _STATIC[0]
            self._first += 1
            self._size -= len(name) + len(value) + _ENTRY_SIZE
        if self._first > _GONE_MAX:
            del self._entries[: self._first]
            self._first = 0


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Decode a number with a prefix of the mask's bits; return it and where it ends."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
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
