"""PySpark's daemon, made quiet before it starts its first process: pocketmq.spark.settled says why.

Spark starts it as spark.python.daemon.module, which pocketmq.spark.home sets.
"""

from pyspark import daemon

from pocketmq.spark.settled import quiet


def main() -> None:
    """Run until Spark closes the standard input."""
    daemon.worker = quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
