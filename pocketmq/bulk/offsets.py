"""Offsets of many queues as JSON, and the positions to start and end at.

    {"TopicA": {"broker-a": {"0": 23, "1": -2}}}     topic -> broker -> queue -> next offset to read

-2 means the earliest and -1 the latest offset, as in Kafka's options. Queues that a JSON does not name start
at their earliest and end at their latest offset.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from pocketmq.bulk.errors import DataLoss
from pocketmq.remoting.errors import IllegalArgument, did_you_mean

EARLIEST = -2
LATEST = -1

# The broker name of offsets that omit it, {"TopicA": {"0": 23}}; valid only with a single broker.
THE_BROKER = ""

# So many names stand in an error.
_NAMED_MAX = 10

Offsets = dict[str, dict[str, dict[int, int]]]


class QueueKey(NamedTuple):
    """One queue of one broker."""

    topic: str
    broker_name: str
    queue_id: int


class Bounds(Protocol):
    """What is known of a queue when planning a read, from files or from a broker."""

    @property
    def key(self) -> QueueKey: ...

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    def at_time(self, ms: int) -> int | None:
        """Return the first offset whose message was stored at `ms` or later; None if all are older."""
        ...


@dataclass(frozen=True)
class Positions:
    """Where to begin or end: a word, offsets, or times (which take precedence), for all queues or each.

    word: "earliest" or "latest". strategy: what happens if no message is as late as the wanted time,
    "error" or "latest".
    """

    word: str = "earliest"
    offsets: Offsets | None = None
    ms: int | None = None
    ms_by_queue: Offsets | None = None
    strategy: str = "error"

    def ms_of(self, key: QueueKey) -> int | None:
        """Return the time wanted of a queue."""
        own = lookup(self.ms_by_queue, key)
        return self.ms if own is None else own

    def of_brokers(self, names: Collection[str]) -> "Positions":
        """Return the same with the broker's name filled in where it was left out.

        Raises: IllegalArgument if there is not exactly one.
        """
        if not (_leaves_out(self.offsets) or _leaves_out(self.ms_by_queue)):
            return self
        if len(names) != 1:
            found = ", ".join(sorted(names)) or "none"
            raise IllegalArgument(
                'offsets that name no broker, {"topic":{"queue":offset}}, need one broker; there are '
                f'{found}: {{"topic":{{"broker":{{"queue":offset}}}}}}'
            )
        (name,) = names
        return replace(
            self,
            offsets=_with_name(self.offsets, name),
            ms_by_queue=_with_name(self.ms_by_queue, name),
        )


def _leaves_out(offsets: Offsets | None) -> bool:
    return any(THE_BROKER in brokers for brokers in (offsets or {}).values())


def _with_name(offsets: Offsets | None, name: str) -> Offsets | None:
    if offsets is None:
        return None
    return {
        topic: {broker or name: queues for broker, queues in brokers.items()}
        for topic, brokers in offsets.items()
    }


def lookup(offsets: Offsets | None, key: QueueKey) -> int | None:
    """Return the value for a queue, None if it is not named."""
    if offsets is None:
        return None
    return offsets.get(key.topic, {}).get(key.broker_name, {}).get(key.queue_id)


def store_at(offsets: Offsets, key: QueueKey, value: int) -> None:
    """Put a value into the nested maps."""
    offsets.setdefault(key.topic, {}).setdefault(key.broker_name, {})[key.queue_id] = value


def each(offsets: Offsets) -> Iterable[tuple[QueueKey, int]]:
    """Yield all queues and values, in a fixed order."""
    for topic in sorted(offsets):
        for broker in sorted(offsets[topic]):
            for queue_id in sorted(offsets[topic][broker]):
                yield QueueKey(topic, broker, queue_id), offsets[topic][broker][queue_id]


def to_json(offsets: Offsets) -> dict[str, Any]:
    """Return plain JSON values with sorted keys, since Spark compares offsets as text."""
    result: dict[str, Any] = {}
    for key, value in each(offsets):
        result.setdefault(key.topic, {}).setdefault(key.broker_name, {})[str(key.queue_id)] = value
    return result


def parse_offsets(text: str, option: str, *, minimum: int = EARLIEST) -> Offsets:
    """Parse offsets from JSON text or a parsed object. Raises: IllegalArgument that names the option."""
    shape = '{"topic":{"broker":{"queue":offset}}}'
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise IllegalArgument(
            f"{option} must be JSON like {shape}, not {text!r}: {error}"
        ) from None
    return offsets_of(raw, option, minimum=minimum)


def offsets_of(raw: Any, option: str, *, minimum: int = EARLIEST) -> Offsets:
    """Read offsets from parsed JSON. Raises: IllegalArgument that names the option and the bad place."""
    result: Offsets = {}

    def fail(where: str) -> IllegalArgument:
        return IllegalArgument(
            f'{option} must be JSON like {{"topic":{{"broker":{{"queue":offset}}}}}}: {where}'
        )

    if not isinstance(raw, dict):
        raise fail("the outermost value is not an object")
    for topic, brokers in raw.items():
        if not isinstance(brokers, dict):
            raise fail(f"the value of topic {topic!r} is not an object of brokers")
        if brokers and all(str(b).isdecimal() and type(o) is int for b, o in brokers.items()):
            brokers = {THE_BROKER: brokers}
        for broker, queues in brokers.items():
            if not isinstance(queues, dict):
                raise fail(
                    f"the value of broker {broker!r} of topic {topic!r} is not an object of queues"
                )
            for queue, offset in queues.items():
                if not str(queue).isdecimal() or isinstance(offset, bool):
                    raise fail(f"queue {queue!r} of topic {topic!r} is not a number")
                if not isinstance(offset, int) or offset < minimum:
                    raise fail(
                        f"{offset!r} of topic {topic!r} queue {queue} is not a whole number of at "
                        f"least {minimum}"
                    )
                store_at(result, QueueKey(topic, broker, int(queue)), offset)
    return result


def check_known(
    bounds: Collection[QueueKey], wanted: Positions, option: str, loss: "LossRule"
) -> None:
    """Check that positions name what is read. option: `starting` or `ending`.

    Raises: IllegalArgument for a topic, broker or queue that is not among `bounds`, with those that are. With
    failOnDataLoss=false it is recorded.
    """
    for offsets, name in (
        (wanted.offsets, f"{option}Offsets"),
        (wanted.ms_by_queue, f"{option}OffsetsByTimestamp"),
    ):
        for key, offset in each(offsets or {}):
            if key in bounds:
                continue
            wrong = _unknown_name(bounds, key) or _unknown_queue(bounds, key, offset)
            if wrong and loss.fail:
                raise IllegalArgument(f"{name} names {wrong}")
            if wrong:
                loss.lost(f"{name} names {wrong}")


def check_assigned(
    assigned: Mapping[str, Mapping[str, Iterable[int]]], bounds: Collection[QueueKey]
) -> None:
    """Refuse queues of option `assign` that do not exist: they would be no rows, without a word.

    Raises: IllegalArgument.
    """
    for topic, brokers in assigned.items():
        for broker, ids in brokers.items():
            missing = [i for i in ids if QueueKey(topic, broker, i) not in bounds]
            if missing:
                numbers = ", ".join(map(str, missing))
                raise IllegalArgument(
                    f"assign names topic {topic}, broker {broker}, queue {numbers}, which does not exist"
                )


def _unknown_name(bounds: Collection[QueueKey], key: QueueKey) -> str:
    """Return what is wrong with the topic or broker of a key; an empty text if there are such queues."""
    topics = {one.topic for one in bounds}
    if key.topic not in topics:
        near = did_you_mean(key.topic, topics)
        return f"topic {key.topic!r}{near}, which is not read. {_listed('topic', topics)}"
    brokers = {one.broker_name for one in bounds if one.topic == key.topic}
    if key.broker_name in brokers:
        return ""
    near = did_you_mean(key.broker_name, brokers)
    return (
        f"broker {key.broker_name!r}{near}, which has no queue of topic {key.topic!r} that is read. "
        f"{_listed('broker', brokers)}"
    )


def _unknown_queue(bounds: Collection[QueueKey], key: QueueKey, offset: int) -> str:
    """Return what is wrong with the queue of a key; an empty text for a word (-1, -2) about a queue that may
    not have begun.
    """
    if offset < 0:
        return ""
    known = (one.queue_id for one in bounds if one[:2] == key[:2])
    numbers = ", ".join(map(str, sorted(known)))
    return (
        f"queue {key.queue_id} of topic {key.topic!r} on broker {key.broker_name!r}, which does not exist or "
        f"is not read. Its queues are {numbers}"
    )


def _listed(what: str, names: Collection[str]) -> str:
    shown = sorted(names)[:_NAMED_MAX]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"Read are the {what}s {', '.join(shown)}{more}" if shown else f"No {what} is read"


def starting_offset(bounds: Bounds, wanted: Positions, loss: "LossRule") -> int:
    """Return where to begin in this queue, within its bounds."""
    key = bounds.key
    ms = wanted.ms_of(key)
    if ms is not None:
        found = bounds.at_time(ms)
        if found is not None:
            return found
        if wanted.strategy == "latest" or bounds.min_offset == bounds.max_offset:
            return bounds.max_offset
        raise IllegalArgument(
            f"no message of topic {key.topic}, broker {key.broker_name}, queue {key.queue_id} was stored "
            f"at {ms} ms or later. Set startingOffsetsByTimestampStrategy to latest to begin such "
            "queues at their end"
        )
    offset = lookup(wanted.offsets, key)
    if offset is None:
        latest = wanted.offsets is None and wanted.word == "latest"
        return bounds.max_offset if latest else bounds.min_offset
    if offset == EARLIEST:
        return bounds.min_offset
    if offset == LATEST:
        return bounds.max_offset
    return checked_start(bounds, offset, loss)


def checked_start(bounds: Bounds, offset: int, loss: "LossRule") -> int:
    """Return a wanted start, or what LossRule makes of one outside the queue."""
    key = bounds.key
    what = f"topic {key.topic}, broker {key.broker_name}, queue {key.queue_id}"
    if offset < bounds.min_offset:
        loss.lost(
            f"{what}: offset {offset} is wanted, but the queue begins at {bounds.min_offset}: "
            f"{bounds.min_offset - offset} messages have been deleted"
        )
        return bounds.min_offset
    if offset > bounds.max_offset:
        loss.lost(
            f"{what}: offset {offset} is wanted, but the queue ends at {bounds.max_offset}: it "
            f"was truncated or recreated, or the offset was never reached"
        )
        return bounds.max_offset
    return offset


def ending_offset(bounds: Bounds, wanted: Positions, loss: "LossRule") -> int:
    """Return where to end (exclusive) in this queue, within its bounds."""
    key = bounds.key
    ms = wanted.ms_of(key)
    if ms is not None:
        found = bounds.at_time(ms)
        return bounds.max_offset if found is None else found
    offset = lookup(wanted.offsets, key)
    if offset is None or offset == LATEST:
        return bounds.max_offset
    if offset == EARLIEST:
        return bounds.min_offset
    if offset > bounds.max_offset:
        loss.lost(
            f"topic {key.topic}, broker {key.broker_name}, queue {key.queue_id}: endingOffsets wants "
            f"{offset}, but the queue ends at {bounds.max_offset}"
        )
        return bounds.max_offset
    return max(offset, bounds.min_offset)


@dataclass
class LossRule:
    """failOnDataLoss: raise at once, or record the loss and continue."""

    fail: bool = True

    def __post_init__(self) -> None:
        self.losses: list[str] = []

    def lost(self, reason: str, file: str = "", position: int = -1) -> None:
        """Record a loss. Raises: DataLoss if `fail`."""
        error = DataLoss(reason, file, position)
        if self.fail:
            raise error
        self.losses.append(f"{reason} (file {file}, position {position})" if file else reason)
