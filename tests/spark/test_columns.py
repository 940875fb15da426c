"""What Spark gets of a decoded batch: all its rows, in pieces of about a mebibyte."""

import pyarrow as pa
import pytest

from pocketmq.bulk.columns import schema as bulk_schema
from pocketmq.spark.columns import projection_of, schema_of

MIB = 1 << 20
NAMES = ("topic", "queueId", "queueOffset", "storeTimestamp", "keys", "body", "properties")


def batch_of(sizes: list[int]) -> pa.RecordBatch:
    """Messages with bodies of these sizes; every third has no keys."""
    count = len(sizes)
    columns = [
        pa.array(["orders"] * count),
        pa.array([i % 4 for i in range(count)], pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array(range(count), pa.int64()).cast(bulk_schema.TIMESTAMP),
        pa.array([None if i % 3 == 0 else f"key{i}" for i in range(count)]),
        pa.array([bytes([i % 251]) * size for i, size in enumerate(sizes)]),
        pa.array([{"i": str(i)} if i % 2 else {} for i in range(count)], bulk_schema.STRING_MAP),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=bulk_schema.schema_of(NAMES))


def sent(batch: pa.RecordBatch) -> int:
    """Return the bytes that a batch takes between Python and Spark."""
    out = pa.BufferOutputStream()
    with pa.RecordBatchStreamWriter(out, batch.schema) as writer:
        writer.write_batch(batch)
    return len(out.getvalue())


def pieces_of(batch: pa.RecordBatch, columns: str = ",".join(NAMES)) -> list[pa.RecordBatch]:
    return list(projection_of(schema_of(columns), columns).pieces(batch))


@pytest.mark.parametrize(
    "sizes", [[1024] * 7000, list(range(4000)), [3 * MIB, 10, 2 * MIB, 0, MIB], [0] * 7000]
)
def test_pieces_have_all_rows_in_order(sizes: list[int]) -> None:
    batch = batch_of(sizes)
    pieces = pieces_of(batch)
    assert all(piece.num_rows for piece in pieces)
    assert pa.Table.from_batches(pieces).combine_chunks().equals(pa.table(batch))


def test_a_piece_is_about_1_mib_with_only_its_rows() -> None:
    batch = batch_of([1024] * 7000)
    sizes = [sent(piece) for piece in pieces_of(batch)]
    assert len(sizes) == round(batch.nbytes / MIB) > 6
    assert max(sizes) < 1.2 * MIB
    assert sum(sizes) < sent(batch) + 10_000 * len(sizes)


def test_a_piece_has_few_rows_where_rows_are_small() -> None:
    assert [p.num_rows for p in pieces_of(batch_of([0] * 20_000))] == [10_000] * 2


def test_a_message_larger_than_a_piece_is_one() -> None:
    assert [p.num_rows for p in pieces_of(batch_of([3 * MIB] * 3))] == [1, 1, 1]


def test_a_small_batch_is_one_piece_and_an_empty_one_none() -> None:
    assert [p.num_rows for p in pieces_of(batch_of([100] * 50))] == [50]
    assert pieces_of(batch_of([])) == []


def test_kafka_columns_are_cut_as_well() -> None:
    pieces = pieces_of(batch_of([1024] * 7000), "kafka")
    assert len(pieces) > 6
    table = pa.Table.from_batches(pieces)
    assert table.column_names == schema_of("kafka").fieldNames()
    assert table["headers"][6999].as_py() == [{"key": "i", "value": b"6999"}]
    assert table["value"][6999].as_py() == bytes([6999 % 251]) * 1024
