"""What every source gives: rows of one topic and broker, in the order of its queues."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.bulk.bodies.columns import BodyColumns


class Rows(NamedTuple):
    """Rows of one topic at one broker, with the columns of columns.NAMES."""

    topic: str
    broker: str
    rows: pa.RecordBatch


@dataclass(frozen=True)
class LogWindow:
    """A piece of a source that is compared as one: low <= column < high of one broker.

    parts: what to read of the source. topics: of which tables; empty: of all. queue: only of this queue.
    high: None: without an end.
    """

    broker: str
    parts: tuple[Any, ...]
    column: str
    low: int
    high: int | None
    topics: tuple[str, ...] = ()
    queue: int | None = None


class OtherLog(PocketMQError):
    """A broker's log does not hold the last record of a table."""

    def __init__(self, topic: str, broker: str, place: int) -> None:
        super().__init__(
            f"the log of broker {broker} has another record at position {place} than the table of topic "
            f"{topic} holds: it was truncated, or it is another broker's. Give each broker's store its own "
            "name with --broker-name, or write to another warehouse"
        )


def with_bodies(rows: pa.RecordBatch, body: "BodyColumns") -> pa.RecordBatch:
    """Return the rows with the columns of their bodies."""
    names = body.schema.names
    columns = body.decode(rows.column("body"), names)
    return pa.RecordBatch.from_arrays([*rows.columns, *columns], [*rows.schema.names, *names])


def by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic; copies, where there are several: a slice would keep the whole batch."""
    topics = pc.unique(batch.column("topic")).to_pylist()
    if len(topics) == 1:
        yield topics[0], batch
        return
    for topic in topics:
        yield topic, batch.filter(pc.equal(batch.column("topic"), topic))
