"""EmptiedQueues: queues whose messages had all expired at the master when this slave's log began.

No record of the log that is sent speaks of such a queue. A slave that did not ask for its end would, once it
is promoted, give its offsets anew from 0, and consumers, which are further, would skip those messages.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from pocketmq.broker.ha.received_tables import MasterRefused
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.store import MessageStore

log = logging.getLogger(__name__)

# Topics that are asked for in one round.
_ASKED_MAX = 256


class AskedMaster(Protocol):
    """What is asked of the master. Both raise: MasterRefused, PocketMQError, OSError."""

    async def ends_of(self, topic: str) -> Mapping[int, int]:
        """Return where the queues of a topic end, by queue id."""

    async def end(self) -> int:
        """Return where its log ends."""


class EmptiedQueues:
    """Asks the master once for the ends of a topic that has queues which this store does not have."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager) -> None:
        self._store = store
        self._topics = topics
        self._asked: set[str] = set()

    async def round(self, master: AskedMaster, arrives: Callable[[int], Awaitable[bool]]) -> None:
        """Ask for some. arrives: waits until this log has a position; False if it does not come soon.

        Raises: PocketMQError, OSError; DiskFull.
        """
        topics = self._to_ask()
        if not topics:
            return
        ends = {topic: await _ends_of(master, topic) for topic in topics}
        # Messages that the master has of these queues are in its log before this end.
        if not await arrives(await master.end()):
            return
        for topic, queues in ends.items():
            for queue_id, end in queues.items():
                self._continue(topic, queue_id, end)
        self._asked.update(topics)

    def _continue(self, topic: str, queue_id: int, end: int) -> None:
        following = self._store.following
        if end > 0 and following is not None and following.continue_queue(topic, queue_id, end):
            log.info(
                "a queue without messages continues where its master does topic=%s queue=%d end=%d",
                topic,
                queue_id,
                end,
            )

    def _to_ask(self) -> list[str]:
        if not self._store.commit_log_min_position:
            # This log has every message that there ever was.
            return []
        queues = Counter(topic for topic, _ in self._store.queues())
        return [
            topic
            for topic, config in self._topics.topics.items()
            if topic not in self._asked
            and queues[topic] < max(config.read_queues, config.write_queues)
        ][:_ASKED_MAX]


async def _ends_of(master: AskedMaster, topic: str) -> Mapping[int, int]:
    try:
        return await master.ends_of(topic)
    except MasterRefused as error:
        # It has deleted the topic, or the table that it sent is older.
        log.info("the master does not say where queues end topic=%s reason=%s", topic, error)
        return {}
