"""Sums of dropped files of the delivery record close the books like the rows that they were made of."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pocketmq.books.book import Books
from pocketmq.books.reckoning import Now, Reckoning
from pocketmq.books.record_file import NAMES, RecordFiles
from pocketmq.books.rows import DELETED, EVENT, GIVEN, TEXT, Way
from pocketmq.books.sorting import DISCARDED, KEPT, UNWANTED, Pulling
from pocketmq.broker.ledger.folding import fold
from pocketmq.model.balance import State

HOUR_MS = 3_600_000
QUEUES = (0, 1)
TAGS = ("TAG A", "TAG *")


class Record:
    """Writes the same rows to files that are folded, and to some that are not."""

    def __init__(self, folder: Path) -> None:
        self.small = RecordFiles(str(folder / "small"), lambda: 600)
        self.whole = RecordFiles(str(folder / "whole"), lambda: 1 << 30)
        self.ms = 1_000 * 24 * HOUR_MS
        self.offsets = dict.fromkeys(QUEUES, 0)
        self.ends = dict.fromkeys(QUEUES, 0)
        # What the queues themselves say of each message.
        self.truth = {queue: bytearray(1_000_000) for queue in QUEUES}

    def add(self, kind: int, *fields: Any) -> None:
        """A row; texts are given as such."""
        texts, coded = list[Any](), list[Any]()
        for each in fields:
            if isinstance(each, tuple):
                texts.append([TEXT, len(texts), each[0]])
                coded.append(len(texts) - 1)
            else:
                coded.append(each)
        data = b"".join(map(msgpack.packb, [*texts, [kind, *coded, self.ms]]))
        for files in (self.small, self.whole):
            files.append(data)
        at = {("g", "T", queue): offset for queue, offset in self.offsets.items()}
        fold(self.small, at, self.ms)

    def given(self, queue: int, count: int, kept: int, lost: int, member: str, by: str) -> None:
        begin = self.ends[queue]
        self.ends[queue] += count
        split = [kept, lost, 0] if lost else None
        said = bytes([KEPT] * kept + [DISCARDED] * lost + [UNWANTED] * (count - kept - lost))
        self.truth[queue][begin : self.ends[queue]] = said
        how = [("g",), ("T",), queue, begin, self.ends[queue], kept + lost]
        wishes = by if split is None else "TAG B"
        client = [(member,), (by,), (by,), (wishes,), int(Way.SHARED), split, self.ms]
        self.add(GIVEN, *how, *client)

    def event(self, kind: str, queue: int, begin: int, end: int, text: str) -> None:
        self.add(EVENT, kind, ("g",), ("T",), queue, begin, end, text)

    def has_kept(self, queue: int) -> bool:
        """Whether the last message that was given is one that its member has, and may send back."""
        end = self.ends[queue]
        return self.offsets[queue] < end and self.truth[queue][end - 1] == KEPT

    def states(self, files: RecordFiles) -> Counter[State]:
        books = Books("g")
        for name in NAMES:
            for texts, row in files.rows_in(name):
                books.enter(texts, row)
        now = {("T", queue): Now(0, self.ends[queue], self.offsets[queue]) for queue in QUEUES}
        reckoning = Reckoning(books, now, frozenset({"c1", "c2"}), self.classes)
        found: Counter[State] = Counter()
        for queue in QUEUES:
            for part in reckoning.parts("T", queue, reckoning.begin("T", queue)):
                found[part.state] += part.size
        return found

    def classes(self, topic: str, queue: int, begin: int, end: int, pulling: Pulling) -> bytes:
        return bytes(self.truth[queue][begin:end])


STEP = st.tuples(
    st.sampled_from(
        ["given", "given", "given", "commit", "back", "dead", "skip", "later", "delete"]
    ),
    st.sampled_from(QUEUES),
    st.integers(1, 40),
    st.sampled_from(["c1", "c2"]),
    st.sampled_from(TAGS),
)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(steps=st.lists(STEP, min_size=20, max_size=80), back_ms=st.integers(0, 40 * 24 * HOUR_MS))
def test_the_sums_say_what_the_rows_said(
    tmp_path_factory: Any, steps: list[tuple[str, int, int, str, str]], back_ms: int
) -> None:
    record = Record(tmp_path_factory.mktemp("record"))
    for act, queue, count, member, by in steps:
        end = record.ends[queue]
        match act:
            case "given":
                lost = count // 3 if by == "TAG A" else 0
                kept = count - lost if by == "TAG *" else count // 2
                record.given(queue, count, kept, lost, member, by)
            case "commit":
                record.offsets[queue] = end
            case "back" if record.has_kept(queue):
                record.event("retry", queue, end - 1, end - 1, "failed")
            case "dead" if record.has_kept(queue):
                record.event("dead", queue, end - 1, end - 1, "failed for good")
            case "skip":
                record.event("jump", queue, end, end + count, "by hand")
                record.ends[queue] += count
            case "later":
                record.ms += count * HOUR_MS
            case "delete" if count > 38:
                record.add(DELETED, ("T",))
                record.offsets.update(dict.fromkeys(QUEUES, 0))
                record.ends.update(dict.fromkeys(QUEUES, 0))
    record.ms += back_ms
    record.event("report", 0, 0, 0, "c9")
    assert record.states(record.small) == record.states(record.whole)


def test_a_year_of_deliveries_stays_small(tmp_path: Path) -> None:
    """A minute's deliveries each half hour: the sums are a fraction, and the books close."""
    record = Record(tmp_path)
    record.small = RecordFiles(str(tmp_path / "small"), lambda: 128 << 10)
    for number in range(10_000):
        record.given(number % 2, 100, 90, 0, f"c{1 + number // 2_500 % 2}", "TAG A")
        record.offsets[number % 2] = record.ends[number % 2]
        record.ms += HOUR_MS // 2
    found = record.states(record.small)
    assert found == {State.CONSUMED: 900_000, State.FILTERED: 100_000}
    size = sum(path.stat().st_size for path in (tmp_path / "small").iterdir())
    assert size < 160_000 < record.whole.current_size
