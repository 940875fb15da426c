"""Cuts a client's repeated JSON requests by the text of an earlier one: a third of the time of a parse.

    {"code":310,"extFields":{"a":"group","b":"  topic  ","c":"TBW102", ... "opaque":  17  , ... "version":401}

1. A client repeatedly writes the same header except for a few values. A shape is the constant text between
   these; if all of it is found in its place, the values are what lies between.
2. A value must not contain a quotation mark: `Shaped.quick` ensures this, by `text_of`, or because it knows
   which values are possible. So the result equals that of a parser.
3. A header that does not fit is parsed. A shape belongs to one connection (`RequestShapes`), and is learnt
   from a parsed header.
4. Where the handler wants it, a header of a size that came before is first cut by place (by_place.py);
   ROCKETMQ headers are cut in that way only.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pocketmq.remoting import json_codec
from pocketmq.remoting.command import RemotingCommand, decode
from pocketmq.remoting.quick.by_place import (
    RUN_MIN,
    ByPlace,
    FixedShape,
    Quick,
    is_time_to_learn,
    learn_fixed,
)

# Sizes of headers that are cut by place; a client has a few.
_FIXED_MAX = 64
_OPAQUE_MAX = "2147483647"
_MARK = struct.Struct(">I").unpack_from


class Shaped:
    """A handler that needs a few fields of requests that are otherwise alike.

    fields: names of these. admit(request): what all such requests have in common, passed to `quick`, or
    None if they cannot take the quick path. quick(common, values, body, connection): the answer (see
    `Quick`). values: of `fields`, in raw form (`text_of` decodes escapes), and the opaque.
    """

    def __init__(
        self,
        handle: Callable[[RemotingCommand, Any], Any],
        fields: Sequence[str],
        admit: Callable[[RemotingCommand], object],
        quick: Callable[[Any, list[str], bytes, Any], Quick],
        by_place: ByPlace | None = None,
    ) -> None:
        self.handle = handle
        self.fields = tuple(fields)
        self.admit = admit
        self.quick = quick
        self.by_place = by_place

    def __call__(self, request: RemotingCommand, connection: Any) -> Any:
        return self.handle(request, connection)


class JsonShape:
    """See the head of the file. code, handler: whose requests these are; common: see Shaped.admit."""

    def __init__(
        self, handler: Shaped, code: int, common: object, pieces: list[str], slots: list[int]
    ) -> None:
        """pieces: the constant text; slots: which value follows each piece but the last."""
        self.handler = handler
        self.code = code
        self.common = common
        self._quick = handler.quick
        self._first, self._last = pieces[0], pieces[-1]
        self._first_size, self._last_size = len(pieces[0]), len(pieces[-1])
        self._between = list(zip(slots[:-1], pieces[1:-1], strict=True))
        self._last_slot = slots[-1]
        self._count = len(slots)

    def answer(self, frame: bytes, connection: Any) -> Quick:
        """Return what `quick` returns for a frame (without its length word); None if its shape differs."""
        # The top byte is the encoding, 0 for JSON.
        end: int = 4 + _MARK(frame)[0]
        if end > len(frame):
            return None
        try:
            text = frame[4:end].decode()
        except UnicodeDecodeError:
            return None
        last_at = len(text) - self._last_size
        if text[: self._first_size] != self._first or text[last_at:] != self._last:
            return None
        text = text[self._first_size : last_at]
        values = [""] * self._count
        for slot, piece in self._between:
            # Of all that looks for a piece of text partition costs least.
            values[slot], found, text = text.partition(piece)
            if not found:
                return None
        values[self._last_slot] = text
        opaque = values[-1]
        if not opaque.isdecimal() or opaque[0] == "0" or len(opaque) > 10:
            return None
        if len(opaque) == 10 and opaque > _OPAQUE_MAX:
            return None
        return self._quick(self.common, values, frame[end:], connection)


class RequestShapes:
    """Shapes that a connection has learnt of its client's most frequent requests, of several codes."""

    def __init__(self) -> None:
        # By the first word of a frame (encoding and size of the header): whose requests these are, and
        # their shape.
        self._fixed: dict[int, tuple[int, Shaped, FixedShape]] = {}
        self._texts: dict[int, JsonShape] = {}
        # That of the code that came last.
        self._text: JsonShape | None = None
        # Headers that fitted nothing, and those that were not cut by place.
        self._misses = self._fixed_misses = 0
        # The least of any shape.
        self.run_min = RUN_MIN

    def answer(self, frame: bytes, connection: Any, handlers: Mapping[int, Any]) -> Quick:
        """Return what the handler's quick way says to a frame; None if it has to be parsed.

        handlers: those of now; a handler that was exchanged meanwhile is not asked.
        """
        known = self._fixed.get(_MARK(frame)[0])
        if known is not None:
            code, handler, fixed = known
            if handlers.get(code) is handler:
                reply = fixed.answer(frame, connection)
                if reply is not None:
                    return reply
        text = self._text
        if text is None or handlers.get(text.code) is not text.handler:
            return None
        reply = text.answer(frame, connection)
        if reply is not None and text.handler.by_place is not None:
            self._fixed_misses += 1
            if is_time_to_learn(self._fixed_misses):
                self._learn_fixed(frame, decode(frame), text.handler)
        return reply

    def answer_run(
        self, frames: Sequence[bytes], connection: Any, handlers: Mapping[int, Any]
    ) -> tuple[int, bytes]:
        """Answer the first of these frames together, if they are alike.

        Returns: how many, or 0, and their answers.
        """
        first = frames[0]
        known = self._fixed.get(_MARK(first)[0])
        if known is None or handlers.get(known[0]) is not known[1]:
            return 0, b""
        fixed = known[2]
        size, most = len(first), fixed.run_max
        count = 0
        for frame in frames:
            if len(frame) != size or count == most:
                break
            count += 1
        if count < fixed.run_min:
            return 0, b""
        reply = fixed.answer_run(frames[:count], connection)
        return (0, b"") if reply is None else (count, reply)

    def learn(self, frame: bytes, request: RemotingCommand, handler: Shaped) -> None:
        """Learn from a request that had to be parsed; rarely if shapes change all the time."""
        self._misses += 1
        code = request.code
        text = self._texts.get(code)
        if text is not None and text.handler is handler:
            self._text = text
        if not is_time_to_learn(self._misses):
            return
        if frame[0]:
            if _may_learn(request) and handler.admit(request) is not None:
                self._learn_fixed(frame, request, handler)
            return
        text = learn(frame, request, handler)
        if text is not None:
            self._text = self._texts[code] = text
            self._learn_fixed(frame, request, handler)

    def _learn_fixed(self, frame: bytes, request: RemotingCommand, handler: Shaped) -> None:
        """Cut headers like this one by place from now on, if they can be."""
        way = handler.by_place
        fixed = None if way is None else learn_fixed(frame, request, way)
        if fixed is not None:
            if len(self._fixed) >= _FIXED_MAX:
                self._fixed.clear()
            self._fixed[_MARK(frame)[0]] = request.code, handler, fixed
            self.run_min = min(self.run_min, fixed.run_min)


