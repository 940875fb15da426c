"""What a group has popped and not acknowledged, by the revive log in the files of a store of PocketMQ's.

The records are those of broker/pop/check_point.py: "ck" names the offsets of a pop, "ack" and "bAck" those
that were acknowledged. An Apache broker's timer holds its newest ones back, so its log is not read.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pocketmq.books.stored_queues import StoredQueues
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import REVIVE_TOPIC_PREFIX
from pocketmq.remoting import fastjson

Name = tuple[Any, ...]


def receipts(
    store: StoredQueues, group: str, firsts: Mapping[str, Mapping[int, int]]
) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and offset of each message that is popped and not acknowledged.

    firsts: by topic and queue of the log, the offset before which all is finished.
    """
    out: dict[Name, set[int]] = {}
    for topic in store.topics(REVIVE_TOPIC_PREFIX):
        for queue_id in store.queues(topic):
            first = firsts.get(topic, {}).get(queue_id, 0)
            for _, record in store.records(topic, queue_id, first):
                with suppress(fastjson.FastjsonError, KeyError, TypeError, ValueError):
                    _enter(
                        out, get_property(record.properties, b"TAGS"), fastjson.loads(record.body)
                    )
    for name, offsets in out.items():
        if name[1] == group:
            for offset in sorted(offsets):
                yield name[0], name[2], offset


def _enter(out: dict[Name, set[int]], tag: bytes | None, data: Mapping[str, Any]) -> None:
    name = tuple(data[field] for field in ("t", "c", "q", "so", "pt"))
    if tag == b"ck":
        steps = data.get("d") or range(int(data["n"]))
        bits = int(data.get("bm") or 0)
        out[name] = {
            int(data["so"]) + int(step) for place, step in enumerate(steps) if not bits >> place & 1
        }
    else:
        out.get(name, set()).difference_update(data["aol"] if "aol" in data else [data["ao"]])
