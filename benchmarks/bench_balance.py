"""What the balance of a group with many messages costs: the first question, a later one, and memory.

    python -m benchmarks.bench_balance                     10,000,000 messages, 32 to a pull
    python -m benchmarks.bench_balance --messages 1000000 --pull 8

The record's files are written as the broker writes them, a row a pull, which is the most that it writes; then
they are read and added up as the ledger does. alike: both members want everything; mixed: each discards the
other's half, as the broker counted it. CPU seconds of this process.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator

import msgpack

from pocketmq.books.book import Books
from pocketmq.books.reckoning import Now, Reckoning
from pocketmq.books.record_file import RecordFiles, RecordReader
from pocketmq.books.rows import GIVEN, SPAN, TEXT, Row, Way
from pocketmq.model.balance import Balance

QUEUES = 8
GROUP, TOPIC = "g", "T"
_TEXTS = (GROUP, TOPIC, "c1", "c2", "TAG *", "TAG A", "TAG B", "TAG A\nTAG B")
_BLOCK = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--pull", type=int, default=32, help="messages of a pull")
    given = parser.parse_args()
    of_queue = given.messages // QUEUES // given.pull * given.pull
    print(f"{'members':8}{'rows':>9}{'first, CPU-s':>14}{'later, ms':>11}{'more memory, MB':>17}")
    for is_mixed in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            files = RecordFiles(folder, lambda: 1 << 30)
            count = _write(files, of_queue, given.pull, is_mixed=is_mixed)
            before = _memory_mb()
            books, reader = Books(GROUP), RecordReader(files)
            first_s, again_s = (_ask(books, reader, of_queue) for _ in range(2))
        name, more = "mixed" if is_mixed else "alike", _memory_mb() - before
        print(f"{name:8}{count:9}{first_s:14.2f}{again_s * 1000:11.1f}{more:17.0f}")


def _write(files: RecordFiles, of_queue: int, pull: int, *, is_mixed: bool) -> int:
    """Write the record; return the number of its rows."""
    blocks = bytearray(
        b"".join(msgpack.packb([TEXT, number, text]) for number, text in enumerate(_TEXTS))
    )
    count = 0
    for count, row in enumerate(_rows(of_queue, pull, is_mixed=is_mixed), 1):
        blocks += msgpack.packb(row)
        if count % _BLOCK == 0:
            files.append(bytes(blocks))
            blocks.clear()
    files.append(bytes(blocks))
    return count


def _rows(of_queue: int, pull: int, *, is_mixed: bool) -> Iterator[Row]:
    group, topic, one, other, everything, tag_a, tag_b, wishes = range(len(_TEXTS))
    half = pull // 2
    ms = 1_790_000_000_000
    for begin in range(0, of_queue, pull):
        for queue_id in range(QUEUES):
            ms += 1
            client = other if queue_id % 2 else one
            where = [group, topic, queue_id, begin, begin + pull]
            if is_mixed:
                own = tag_b if queue_id % 2 else tag_a
                split = (0, half, pull - half) if queue_id % 2 else (half, 0, pull - half)
                how = [half, client, tag_a, own, wishes, Way.SHARED.value, split]
                yield [GIVEN, *where, *how, ms, ms]
            else:
                yield [SPAN, *where, pull, client, everything, everything, ms, ms]


def _ask(books: Books, reader: RecordReader, of_queue: int) -> float:
    """Read what was added and add it up; return CPU seconds."""
    began = time.process_time()
    for texts, row in reader.rows(reader.pieces() or []):
        books.enter(texts, row)
    now = {(TOPIC, each): Now(0, of_queue, of_queue) for each in range(QUEUES)}
    reckoning = Reckoning(books, now, frozenset(_TEXTS[2:4]), lambda *where: None)
    balance = Balance(TOPIC, GROUP, of_queue * QUEUES)
    for queue_id in range(QUEUES):
        for part in reckoning.parts(TOPIC, queue_id, 0):
            balance.add(part.state, part.size)
    spent = time.process_time() - began
    if balance.difference:
        raise AssertionError(f"the books do not close: {balance.to_json()}")
    return spent


def _memory_mb() -> float:
    """Return the most memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
