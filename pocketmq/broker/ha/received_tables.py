"""Validates the tables received from a master before anything is replaced; no I/O.

Any client of a name server may claim to be the master, and a real master may be broken: an invalid table is
refused as a whole, and the slave keeps its own.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pocketmq.model.queue_json import message_queue
from pocketmq.model.tables import ROUTE_QUEUES_MAX, GroupConfig, TopicConfig
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.java_number import number
from pocketmq.store.timer.check import TimerCheck
from pocketmq.store.timer.wheel import SLOTS

R = TypeVar("R")

_INT, _LONG = 1 << 31, 1 << 63


class MasterRefused(PocketMQError):
    """The master refused a slave's request, or its answer is unusable."""


@contextmanager
def readable(what: str = "the master's own tables") -> Iterator[None]:
    """Raises: MasterRefused, naming the table, for errors of reading one."""
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise MasterRefused(f"cannot read {what}: {str(error)[:200] or error!r}") from error


def long(value: Any) -> int:
    """Return a number that Java could have written, and read. Raises: TypeError, ValueError."""
    return _within(value, _LONG)


def _within(value: Any, limit: int) -> int:
    found = number(value)
    if not -limit <= found < limit:
        raise ValueError(f"{str(found)[:40]} has more than {limit.bit_length()} bits")
    return found


def offsets(data: Any) -> dict[str, dict[int, int]]:
    """Read an `offsetTable`; an offset below 0 is absent. Raises: as `readable` says."""
    return offset_rows(data["offsetTable"])


def queue_ends(data: Any) -> dict[int, int]:
    """Read where a topic's queues end, by queue id. Raises: as `readable` says."""
    return {
        message_queue(key).queue_id: long(row["maxOffset"])
        for key, row in data["offsetTable"].items()
    }


def offset_rows(table: Any) -> dict[str, dict[int, int]]:
    """Read offsets by queue id by name. Raises: as `readable` says."""
    found: dict[str, dict[int, int]] = {}
    for key, queues in table.items():
        row = found[str(key)] = {}
        for queue_id, offset in queues.items():
            queue = _within(queue_id, _INT)
            if queue < 0:
                raise ValueError(f"there is no queue {queue}")
            if (place := long(offset)) >= 0:
                row[queue] = place
    return found


def levels(data: Any) -> dict[int, int]:
    """Read the offsets of delay levels; {} if the master has no delay levels. Raises: as `readable` says."""
    table = (data.get("offsetTable") if isinstance(data, Mapping) else None) or {}
    found = {_within(level, _INT): long(offset) for level, offset in table.items()}
    return {level: offset for level, offset in found.items() if level > 0 <= offset}


def timer_check(data: bytes, now_ms: int) -> TimerCheck | None:
    """Read the progress of the master's timers, if it has any. Raises: MasterRefused."""
    if len(data) < 56:
        return None
    check = TimerCheck.unpack(data)
    # Further ahead than the wheel reaches: all that waits here would count as delivered.
    if not 0 <= check.read_ms <= now_ms + SLOTS * 1000:
        raise MasterRefused(f"invalid timer position from the master: {check.read_ms} ms")
    return check


def is_known(data: Any, version: Mapping[str, int]) -> bool:
    """Return True if the master's table has the version that we have. Raises: MasterRefused."""
    if not isinstance(data, Mapping):
        raise MasterRefused("a table of the master is not a JSON object")
    theirs = data.get("dataVersion")
    return isinstance(theirs, Mapping) and all(
        theirs.get(name) == value for name, value in version.items()
    )


def topics(data: Mapping[str, Any]) -> dict[str, TopicConfig]:
    """Read a table of topics. Raises: MasterRefused."""

    def topic(name: str, row: Any) -> TopicConfig:
        found = TopicConfig.from_json(row)
        for each in (found.read_queues, found.write_queues, found.perm, found.sys_flag):
            _within(each, _INT)
        _check_row(name, found.topic, max(found.read_queues, found.write_queues))
        return found

    return _rows(data, "topicConfigTable", topic)


def groups(data: Mapping[str, Any]) -> dict[str, GroupConfig]:
    """Read a table of groups. Raises: MasterRefused."""

    def group(name: str, row: Any) -> GroupConfig:
        found = GroupConfig.from_json(row)
        _within(found.retry_max_times, _INT)
        long(found.broker_id)
        long(found.which_broker_when_consume_slowly)
        _check_row(name, found.group, found.retry_queues)
        return found

    return _rows(data, "subscriptionGroupTable", group)


def _check_row(name: str, named: str, queues: int) -> None:
    """Raises: ValueError."""
    if name != named:
        raise ValueError(f"{name[:100]!r} is named {named[:100]!r}")
    # More than that no client would make, and each look at the topic would take its time.
    if queues > ROUTE_QUEUES_MAX:
        raise ValueError(f"{name[:100]!r} has {queues} queues")


def _rows(data: Mapping[str, Any], name: str, parse: Callable[[str, Any], R]) -> dict[str, R]:
    with readable(f"{name} of the master"):
        return {str(key): parse(str(key), row) for key, row in data[name].items()}
