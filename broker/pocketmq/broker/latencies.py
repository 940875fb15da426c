"""Latencies: how long requests took, by their codes and those of their answers. wire/timed.py counts them.

Bounds: RocketMQ 5.3.3's of rocketmq_rpc_latency.
"""

from bisect import bisect_left

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
_SUM = len(BOUNDS_MS) + 1


class Latencies:
    """rows: by code of request and answer the counts of each bound, of what is beyond, and the sum in ms."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], list[int]] = {}

    def add(self, code: int, answer: int, ms: int) -> None:
        """One request that took so long."""
        row = self.rows.get((code, answer))
        if row is None:
            row = self.rows[code, answer] = [0] * (_SUM + 1)
        row[bisect_left(BOUNDS_MS, ms)] += 1
        row[_SUM] += ms
