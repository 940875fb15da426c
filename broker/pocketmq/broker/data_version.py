"""DataVersion: which state a table is in, as peers compare it. Source: DataVersion, RocketMQ 4.9.7."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class DataVersion:
    """timestamp: ms of the last change; counter: number of changes. Both differ from one to the next."""

    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> None:
        """The table has changed."""
        self.timestamp = now_ms
        self.counter += 1

    def to_json(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, data: Any) -> "DataVersion":
        """From a file or a peer; what is missing or no number counts as 0."""
        if not isinstance(data, dict):
            return cls()
        return cls(_number(data.get("timestamp")), _number(data.get("counter")))


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0
