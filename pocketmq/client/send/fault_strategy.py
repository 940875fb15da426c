"""Which queue a send goes to, and which brokers it avoids (wire.md 4.7).

Without latency fault tolerance: round robin, and a retry avoids the broker that has just failed; one that
did not answer a send in its time is avoided for LATE_MS (ours: each send would wait there). With it, a broker
that was slow or failed is avoided for a while, longer the slower it was.
Source: MQFaultStrategy, LatencyFaultToleranceImpl, RocketMQ 4.9.7.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.client.network.route import TopicPublishInfo
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.clock import Clock

LATENCY_STEPS_MS = (
    # latency from, then left alone for
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
    (100, 0),
    (50, 0),
)
LATE_MS = 30_000
FAILURE_LATENCY_MS = 30_000
"""A failed send counts as one that took this long."""


def not_available_ms(latency_ms: int) -> int:
    """Return how long a broker with that latency is avoided.

    >>> not_available_ms(99), not_available_ms(600), not_available_ms(30_000)
    (0, 30000, 600000)
    """
    for at_least, pause in LATENCY_STEPS_MS:
        if latency_ms >= at_least:
            return pause
    return 0


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    available_from_ms: int


class FaultStrategy:
    """Chooses queues; remembers how brokers performed. Owner: one producer."""

    def __init__(
        self, clock: Clock, random_index: Callable[[], int], *, enabled: bool = False
    ) -> None:
        self.enabled = enabled
        self._clock = clock
        self._random_index = random_index
        self._faults: dict[str, _Fault] = {}
        # Until when a broker that did not answer is avoided, monotonic ms.
        self._late: dict[str, int] = {}

    def choose(self, info: TopicPublishInfo, last_broker: str | None) -> MessageQueue:
        """Return the queue of the next attempt. Raises: NoQueueToSendTo.

        last_broker: where the previous attempt failed; None for the first.
        """
        if not self.enabled:
            if last_broker is None and not self._late:
                return info.take()
            return self._other_than(info, last_broker)
        queue = info.take_where(lambda each: self.is_available(each.broker_name))
        if queue is not None:
            return queue
        least_bad = self._least_bad(info)
        if least_bad is not None:
            queue = info.take()
            return MessageQueue(
                queue.topic, least_bad, queue.queue_id % info.write_queue_nums[least_bad]
            )
        return info.take()

    def _other_than(self, info: TopicPublishInfo, last_broker: str | None) -> MessageQueue:
        """Return a queue of a broker that answers, or else of one that has not just failed."""
        now_ms = self._clock.monotonic_ms()
        self._late = {name: until for name, until in self._late.items() if until > now_ms}
        return (
            info.take_where(
                lambda each: each.broker_name != last_broker and each.broker_name not in self._late
            )
            or info.take_where(lambda each: each.broker_name != last_broker)
            or info.take()
        )

    def has_other_than(self, info: TopicPublishInfo, broker_name: str | None) -> bool:
        """Return True if another broker has queues, and has answered of late."""
        now_ms = self._clock.monotonic_ms()
        return any(
            each.broker_name != broker_name and self._late.get(each.broker_name, now_ms) <= now_ms
            for each in info.queues
        )

    def late(self, broker_name: str) -> None:
        """Avoid a broker that did not answer in time, or could not be reached in time."""
        self._late[broker_name] = self._clock.monotonic_ms() + LATE_MS

    def is_available(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or self._clock.monotonic_ms() >= fault.available_from_ms

    def _least_bad(self, info: TopicPublishInfo) -> str | None:
        """Return one of the better half of the faulty brokers that still have writable queues."""
        known = [
            (not self.is_available(name), fault.latency_ms, fault.available_from_ms, name)
            for name, fault in self._faults.items()
            if info.write_queue_nums.get(name, 0) > 0
        ]
        if not known:
            return None
        known.sort()
        half = max(1, len(known) // 2)
        return known[self._random_index() % half][3]

    def update(self, broker_name: str, latency_ms: int, *, isolate: bool) -> None:
        """Record the latency of a send to that broker; isolate: it failed."""
        if not self.enabled:
            return
        counted = FAILURE_LATENCY_MS if isolate else latency_ms
        self._faults[broker_name] = _Fault(
            latency_ms, self._clock.monotonic_ms() + not_available_ms(counted)
        )
