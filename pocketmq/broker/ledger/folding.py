"""Folding: what a dropped file of the delivery record says, added up; the books of a year still close.

    [6, group, topic, queue, begin, end, client, way, lane, cause, state, asks_all, count, kept, discarded,
     missed, ms]     a sum: of these offsets, as a piece of runs.py has them; state "" if they were given

1. Pieces that the group has passed become sums, joined by hour, member and cause; after a week by day, after
   60 days by 30 days. Others stay as they are, and so do single messages that are dead, or whose copies are
   under way.
2. It is done twice without harm: the sums are replaced at once, and only then the dropped file is deleted.
3. Sums that outgrow their share lose the oldest; what they said is unknown then.
4. Memory holds the books of some groups at a time, about ROWS_MAX rows.
Runs in a thread; it asks the broker for nothing but offsets, which are copied before.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgpack

from pocketmq.books.book import Back, Book, Books, Copy
from pocketmq.books.given_back import GivenBack, given_text
from pocketmq.books.lanes import broadcast_offset
from pocketmq.books.reckoning import Now, Reckoning
from pocketmq.books.record_file import DROPPED, SUMS, RecordFiles, block
from pocketmq.books.rows import (
    DELETED,
    EVENT,
    FOLDED,
    GIVEN,
    TEXT,
    EventKind,
    Row,
    Texts,
    Way,
    origin_text,
)
from pocketmq.books.runs import UNSURE, Piece, Runs, folded_pulling
from pocketmq.books.sorting import ASKS_ALL, asked
from pocketmq.model.balance import State

ROWS_MAX = 100_000
_HOUR_MS, _DAY_MS = 3_600_000, 24 * 3_600_000
# Up to which age pieces are joined within which time.
_BUCKETS = ((7 * _DAY_MS, _HOUR_MS), (60 * _DAY_MS, _DAY_MS), (1 << 62, 30 * _DAY_MS))
# A piece whose numbers are not known stays whole so long: its messages may still be stored.
_UNSURE_MS = 48 * 3_600_000
_BLOCK_SIZE = 1 << 16
# Messages of a row that says what was given back.
_RUN_MAX = 4_096
_SIZE_MIN = 1 << 16
_FOREVER = 1 << 62

Offsets = Mapping[tuple[str, str, int], int]


def fold(files: RecordFiles, offsets: Offsets, now_ms: int) -> None:
    """Fold the dropped file. offsets: by group, topic and queue id. Raises: OSError."""
    if not os.path.exists(files.path(DROPPED)):
        return
    sums, oldest_ms = _Sums(now_ms), _oldest_ms(files)
    for groups in _some_at_a_time(files):
        books = _read(files, groups, oldest_ms)
        for group in sorted(groups):
            for (topic, queue_id), book in sorted(books[group].books.items()):
                sums.add(books[group], topic, queue_id, book, offsets)
    files.replace_sums(sums.file.blocks())
    os.unlink(files.path(DROPPED))


def _oldest_ms(files: RecordFiles) -> int:
    """Return since when sums are kept (3): a quarter of them goes if they have a quarter of the space."""
    path = files.path(SUMS)
    if not os.path.exists(path) or os.path.getsize(path) < max(files.size_max // 4, _SIZE_MIN):
        return 0
    counts = Counter(row[-1] // _HOUR_MS for _, row in files.rows_in(SUMS) if row[0] == FOLDED)
    dropped, total = 0, counts.total()
    for hour in sorted(counts):
        dropped += counts[hour]
        if dropped * 4 >= total:
            return int(hour + 1) * _HOUR_MS
    return 0


def _some_at_a_time(files: RecordFiles) -> Iterator[set[str]]:
    """Yield the groups, in sets with up to ROWS_MAX rows."""
    counts: Counter[str] = Counter()
    for texts, row in _rows(files):
        if row[0] != DELETED:
            counts[_group(texts, row)] += 1
    found: set[str] = set()
    for group, count in sorted(counts.items()):
        if found and sum(counts[each] for each in found) + count > ROWS_MAX:
            yield found
            found = set()
        found.add(group)
    if found:
        yield found


def _read(files: RecordFiles, groups: set[str], oldest_ms: int) -> dict[str, Books]:
    books = {group: Books(group) for group in groups}
    for texts, row in _rows(files):
        if row[0] == FOLDED and row[-1] < oldest_ms:
            continue
        if row[0] == DELETED:
            for each in books.values():
                each.enter(texts, row)
        elif (group := _group(texts, row)) in books:
            books[group].enter(texts, row)
    return books


def _rows(files: RecordFiles) -> Iterator[tuple[Texts, Row]]:
    yield from files.rows_in(SUMS)
    yield from files.rows_in(DROPPED)


def _group(texts: Texts, row: Row) -> str:
    return texts.get(row[2 if row[0] == EVENT else 1], "")


class _Sums:
    """Makes rows of books."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.file = _File()

    def add(self, books: Books, topic: str, queue_id: int, book: Book, offsets: Offsets) -> None:
        """Add what is known of a queue."""
        key = (books.group, topic, queue_id)
        offset = broadcast_offset(book, ())
        passed = offsets.get(key, -1) if offset is None else offset
        oldest_ms = self._now_ms
        for (way, lane), runs in book.lanes.items():
            folded = Runs()
            for each in runs.between(0, runs.end):
                if isinstance(each, Piece):
                    self._add_piece(key, way, lane, each, passed, folded)
                    oldest_ms = min(oldest_ms, each.ms)
            for piece in folded.between(0, folded.end):
                if isinstance(piece, Piece):
                    self.file.add(_sum_row(key, way, lane, piece))
        if book.begin is not None:
            self._event(key, EventKind.START, 0, book.begin, "", oldest_ms)
        for client_id, at in book.reports.items():
            self._event(key, EventKind.REPORT, at, at, client_id, self._now_ms)
        self._add_singles(books, key, book, passed)

    def _add_piece(
        self,
        key: tuple[str, str, int],
        way: Way,
        lane: str,
        piece: Piece,
        passed: int,
        folded: Runs,
    ) -> None:
        if piece.is_old:
            if piece.begin >= passed:
                return
            piece = replace(piece.cut(piece.begin, passed), is_old=False)
        is_unsure = piece.state is None and UNSURE in (piece.kept, piece.discarded, piece.missed)
        is_young = is_unsure and self._now_ms - piece.ms < _UNSURE_MS
        if piece.state is None and (piece.end > passed or is_young) and not piece.is_folded:
            self.file.add(_given_row(key, way, piece))
            return
        age_ms = self._now_ms - piece.ms
        bucket_ms = next(bucket for limit, bucket in _BUCKETS if age_ms < limit)
        pulling = piece.pulling
        if pulling is not None:
            asks_all = asked(pulling.by) == ASKS_ALL
            pulling = folded_pulling(asks_all=asks_all)
        ms = piece.ms - piece.ms % bucket_ms
        folded.put(replace(piece, ms=ms, pulling=pulling), piece_max=_FOREVER)

    def _add_singles(
        self, books: Books, key: tuple[str, str, int], book: Book, passed: int
    ) -> None:
        _, topic, queue_id = key
        now = {of: Now(0, _FOREVER, _FOREVER) for of in books.books}
        now[topic, queue_id] = Now(0, _FOREVER, passed)
        # What was given back comes first: it takes what is known singly away.
        for run in book.given_back.runs:
            for at in range(0, len(run.origins), _RUN_MAX):
                self._add_run(key, run.part(at, at + _RUN_MAX))
        reckoning = Reckoning(books, now, frozenset(), lambda *_: None)
        for offset in sorted(book.back.keys() | book.copies.keys()):
            if reckoning.fate(topic, queue_id, offset)[0] is State.CONSUMED and offset < passed:
                continue
            back = book.back.get(offset)
            if back is not None:
                self._add_back(key, offset, back)
            for copy in book.copies.get(offset, ()):
                self._add_copy(key, offset, copy)

    def _add_back(self, key: tuple[str, str, int], offset: int, back: Back) -> None:
        kind = EventKind.DEAD if back.state is State.DEAD else EventKind.RETRY
        self._event(key, kind, offset, offset, back.cause, back.ms)

    def _add_copy(self, key: tuple[str, str, int], offset: int, copy: Copy) -> None:
        text = origin_text(key[1], key[2], offset)
        at = (key[0], copy.topic, copy.queue_id)
        self._event(at, EventKind.COPY, copy.offset, copy.offset + 1, text, self._now_ms)

    def _add_run(self, key: tuple[str, str, int], run: GivenBack) -> None:
        text = given_text(key[1], key[2], run)
        at = (key[0], run.topic, run.queue_id)
        self._event(at, EventKind.REDELIVERED, run.begin, run.end, text, self._now_ms)

    def _event(
        self, key: tuple[str, str, int], kind: EventKind, begin: int, end: int, text: str, ms: int
    ) -> None:
        self.file.add([EVENT, kind.value, *key, begin, end, text, ms])


