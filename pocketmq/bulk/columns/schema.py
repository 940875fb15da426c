"""The columns of a bulk read, as one table: name, Arrow type, source of the value.

Arrow types are Spark's own (binary, string, timestamp[us, UTC], map<string, string>), everything is
nullable, so that a batch goes into Spark, pandas, DuckDB or Polars as it is.

    part     what has to be read for the column
    queue    the ConsumeQueue alone: no byte of the commit log is read
    record   the fixed part of the record (up to 124 bytes)
    body     the fixed part and the body
    props    the fixed part and the properties
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import nearest

TIMESTAMP = pa.timestamp("us", tz="UTC")
STRING_MAP = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `standard`: part of the set that is read if no columns are named."""

    name: str
    type: pa.DataType
    part: str
    standard: bool
    help: str


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("topic", pa.string(), "queue", True, "topic of the record"),
        Column(
            "brokerName", pa.string(), "queue", True, "name of the broker, see option brokerName"
        ),
        Column("queueId", pa.int32(), "queue", True, "queue of the topic"),
        Column("queueOffset", pa.int64(), "queue", True, "index in the queue"),
        Column(
            "body",
            pa.binary(),
            "body",
            True,
            "body, decompressed unless option decompress is false",
        ),
        Column("tags", pa.string(), "props", True, "property TAGS"),
        Column("keys", pa.string(), "props", True, "property KEYS, keys separated by spaces"),
        Column(
            "properties",
            STRING_MAP,
            "props",
            True,
            "all properties; the last one if a name repeats",
        ),
        Column("flag", pa.int32(), "record", True, "the producer's own flag"),
        Column("bornTimestamp", TIMESTAMP, "record", True, "when the producer created it"),
        Column("storeTimestamp", TIMESTAMP, "record", True, "when the broker stored it"),
        Column("commitLogOffset", pa.int64(), "queue", False, "position in the commit log, bytes"),
        Column("storeSize", pa.int32(), "queue", False, "size of the record, bytes"),
        Column("sysFlag", pa.int32(), "record", False, "transaction, compression and host bits"),
        Column("reconsumeTimes", pa.int32(), "record", False, "how often it was sent back"),
        Column("bodyCrc", pa.int32(), "record", False, "CRC-32 of the stored body, 31 bits"),
        Column(
            "preparedTransactionOffset", pa.int64(), "record", False, "position of its half record"
        ),
        Column("bornHost", pa.string(), "record", False, "producer, ip:port"),
        Column("storeHost", pa.string(), "record", False, "broker, ip:port"),
        Column("msgId", pa.string(), "record", False, "offset id: hex of store host and position"),
        Column(
            "uniqKey", pa.string(), "props", False, "property UNIQ_KEY: the client's message id"
        ),
        Column(
            "tagsCode",
            pa.int64(),
            "queue",
            False,
            "code in the ConsumeQueue: hash of the tag, or the delivery time in SCHEDULE_TOPIC_XXXX; "
            "where no ConsumeQueue was read, the tag's hash, and null in SCHEDULE_TOPIC_XXXX",
        ),
        Column("propertiesRaw", pa.string(), "props", False, "properties as stored"),
    )
}

STANDARD = tuple(c.name for c in COLUMNS.values() if c.standard)
ALL = tuple(COLUMNS)


def resolve(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the column names of `None` (the standard set), "all", a comma list or a list of names.

    Raises: IllegalArgument that lists the names, for one that does not exist or occurs twice.
    """
    if names is None:
        return STANDARD
    if isinstance(names, str):
        if names.strip() == "all":
            return ALL
        names = [name.strip() for name in names.split(",") if name.strip()]
    found: list[str] = []
    for name in names:
        if name not in COLUMNS:
            raise IllegalArgument(
                f"columns: there is no column {name!r}{nearest(name, COLUMNS)}; the columns are "
                + ", ".join(COLUMNS)
            )
        if name in found:
            raise IllegalArgument(f"column {name!r} is named twice")
        found.append(name)
    if not found:
        raise IllegalArgument(
            "option option columns names no column; the columns are " + ", ".join(COLUMNS)
        )
    return tuple(found)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, all nullable."""
    return pa.schema([pa.field(name, COLUMNS[name].type) for name in columns])


def parts_of(columns: Iterable[str]) -> frozenset[str]:
    """Return the parts of the records that these columns need."""
    return frozenset(COLUMNS[name].part for name in columns)
