"""Frames of store folders, and how they are planned."""

from typing import TYPE_CHECKING, Any

from pocketmq.spark.source import PocketMQDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def planned(options: dict[str, str]) -> tuple[Any, list[Any]]:
    """The reader that Spark makes of options, and its partitions."""
    source = PocketMQDataSource(options)
    reader = source.reader(source.schema())
    return reader, list(reader.partitions())


def read_by(reader: Any, partitions: list[Any]) -> list[int]:
    """What tasks read, without Spark."""
    return sorted(
        int(body)
        for partition in partitions
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    )


def numbers(frame: "DataFrame") -> list[int]:
    return sorted(int(bytes(r.body)) for r in frame.select("body").collect())
