"""OpenSpan: a span of the delivery record (record.py) that is still growing."""

from pocketmq.books.rows import Way
from pocketmq.books.sorting import Pulling
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import EntryFilter


class _Ended:
    """The filter of a span that no pull extends: something about its client has changed."""

    codes: frozenset[int] | None = None

    @staticmethod
    def record(record: memoryview) -> bool:
        return False


ENDED = _Ended()


class OpenSpan:
    """seen_ms is monotonic; connection and matches decide if a pull extends the span. late:
    what another client's held pull brought of the same offsets; the one that pulls on has the queue.
    """

    __slots__ = (
        "begin",
        "client_id",
        "connection",
        "count",
        "end",
        "first_ms",
        "is_alike",
        "late",
        "matches",
        "pulling",
        "seen_ms",
        "started_ms",
        "way",
    )
    client_id: str
    pulling: Pulling
    is_alike: bool
    way: Way

    def __init__(
        self, connection: Peer, matches: EntryFilter | None, offset: int, seen_ms: int, wall_ms: int
    ) -> None:
        self.connection = connection
        self.matches = matches
        self.begin = self.end = offset
        self.count = 0
        self.started_ms = self.seen_ms = seen_ms
        self.first_ms = wall_ms
        self.late: OpenSpan | None = None
