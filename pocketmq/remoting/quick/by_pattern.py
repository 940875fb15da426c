"""Frames of one peer that differ in a few values only are cut by a pattern, made of an earlier one.

    {"code":310, ... "e":"  3  ", ... "i":"UNIQ_KEY\\u0001  7F0000..  \\u0002WAIT\\u0001true\\u0002", ...

1. What is between the values must be the same, byte for byte: so a cut says what a parser says.
2. A value is printable ASCII that needs no escape, and stands for itself. It ends where the constant text
   continues, so it may have another length than that of the earlier one; in a ROCKETMQ header the length that
   stands before its field must say the same.
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
from pocketmq.remoting.quick.layout import (
    SAFE,
    SEPARATORS,
    Layout,
    Place,
    layout_of,
    places_of_properties,
)
from pocketmq.remoting.transport.outbox import Buffer

_MARK = struct.Struct(">I").unpack_from
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
_VALUE, _NUMBER = rb"([ !#-\[\]-~]++)", rb"([1-9][0-9]{0,9}+)"

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


class Pattern:
    """See the head of the file. code, handler: whose requests these are; -1, None for answers."""

    def __init__(
        self, layout: Layout, way: CutRule, fixed: object, code: int, handler: Cuttable | None
    ) -> None:
        self.code = code
        self.handler = handler
        self.is_text = layout.is_text
        self.encoding = layout.mark[0]
        self.way = way
        self._answer = way.answer
        self._fixed = fixed
        # What `run` keeps, by the size of a frame.
        self.runs: dict[int, Any] = {}
        ordered = sorted(layout.places)
        header = layout.header
        # Long constant text is compared quicker than matched.
        self._first, self._last = header[: ordered[0][0]], header[ordered[-1][1] :]
        self._begin, self._last_size = 4 + len(self._first), len(self._last)
        self._size = len(header)
        middle, groups, sizes = _expression(layout, of_any_size=layout.is_text)
        self._fits = re.compile(middle, re.DOTALL).fullmatch
        self._groups = groups
        # As the groups of a match come.
        self._in_order = groups == sorted(groups)
        # In a ROCKETMQ header lengths that stay the same cost least; others have an expression of their own.
        if not layout.is_text:
            middle, groups, sizes = _expression(layout, of_any_size=True)
        self.text = self._first, middle, self._last
        self._resized = _Resized(middle, groups, sizes)

    def answer(self, frame: bytes, end: int, connection: Any) -> Quick:
        """Return the handler's response to a frame of this encoding; None if its header does not fit.

        end: of the header.
        """
        begin, last = self._begin, end - self._last_size
        # A header that the frame does not hold whole lacks its last text, or has not the size of its values.
        if frame[4:begin] != self._first or frame[last:end] != self._last:
            return None
        found = self._fits(frame, begin, last)
        if found is not None:
            values = found.groups() if self._in_order else found.group(*self._groups)
        elif self.is_text or (found := self._resized.fits(frame, begin, last)) is None:
            return None
        else:
            values = found.group(*self._resized.groups)
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
        end = _end_of_header(frame)
        resized, last = self._resized, end - self._last_size
        found = resized.fits(frame, self._begin, last)
        if found is None:
            return None
        places = [(found.start(group) - 4, found.end(group) - 4) for group in resized.groups]
        sized = [(start - 4, stop - 4) for start, stop in resized.sized(found)]
        return Layout(frame[:4], frame[4:end], places, self.is_text, sized)

    def answer_run(self, frames: Sequence[bytes], connection: Any) -> bytes | None:
        """Return the handler's responses to frames of one size; None if they are to be asked one by one."""
        run = self.way.run
        return None if run is None else run(self, self._fixed, frames, connection)


# Of a part that is sized: the groups of its length and of its last value, and how much follows that in it.
_Size = tuple[int, int, int]


class _Resized:
    """What finds values of any length. It is compiled at the first that has another one."""

    def __init__(self, expression: bytes, groups: Sequence[int], sizes: Sequence[_Size]) -> None:
        self.groups = groups
        self._expression = expression
        self._sizes = sizes
        self._match: Callable[[bytes, int, int], re.Match[bytes] | None] | None = None

    def fits(self, frame: bytes, begin: int, end: int) -> re.Match[bytes] | None:
        """Return the match of this part of a frame, if the lengths in it are those of the values."""
        if self._match is None:
            self._match = re.compile(self._expression, re.DOTALL).fullmatch
        found = self._match(frame, begin, end)
        if found is not None:
            for size, last, rest in self._sizes:
                if int.from_bytes(found[size], "big") != found.end(last) + rest - found.end(size):
                    return None
        return found

    def sized(self, found: "re.Match[bytes]") -> list[Place]:
        """Return where the sized parts of a match lie."""
        return [(found.end(size), found.end(last) + rest) for size, last, rest in self._sizes]


