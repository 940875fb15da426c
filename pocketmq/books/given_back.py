"""Messages that were given to their group again (`pocketmq group redeliver`), many in a few numbers. No I/O.

Of messages that are given one after the other the copies stand side by side in the retry topic, so a run
needs 8 bytes a message. A message that is given once more is in the newer run alone.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pocketmq.books.sorting import DISCARDED, KEPT, MISSED


@dataclass(slots=True)
class GivenBack:
    """A run. origins: offsets of the messages, ascending; their copies are at [begin, end) of the queue of a
    retry topic, in the same order. kinds: the class of each (sorting.py), KEPT for what was skipped.
    """

    topic: str
    queue_id: int
    begin: int
    origins: "array[int]"
    kinds: bytearray

    @property
    def end(self) -> int:
        return self.begin + len(self.origins)

    def between(self, begin: int, end: int) -> tuple[int, int]:
        """Return which of the origins are in [begin, end): the first, and behind the last."""
        return bisect_left(self.origins, begin), bisect_left(self.origins, end)

    def part(self, first: int, behind: int) -> "GivenBack":
        """Return a part of the run."""
        origins, kinds = self.origins[first:behind], self.kinds[first:behind]
        return GivenBack(self.topic, self.queue_id, self.begin + first, origins, kinds)

    def copy_of(self, offset: int) -> int | None:
        """Return the offset of a message's copy; None if it is not in this run."""
        place = bisect_left(self.origins, offset)
        if place < len(self.origins) and self.origins[place] == offset:
            return self.begin + place
        return None

    def joined(self, other: "GivenBack") -> bool:
        """Add a run that continues this one; return False if none does."""
        if (self.topic, self.queue_id, self.end) != (
            other.topic,
            other.queue_id,
            other.begin,
        ) or self.origins[-1] >= other.origins[0]:
            return False
        self.origins.extend(other.origins)
        self.kinds += other.kinds
        return True

    def without(self, offsets: Sequence[int]) -> "Iterator[GivenBack]":
        """Yield what is left without some of the origins."""
        at = 0
        for offset in offsets:
            copy = self.copy_of(offset)
            if copy is not None:
                if at < copy - self.begin:
                    yield self.part(at, copy - self.begin)
                at = copy - self.begin + 1
        if at < len(self.origins):
            yield self if not at else self.part(at, len(self.origins))


class GivenRuns:
    """All runs of one queue's messages, by their first one."""

    def __init__(self) -> None:
        self.runs: list[GivenBack] = []
        # By the same places: the last origin of any run up to there.
        self._lasts: list[int] = []
        self._newest: GivenBack | None = None

    def __len__(self) -> int:
        """Return the number of messages."""
        return sum(len(each.origins) for each in self.runs)

    def put(self, run: GivenBack) -> None:
        """Add the newest run."""
        if self._lasts and run.origins[0] <= self._lasts[-1]:
            self._set([*(left for each in self.runs for left in each.without(run.origins)), run])
            return
        if self._newest is not None and self._newest.joined(run):
            self._lasts[-1] = run.origins[-1]
            return
        self.runs.append(run)
        self._lasts.append(run.origins[-1])
        self._newest = run

    def cut(self, end: int) -> None:
        """Drop messages from an offset on."""
        parts = [each.part(0, each.between(0, end)[1]) for each in self.runs]
        self._set([each for each in parts if each.origins])

    def at(self, offset: int) -> tuple[GivenBack, int] | None:
        """Return a message's run, and the offset of its copy; None if it was not given back."""
        for run in self.touching(offset, offset + 1):
            copy = run.copy_of(offset)
            if copy is not None:
                return run, copy
        return None

    def touching(self, begin: int, end: int) -> "Iterator[GivenBack]":
        """Yield the runs that may have messages in [begin, end)."""
        place = bisect_left(self.runs, end, key=lambda each: each.origins[0]) - 1
        while place >= 0 and self._lasts[place] >= begin:
            yield self.runs[place]
            place -= 1

    def _set(self, runs: "list[GivenBack]") -> None:
        self.runs = sorted(runs, key=lambda each: each.origins[0])
        self._lasts = list(accumulate((each.origins[-1] for each in self.runs), max))
        self._newest = None


_LETTERS = {b"s": KEPT, b"d": DISCARDED, b"m": MISSED}
_TO_LETTERS = bytes.maketrans(bytes(_LETTERS.values()), b"".join(_LETTERS))
_FROM_LETTERS = bytes.maketrans(b"".join(_LETTERS), bytes(_LETTERS.values()))


def kinds_text(kinds: bytearray) -> str:
    """Format classes as letters; one letter if all are alike."""
    return (kinds[:1] if kinds == kinds[:1] * len(kinds) else kinds).translate(_TO_LETTERS).decode()


def parse_kinds(text: str, count: int) -> bytearray:
    """Parse what `kinds_text` made of so many."""
    kinds = bytearray(text.encode().translate(_FROM_LETTERS))
    return kinds * count if len(kinds) == 1 else kinds


def offsets_text(offsets: Sequence[int]) -> str:
    """Format ascending offsets: `skipped+more`, for each run of them; what is 0 is left out.

    >>> offsets_text([5, 6, 7, 9, 12])
    '5+2,1,2'
    """
    words, at, place = [], 0, 0
    while place < len(offsets):
        first, last = offsets[place], place
        while last + 1 < len(offsets) and offsets[last + 1] == offsets[last] + 1:
            last += 1
        more = last - place
        words.append(f"{first - at}+{more}" if more else str(first - at))
        at, place = offsets[last] + 1, last + 1
    return ",".join(words)


def parse_offsets(text: str) -> "array[int]":
    """Parse what `offsets_text` made."""
    found, at = array("q"), 0
    for word in text.split(","):
        skipped, _, more = word.partition("+")
        first = at + int(skipped)
        at = first + int(more or 0) + 1
        found.extend(range(first, at))
    return found


def given_text(topic: str, queue_id: int, run: GivenBack) -> str:
    """Format what a run of copies is of."""
    return f"{topic} {queue_id} {kinds_text(run.kinds)} {offsets_text(run.origins)}"


def parse_given(retry: str, queue_id: int, begin: int, text: str) -> tuple[str, int, GivenBack]:
    """Return topic and queue id of the messages, and the run; retry, queue_id, begin: where copies begin."""
    topic, first_queue, kinds, texts = text.split(" ")
    offsets = parse_offsets(texts)
    run = GivenBack(retry, queue_id, begin, offsets, parse_kinds(kinds, len(offsets)))
    return topic, int(first_queue), run
