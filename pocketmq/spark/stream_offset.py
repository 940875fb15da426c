"""The offset of a stream, as Spark keeps it in the checkpoint.

    {"v":1,"offsets":{"topic":{"broker":{"queue":next offset}}},
     "stores":{"broker":[first byte of a log file, digest of its head]},
     "topics":{"topic":{"broker":[queue, offset, position in the log]}}}
                             or [queue, offset, store time, checksum of the body] over brokers

An offset says what is read next; keys are sorted, since Spark compares offsets as text. `stores` says
which store it was, by the newest log file; `topics` which topic, by a message that was read last, for one
of that name may be made again and grow past the offset. They change only together with an offset, unless
another store or topic was found.

Spark's interface for Python sources has no metrics: what a source can show is the latest offset that it
reports with each batch, which appears in the query's `lastProgress`. So the backlog is a part of that one:

    {"v":1,"offsets":{...},"behind":{"broker-a":{"messages":120,"seconds":4.2}}}

messages    stored, and not read when the batch of this report is done
seconds     since the oldest of them was stored; 0 without one, null where its time is not known
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pocketmq.bulk.offsets import Offsets, QueueKey, each, lookup, offsets_of, to_json
from pocketmq.remoting.errors import IllegalArgument

_VERSION = 1
BEHIND = "behind"
# By the broker's name: what identifies its store.
Stores = dict[str, list[Any]]
# (topic, broker's name).
TopicKey = tuple[str, str]
# A mark of a checkpoint that named its topic beside the broker.
_NAMED_MARK_SIZE = 5


class OffsetScope(NamedTuple):
    """Of which stores and topics offsets are."""

    stores: Stores
    topics: dict[TopicKey, list[Any]]


def to_offset(offsets: Offsets, seen: OffsetScope | None = None) -> dict[str, Any]:
    """Return the value that Spark stores."""
    value: dict[str, Any] = {"offsets": to_json(offsets), "v": _VERSION}
    if seen is not None and seen.stores:
        value["stores"] = dict(sorted(seen.stores.items()))
    if seen is not None and seen.topics:
        topics: dict[str, dict[str, list[Any]]] = {}
        for (topic, broker_name), mark in sorted(seen.topics.items()):
            topics.setdefault(topic, {})[broker_name] = mark
        value["topics"] = topics
    return value


def seen_of(value: Mapping[str, Any]) -> OffsetScope:
    """Return of what an offset is; nothing is known of one of an earlier version."""
    seen = OffsetScope({}, {})
    for broker_name, known in value.get("stores", {}).items():
        if len(known) == _NAMED_MARK_SIZE:
            seen.topics[known[0], broker_name] = known[1:]
        else:
            seen.stores[broker_name] = known
    for topic, brokers in value.get("topics", {}).items():
        seen.topics.update({(topic, broker_name): mark for broker_name, mark in brokers.items()})
    return seen


def from_offset(value: Mapping[str, Any]) -> Offsets:
    """Parse it. Raises: IllegalArgument for a checkpoint that another version or source wrote."""
    if not isinstance(value, dict) or value.get("v") != _VERSION or "offsets" not in value:
        raise IllegalArgument(
            "cannot continue from the checkpoint: this version does not know its offset "
            f"{value!r}. Start the query with a new checkpointLocation, or with the version that "
            "wrote it"
        )
    return offsets_of(value["offsets"], "the checkpoint's offset", minimum=0)


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
