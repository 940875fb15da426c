"""How a table is partitioned: by the day of store time, or by what `--partition` says.

hour, day, month, year     of storeTimestamp, UTC
topic, brokerName, queueId, tags, bornHost     one partition for each value
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record

from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

DAY = ("day",)
_FIRST_ID = 1000
_OF_TIME: dict[str, Transform[Any, Any]] = {
    "hour": HourTransform(),
    "day": DayTransform(),
    "month": MonthTransform(),
    "year": YearTransform(),
}
_BY_VALUE = ("topic", "brokerName", "queueId", "tags", "bornHost")
_TIME = "storeTimestamp"
_HOUR_US = 3_600_000_000


def checked_partitions(text: str) -> tuple[str, ...]:
    """Return the words of `--partition`, separated by commas. Raises: IllegalArgument.

    >>> checked_partitions("day, queueId")
    ('day', 'queueId')
    """
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in _OF_TIME and word not in _BY_VALUE:
            raise IllegalArgument(
                f"--partition {word}: tables are partitioned by {', '.join((*_OF_TIME, *_BY_VALUE))}"
            )
    if len(set(words)) < len(words) or sum(word in _OF_TIME for word in words) > 1:
        raise IllegalArgument(
            f"--partition {text}: name each column once, and one of {', '.join(_OF_TIME)}"
        )
    return words


def partition_spec(schema: "Schema", words: tuple[str, ...] = DAY) -> PartitionSpec:
    """Return how a new table is partitioned."""
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(_TIME if word in _OF_TIME else word).field_id,
                _FIRST_ID + number,
                _OF_TIME.get(word, IdentityTransform()),
                f"{_TIME}_{word}" if word in _OF_TIME else word,
            )
            for number, word in enumerate(words)
        )
    )


def is_partitioned_by(table: "Table", words: tuple[str, ...]) -> bool:
    """Return whether a table is partitioned by the same."""
    wanted = partition_spec(table.schema(), words)

    def plain(spec: PartitionSpec) -> list[tuple[int, str]]:
        return [(one.source_id, str(one.transform)) for one in spec.fields]

    return plain(table.spec()) == plain(wanted)


def pieces(table: "Table", rows: pa.Table) -> Iterator[tuple[Record, pa.Table]]:
    """Yield the rows of each partition of a table, in their order."""
    schema = table.schema()
    keys: list[pa.Array] = []
    for field in table.spec().fields:
        column = rows.column(schema.find_field(field.source_id).name)
        found = _transformed(column, field.transform).combine_chunks()
        keys.append(found.dictionary_encode(null_encoding="encode"))
    codes = [key.indices.to_numpy() for key in keys]
    if all(len(key.dictionary) <= 1 for key in keys):
        if rows.num_rows:
            yield _record(keys, [0] * len(keys)), rows
        return
    for numbers in np.unique(np.stack(codes, axis=1), axis=0).tolist():
        wanted = np.logical_and.reduce([c == n for c, n in zip(codes, numbers, strict=True)])
        yield _record(keys, numbers), rows.filter(pa.array(wanted))


def _transformed(column: pa.ChunkedArray, transform: Transform[Any, Any]) -> pa.ChunkedArray:
    """Return the values of a partition's field; pyiceberg's own way needs one more package."""
    if isinstance(transform, IdentityTransform):
        return column
    if isinstance(transform, HourTransform | DayTransform):
        unit = _HOUR_US if isinstance(transform, HourTransform) else _HOUR_US * 24
        # Dividing towards zero is right for all times since 1970, and no store has others.
        return pc.divide(column.cast(pa.int64()), unit)
    years = pc.subtract(pc.year(column), 1970)
    if isinstance(transform, YearTransform):
        return years
    if isinstance(transform, MonthTransform):
        return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1))
    raise IllegalArgument(
        f"the table is partitioned by {transform}: pocketmq lake writes {', '.join((*_OF_TIME, *_BY_VALUE))}"
    )


def _record(keys: list[pa.Array], numbers: list[int]) -> Record:
    """Return the values of a partition; those of time as whole numbers since 1970."""
    return Record(*(key.dictionary[n].as_py() for key, n in zip(keys, numbers, strict=True)))
