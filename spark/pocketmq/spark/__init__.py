"""RocketMQ stores and brokers as Spark DataFrames, with PySpark's Python DataSource API only.

    from pocketmq.spark import setup

    setup(spark)                                              # registers the source, checks the set-up
    spark.read.format("pocketmq").load("/data/broker-a/store")
    spark.read.format("pocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()

May import pocketmq.remoting and pocketmq.bulk; executors need these two and this package, numpy and pyarrow.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.spark.environment import SetupError, java_problem, session, setup
    from pocketmq.spark.progress import commit_progress
    from pocketmq.spark.pruned import read
    from pocketmq.spark.source import PocketMQDataSource

__all__ = [
    "PocketMQDataSource",
    "SetupError",
    "commit_progress",
    "java_problem",
    "read",
    "session",
    "setup",
]

_HOME = {
    "PocketMQDataSource": "source",
    "SetupError": "environment",
    "commit_progress": "progress",
    "java_problem": "environment",
    "read": "pruned",
    "session": "environment",
    "setup": "environment",
}


def __getattr__(name: str) -> Any:
    # Spark starts a Python process for each plan: what it does not use is not imported.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"pocketmq.spark.{_HOME[name]}"), name)
    raise AttributeError(name)
