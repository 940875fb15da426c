"""Frames of one peer that differ in a few values only are cut by a pattern, made of an earlier one.

    {"code":310, ... "e":"  3  ", ... "i":"UNIQ_KEY\\u0001  7F0000..  \\u0002WAIT\\u0001true\\u0002", ...

1. What is between the values must be the same, byte for byte: so a cut says what a parser says.
2. A value is printable ASCII that needs no escape, and stands for itself. It ends where the constant text
   continues: in JSON it may have another length than that of the earlier one; in a ROCKETMQ header, where its
   length is before it, it may not.
3. The values of properties are cut one by one.
4. What does not fit is parsed. A pattern belongs to one connection (`Patterns`) and is made of a frame that
   was parsed: a request for a handler that wants it (`Cuttable`), or an answer to a waiter that takes values.
"""

import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.outbox import Buffer

_MARK = struct.Struct(">I").unpack_from
SAFE = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))
OPAQUE_MAX = 2_147_483_647
# Frames that are answered together. Break-even is 24 frames by wall time (10 by instruction count, which
# ignores memory stalls).
RUN_MIN, RUN_MAX = 24, 256
_SLOTS_MAX = 24
# Patterns that a header of a new size is tried on; and sizes for which it is known which one fits.
_LATEST_MAX, _SIZES_MAX = 4, 64
# Beyond this many frames that did not fit, a connection learns from some of them only: a pattern costs as
# much as thirty messages.
_EAGER_MISSES, _LEARN_EVERY = 8, 256
# A pattern of n bytes takes n us to compile, in one turn.
_HEADER_SIZE_MAX = 4_096
# Fixed part of a ROCKETMQ header without a remark: its opaque, its remark's size, and where fields begin.
_OPAQUE, _REMARK_SIZE_AT, _FIELDS_AT = (5, 9), 13, 21
_KEPT_NAMES = (b"WAIT",)
_SEPARATORS = {0: (b"\\u0001", b"\\u0002"), 1: (b"\x01", b"\x02")}
_VALUE, _NUMBER = rb"([ !#-\[\]-~]++)", rb"([1-9][0-9]{0,9}+)"

Place = tuple[int, int]
# A handler of cut requests returns an answer, b"" for one that comes later or never, or None: then it has
# done nothing, and the request is parsed. Bytes are a frame that cost little to make.
Quick = bytes | RemotingCommand | Sequence[Buffer] | None


class CutRule(NamedTuple):
    """How requests that are cut are answered.

    fields: names of values that differ; properties: the field that is cut further, "" for none.
    fix(request, names): what all requests have in common that differ in these and in the properties of these
    names; None: they are not to be cut. answer(fixed, values, opaque, body, connection): see `Quick`; values:
    of `fields`, then of the properties, then the opaque as the header has it. run(pattern, fixed, frames,
    connection): the answers to several frames of one size, joined, b"" for later, or None: then nothing was
    done, and each is answered alone; `pattern.runs` holds what it keeps. run_min, run_max: how many frames.
    """

    fields: Sequence[str]
    properties: str
    fix: Callable[[RemotingCommand, Sequence[str]], object | None]
    answer: Callable[[Any, tuple[bytes, ...], int, bytes, Any], Quick]
    run: "Run | None" = None
    run_min: int = RUN_MIN
    run_max: int = RUN_MAX


Run = Callable[["Pattern", Any, Sequence[bytes], Any], bytes | None]


class Cuttable:
    """A handler of requests that may be cut. Called, it handles one that was parsed."""

    def __init__(self, handle: Callable[[RemotingCommand, Any], Any], way: CutRule) -> None:
        self.handle = handle
        self.way = way

    def __call__(self, request: RemotingCommand, connection: Any) -> Any:
        return self.handle(request, connection)


class Layout(NamedTuple):
    """Where the values of one frame lie. header: behind the mark; places: in it, in the order of the values,
    with that of the opaque at the end. is_text: whether the opaque is decimal digits, or four bytes.
    """

    mark: bytes
    header: bytes
    places: Sequence[Place]
    is_text: bool