class _File:
    """Rows as blocks, with numbers in place of texts."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()
        self._numbers: dict[str, int] = {}
        self._blocks, self._data = bytearray(), bytearray()

    def add(self, row: Row) -> None:
        """Add a row that has its texts."""
        kind, *fields = row
        places = _TEXTS[kind]
        coded = [self._number(each) if at in places else each for at, each in enumerate(fields, 1)]
        self._data += self._packer.pack([kind, *coded])
        if len(self._data) >= _BLOCK_SIZE:
            self._end_block()

    def blocks(self) -> bytes:
        """Return the content of the file."""
        self._end_block()
        return bytes(self._blocks)

    def _number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._numbers)
            self._data += self._packer.pack([TEXT, found, text])
        return found

    def _end_block(self) -> None:
        if self._data:
            self._blocks += block(bytes(self._data))
            self._data.clear()


def _sum_row(key: tuple[str, str, int], way: Way, lane: str, piece: Piece) -> Row:
    state = "" if piece.state is None else piece.state.value
    asks_all = piece.pulling == folded_pulling(asks_all=True)
    numbers = [piece.count, piece.kept, piece.discarded, piece.missed]
    of = [piece.begin, piece.end, piece.member, int(way), lane, piece.cause, state, asks_all]
    return [FOLDED, *key, *of, *numbers, piece.ms]


def _given_row(key: tuple[str, str, int], way: Way, piece: Piece) -> Row:
    assert piece.pulling is not None
    by, own, wishes = piece.pulling
    split = [piece.kept, piece.discarded, piece.missed]
    told = None if UNSURE in split else split
    of = [piece.begin, piece.end, piece.count, piece.member, by, own, "\n".join(wishes), int(way)]
    return [GIVEN, *key, *of, told, piece.ms, piece.ms]


# Which fields of a row are texts by number.
_TEXTS = {
    EVENT: frozenset({2, 3}),
    GIVEN: frozenset({1, 2, 7, 8, 9, 10}),
    FOLDED: frozenset({1, 2, 6, 8, 9}),
}
