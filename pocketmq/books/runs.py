"""Runs: what was last done with each offset of a queue, as pieces in order that do not overlap. No I/O.

1. A later piece replaces what is under it: a message that is given again was not acknowledged.
2. Pieces that continue each other by the same member, in the same hour, become one of up to PIECE_MAX.
3. A piece that is cut keeps the numbers that are still certain; UNSURE stands for the others.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from pocketmq.books.rows import Way
from pocketmq.books.sorting import Pulling
from pocketmq.model.balance import State

PIECE_MAX = 65_536
UNSURE = -1
# Stands for a member's own expression where that was folded (folding.py): no message can be sorted any more.
FOLDED_OWN = "folded"
_HOUR_MS = 3_600_000
_begin = attrgetter("begin")


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets [begin, end). state: None if they were given; then `pulling` says how, and of them `count` were
    let through, `kept` are kept, `discarded` and `missed` are lost (sorting.py); UNSURE is not known. is_old:
    the group was set back behind it, so it counts only if it turns out to have moved on all the same.
    """

    begin: int
    end: int
    state: State | None
    member: str
    cause: str
    ms: int
    pulling: Pulling | None = None
    count: int = 0
    kept: int = 0
    discarded: int = 0
    missed: int = 0
    is_old: bool = False
    way: Way = Way.SHARED

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def is_folded(self) -> bool:
        return self.pulling is not None and self.pulling.own == FOLDED_OWN

    def cut(self, begin: int, end: int) -> "Piece":
        """Return the part of it between two offsets."""
        begin, end = max(begin, self.begin), min(end, self.end)
        if (begin, end) == (self.begin, self.end):
            return self
        numbers = [
            each if not each else end - begin if each == self.size else UNSURE
            for each in (self.count, self.kept, self.discarded, self.missed)
        ]
        return replace(
            self,
            begin=begin,
            end=end,
            count=numbers[0],
            kept=numbers[1],
            discarded=numbers[2],
            missed=numbers[3],
        )

    def joined(self, other: "Piece", piece_max: int) -> "Piece | None":
        """Return both as one, if `other` continues it alike; else None."""
        if (
            self.end != other.begin
            or self.state is not other.state
            or (self.is_old, self.way) != (other.is_old, other.way)
            or other.end - self.begin > piece_max
            or self.ms // _HOUR_MS != other.ms // _HOUR_MS
            or (self.member, self.cause, self.pulling) != (other.member, other.cause, other.pulling)
        ):
            return None
        # Hundreds of thousands are joined at a first question: `replace` takes twice as long.
        return Piece(
            self.begin,
            other.end,
            self.state,
            self.member,
            self.cause,
            other.ms,
            self.pulling,
            _sum(self.count, other.count),
            _sum(self.kept, other.kept),
            _sum(self.discarded, other.discarded),
            _sum(self.missed, other.missed),
            self.is_old,
            self.way,
        )


def _sum(one: int, other: int) -> int:
    return UNSURE if UNSURE in (one, other) else one + other


def folded_pulling(*, asks_all: bool) -> Pulling:
    """Return what stands for how folded messages were given; asks_all: no filter stopped any."""
    return Pulling("" if asks_all else f"TAG {FOLDED_OWN}", FOLDED_OWN, ())


class Runs:
    """The pieces of one queue."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def end(self) -> int:
        """Return the end of the last piece; 0 without one."""
        return self._pieces[-1].end if self._pieces else 0

    def put(self, piece: Piece, piece_max: int = PIECE_MAX) -> None:
        """Add a piece, replacing what is under it."""
        if piece.end <= piece.begin:
            return
        pieces = self._pieces
        if not pieces or piece.begin >= pieces[-1].end:
            joined = pieces[-1].joined(piece, piece_max) if pieces else None
            if joined is not None:
                pieces[-1] = joined
            else:
                pieces.append(piece)
            return
        first, last = self._under(piece.begin, piece.end)
        left = [pieces[first].cut(0, piece.begin)] if pieces[first].begin < piece.begin else []
        end = pieces[last - 1].end if last > first else piece.end
        right = [pieces[last - 1].cut(piece.end, end)] if end > piece.end else []
        pieces[first:last] = [*left, piece, *right]

    def fill(self, piece: Piece) -> None:
        """Add a piece only where no other is."""
        for gap in list(self.between(piece.begin, piece.end)):
            if isinstance(gap, tuple):
                self.put(piece.cut(*gap))

    def age(self, begin: int) -> None:
        """Mark all pieces from an offset on as old."""
        first, _ = self._under(begin, begin + 1)
        kept, later = self._pieces[:first], self._pieces[first:]
        if later and later[0].begin < begin:
            kept.append(later[0].cut(0, begin))
        self._pieces = kept + [
            replace(each.cut(begin, each.end), is_old=True) for each in later if each.end > begin
        ]

    def at(self, offset: int) -> Piece | None:
        """Return the piece with this offset, or None."""
        place = bisect_right(self._pieces, offset, key=_begin) - 1
        found = self._pieces[place] if place >= 0 else None
        return found if found is not None and offset < found.end else None

    def between(self, begin: int, end: int) -> Iterator[Piece | tuple[int, int]]:
        """Yield the pieces, cut to [begin, end), and the gaps between them as (begin, end)."""
        first, last = self._under(begin, end)
        at = begin
        for piece in self._pieces[first:last]:
            if at < piece.begin:
                yield at, piece.begin
            yield piece.cut(begin, end)
            at = min(piece.end, end)
        if at < end:
            yield at, end

    def _under(self, begin: int, end: int) -> tuple[int, int]:
        """Return the first and behind the last of the pieces that touch [begin, end)."""
        first = bisect_right(self._pieces, begin, key=_begin)
        if first and self._pieces[first - 1].end > begin:
            first -= 1
        last = first
        while last < len(self._pieces) and self._pieces[last].begin < end:
            last += 1
        return first, last