class Pattern:
    """See the head of the file. code, handler: whose requests these are; -1, None for answers."""

    def __init__(
        self, layout: Layout, way: CutRule, fixed: object, code: int, handler: Cuttable | None
    ) -> None:
        self.code = code
        self.handler = handler
        self.is_text = layout.is_text
        self.way = way
        self._answer = way.answer
        self._fixed = fixed
        # What `run` keeps, by the size of a frame.
        self.runs: dict[int, Any] = {}
        places = layout.places
        ordered = sorted(places)
        header = layout.header
        # Long constant text is compared quicker than matched.
        self._first, self._last = header[: ordered[0][0]], header[ordered[-1][1] :]
        middle = _pattern_of(layout, ordered)
        self.text = self._first, middle, self._last
        self._begin, self._last_size = 4 + len(self._first), len(self._last)
        self._fits = re.compile(middle, re.DOTALL).fullmatch
        self._groups = [1 + ordered.index(place) for place in places]
        # As the groups of a match come.
        self._in_order = self._groups == sorted(self._groups)

    def answer(self, frame: bytes, mark: int, connection: Any) -> Quick:
        """Return the handler's response to a frame of this encoding; None if its header does not fit.

        mark: its first word.
        """
        end = 4 + (mark & 0xFF_FFFF)
        begin, last = self._begin, end - self._last_size
        if end > len(frame) or frame[4:begin] != self._first or frame[last:end] != self._last:
            return None
        found = self._fits(frame, begin, last)
        if found is None:
            return None
        values = found.groups() if self._in_order else found.group(*self._groups)
        number = values[-1]
        if self.is_text:
            opaque = int(number)
            if opaque > OPAQUE_MAX:
                return None
        else:
            opaque = int.from_bytes(number, "big", signed=True)
        return self._answer(self._fixed, values, opaque, frame[end:], connection)

    def layout(self, frame: bytes) -> Layout | None:
        """Return where the values of a frame lie that was answered before; None if it does not fit."""
        end = 4 + (_MARK(frame)[0] & 0xFF_FFFF)
        found = self._fits(frame, self._begin, end - self._last_size)
        if found is None:
            return None
        spans = [found.span(group) for group in self._groups]
        places = [(start - 4, stop - 4) for start, stop in spans]
        return Layout(frame[:4], frame[4:end], places, self.is_text)

    def answer_run(self, frames: Sequence[bytes], connection: Any) -> bytes | None:
        """Return the handler's responses to frames of one size; None if they are to be asked one by one."""
        run = self.way.run
        return None if run is None else run(self, self._fixed, frames, connection)


def _pattern_of(layout: Layout, ordered: Sequence[Place]) -> bytes:
    """Return a regular expression for the values, and what is between them."""
    header, is_text = layout.header, layout.is_text
    pieces: list[bytes] = []
    at = ordered[0][0]
    for place in ordered:
        start, end = place
        pieces.append(re.escape(header[at:start]))
        if place == layout.places[-1]:
            pieces.append(_NUMBER if is_text else b"(.{4})")
        else:
            # Of the same length, where the header has its length: `++` would do, too, but say less.
            pieces.append(_VALUE if is_text else _VALUE[:-3] + b"{%d})" % (end - start))
        at = end
    return b"".join(pieces)


class Patterns:
    """The patterns of one connection."""

    def __init__(self) -> None:
        # By the mark: encoding and size of a header.
        self._by_mark: dict[int, Pattern] = {}
        # In JSON, the latest first.
        self._latest: list[Pattern] = []
        self._misses = 0
        # The least of any pattern.
        self.run_min = sys.maxsize

    def answer(self, frame: bytes, connection: Any, handlers: Mapping[int, Any]) -> Quick:
        """Return the response to a frame; None if it has to be parsed.

        handlers: those of now; a handler that was exchanged meanwhile is not asked.
        """
        mark = _MARK(frame)[0]
        known = self._by_mark.get(mark)
        if known is not None and handlers.get(known.code) is known.handler:
            reply = known.answer(frame, mark, connection)
            if reply is not None:
                return reply
        if frame[0]:
            return None
        for pattern in self._latest:
            if pattern is not known and handlers.get(pattern.code) is pattern.handler:
                reply = pattern.answer(frame, mark, connection)
                if reply is not None:
                    self._note(mark, pattern)
                    return reply
        return None

    def answer_run(
        self, frames: Sequence[bytes], connection: Any, handlers: Mapping[int, Any]
    ) -> tuple[int, bytes]:
        """Answer the first of these frames together, if they are alike.

        Returns: how many, or 0, and their answers.
        """
        first = frames[0]
        pattern = self._by_mark.get(_MARK(first)[0])
        if pattern is None or handlers.get(pattern.code) is not pattern.handler:
            return 0, b""
        size, most = len(first), pattern.way.run_max
        count = 0
        for frame in frames:
            if len(frame) != size or count == most:
                break
            count += 1
        if count < pattern.way.run_min:
            return 0, b""
        reply = pattern.answer_run(frames[:count], connection)
        return (0, b"") if reply is None else (count, reply)

    def is_time_to_learn(self) -> bool:
        """Return True if a pattern should be made now: rarely, if frames differ all the time."""
        self._misses += 1
        return self._misses <= _EAGER_MISSES or not self._misses % _LEARN_EVERY

    def add(self, frame: bytes, pattern: Pattern) -> None:
        """Cut what fits from now on; frame: what the pattern was made of."""
        self._note(_MARK(frame)[0], pattern)
        if pattern.is_text:
            others = [each for each in self._latest if each.text != pattern.text]
            self._latest = [pattern, *others[: _LATEST_MAX - 1]]
        if pattern.way.run is not None:
            self.run_min = min(self.run_min, pattern.way.run_min)

    def _note(self, mark: int, pattern: Pattern) -> None:
        if len(self._by_mark) >= _SIZES_MAX:
            self._by_mark.clear()
        self._by_mark[mark] = pattern


