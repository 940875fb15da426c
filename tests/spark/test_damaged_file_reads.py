"""Batch reads of damaged and of growing stores, of views, and of generated ones."""

import gc
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks import bulk_store
from pocketmq.spark.source import PocketMQDataSource
from pocketmq.spark.stream import HAS_LIMITS
from tests.store.bulk_stores import (
    Message,
    WrittenStore,
    moment,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from tests.spark.file_frames import numbers, planned, read_by

Load = Callable[..., "DataFrame"]


def bad_record(store: WrittenStore, positions: list[int]) -> list[int]:
    """Zeros where a record begins, as a disk leaves a sector that it lost."""
    store.patch(positions[40], b"\0" * 8)
    return [40]


def bad_body(store: WrittenStore, positions: list[int]) -> list[int]:
    """One bit of a body: only its checksum tells."""
    store.patch(positions[41] + 88, b"\xff")
    return [41]


def torn_tail(store: WrittenStore, positions: list[int]) -> list[int]:
    """The last file ends within its last record, as after a copy that was cut off."""
    with store.log_path(positions[-1]).open("r+b") as file:
        file.truncate(positions[-1] % store.log_file_size + 60)
    return [len(positions) - 1]


def hole(store: WrittenStore, positions: list[int]) -> list[int]:
    """A file in the middle is missing."""
    store.log_path(positions[40]).unlink()
    number = positions[40] // store.log_file_size
    return [i for i, p in enumerate(positions) if p // store.log_file_size == number]


def planned_by_stream(options: dict[str, str]) -> tuple[Any, list[Any]]:
    """The reader that Spark makes for a stream, and the partitions of all that is there."""
    source = PocketMQDataSource(options | {"startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    first = reader.initialOffset()
    if HAS_LIMITS:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        last = reader.latestOffset(first, ReadAllAvailable())
    else:
        last = reader.latestOffset()
    return reader, list(reader.partitions(first, last))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (bad_record, "no record where the ConsumeQueue"),
        (bad_body, "does not match its checksum"),
        (torn_tail, "is not whole: it extends past the end of its file"),
        (hole, "deleted before it was read"),
    ],
)
def test_damage_follows_fail_on_data_loss_in_batches_and_streams(
    damage: Callable[[WrittenStore, list[int]], list[int]], reason: str, tmp_path: Path
) -> None:
    """An error with file and position, or every row but the damaged ones; by the readers that Spark calls."""
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=4096)
    positions = store.add(Message(body=b"%d" % i) for i in range(100))
    lost = damage(store, positions)
    left = [i for i in range(100) if i not in lost]
    options = {"path": str(store.root), "verifyCrc": "true", "columns": "body"}
    told = rf"{reason}.*position {positions[lost[0]]}.*failOnDataLoss"
    for ways in (planned, planned_by_stream):
        with pytest.raises(Exception, match=told) as caught:
            read_by(*ways(options))
        assert str(store.log_path(positions[lost[0]])) in str(caught.value)
        assert read_by(*ways(options | {"failOnDataLoss": "false"})) == left


def test_spark_shows_what_a_damaged_store_says(load: Load, tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=4096)
    positions = store.add(Message(body=b"%d" % i) for i in range(100))
    bad_record(store, positions)
    with pytest.raises(Exception, match=rf"no record where.*{positions[40]}.*failOnDataLoss"):
        load(store.root, columns="body").collect()
    left = [i for i in range(100) if i != 40]
    assert numbers(load(store.root, columns="body", failOnDataLoss="false")) == left


def test_a_file_deleted_after_planning_follows_data_loss_rule(load: Load, tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=4096)
    positions = store.add(Message(body=b"%d" % i) for i in range(100))
    strict, lenient = load(store.root), load(store.root, failOnDataLoss="false")
    planned = strict.rdd, lenient.rdd
    store.log_path(positions[0]).unlink()
    with pytest.raises(Exception, match="deleted before it was read"):
        planned[0].collect()
    first = sum(1 for p in positions if p < 4096)
    assert len(planned[1].collect()) == 100 - first
    # Planned anew, the queue simply begins later.
    assert numbers(load(store.root)) == list(range(first, 100))


def test_a_growing_store_is_read_up_to_its_planned_end(load: Load, tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store")
    store.add(Message(body=b"%d" % i) for i in range(50))
    frame = load(store.root).rdd
    assert frame.getNumPartitions() == 1
    store.add(Message(body=b"%d" % i) for i in range(50, 80))
    assert frame.count() == 50
    assert load(store.root).count() == 80


def test_sql_views_take_the_options(spark: "SparkSession", written: WrittenStore) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW messages USING pocketmq OPTIONS "
        f"(path '{written.root}', subscribe 'T', columns 'tags,storeTimestamp')"
    )
    rows = spark.sql("SELECT tags, min(storeTimestamp) AS t FROM messages GROUP BY tags").collect()
    assert {r.tags for r in rows} == set("abcdef")
    first = min(r.t for r in rows)
    assert first == moment(1_700_000_000_000).astimezone().replace(tzinfo=None)


def test_an_empty_store_has_no_rows(load: Load, tmp_path: Path) -> None:
    (tmp_path / "b" / "store" / "commitlog").mkdir(parents=True)
    assert load(tmp_path / "b" / "store").count() == 0


def test_each_row_of_a_generated_store_is_hashed_by_tasks(load: Load, tmp_path: Path) -> None:
    """1 GiB: POCKETMQ_BULK_MIB=1024. The whole of it by the decoder: tests/store/test_bulk_generated.py."""
    mib = int(os.environ.get("POCKETMQ_BULK_MIB", "0"))
    messages = mib * 854 or 12_000
    bulk_store.write_store(tmp_path / "bench", messages, log_file_size=max(mib << 18, 1 << 22))
    noise = bulk_store.body_noise(bulk_store.BODY_SIZE)

    def row(i: int) -> bytes:
        tag, key, stored = f"tag{i % 100:03d}", bulk_store.key_of(i), bulk_store.START_MS + i
        told = f"/bench/{i % 8}/{i // 8}/{tag}/{key}/{i:032X}/{stored}/DefaultCluster"
        return bulk_store.body_of(i, bulk_store.BODY_SIZE, noise) + told.encode()

    columns = "topic,queueId,queueOffset,body,tags,keys,uniqKey,storeTimestamp,properties"
    frame = load(tmp_path / "bench", columns=columns, minPartitions="4")
    told = (
        "concat_ws('/', '', topic, queueId, queueOffset, tags, keys, uniqKey, "
        "unix_millis(storeTimestamp), properties['CLUSTER'])"
    )
    found = frame.selectExpr(
        "count(*)", f"sum(crc32(concat(body, encode({told}, 'UTF-8'))))", "sum(length(body))",
        "count(distinct keys)", "count(distinct tags)", "max(keys)",
    ).collect()[0]  # fmt: skip
    last = max(map(bulk_store.key_of, range(messages)))
    hashes = sum(zlib.crc32(row(i)) for i in range(messages))
    size = messages * bulk_store.BODY_SIZE
    assert tuple(found) == (messages, hashes, size, messages, 100, last)


def test_spark_workers_do_not_collect_imported_objects(
    written: WrittenStore, spark: "SparkSession"
) -> None:
    """It collects after every task, which took as long as a short one."""
    path = str(written.root)

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            source = PocketMQDataSource({"path": path, "columns": "tags"})
            self.inner = source.reader(source.schema())

        def partitions(self) -> Sequence[InputPartition]:
            return list(self.inner.partitions())

        def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
            rows = sum(batch.num_rows for batch in self.inner.read(partition))
            yield rows, gc.get_freeze_count()

    class Counted(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counted"

        def schema(self) -> str:
            return "rows bigint, frozen bigint"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Counted)
    here = gc.get_freeze_count()
    found = spark.read.format("counted").load().collect()
    assert sum(row.rows for row in found) == 600
    assert min(row.frozen for row in found) > 10_000
    # This process is not Spark's.
    assert gc.get_freeze_count() == here
