"""Two tables: `messages` grows by what the store has got since the last run, `by_tag` is computed from it."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

STORE = os.environ.get("POCKETMQ_STORE", "/data/*/store")
spark = SparkSession.active()


@dp.table(comment="Each message once.")
def messages() -> DataFrame:
    return (
        spark.readStream.format("pocketmq")
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")
        .option(
            "columns", "brokerName,queueId,queueOffset,tags,storeTimestamp,id,amount,_body_error"
        )
        .option("bodySchema", "id BIGINT, amount DOUBLE")
        .load(STORE)
    )


@dp.materialized_view(comment="Messages and their amounts by tag.")
def by_tag() -> DataFrame:
    return (
        spark.read.table("messages")
        .groupBy("tags")
        .agg(f.count("*").alias("messages"), f.sum("amount").alias("amount"))
    )