def learn_request(
    patterns: Patterns, frame: bytes, request: RemotingCommand, handler: Cuttable
) -> None:
    """Cut requests like this one from now on, if they can be; rarely if they differ all the time."""
    if patterns.is_time_to_learn():
        pattern = request_pattern(frame, request, handler)
        if pattern is not None:
            patterns.add(frame, pattern)


def request_pattern(frame: bytes, request: RemotingCommand, handler: Cuttable) -> Pattern | None:
    """Return the pattern of this request; None if it has none, or its handler wants none."""
    way = handler.way
    if request.flag or request.opaque < 1:
        return None
    further = (way.properties,) if way.properties else ()
    layout = _layout_of(frame, request, (*way.fields, *further))
    if layout is None:
        return None
    names: list[str] = []
    if further:
        *places, (start, end), opaque = layout.places
        separators = _SEPARATORS[0 if layout.is_text else 1]
        for name, place in _places_of_properties(layout.header[start:end], *separators):
            names.append(name)
            places.append((start + place[0], start + place[1]))
        layout = layout._replace(places=[*places, opaque])
    values = [layout.header[start:end] for start, end in layout.places[:-1]]
    if len(values) > _SLOTS_MAX or any(not each or each.translate(None, SAFE) for each in values):
        return None
    fixed = way.fix(request, names)
    return None if fixed is None else Pattern(layout, way, fixed, request.code, handler)


class CutWaiter(Protocol):
    """A waiter that takes values instead of an answer. cut_names: of the fields that differ."""

    cut_names: Sequence[str]

    def common(self, answer: RemotingCommand) -> object | None:
        """Return what all answers have in common that differ in nothing else; None: they are not cut."""
        ...

    def set_cut(self, common: Any, values: tuple[bytes, ...]) -> bool:
        """Take the values of `cut_names` that the answer had; False: it has to be parsed."""
        ...


def answered(
    pending: dict[int, Any], frame: bytes, answer: RemotingCommand, known: Patterns | None
) -> Patterns | None:
    """Hand a parsed answer to its waiter. pending: waiters by opaque, those of the connection.

    Returns: the patterns to use from now on; they hand answers of this kind to their waiters, too.
    """
    waiter = pending.pop(answer.opaque, None)
    if waiter is None or waiter.done():
        return known
    if hasattr(waiter, "set_cut"):
        known = known or Patterns()
        if known.is_time_to_learn():
            pattern = _answer_pattern(pending, frame, answer, waiter)
            if pattern is not None:
                known.add(frame, pattern)
    waiter.set_result(answer)
    return known


def _answer_pattern(
    pending: dict[int, Any], frame: bytes, answer: RemotingCommand, waiter: CutWaiter
) -> Pattern | None:
    """Return the pattern of this answer; None if it has none, or its waiter wants none."""
    names = [name for name in waiter.cut_names if name in (answer.ext or ())]
    layout = _layout_of(frame, answer, names)
    common = waiter.common(answer)
    if layout is None or common is None or len(names) < 3:
        return None
    if any(start == end for start, end in layout.places):
        return None

    def take(
        common: Any, values: tuple[bytes, ...], opaque: int, body: bytes, _: Any
    ) -> bytes | None:
        waiter = pending.get(opaque)
        if waiter is None or body or not hasattr(waiter, "set_cut"):
            return None
        if not waiter.set_cut(common, values[:-1]):
            return None
        del pending[opaque]
        return b""

    return Pattern(layout, CutRule(names, "", _nothing, take), common, -1, None)


def _nothing(_: RemotingCommand, __: Sequence[str]) -> object | None:
    return None


def _layout_of(frame: bytes, command: RemotingCommand, names: Sequence[str]) -> Layout | None:
    """Return where these values lie in a header; None for odd headers."""
    ext, encoding, size = command.ext, frame[0], _MARK(frame)[0] & 0xFF_FFFF
    if encoding not in _SEPARATORS or ext is None or size > _HEADER_SIZE_MAX:
        return None
    header = frame[4 : 4 + size]
    try:
        if encoding:
            places = [*_places_in_fields(header, ext, names), _OPAQUE]
        else:
            places = [*_places_in_json(header, ext, names), _opaque_in_json(header, command.opaque)]
    except (KeyError, ValueError, IndexError):
        return None
    return Layout(frame[:4], header, places, not encoding)


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
