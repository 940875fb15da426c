"""A client's requests of one code, cut by the places where the values of an earlier one lay: one unpack.
So are the answers to them, at the client (`AnswerShapes`).

    {"code":310, ... "e":"  3  ", ... "i":"UNIQ_KEY\\u0001  7F0000..  \\u0002WAIT\\u0001true\\u0002", ...

1. In headers of one size values of the same lengths lie at the same places. What is between them must be the
   same, byte for byte.
2. A value is printable ASCII that needs no escape: so it ends where the earlier one did, in JSON as in a
   ROCKETMQ header, and stands for itself.
3. The values of properties are cut one by one.
"""

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.outbox import Buffer

_MARK = struct.Struct(">I").unpack_from
SAFE = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))
OPAQUE_MAX = b"2147483647"
# Frames that are answered together. Break-even is 24 frames by wall time (10 by instruction count, which
# ignores memory stalls).
RUN_MIN, RUN_MAX = 24, 256
_SLOTS_MAX = 24
_SHAPES_MAX = 64
# Beyond this many headers that did not fit, a connection learns from some of them only.
EAGER_MISSES = 8
LEARN_EVERY = 64
# Fixed part of a ROCKETMQ header without a remark: its opaque, its remark's size, and where fields begin.
_OPAQUE, _REMARK_SIZE_AT, _FIELDS_AT = (5, 9), 13, 21
_KEPT_NAMES = (b"WAIT",)
_SEPARATORS = {0: (b"\\u0001", b"\\u0002"), 1: (b"\x01", b"\x02")}

Place = tuple[int, int]
# A quick way returns an answer, b"" for one that comes later or never, or None: then it has done nothing, and
# the request is parsed. Bytes are a frame that cost little to make.
Quick = bytes | RemotingCommand | Sequence[Buffer] | None


class ByPlace(NamedTuple):
    """How a handler answers requests that are cut in this way.

    fields: names of values that differ; properties: the field that is cut further, "" for none.
    fix(request, names): what all requests have in common that differ in these and in the properties of these
    names; None: they are not to be cut. answer(fixed, values, opaque, body, connection): as `Shaped.quick`;
    values: of `fields`, then of the properties. run(shape, fixed, frames, connection): the answers to several
    frames of one size, joined, b"" for later, or None: then nothing was done, and each goes its own way.
    run_min, run_max: of how many frames.
    """

    fields: Sequence[str]
    properties: str
    fix: Callable[[RemotingCommand, Sequence[str]], object | None]
    answer: Callable[[Any, tuple[bytes, ...], int, bytes, Any], Quick]
    run: Callable[["FixedShape", Any, Sequence[bytes], Any], bytes | None] | None = None
    run_min: int = RUN_MIN
    run_max: int = RUN_MAX


class FixedShape:
    """See the head of the file."""

    def __init__(
        self, way: ByPlace, fixed: object, header: bytes, places: Sequence[Place], *, is_text: bool
    ) -> None:
        """places: of the fields, of the properties, and of the opaque."""
        self._answer = way.answer
        self._run = way.run
        self.run_min, self.run_max = way.run_min, way.run_max
        self._fixed = fixed
        self.is_text = is_text
        self.mark = (len(header) | (0 if is_text else 1 << 24)).to_bytes(4, "big")
        self.header = header
        self.places = tuple(places)
        # What `run` keeps, by the size of a frame.
        self.runs: dict[int, Any] = {}
        self._end = 4 + len(header)
        widths: list[str] = []
        at = 0
        ordered = sorted(places)
        for start, end in ordered:
            widths.append(f"{start - at}s{end - start}s")
            at = end
        self._unpack = struct.Struct(f"4x{''.join(widths)}{len(header) - at}s").unpack_from
        parts = [1 + 2 * ordered.index(place) for place in places]
        self._opaque = parts.pop()
        self._pick = operator.itemgetter(*parts)
        self._same = self._unpack(bytes(4) + header)[::2]

    def answer(self, frame: bytes, connection: Any) -> Quick:
        """Return the handler's response to a frame; None if its header has another shape."""
        end = self._end
        if len(frame) < end:
            return None
        parts = self._unpack(frame)
        if parts[::2] != self._same:
            return None
        values = self._pick(parts)
        number = parts[self._opaque]
        if b"".join(values).translate(None, SAFE):
            return None
        if self.is_text:
            if not number.isdigit() or number[0] == 48:
                return None
            if len(number) >= 10 and number > OPAQUE_MAX:
                return None
            opaque = int(number)
        else:
            opaque = int.from_bytes(number, "big", signed=True)
        return self._answer(self._fixed, values, opaque, frame[end:], connection)

    def answer_run(self, frames: Sequence[bytes], connection: Any) -> bytes | None:
        """Return the handler's responses to frames of one size; None if they are to be asked one by one."""
        run = self._run
        return None if run is None else run(self, self._fixed, frames, connection)


