"""Quota: how much all registrations together may take. Ours.

A name server knows no accounts, so any of its clients may register brokers and topics. A registration that
exceeds the bound is refused; known ones stay, and brokers that are known stay alive.
"""

import logging

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

BROKERS_MAX = 2_000
# Estimated: 700,000 topics with names of 100 characters.
SIZE_MAX = 512 << 20
# Of a cluster, a broker, an address, a topic.
NAME_SIZE_MAX = 1_024
# What a topic costs besides its name: its queues, and its place among those that a broker has sent.
_QUEUES_SIZE, _SENT_SIZE = 500, 100
_PAUSE_MS = 60_000


class QuotaExceeded(PocketMQError):
    """All registrations together are as large as they may be."""


class SentTopics:
    """The topics that one address has sent, and what they take."""

    __slots__ = ("size", "topics")

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.size = 0


class Quota:
    """Owner of the sum."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_ms: int | None = None
        self.size = 0

    def for_another(self, count: int) -> bool:
        """Return True if there may be another broker, address or cluster beside so many."""
        return count < BROKERS_MAX

    def take_queues(self, topic: str, *, own: bool) -> bool:
        """Take room for a broker's queues of a topic; False if there is no room.

        own: for a broker of this process, which is never refused.
        """
        return self._take(_QUEUES_SIZE + len(topic), own)

    def free_queues(self, topic: str) -> None:
        self.size -= _QUEUES_SIZE + len(topic)

    def take_sent(self, topic: str, sent: SentTopics, *, own: bool) -> bool:
        """Note a topic as sent; False if there is no room. own: as for queues."""
        if topic in sent.topics:
            return True
        size = _SENT_SIZE + len(topic)
        if not self._take(size, own):
            return False
        sent.topics.add(topic)
        sent.size += size
        return True

    def free_sent(self, sent: SentTopics) -> None:
        self.size -= sent.size
        sent.topics, sent.size = set(), 0

    def _take(self, size: int, own: bool) -> bool:
        if not own and self.size + size > SIZE_MAX:
            return False
        self.size += size
        return True

    def refused(self, what: str) -> QuotaExceeded:
        """Return the refusal; it is logged once a minute."""
        now_ms = self._clock.monotonic_ms()
        if self._told_ms is None or now_ms - self._told_ms >= _PAUSE_MS:
            self._told_ms = now_ms
            log.error(
                "refused a registration: %s; brokers and topics that are known stay, and refusals of the "
                "next minute are not logged",
                what,
            )
        return QuotaExceeded(f"refused: {what}")
