"""Latencies: how long requests took, by their codes and those of their answers. wire/timed.py counts them,
wire/send.py sends.

Bounds: RocketMQ 5.3.3's of rocketmq_rpc_latency.

A look at the clock would cost more than a hundredth of a plain send: each sixteenth is looked at, and stands
for those after it until the next.
"""

from bisect import bisect_left

from pocketmq.remoting.codes import ResponseCode

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
SENDS_A_LOOK = 16
_SUM = len(BOUNDS_MS) + 1
_Rows = dict[tuple[int, int], list[int]]


class Latencies:
    """left: plain sends until the next one that is looked at, counted down by whoever serves them."""

    def __init__(self) -> None:
        self.left = 1
        self._looked_at: tuple[int, int] | None = None
        self._rows: _Rows = {}

    def add(self, code: int, answer: int, ms: int, times: int = 1) -> None:
        """So many requests that took so long."""
        row = self._rows.get((code, answer))
        if row is None:
            row = self._rows[code, answer] = [0] * (_SUM + 1)
        row[bisect_left(BOUNDS_MS, ms)] += times
        row[_SUM] += ms * times

    def look(self, code: int, ms: int) -> None:
        """The plain send at which `left` came to 0: it counts for itself, those before it as the last one."""
        self.left = 1
        self._count_since()
        self.add(code, ResponseCode.SUCCESS, ms)
        self._looked_at = code, ms
        self.left = SENDS_A_LOOK

    def rows(self) -> _Rows:
        """By code of request and answer the counts of each bound, of what is beyond, and the sum in ms."""
        self._count_since()
        return self._rows

    def _count_since(self) -> None:
        """Those since the last look took as long as that one."""
        if self._looked_at is not None and self.left < SENDS_A_LOOK:
            code, ms = self._looked_at
            self.add(code, ResponseCode.SUCCESS, ms, SENDS_A_LOOK - self.left)
            self.left = SENDS_A_LOOK
