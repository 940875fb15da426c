"""ConsumeService: shared by both ways of consuming: the listener's pool, offsets, tasks and counters."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.client.consume.consumer_stats import ConsumerStats
from pocketmq.client.consume.listener_log import ListenerLog
from pocketmq.client.consume.listener_pool import ListenerPool
from pocketmq.client.network.runner import Runner
from pocketmq.client.offset_store import OffsetTable
from pocketmq.client.options import PushConsumerOptions
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.remoting.clock import Clock


@dataclass(frozen=True, slots=True)
class ConsumeParts:
    """The parts of one push consumer. room: called when messages left a queue whose pull waits for that."""

    options: PushConsumerOptions
    pool: ListenerPool
    offsets: OffsetTable
    runner: Runner
    stats: ConsumerStats
    clock: Clock
    room: Callable[[ProcessQueue], None]


class ConsumeService:
    """Base of both. Owner: one push consumer, on its event loop."""

    def __init__(self, parts: ConsumeParts) -> None:
        self._options = parts.options
        self._pool = parts.pool
        self._offsets = parts.offsets
        self._runner = parts.runner
        self._stats = parts.stats
        self._clock = parts.clock
        self._room = parts.room
        log = logging.getLogger(type(self).__module__)
        self._failures = ListenerLog(log, parts.options.inner_group, parts.clock.monotonic_ms)
