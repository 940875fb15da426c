"""Limits connections with incomplete requests, in time and number, so that they cannot fill the server.

1. A request must be complete within WHOLE_WITHIN_S of its beginning, the first one of that of its connection.
2. If WAITING_MAX connections wait for a request, a further one replaces the oldest: clients that send whole
   requests are served, however many others do not.
Owner: a server; its connections report here.
"""

from collections.abc import Callable

WHOLE_WITHIN_S = 10
WAITING_MAX = 128


class SlowClients:
    """The connections that wait for a request, oldest first."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._waiting: dict[object, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, connection: object, close: Callable[[], object]) -> None:
        """Add a connection that waits for a request; `close` ends it (invariant 2)."""
        self._waiting[connection] = close
        if len(self._waiting) > self._waiting_max:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest)()

    def end(self, connection: object) -> None:
        """Remove a connection: its request is whole, or it is closed."""
        self._waiting.pop(connection, None)
