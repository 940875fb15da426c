"""When to pull again after an answer, and what is said of pulls that fail.

A broker holds a pull for which it has nothing. One that has no place to hold it, or is broken, answers at
once, and its answer leads nowhere: asked again at once, it would be asked thousands of times a second.
"""

import logging

from pocketmq.model.message import MessageQueue
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.serving.log_pause import LogPause

log = logging.getLogger(__name__)

AT_ONCE_MS = 100
FRUITLESS_MAX = 8
FRUITLESS_DELAY_MS = 1_000


class PullPace:
    """Pacing of one queue. Owned by its puller."""

    __slots__ = ("_fruitless",)

    def __init__(self) -> None:
        self._fruitless = 0

    def delay_ms(self, queue: MessageQueue, asked: int, following: int, took_ms: int) -> int:
        """Return how long to wait. asked, following: offset of the pull, and of the next by its answer."""
        if following > asked or took_ms >= AT_ONCE_MS:
            self._fruitless = 0
            return 0
        self._fruitless += 1
        if self._fruitless < FRUITLESS_MAX:
            return 0
        if self._fruitless == FRUITLESS_MAX:
            log.warning(
                "the broker answers pulls at once and leads nowhere; it is asked once a second queue=%s "
                "offset=%s next=%s",
                queue,
                asked,
                following,
            )
        return FRUITLESS_DELAY_MS


class PullFailures:
    """Logs the first of a topic's failures at a broker, then once a minute how many there were.

    A topic or group that is closed refuses each queue's pull every three seconds, for hours.
    """

    def __init__(self) -> None:
        self._pause = LogPause()

    def log(self, queue: MessageQueue, error: PocketMQError, now_ms: int) -> None:
        count = self._pause.due((queue.topic, queue.broker_name, type(error)), now_ms)
        if count is None:
            return
        log.warning(
            "execute the pull request exception; it is tried again, and more of this kind are counted "
            "queue=%s since_the_last_line=%s %s",
            queue,
            count,
            error,
        )
