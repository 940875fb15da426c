"""PlainTopic: what a plain message is stored by, without a look at its topic."""

from pocketmq.broker.figures.stats import BrokerStats, PutCounter
from pocketmq.broker.once.once_topic import OnceTopic

# No number of queues has more.
_DIGITS_MAX = 10


class PlainTopic:
    """A topic whose plain messages need no check until topics or settings change.

    queues: id and counter by the id as senders write it, of the queues that were sent to; see `open`. once:
    what is asked before, and told after, a message is stored, where repetitions are recognised.
    """

    __slots__ = ("_count", "_stats", "name", "once", "queues")

    def __init__(
        self, name: str, count: int, stats: BrokerStats, once: OnceTopic | None = None
    ) -> None:
        """count: of queues."""
        self.name = name
        self.once = once
        self._count = count
        self._stats = stats
        self.queues: dict[bytes, tuple[int, PutCounter]] = {}

    def open(self, number: bytes) -> tuple[int, PutCounter] | None:
        """Return id and counter of a queue, as `queues` has them from now on; None without such a queue."""
        if not number.isdigit() or len(number) > _DIGITS_MAX or str(int(number)) != number.decode():
            return None
        queue_id = int(number)
        if queue_id >= self._count:
            return None
        found = queue_id, self._stats.put_counter(self.name, queue_id)
        self.queues[number] = found
        return found
