"""Totals for each key of a topic, in an Iceberg table that a stream keeps up to date, exactly once.

    python examples/spark_upsert_iceberg.py /data/broker-a/store Orders /lake

The batch's number is committed together with its rows. A query that was killed between this commit and
Spark's own begins with the same batch again, and finds the number there. Needs the extra `lake`.
"""

import argparse

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from pocketmq.spark import session

COLUMNS = pa.schema([("key", pa.string()), ("messages", pa.int64()), ("amount", pa.float64())])


def open_catalog(warehouse: str) -> Catalog:
    return SqlCatalog(
        "totals", uri=f"sqlite:///{warehouse}/totals.db", warehouse=f"file://{warehouse}"
    )


def open_table(catalog: Catalog) -> Table:
    catalog.create_namespace_if_not_exists("orders")
    return catalog.create_table_if_not_exists("orders.totals", COLUMNS)


def with_held(table: Table, added: pa.Table) -> pa.Table:
    """The totals of these keys after a batch: what the table holds of them, and what the batch adds."""
    keys = added.column("key").to_pylist()
    held = table.scan(In("key", keys)).to_arrow().cast(COLUMNS)
    sums = (
        pa.concat_tables([held, added])
        .group_by("key")
        .aggregate([("messages", "sum"), ("amount", "sum")])
    )
    return (
        sums.select(["key", "messages_sum", "amount_sum"])
        .rename_columns(COLUMNS.names)
        .cast(COLUMNS)
    )


def upsert(catalog: Catalog, batch: DataFrame, number: int) -> None:
    """Add a batch to the table, unless it is there already."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    table = open_table(catalog)
    mark = f"spark.batch.{query}"
    if int(table.properties.get(mark, -1)) >= number:
        return
    added = batch.groupBy("key").agg(
        f.count("*").alias("messages"), f.sum("amount").alias("amount")
    )
    rows = with_held(table, added.toArrow().cast(COLUMNS))
    with table.transaction() as change:
        if rows.num_rows:
            change.upsert(rows, ["key"])
        change.set_properties({mark: str(number)})


def follow(
    spark: SparkSession, path: str, topic: str, warehouse: str, **options: str
) -> StreamingQuery:
    """Bring the table up to date, and end."""
    catalog = open_catalog(warehouse)
    orders = (
        spark.readStream.format("pocketmq")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("bodySchema", "amount DOUBLE")
        .option("columns", "keys,amount")
        .options(**options)
        .load(path)
        .selectExpr("keys AS key", "amount")
        .where("key IS NOT NULL")
    )
    return (
        orders.writeStream.foreachBatch(lambda batch, number: upsert(catalog, batch, number))
        .option("checkpointLocation", f"{warehouse}/totals-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    parser.add_argument("topic")
    parser.add_argument("warehouse", help="folder of the table, its catalog and the checkpoint")
    given = parser.parse_args()
    follow(session(), given.path, given.topic, given.warehouse).awaitTermination()
    print(open_table(open_catalog(given.warehouse)).scan().to_arrow().to_pandas())


if __name__ == "__main__":
    main()
