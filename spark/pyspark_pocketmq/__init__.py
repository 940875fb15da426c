"""Lets Spark find format("pocketmq") without a register() call: it looks for modules named pyspark_*.

If a broken pyspark_* module is installed, Spark silently finds none of them: then use
`spark.dataSource.register(PocketMQDataSource)` or `pocketmq.spark.setup(spark)`.
"""

from pocketmq.spark.source import PocketMQDataSource


class DefaultSource(PocketMQDataSource):
    """The name that Spark looks for."""
