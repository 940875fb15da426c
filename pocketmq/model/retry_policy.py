"""RetryPolicy: how long a group's failed message waits for its next try. Source: GroupRetryPolicy, 5.5.0.

Of each stored group 5.x's tools write the type; only a policy with pauses, or an exponential one, is its own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.remoting.java_number import number

_INITIAL_MS, _MAX_MS = 5_000, 7_200_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Either `pauses`, the last of which holds for all later attempts, or growing ones; all in ms."""

    pauses: tuple[int, ...] = ()
    initial_ms: int = _INITIAL_MS
    max_ms: int = _MAX_MS
    multiplier: float = 2.0

    def pause_ms(self, times: int) -> int:
        """Return the pause after a message has failed so often before.

        >>> RetryPolicy((1000, 5000)).pause_ms(0), RetryPolicy((1000, 5000)).pause_ms(7)
        (1000, 5000)
        >>> RetryPolicy(initial_ms=200, max_ms=1000).pause_ms(2), RetryPolicy().pause_ms(99)
        (800, 7200000)
        """
        if self.pauses:
            return self.pauses[min(times, len(self.pauses) - 1)]
        pause = float(self.initial_ms)
        for _ in range(times):
            if pause >= self.max_ms or self.multiplier <= 1:
                break
            pause *= self.multiplier
        return int(min(pause, self.max_ms))


def own_policy(stored: Any) -> RetryPolicy | None:
    """Return a group's own policy of its stored `groupRetryPolicy`; None if it has none.

    Some tools store it as a text. Raises: AttributeError, TypeError, ValueError if it cannot be read.
    """
    if isinstance(stored, str):
        stored = json.loads(stored) if stored else None
    if not isinstance(stored, Mapping):
        return None
    if stored.get("type") == "EXPONENTIAL":
        own = stored.get("exponentialRetryPolicy") or {}
        return RetryPolicy(
            (),
            number(own.get("initial", _INITIAL_MS)),
            number(own.get("max", _MAX_MS)),
            float(own.get("multiplier", 2)),
        )
    customized = stored.get("customizedRetryPolicy") or {}
    pauses = tuple(number(ms) for ms in customized.get("next") or ())
    return RetryPolicy(pauses) if pauses else None
