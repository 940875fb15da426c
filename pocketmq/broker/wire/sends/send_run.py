"""Plain sends of one read, or batches, alike but in a few values: cut, stored and answered together, by
columns.

Imports numpy: SendMessageProcessor imports it once the store has it (`MessageStore.has_numpy`).
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy
from numpy.typing import NDArray

from pocketmq.broker.once.columns import ascend
from pocketmq.broker.once.once_topic import OnceTopic
from pocketmq.broker.wire.sends.plain_send import PlainBatches, PlainSends
from pocketmq.model.record import PROPERTIES_SIZE_MAX
from pocketmq.remoting.quick.layout import Layout
from pocketmq.remoting.quick.many import Columns, Cut, numbers
from pocketmq.remoting.rows import row_fields
from pocketmq.store.appends import AppendedRun
from pocketmq.store.log.alike_batch import BatchShape
from pocketmq.store.log.alike_run import AlikeRecords, AlikeRun
from pocketmq.store.log.batch_record import behind
from pocketmq.store.queue.tags_code import value_code

# No property holds it, since no UTF-8 text does.
_UNUSED = b"\xff"
_ANSWERS_MAX = 16
# A position in a msgId.
_HEX_SIZE = 16

_Answer = Callable[[int, Sequence[int], int, int], bytes]

# Takes positions.
Note = Callable[[range], None]

Taken = tuple[Cut, AlikeRun]


class _Run:
    """Frames of one layout, size and topic, and the answers to them. answer: as in PlainBatches."""

    def __init__(self, layout: Layout, size: int, answer: _Answer) -> None:
        self.layout = layout
        (start, end), *places = layout.places
        self.topic = layout.header[start:end]
        self._columns = Columns(layout._replace(places=places), size)
        self._answer = answer
        self._answers: dict[tuple[int, int, int], _Answers] = {}

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
        name = run.each, queue_width, width
        known = self._answers.get(name)
        if known is None:
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            known = self._answers[name] = _Answers(self._answer, self._columns, *name)
        return known.fill(cut, position, size, offsets)

    def new(self, cut: Cut, once: OnceTopic) -> "Note | None":
        """Return what is told where the messages are stored; None if one may repeat another one."""
        return None

    def _one_by_one(self, cut: Cut, run: AlikeRun, stored: AppendedRun) -> list[bytes]:
        answer, (position, size, offsets) = self._answer, stored
        text: bytes = cut.opaques.tobytes()
        width, is_text = self._columns.opaque_width, self._columns.is_text
        found: list[bytes] = []
        for place, (queue_id, offset) in enumerate(zip(run.queue_ids, offsets, strict=True)):
            word = text[place * width : (place + 1) * width]
            opaque = int(word) if is_text else int.from_bytes(word, "big", signed=True)
            start = position + place * size
            positions = range(start, start + size, size // run.each)
            found.append(answer(opaque, positions, queue_id, offset))
        return found

    def _places(self, cut: Cut, count: int) -> tuple[list[int], NDArray[Any]] | None:
        """Return queue ids and times of birth; None if one is no number."""
        queues, born = cut.values[:2]
        queue_ids, born_ms = numbers(queues, count), numbers(born, count)
        if queue_ids is None or born_ms is None:
            return None
        ids: list[int] = queue_ids.tolist()
        return ids, born_ms


class SendRun(_Run):
    """What runs of one shape and size of frame have in common. Raises: ValueError if they cannot be cut."""

    def __init__(self, layout: Layout, known: PlainSends, size: int) -> None:
        answer = known.answer

        def answer_one(opaque: int, positions: Sequence[int], queue_id: int, offset: int) -> bytes:
            return answer(opaque, positions[0], queue_id, offset)

        super().__init__(layout, size, answer_one)
        self._known = known
        body_size = size - 4 - len(layout.header)
        if body_size <= 0:
            raise ValueError(body_size)
        widths = [end - start for start, end in layout.places[3:-1]]
        properties = known.properties % tuple([_UNUSED * width for width in widths])
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise ValueError(len(properties))
        places: list[tuple[int, int]] = []
        at = 0
        for width in widths:
            at = properties.index(_UNUSED * width, at)
            places.append((at, width))
            at += width
        self.records = AlikeRecords(known.flag, known.sys_flag, body_size, properties, places)
        self._key_at = -1
        for number, (at, _) in enumerate(places):
            if properties[:at].endswith(b"UNIQ_KEY\x01") and properties[: at - 9][-1:] in b"\x02":
                self._key_at = number
        # KEYS would be keys, too; a third that only looks like one costs a little time.
        if properties.count(b"KEY") != 1:
            self._key_at = -1
        self._body_at = size - body_size

    def take(self, frames: Sequence[bytes]) -> Taken | None:
        """Return what differs between these requests; None if they are not alike, or no plain messages."""
        cut = self._columns.cut(frames)
        if cut is None:
            return None
        count = len(frames)
        places = self._places(cut, count)
        if places is None:
            return None
        ids, born_ms = places
        known, values = self._known, cut.values[2:]
        codes: list[int] | int = known.tag_code
        if known.tag_at >= 0:
            tags = values[known.tag_at]
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

    def new(self, cut: Cut, once: OnceTopic) -> Note | None:
        # The topic, the first of the values, is the same in all and not cut.
        place = self._known.key_at - 1
        if place < 0:
            return None
        keys = cut.values[place]
        size = len(keys) // len(cut.opaques)
        return partial(once.note_run, keys, size) if once.are_new(keys, size, ascend) else None


class BatchRun(_Run):
    """The same of batches; outer: properties that all messages get."""

    def __init__(self, layout: Layout, known: PlainBatches, size: int, outer: bytes) -> None:
        super().__init__(layout, size, known.answer)
        if b"TAGS\x01" in outer:
            raise ValueError(outer)
        self._sys_flag = known.sys_flag
        self._outer = outer
        self._body_size = size - 4 - len(layout.header)
        self._members: BatchShape | None = None

    def take(
        self, frames: Sequence[bytes], shape_of: Callable[[bytes], BatchShape | None]
    ) -> Taken | None:
        """See SendRun.take. shape_of: see MessageStore.batch_shape."""
        cut = self._columns.cut(frames)
        if cut is None:
            return None
        places = self._places(cut, len(frames))
        if places is None:
            return None
        data: bytes = cut.rows["body"].tobytes()
        members = self._members
        found = None if members is None else members.cut(data)
        if found is None:
            # Batches of another kind may have the same size.
            members = shape_of(data[: self._body_size])
            if members is None or members is self._members:
                return None
            found = members.cut(data)
            if found is None:
                return None
            self._prepare(members)
        assert members is not None
        keys = None if b"KEY" in self._outer else found.keys
        ids, born_ms = places
        return (
            cut,
            AlikeRun(
                ids,
                born_ms,
                found.bodies,
                found.crcs,
                [found.owns],
                found.codes,
                keys,
                members.count,
            ),
        )

    def _prepare(self, members: BatchShape) -> None:
        """Make what the records of such batches have in common. Raises: ValueError."""
        place = len(members.before), members.own_size
        properties = b"".join(
            (members.before, bytes(members.own_size), behind(members.last, self._outer))
        )
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise ValueError(len(properties))
        sys_flag = self._sys_flag
        self.records = AlikeRecords(
            members.flag, sys_flag, members.body_size, properties, [place], self._body_size
        )
        self._members = members


class _Answers:
    """Answers of one size: a template, and where it differs."""

    def __init__(
        self,
        answer: _Answer,
        columns: Columns,
        each: int,
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
        opaque, position, *queue = first
        self._row = answer(opaque, [position] * each, *queue)
        fields: dict[str, tuple[int, Any]] = {}
        for number, (name, other) in enumerate(
            (
                ("opaque", opaques[1]),
                ("position", positions[1]),
                ("queue", queues[1]),
                ("offset", offsets[1]),
            )
        ):
            values = [*first[:number], other, *first[number + 1 :]]
            opaque, position, *queue = values
            changed = answer(opaque, [position] * each, *queue)
            assert len(changed) == len(self._row)
            places = [
                place
                for place, (one, two) in enumerate(zip(self._row, changed, strict=True))
                if one != two
            ]
            width = places[-1] + 1 - places[0]
            fields[name] = places[0], f"V{width}"
            if name == "position" and each > 1:
                # Of several ids, with the same between them.
                stride = (width - _HEX_SIZE) // (each - 1)
                one = numpy.dtype(row_fields(stride, {"hex": (0, f"V{_HEX_SIZE}")}))
                fields[name] = places[0], (one, (each,))
        self._each = each
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
        each = self._each
        positions = _arange(position, position + count * size, size // each, ">i8")
        text = positions.tobytes().hex().upper().encode()
        ids = numpy.frombuffer(text, f"V{_HEX_SIZE}")
        if each > 1:
            rows["position"]["hex"] = ids.reshape(count, each)
        else:
            rows["position"] = ids
        rows["opaque"] = cut.opaques
        rows["queue"] = cut.rows["0"]
        digits = numpy.array(offsets, numpy.int64)[:, None] // self._powers % 10 + 48
        written: NDArray[Any] = digits.astype(numpy.uint8)
        rows["offset"] = numpy.frombuffer(written.tobytes(), f"V{self._offset_width}")
        return bytes(answers)


# By place, which the annotations of numpy do not know.
_arange: Any = numpy.arange
