"""Where the values of a frame lie in its header, in either encoding; an odd header has no layout."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pocketmq.remoting.command import RemotingCommand

_MARK = struct.Struct(">I").unpack_from
SAFE = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))
# A pattern of n bytes takes n us to compile, in one turn.
_HEADER_SIZE_MAX = 4_096
# Fixed part of a ROCKETMQ header without a remark: its opaque, its remark's size, and where fields begin.
_OPAQUE, _REMARK_SIZE_AT, _FIELDS_AT = (5, 9), 13, 21
_KEPT_NAMES = (b"WAIT",)
SEPARATORS = {0: (b"\\u0001", b"\\u0002"), 1: (b"\x01", b"\x02")}
Place = tuple[int, int]


class Layout(NamedTuple):
    """Where the values of one frame lie. header: behind the mark; places: in it, in the order of the values,
    with that of the opaque at the end. is_text: whether the opaque is decimal digits, or four bytes. sized:
    parts with such values (all fields, and each) whose length stands before them, in four bytes.
    """

    mark: bytes
    header: bytes
    places: Sequence[Place]
    is_text: bool
    sized: Sequence[Place]


def layout_of(frame: bytes, command: RemotingCommand, names: Sequence[str]) -> Layout | None:
    """Return where these values lie in a header; None for odd headers."""
    ext, encoding, size = command.ext, frame[0], _MARK(frame)[0] & 0xFF_FFFF
    if encoding not in SEPARATORS or ext is None or size > _HEADER_SIZE_MAX:
        return None
    header = frame[4 : 4 + size]
    try:
        if encoding:
            places = _places_in_fields(header, ext, names)
            sized = [(_FIELDS_AT, size), *places]
            return Layout(frame[:4], header, [*places, _OPAQUE], False, sized)
        places = [*_places_in_json(header, ext, names), _opaque_in_json(header, command.opaque)]
    except (KeyError, ValueError, IndexError):
        return None
    return Layout(frame[:4], header, places, True, ())


def _opaque_in_json(header: bytes, opaque: int) -> Place:
    start = header.index(b'"opaque":') + 9
    end = start + len(str(opaque))
    if header.count(b'"opaque"') != 1 or header[start:end] != str(opaque).encode():
        raise ValueError("opaque")
    if header[end : end + 1].isdigit():
        raise ValueError("opaque")
    return start, end


def _places_in_json(header: bytes, ext: Mapping[str, str], names: Sequence[str]) -> list[Place]:
    """Return where the values begin and end. Raises: KeyError, ValueError for odd headers."""
    places: list[Place] = []
    for name in names:
        mark = f'"{name}":"'.encode()
        start = header.index(mark) + len(mark)
        end = header.index(b'"', start)
        # A name that stands there twice, or as a value too, is nothing that a client writes.
        if header.count(f'"{name}"'.encode()) != 1:
            raise ValueError(name)
        value = header[start:end].replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        if value != ext[name].encode():
            raise ValueError(name)
        places.append((start, end))
    return places


def _places_in_fields(header: bytes, ext: Mapping[str, str], names: Sequence[str]) -> list[Place]:
    """Like `_places_in_json`, for a ROCKETMQ header. Raises: ValueError, IndexError."""
    if header[_REMARK_SIZE_AT : _REMARK_SIZE_AT + 4] != bytes(4):
        raise ValueError("a remark")
    found: dict[str, Place] = {}
    at, size, count = _FIELDS_AT, len(header), 0
    while at < size:
        key_end = at + 2 + (header[at] << 8 | header[at + 1])
        start = key_end + 4
        end = start + int.from_bytes(header[key_end:start], "big")
        found[header[at + 2 : key_end].decode()] = start, end
        at, count = end, count + 1
    if at != size or count != len(found) or count != len(ext):
        raise ValueError("fields")
    if not all(name in found for name in names):
        raise ValueError("fields")
    return [found[name] for name in names]


def places_of_properties(value: bytes, equals: bytes, ends: bytes) -> list[tuple[str, Place]]:
    """Return name and place of each value that may differ."""
    found: list[tuple[str, Place]] = []
    at = 0
    for pair in value.split(ends):
        name, is_pair, text = pair.partition(equals)
        start, end = at + len(name) + len(equals), at + len(pair)
        if is_pair and text and name not in _KEPT_NAMES and not text.translate(None, SAFE):
            found.append((name.decode(), (start, end)))
        at = end + len(ends)
    return found
