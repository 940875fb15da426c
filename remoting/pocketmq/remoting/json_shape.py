"""Cuts a client's repeated JSON requests by the text of an earlier one: a third of the time of a parse.

    {"code":310,"extFields":{"a":"group","b":"  topic  ","c":"TBW102", ... "opaque":  17  , ... "version":401}

1. A client repeatedly writes the same header except for a few values. A shape is the constant text between
   these; if all of it is found in its place, the values are what lies between.
2. A value must not contain a quotation mark: `Shaped.quick` ensures this, by `text_of`, or because it knows
   which values are possible. So the result equals that of a parser.
3. What does not fit is parsed. A shape belongs to one connection, and is learnt from a parsed header.
4. Where the handler wants it, a header of a size that came before is first cut by place (fixed_shape.py);
   ROCKETMQ headers are cut in that way only.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pocketmq.remoting import json_codec
from pocketmq.remoting.command import RemotingCommand, decode
from pocketmq.remoting.fixed_shape import (
    AnswerShapes,
    ByPlace,
    FixedShape,
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
    None if they cannot take the quick path. quick(common, values, body, connection): the answer's frame,
    b"" if it comes later, or None: then nothing was done, and the request is parsed. values: of `fields`,
    in raw form (`text_of` decodes escapes), and the opaque.
    """

    def __init__(
        self,
        handle: Callable[[RemotingCommand, Any], Any],
        fields: Sequence[str],
        admit: Callable[[RemotingCommand], object],
        quick: Callable[[Any, list[str], bytes, Any], bytes | None],
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
        # By the first word of a frame: encoding and size of the header.
        self._fixed: dict[int, FixedShape] = {}
        self._fixed_misses = 0

    def answer(self, frame: bytes, connection: Any) -> bytes | None:
        """Return what `quick` returns for a frame (without its length word); None if its shape differs."""
        mark: int = _MARK(frame)[0]
        fixed = self._fixed.get(mark)
        if fixed is not None:
            reply = fixed.answer(frame, connection)
            if reply is not None:
                return reply
        # The top byte is the encoding, 0 for JSON.
        end = 4 + mark
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
        reply = self._quick(self.common, values, frame[end:], connection)
        if reply is not None and self.handler.by_place is not None:
            self._fixed_misses += 1
            if is_time_to_learn(self._fixed_misses):
                self.learn_fixed(frame, decode(frame))
        return reply

    def learn_fixed(self, frame: bytes, request: RemotingCommand) -> None:
        """Cut headers like this one by place from now on, if they can be."""
        way = self.handler.by_place
        fixed = None if way is None else learn_fixed(frame, request, way)
        if fixed is not None:
            if len(self._fixed) >= _FIXED_MAX:
                self._fixed.clear()
            self._fixed[_MARK(frame)[0]] = fixed


def learn_again(
    known: JsonShape | AnswerShapes | None,
    misses: int,
    frame: bytes,
    request: RemotingCommand,
    handler: Shaped,
) -> JsonShape | AnswerShapes | None:
    """Return the shape to use after so many requests that did not fit the known one."""
    if not is_time_to_learn(misses):
        return known
    if isinstance(known, JsonShape) and frame[0] and known.handler is handler:
        known.learn_fixed(frame, request)
        return known
    return learn(frame, request, handler) or known


def learn(frame: bytes, request: RemotingCommand, handler: Shaped) -> JsonShape | None:
    """Return the shape of this request; None if it has none, or its handler admits none."""
    ext = request.ext
    if request.flag or ext is None or request.opaque < 1:
        return None
    common = handler.admit(request)
    if common is None:
        return None
    if frame[0]:
        # Begins as no JSON header does.
        shape = JsonShape(handler, request.code, common, ["\0", "\0"], [0])
        shape.learn_fixed(frame, request)
        return shape
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
    shape = JsonShape(handler, request.code, common, pieces, [slot for _, _, slot in places])
    shape.learn_fixed(frame, request)
    return shape


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
