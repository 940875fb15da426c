"""Plain sends of one read, alike but in a few values: cut, stored and answered together, by columns.

Imports numpy: SendMessageProcessor imports it once the store has it (`MessageStore.has_numpy`).
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from pocketmq.broker.wire.plain_send import Alike
from pocketmq.remoting.columns import Columns, Cut, numbers
from pocketmq.remoting.fixed_shape import FixedShape
from pocketmq.remoting.record import PROPERTIES_SIZE_MAX, row_fields
from pocketmq.store.alike_run import AlikeRecords, AlikeRun
from pocketmq.store.message_store import AppendedRun
from pocketmq.store.tags_code import value_code

# No property holds it, since no UTF-8 text does.
_UNUSED = b"\xff"
_ANSWERS_MAX = 16


class SendRun:
    """What runs of one shape and size of frame have in common. Raises: ValueError if they cannot be cut."""

    def __init__(self, shape: FixedShape, alike: Alike, size: int) -> None:
        self._columns = Columns(shape, size)
        self._alike = alike
        body_size = size - 4 - len(shape.header)
        if body_size <= 0:
            raise ValueError(body_size)
        template = alike.properties
        widths = [end - start for start, end in shape.places[2:-1]]
        properties = template.text % tuple([_UNUSED * width for width in widths])
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise ValueError(len(properties))
        places: list[tuple[int, int]] = []
        at = 0
        for width in widths:
            at = properties.index(_UNUSED * width, at)
            places.append((at, width))
            at += width
        plain = alike.plain
        self.records = AlikeRecords(plain.flag, plain.sys_flag, body_size, properties, places)
        self._key_at = -1
        for number, (at, _) in enumerate(places):
            if properties[:at].endswith(b"UNIQ_KEY\x01") and properties[: at - 9][-1:] in b"\x02":
                self._key_at = number
        # KEYS would be keys, too; a third that only looks like one costs a little time.
        if properties.count(b"KEY") != 1:
            self._key_at = -1
        self._body_at = size - body_size
        self._answers: dict[tuple[int, int], _Answers] = {}

    def take(self, frames: Sequence[bytes]) -> tuple[Cut, AlikeRun] | None:
        """Return what differs between these requests; None if they are not alike, or no plain messages."""
        cut = self._columns.cut(frames)
        if cut is None:
            return None
        count = len(frames)
        queues, born = cut.values[:2]
        queue_ids, born_ms = numbers(queues, count), numbers(born, count)
        if queue_ids is None or born_ms is None:
            return None
        ids: list[int] = queue_ids.tolist()
        if max(ids) >= self._alike.target.queue_count:
            return None
        template, values = self._alike.properties, cut.values[2:]
        codes: list[int] | int = template.code
        if template.tag_at >= 0:
            tags = values[template.tag_at]
            width = len(tags) // count
            if tags == tags[:width] * count:
                codes = value_code(tags[:width])
            else:
                codes = [value_code(tags[at : at + width]) for at in range(0, len(tags), width)]
        body_at = self._body_at
        crcs = [zlib.crc32(frame[body_at:]) for frame in frames]
        columns = [cut.rows[str(number)] for number in range(2, 2 + len(values))]
        keys = values[self._key_at] if self._key_at >= 0 else None
        return cut, AlikeRun(ids, born_ms, cut.rows["body"], crcs, columns, codes, keys)

    def answers(self, cut: Cut, run: AlikeRun, stored: AppendedRun) -> list[bytes] | bytes:
        """Return the answers to a run, joined where they are of one size."""
        position, size, offsets = stored
        queue_width = len(cut.values[0]) // len(offsets)
        width = len(str(max(offsets)))
        ids = run.queue_ids
        if len(str(min(offsets))) != width or (
            queue_width > 1 and len(str(min(ids))) != queue_width
        ):
            return self._one_by_one(cut, run, stored)
        known = self._answers.get((queue_width, width))
        if known is None:
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            known = _Answers(self._alike.answer, self._columns, queue_width, width)
            self._answers[queue_width, width] = known
        return known.fill(cut, position, size, offsets)

    def _one_by_one(self, cut: Cut, run: AlikeRun, stored: AppendedRun) -> list[bytes]:
        answer, (position, size, offsets) = self._alike.answer, stored
        text: bytes = cut.opaques.tobytes()
        width, is_text = self._columns.opaque_width, self._columns.is_text
        found: list[bytes] = []
        for place, (queue_id, offset) in enumerate(zip(run.queue_ids, offsets, strict=True)):
            word = text[place * width : (place + 1) * width]
            opaque = int(word) if is_text else int.from_bytes(word, "big", signed=True)
            found.append(answer(opaque, position + place * size, queue_id, offset))
        return found


class _Answers:
    """Answers of one size: a template, and where it differs."""

    def __init__(
        self,
        answer: Callable[[int, int, int, int], bytes],
        columns: Columns,
        queue_width: int,
        offset_width: int,
    ) -> None:
        opaques = [0x01010101, 0x02020202]
        if columns.is_text:
            opaques = [int(digit * columns.opaque_width) for digit in "12"]
        positions = [0x1111_1111_1111_1111, 0x2222_2222_2222_2222]
        queues = [int(digit * queue_width) for digit in "12"]
        offsets = [int(digit * offset_width) for digit in "12"]
        first: list[int] = [opaques[0], positions[0], queues[0], offsets[0]]
        self._row = answer(*first)
        fields: dict[str, tuple[int, str]] = {}
        for number, (name, other) in enumerate(
            (
                ("opaque", opaques[1]),
                ("position", positions[1]),
                ("queue", queues[1]),
                ("offset", offsets[1]),
            )
        ):
            values = [*first[:number], other, *first[number + 1 :]]
            changed = answer(*values)
            assert len(changed) == len(self._row)
            places = [
                place
                for place, (one, two) in enumerate(zip(self._row, changed, strict=True))
                if one != two
            ]
            width = places[-1] + 1 - places[0]
            fields[name] = places[0], f"V{width}"
        self._offset_width = offset_width
        self._powers = numpy.array(
            [10**place for place in reversed(range(offset_width))], numpy.int64
        )
        self._type = numpy.dtype(row_fields(len(self._row), fields))

    def fill(self, cut: Cut, position: int, size: int, offsets: Sequence[int]) -> bytes:
        """Return the answers to a run, joined."""
        count = len(offsets)
        answers = bytearray(self._row * count)
        rows: Any = numpy.frombuffer(answers, self._type)
        positions = _arange(position, position + count * size, size, ">i8")
        text = positions.tobytes().hex().upper().encode()
        rows["position"] = numpy.frombuffer(text, "V16")
        rows["opaque"] = cut.opaques
        rows["queue"] = cut.rows["0"]
        digits = numpy.array(offsets, numpy.int64)[:, None] // self._powers % 10 + 48
        written: NDArray[Any] = digits.astype(numpy.uint8)
        rows["offset"] = numpy.frombuffer(written.tobytes(), f"V{self._offset_width}")
        return bytes(answers)


# By place, which the annotations of numpy do not know.
_arange: Any = numpy.arange
