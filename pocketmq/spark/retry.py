"""How long a fault is tolerated: pauses that double, until retryTimeoutMs have passed without a success."""

import logging
import time
from collections.abc import Callable

from pocketmq.remoting.codes import ResponseCode

# Answers of a broker that cannot serve now: it starts, stops, or has too much to do.
BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE)

_log = logging.getLogger("pocketmq.spark")
_FIRST_S = 0.1
_LONGEST_S = 5.0


class RetryPause:
    """For one fault at a time: call pause() after each failure, succeeded() after a success.

    clock, sleep: seconds; tests replace them.
    """

    def __init__(
        self,
        timeout_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_ms / 1000
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._pause = _FIRST_S

    def pause(self, error: Exception, *, at_least_s: float = 0.0) -> None:
        """Wait before the next try. Raises: `error`, if the time is used up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._timeout_s - now
        if left <= 0:
            raise error
        if self._pause == _FIRST_S * 8:
            _log.warning("broker_fault error=%s; tried again for %d s more", error, left)
        # The last try comes at the end of the time, not before it.
        self._sleep(max(at_least_s, min(self._pause, left)))
        self._pause = min(self._pause * 2, _LONGEST_S)

    def succeeded(self) -> None:
        """Reset: the next fault gets the whole time again."""
        self._since = None
        self._pause = _FIRST_S
