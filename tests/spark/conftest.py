"""One Spark session for all tests of this folder: starting one costs more than most tests."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.jvm import SHORT_LIVED_JVM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.interop.brokers import RunningBroker
    from tests.store.bulk_stores import WrittenStore

    Load = Callable[..., DataFrame]

# How often brokers, drivers and executors are killed in the tests that do so: each task of the cluster loses
# its executor once, and a driver dies as often with a batch planned as with one done. 20 for the figures.
KILLS = int(os.environ.get("POCKETMQ_SPARK_KILLS", "8"))

# For the processes of the *_child.py, too, which are run by path and find it in their environment.
_JVM = " ".join(SHORT_LIVED_JVM)
CHILD_ENV = os.environ | {"SHORT_LIVED_JVM": _JVM}
CONF = {
    "spark.driver.extraJavaOptions": _JVM,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Of the Connect server that a test starts in this JVM: any free one.
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    # A crowded machine starts planners slowly; that is not what is tested.
    "spark.network.timeout": "600s",
    "spark.python.authenticate.socketTimeout": "120s",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import pyspark

    if pyspark.__version__.startswith("4.0"):
        # PySpark 4.0 leaves the sockets of its own collect() to the garbage collector.
        for item in items:
            if "spark" in item.path.parts:
                item.add_marker(
                    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
                )


def need_java() -> None:
    """Skips without Java at home, fails in CI."""
    from pocketmq.spark import java_problem

    problem = java_problem()
    if problem:
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with two threads, the source registered."""
    pytest.importorskip("pyspark")
    need_java()
    from pocketmq.spark import session

    scratch = tmp_path_factory.mktemp("spark")
    made = session(
        "local[2]",
        app_name="pocketmq-tests",
        conf=CONF | {"spark.sql.warehouse.dir": str(scratch), "spark.local.dir": str(scratch)},
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture
def pushing(spark: "SparkSession") -> Iterator["SparkSession"]:
    """The session with push-down on, which is right for frames that are used once."""
    from pocketmq.spark import setup

    setup(spark, push_filters=True)
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    setup(spark)


BROKER_CONF = {
    "enablePropertyFilter": "true",
    # RocketMQ's own levels: those of the interop tests are all over in a second or two.
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
}
BROKERS = ["pocketmq", pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference)]


@pytest.fixture(scope="session", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["RunningBroker"]:
    """A running broker that the tests of this folder share; with --reference also the real one."""
    from tests.interop.brokers import make_broker
    from tests.interop.toolchain import ToolchainMissing

    folder = tmp_path_factory.mktemp("broker") / request.param
    try:
        made = make_broker(request.param, folder, config=BROKER_CONF)
        made.start()
    except ToolchainMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    yield made
    made.kill()


@pytest.fixture
def load(spark: "SparkSession") -> "Load":
    """Reads store folders."""

    def load(path: Path | list[str], **options: Any) -> "DataFrame":
        given = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
        where = path if isinstance(path, list) else str(path)
        return spark.read.format("pocketmq").options(**given).load(where)

    return load


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> "WrittenStore":
    """600 messages of two topics in three queues each, tags a to f, one second apart, several log files."""
    from tests.store.bulk_stores import Message, WrittenStore

    root = tmp_path_factory.mktemp("broker-a") / "store"
    store = WrittenStore(root, log_file_size=40_000, queue_file_entries=64)
    store.add(
        Message(
            topic="T" if i % 2 == 0 else "U",
            queue_id=i // 2 % 3,
            body=b"%d" % i,
            properties=f"TAGS\x01{'abcdef'[i // 6 % 6]}\x02KEYS\x01k{i} x\x02".encode(),
            store_ms=1_700_000_000_000 + i * 1000,
        )
        for i in range(600)
    )
    return store
