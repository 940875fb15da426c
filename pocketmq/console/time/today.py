"""Today: how many messages a topic has stored since midnight, by its offsets.

Counters of brokers are samples of an hour, and end with their process: offsets do neither. Midnight is that
of the console's machine. Offsets at midnight do not change: they are looked up once a day for each queue.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from pocketmq.admin import Admin, QueueStatus
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

_KEPT_MAX = 20_000


def midnight_ms(now_ms: int) -> int:
    """Return when the local day began."""
    now = datetime.fromtimestamp(now_ms / 1_000)
    return int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1_000)


class Today:
    """Owner of the offsets at midnight."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._day_ms = 0
        self._began: dict[MessageQueue, int] = {}

    async def stored(self, topic: str, rows: Iterable[QueueStatus]) -> int | None:
        """Return the messages stored in these queues of the topic since midnight; None if unknown."""
        found = await self.by_broker(topic, rows)
        return None if found is None else found.total()

    async def by_broker(self, topic: str, rows: Iterable[QueueStatus]) -> Counter[str] | None:
        """Return the same by the name of the broker."""
        began_ms = midnight_ms(self._clock.now_ms())
        if began_ms != self._day_ms or len(self._began) > _KEPT_MAX:
            self._day_ms = began_ms
            self._began.clear()
        count: Counter[str] = Counter()
        try:
            addresses = dict(await self._admin.site.masters_of(topic))
            for row in rows:
                queue = row.queue
                if queue not in self._began:
                    self._began[queue] = await self._admin.site.api.search_offset(
                        addresses[queue.broker_name], queue, began_ms
                    )
                # A topic that was made again begins at 0 once more.
                count[queue.broker_name] += row.max_offset - min(self._began[queue], row.max_offset)
        except (PocketMQError, KeyError):
            return None
        return count
