"""Lets Spark find format("pocketmq") without a register() call: it looks for modules named pyspark_*.

If a broken pyspark_* module is installed, Spark silently finds none of them: then use
`spark.dataSource.register(PocketMQDataSource)` or `pocketmq.spark.setup(spark)`.
"""

from pocketmq.spark.settled import settle
from pocketmq.spark.source import PocketMQDataSource

# The process that looks for modules does nothing else of ours.
settle()


class DefaultSource(PocketMQDataSource):
    """The name that Spark looks for."""