def _expression(layout: Layout, *, of_any_size: bool) -> tuple[bytes, list[int], list[_Size]]:
    """Return a regular expression for what lies between the first and the last constant text.

    Its groups are those of the values, in their order, and those that say sizes. of_any_size: values may have
    other lengths.
    """
    header, is_text = layout.header, layout.is_text
    # By where they begin: what is captured there, the sizes among it.
    captured = dict.fromkeys(layout.places, _VALUE)
    captured[layout.places[-1]] = _NUMBER if is_text else b"(.{4})"
    # The last values of the sized parts.
    last: dict[Place, Place] = {}
    if of_any_size:
        for part in layout.sized:
            within = [place for place in layout.places if part[0] <= place[0] < part[1]]
            if within:
                last[part] = max(within)
                captured[part[0] - 4, part[0]] = b"(.{4})"
    else:
        for start, end in layout.places[:-1]:
            captured[start, end] = _VALUE[:-3] + b"{%d})" % (end - start)
    pieces: list[bytes] = []
    ordered = sorted(captured)
    at = ordered[0][0]
    for start, end in ordered:
        pieces += re.escape(header[at:start]), captured[start, end]
        at = end
    groups = {place: 1 + number for number, place in enumerate(ordered)}
    sizes = [
        (groups[start - 4, start], groups[place], end - place[1])
        for (start, end), place in last.items()
    ]
    return b"".join(pieces), [groups[place] for place in layout.places], sizes


def _end_of_header(frame: bytes) -> int:
    end: int = 4 + (_MARK(frame)[0] & 0xFF_FFFF)
    return end


class Patterns:
    """The patterns of one connection."""

    def __init__(self) -> None:
        # By the mark, which is encoding and size of a header; with the end of that.
        self._by_mark: dict[bytes, tuple[Pattern, int]] = {}
        # The latest first.
        self._latest: list[Pattern] = []
        self._misses = 0
        # The least of any pattern.
        self.run_min = sys.maxsize

    def answer(self, frame: bytes, connection: Any, handlers: Mapping[int, Any]) -> Quick:
        """Return the response to a frame; None if it has to be parsed.

        handlers: those of now; a handler that was exchanged meanwhile is not asked.
        """
        known = self._by_mark.get(frame[:4])
        tried: Pattern | None = None
        if known is not None:
            tried, end = known
            handler = tried.handler
            if handler is None or handlers.get(tried.code) is handler:
                reply = tried.answer(frame, end, connection)
                if reply is not None:
                    return reply
        encoding, end = frame[0], _end_of_header(frame)
        for pattern in self._latest:
            if (
                pattern is not tried
                and pattern.encoding == encoding
                and handlers.get(pattern.code) is pattern.handler
            ):
                reply = pattern.answer(frame, end, connection)
                if reply is not None:
                    self._note(frame, pattern)
                    return reply
        return None

    def answer_run(
        self, frames: Sequence[bytes], connection: Any, handlers: Mapping[int, Any]
    ) -> tuple[int, bytes]:
        """Answer the first of these frames together, if they are alike.

        Returns: how many, or 0, and their answers.
        """
        first = frames[0]
        known = self._by_mark.get(first[:4])
        if known is None:
            return 0, b""
        pattern, _ = known
        if handlers.get(pattern.code) is not pattern.handler:
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
        self._note(frame, pattern)
        others = [each for each in self._latest if each.text != pattern.text]
        self._latest = [pattern, *others[: _LATEST_MAX - 1]]
        if pattern.way.run is not None:
            self.run_min = min(self.run_min, pattern.way.run_min)

    def _note(self, frame: bytes, pattern: Pattern) -> None:
        if len(self._by_mark) >= _SIZES_MAX:
            self._by_mark.clear()
        self._by_mark[frame[:4]] = pattern, _end_of_header(frame)


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
    layout = layout_of(frame, request, (*way.fields, *further))
    if layout is None:
        return None
    names: list[str] = []
    if further:
        *places, (start, end), opaque = layout.places
        separators = SEPARATORS[0 if layout.is_text else 1]
        for name, place in places_of_properties(layout.header[start:end], *separators):
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

    def common(self, answer: RemotingCommand, names: Sequence[str]) -> object | None:
        """Return what all answers have in common that differ in nothing else; None: they are not cut.

        names: the fields whose values are cut, in the order in which they will come.
        """
        ...

    def set_cut(self, common: Any, values: tuple[bytes, ...]) -> bool:
        """Take the values that the answer had, and one more; False: it has to be parsed."""
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
    layout = layout_of(frame, answer, names)
    if layout is None or len(names) < 3 or any(start == end for start, end in layout.places):
        return None
    # As they come in the header: what finds them has nothing to sort.
    *places, opaque = layout.places
    places, names = map(list, zip(*sorted(zip(places, names, strict=True)), strict=True))
    layout = layout._replace(places=[*places, opaque])
    common = waiter.common(answer, names)
    if common is None:
        return None

    def take(
        common: Any, values: tuple[bytes, ...], opaque: int, body: bytes, _: Any
    ) -> bytes | None:
        waiter = pending.get(opaque)
        if waiter is None or body or not hasattr(waiter, "set_cut"):
            return None
        if not waiter.set_cut(common, values):
            return None
        del pending[opaque]
        return b""

    return Pattern(layout, CutRule(names, "", _nothing, take), common, -1, None)


def _nothing(_: RemotingCommand, __: Sequence[str]) -> object | None:
    return None
