"""Flow: bytes a second over a connection, RocketMQ's transferredByteInSecond. Source: FlowMonitor, 5.3.3."""


class Flow:
    """total: bytes since creation. Times are monotonic."""

    __slots__ = ("_before", "_here", "_second", "total")

    def __init__(self) -> None:
        self.total = 0
        self._second = 0
        self._here = 0
        self._before = 0

    def add(self, size: int, now_ms: int) -> None:
        self._turn(now_ms)
        self.total += size
        self._here += size

    def per_second(self, now_ms: int) -> int:
        """Return the bytes of the last whole second."""
        self._turn(now_ms)
        return self._before

    def _turn(self, now_ms: int) -> None:
        second = now_ms // 1_000
        if second != self._second:
            self._before = self._here if second == self._second + 1 else 0
            self._second, self._here = second, 0