def learn_fixed(frame: bytes, request: RemotingCommand, way: ByPlace) -> FixedShape | None:
    """Return the shape of this request; None if it has none, or its handler wants none."""
    ext = request.ext
    encoding = frame[0]
    if encoding not in _SEPARATORS or request.flag or ext is None or request.opaque < 1:
        return None
    header = frame[4 : 4 + (_MARK(frame)[0] & 0xFF_FFFF)]
    try:
        of = _places_in_json if encoding == 0 else _places_in_fields
        cut_further = (way.properties,) if way.properties else ()
        places = of(header, ext, (*way.fields, *cut_further))
        opaque = _opaque_in_json(header, request.opaque) if encoding == 0 else _OPAQUE
    except (KeyError, ValueError, IndexError):
        return None
    names: list[str] = []
    if cut_further:
        start, end = places.pop()
        for name, place in _places_of_properties(header[start:end], *_SEPARATORS[encoding]):
            names.append(name)
            places.append((start + place[0], start + place[1]))
    if len(places) > _SLOTS_MAX or any(
        start == end or header[start:end].translate(None, SAFE) for start, end in places
    ):
        return None
    fixed = way.fix(request, names)
    if fixed is None:
        return None
    return FixedShape(way, fixed, header, [*places, opaque], is_text=encoding == 0)


class CutWaiter(Protocol):
    """A waiter that takes values instead of an answer. cut_names: of the fields that differ."""

    cut_names: Sequence[str]

    def common(self, answer: RemotingCommand) -> object | None:
        """Return what all answers have in common that differ in nothing else; None: they are not cut."""
        ...

    def set_cut(self, common: Any, values: tuple[bytes, ...]) -> bool:
        """Take the values of `cut_names` that the answer had; False: it has to be parsed."""
        ...


class AnswerShapes:
    """A client's connection cuts by these what was parsed before, as a broker's by `RequestShapes`."""

    def __init__(self, pending: dict[int, Any]) -> None:
        """pending: waiters by opaque, those of the connection."""
        self._pending = pending
        self._shapes: dict[int, FixedShape] = {}
        self._misses = 0

    def answer(self, frame: bytes, connection: Any, _: Mapping[int, Any]) -> Quick:
        """Hand an answer to its waiter; b"" then, None if it has to be parsed."""
        shape = self._shapes.get(_MARK(frame)[0])
        return None if shape is None else shape.answer(frame, connection)

    def learn(self, frame: bytes, answer: RemotingCommand, waiter: CutWaiter) -> None:
        """Cut answers like this one from now on, if they can be; rarely if they change all the time."""
        self._misses += 1
        ext = answer.ext
        if not is_time_to_learn(self._misses) or frame[0] not in _SEPARATORS or ext is None:
            return
        common = waiter.common(answer)
        header = frame[4 : 4 + (_MARK(frame)[0] & 0xFF_FFFF)]
        names = [name for name in waiter.cut_names if name in ext]
        is_text = frame[0] == 0
        try:
            places = (_places_in_json if is_text else _places_in_fields)(header, ext, names)
            opaque = _opaque_in_json(header, answer.opaque) if is_text else _OPAQUE
        except (KeyError, ValueError, IndexError):
            return
        if common is None or len(names) < 3 or any(start == end for start, end in places):
            return
        if len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
        way = ByPlace(names, "", _nothing, self._take)
        places.append(opaque)
        self._shapes[_MARK(frame)[0]] = FixedShape(way, common, header, places, is_text=is_text)

    def _take(
        self, common: Any, values: tuple[bytes, ...], opaque: int, body: bytes, _: Any
    ) -> bytes | None:
        waiter = self._pending.get(opaque)
        if waiter is None or body or not hasattr(waiter, "set_cut"):
            return None
        if not waiter.set_cut(common, values):
            return None
        del self._pending[opaque]
        return b""


def _nothing(_: RemotingCommand, __: Sequence[str]) -> object | None:
    return None


def answered(
    pending: dict[int, Any], frame: bytes, answer: RemotingCommand, known: AnswerShapes | None
) -> AnswerShapes | None:
    """Hand a parsed answer to its waiter. Returns: the shapes to use from now on, None for the known ones."""
    waiter = pending.pop(answer.opaque, None)
    if waiter is None or waiter.done():
        return None
    shapes = None
    if hasattr(waiter, "set_cut"):
        shapes = known or AnswerShapes(pending)
        shapes.learn(frame, answer, waiter)
    waiter.set_result(answer)
    return shapes


def is_time_to_learn(misses: int) -> bool:
    """Return True if a shape should be learnt now: rarely if shapes change all the time."""
    return misses <= EAGER_MISSES or not misses % LEARN_EVERY


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


def _places_of_properties(value: bytes, equals: bytes, ends: bytes) -> list[tuple[str, Place]]:
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
