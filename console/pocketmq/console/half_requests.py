"""Connections whose requests have not come whole: they have little time, and cannot fill the server.

1. A request that has begun must be whole within WHOLE_WITHIN_S; so must the first one of a connection.
2. When WAITING_MAX connections wait for a request, a further one takes the place of the oldest: whoever sends
   whole requests is served, however many others do not.
Owner: a server; its connections report here.
"""

from collections.abc import Callable

WHOLE_WITHIN_S = 10
WAITING_MAX = 128


class HalfRequests:
    """The connections that wait for a request, oldest first."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._waiting: dict[object, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, connection: object, close: Callable[[], object]) -> None:
        """A connection waits for a request from now on; `close` ends it (invariant 2)."""
        self._waiting[connection] = close
        if len(self._waiting) > self._waiting_max:
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest)()

    def end(self, connection: object) -> None:
        """The request is whole, or the connection is gone."""
        self._waiting.pop(connection, None)
