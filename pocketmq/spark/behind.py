"""How far a stream is behind its brokers, for Spark's progress reports.

Spark's interface for Python sources has no metrics: what a source can show is the latest offset that it
reports with each batch, which appears in the query's `lastProgress`. So the backlog is a part of it:

    {"v": 1, "offsets": {...}, "behind": {"broker-a": {"messages": 120, "seconds": 4.2}}}

messages    stored, and not read when the batch of this report is done
seconds     since the oldest of them was stored; 0 without one, null where its time is not known
"""

from collections.abc import Callable, Sequence
from typing import Any

from pocketmq.bulk.offsets import Offsets, QueueKey, each, lookup

BEHIND = "behind"


def behind(
    newest: Offsets,
    ends: Offsets,
    store_times: Callable[[Sequence[tuple[QueueKey, int]]], Sequence[int | None]],
    now_ms: int,
) -> dict[str, dict[str, Any]]:
    """Return the backlog by the broker's name. newest: ends of the queues; ends: where the batch ends."""
    found: dict[str, dict[str, Any]] = {}
    unread: list[tuple[QueueKey, int]] = []
    for key, newest_end in each(newest):
        broker = found.setdefault(key.broker_name, {"messages": 0, "seconds": 0.0})
        end = lookup(ends, key) or 0
        if end < newest_end:
            broker["messages"] += newest_end - end
            unread.append((key, end))
    for (key, _), stored_ms in zip(unread, store_times(unread), strict=True):
        broker = found[key.broker_name]
        if stored_ms is None or broker["seconds"] is None:
            broker["seconds"] = None
        else:
            broker["seconds"] = max(broker["seconds"], (now_ms - stored_ms) / 1000)
    return found
