"""Latencies: how long requests took, by request and response code.

They are counted by wire/timed.py and wire/sends/send.py. Bounds: RocketMQ 5.3.3's of rocketmq_rpc_latency.

Reading the clock would cost more than 1 % of a plain send: every sixteenth is measured, and stands for those
after it until the next.
"""

from bisect import bisect_left

from pocketmq.remoting.codes import ResponseCode

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
SENDS_A_LOOK = 16
_SUM = len(BOUNDS_MS) + 1
_Rows = dict[tuple[int, int], list[int]]


class Latencies:
    """left: plain sends until the next measured one; the code that answers them counts it down."""

    def __init__(self) -> None:
        self.left = 1
        self._looked_at: tuple[int, int] | None = None
        self._rows: _Rows = {}

    def add(self, code: int, answer: int, ms: int, times: int = 1) -> None:
        """Count `times` requests that took `ms` each."""
        row = self._rows.get((code, answer))
        if row is None:
            row = self._rows[code, answer] = [0] * (_SUM + 1)
        row[bisect_left(BOUNDS_MS, ms)] += times
        row[_SUM] += ms * times

    def look(self, code: int, ms: int) -> None:
        """Count the measured send: it stands for itself, the one before it for those in between."""
        self.left = 1
        self._count_since()
        self.add(code, ResponseCode.SUCCESS, ms)
        self._looked_at = code, ms
        self.left = SENDS_A_LOOK

    def rows(self) -> _Rows:
        """Return, by request and response code, the count per bound, the count beyond, and the sum in ms."""
        self._count_since()
        return self._rows

    def _count_since(self) -> None:
        """Count the sends since the last measured one as taking as long as that."""
        if self._looked_at is not None and self.left < SENDS_A_LOOK:
            code, ms = self._looked_at
            self.add(code, ResponseCode.SUCCESS, ms, SENDS_A_LOOK - self.left)
            self.left = SENDS_A_LOOK
