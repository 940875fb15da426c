"""TurnSelector: what asyncio's own event loop waits with, so that a crowd does not take a whole turn.

A turn of asyncio's loop serves all that `select` returns, and the next request waits for its end. Thousands
of connections that are reset in one moment are ready at once; each costs a read that fails and a farewell.

1. A turn serves at most READY_MAX descriptors.
2. Among these are at most HUNG_UP_MAX whose peers have disconnected: no peer waits for them.
3. What is left out comes in later turns: epoll reports it again, after what it has not reported yet.
"""

import select
from collections.abc import Mapping
from selectors import EVENT_READ, EVENT_WRITE, EpollSelector, SelectorKey

# A request costs some 20 microseconds, and a reset as much.
READY_MAX = 1_024
HUNG_UP_MAX = 128
_HUNG_UP = select.EPOLLERR | select.EPOLLHUP


class TurnSelector(EpollSelector):
    """The selector of the standard library, but for what one call returns."""

    _selector: select.epoll
    _fd_to_key: Mapping[int, SelectorKey]

    # Which of those that hung up comes first: each has its turn, also if some stay.
    _first = 0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        wait_s = None if timeout is None else max(timeout, 0)
        keys = self._fd_to_key
        ready: list[tuple[SelectorKey, int]] = []
        hung_up: list[tuple[SelectorKey, int]] = []
        for descriptor, events in self._selector.poll(wait_s, READY_MAX):
            key = keys.get(descriptor)
            if key is not None:
                wanted = (EVENT_WRITE if events & ~select.EPOLLIN else 0) | (
                    EVENT_READ if events & ~select.EPOLLOUT else 0
                )
                found = hung_up if events & _HUNG_UP else ready
                found.append((key, wanted & key.events))
        if len(hung_up) > HUNG_UP_MAX:
            first = self._first % len(hung_up)
            self._first = first + HUNG_UP_MAX
            hung_up = (hung_up[first:] + hung_up[:first])[:HUNG_UP_MAX]
        return ready + hung_up
