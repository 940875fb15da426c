"""DataVersion: the state of a table, for comparison by peers. Source: DataVersion, RocketMQ 4.9.7, 5.3.3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pocketmq.remoting.errors import HeaderError


@dataclass(frozen=True, slots=True)
class DataVersion:
    """timestamp: ms of the last change; counter: number of changes; equal if all three are."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """Return the version of the table after one more change."""
        return DataVersion(now_ms, self.counter + 1, self.state_version)

    def to_json(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse a version. Raises: HeaderError if it is not an object of numbers."""
        if not isinstance(data, Mapping):
            raise HeaderError("a dataVersion is not an object")
        try:
            return cls(
                int(data.get("timestamp", 0)),
                int(data.get("counter", 0)),
                int(data.get("stateVersion", 0)),
            )
        except (TypeError, ValueError) as error:
            raise HeaderError(
                f"a dataVersion contains something that is not a number: {data!r}"
            ) from error

    @classmethod
    def of_file(cls, data: Any) -> Self:
        """Parse a version from a table's own file: an unreadable one counts as the first."""
        try:
            return cls.from_json(data)
        except HeaderError:
            return cls()
