"""DataVersion: the state of a table, for comparison by peers. Source: DataVersion, RocketMQ 4.9.7, 5.3.3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import number

_NAMES = ("timestamp", "counter", "stateVersion")


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
        """Encode a version; stateVersion, the epoch of a master under a controller, only if there is one."""
        found = {"counter": self.counter, "timestamp": self.timestamp}
        if self.state_version:
            found["stateVersion"] = self.state_version
        return found

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse a version. Raises: HeaderError if it is not an object of numbers of at most 64 bits."""
        if not isinstance(data, Mapping):
            raise HeaderError("a dataVersion is not an object")
        try:
            return cls(*(_long(data.get(name, 0)) for name in _NAMES))
        except (OverflowError, TypeError, ValueError) as error:
            raise HeaderError(
                f"a dataVersion contains something that is no number of 64 bits: {str(data)[:200]}"
            ) from error

    @classmethod
    def of_file(cls, data: Any) -> Self:
        """Parse a version from a table's own file: an unreadable one counts as the first."""
        try:
            return cls.from_json(data)
        except HeaderError:
            return cls()


def _long(value: Any) -> int:
    """Return a number that Java's readers take, too. Raises: OverflowError, TypeError, ValueError."""
    found = number(value)
    if not -(1 << 63) <= found < 1 << 63:
        raise ValueError("more than 64 bits")
    return found
