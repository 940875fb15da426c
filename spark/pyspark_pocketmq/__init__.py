"""Lets Spark find format("pocketmq") without a register() call: it looks for modules named pyspark_*.

If another broken pyspark_* module is installed, Spark finds none of them and says nothing: then
`spark.dataSource.register(PocketMQDataSource)` or `pocketmq.spark.setup(spark)` is the sure way.
"""

from pocketmq.spark.source import PocketMQDataSource


class DefaultSource(PocketMQDataSource):
    """The name that Spark looks for."""