def _may_learn(request: RemotingCommand) -> bool:
    return not request.flag and request.ext is not None and request.opaque >= 1


def learn(frame: bytes, request: RemotingCommand, handler: Shaped) -> JsonShape | None:
    """Return the shape of this JSON request; None if it has none, or its handler admits none."""
    ext = request.ext
    if frame[0] or ext is None or not _may_learn(request):
        return None
    common = handler.admit(request)
    if common is None:
        return None
    try:
        header = frame[4 : 4 + _MARK(frame)[0]].decode()
        places = _places(header, request.opaque, ext, handler.fields)
    except ValueError:
        return None
    pieces: list[str] = []
    at = 0
    for start, end, _ in places:
        pieces.append(header[at:start])
        at = end
    pieces.append(header[at:])
    if any("\\" in piece for piece in pieces) or pieces[-1][:1].isdigit():
        return None
    return JsonShape(handler, request.code, common, pieces, [slot for _, _, slot in places])


def _places(
    header: str, opaque: int, ext: Mapping[str, str], fields: Sequence[str]
) -> list[tuple[int, int, int]]:
    """Return where each value begins and ends, in order of the text. Raises: ValueError for odd headers."""
    places: list[tuple[int, int, int]] = []
    for slot, name in enumerate((*fields, "opaque")):
        is_field = slot < len(fields)
        mark = f'"{name}":"' if is_field else f'"{name}":'
        start = header.index(mark) + len(mark)
        end = header.index('"', start) if is_field else start + len(str(opaque))
        value = text_of(header[start:end])
        # A name that stands there twice, or as a value too, is nothing that a client writes.
        if header.count(f'"{name}"') != 1 or value != (ext.get(name) if is_field else str(opaque)):
            raise ValueError(name)
        places.append((start, end, slot))
    return sorted(places)


def text_of(value: str) -> Any:
    """Decode a value between quotation marks. Raises: ValueError if it is not one text."""
    return json_codec.loads(f'"{value}"')
