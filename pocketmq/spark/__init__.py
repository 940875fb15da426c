"""RocketMQ stores and brokers as Spark DataFrames, with PySpark's Python DataSource API only.

    from pocketmq.spark import setup

    setup(spark)                                              # registers the source, checks the set-up
    spark.read.format("pocketmq").load("/data/broker-a/store")
    spark.read.format("pocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()

May import pocketmq.remoting and pocketmq.bulk; executors need these two and this package, numpy and pyarrow.
`balance`, which the driver computes, imports pocketmq.books, too.
"""

from typing import TYPE_CHECKING

from pocketmq.remoting.lazy_names import lazy_names

if TYPE_CHECKING:
    from pocketmq.spark.environment import SetupError, java_problem, session, setup
    from pocketmq.spark.group_balance import balance
    from pocketmq.spark.progress import commit_progress
    from pocketmq.spark.pruned import read
    from pocketmq.spark.source import PocketMQDataSource

__all__ = [
    "PocketMQDataSource",
    "SetupError",
    "balance",
    "commit_progress",
    "java_problem",
    "read",
    "session",
    "setup",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "pocketmq.spark.environment": (
            "SetupError",
            "java_problem",
            "session",
            "setup",
        ),
        "pocketmq.spark.group_balance": ("balance",),
        "pocketmq.spark.progress": ("commit_progress",),
        "pocketmq.spark.pruned": ("read",),
        "pocketmq.spark.source": ("PocketMQDataSource",),
    },
    extra="spark",
)
