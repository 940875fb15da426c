"""Other versions and libraries, each in a process of its own: PySpark 4.0, Spark Connect, data frames."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic
from tests.spark.conftest import CHILD_ENV, need_java
from tests.spark.peers import (
    PeerMissing,
    connect_packages,
    frame_packages,
    oldest_pyspark,
    or_missing,
)
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEWEST = not pyspark.__version__.startswith("4.0")


def written(folder: Path) -> WrittenStore:
    """60 messages in three queues, tags a and b in turn."""
    store = WrittenStore(folder / "broker-a" / "store")
    store.add(
        Message(queue_id=i % 3, body=b"%d" % i, properties=f"TAGS\x01{'ab'[i % 2]}\x02".encode())
        for i in range(60)
    )
    return store


def essentials(
    kind: str, peer: Callable[[], Path], broker: RunningBroker, tmp_path: Path
) -> dict[str, Any]:
    """What the child says it saw; checked here as far as it is the same for all."""
    need_java()
    try:
        folder = peer()
    except PeerMissing as missing:
        or_missing(missing)
        raise
    store = written(tmp_path)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    answer = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("essentials_child.py")),
            kind,
            str(store.root),
            broker.namesrv,
            make_topic(broker, 2),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=CHILD_ENV | {"PYTHONPATH": path},
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    seen: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
    wanted = sorted([i % 3, i // 3, "ab"[i % 2], str(i)] for i in range(60))
    assert seen["rows"] == wanted
    assert seen["properties"] == [{"TAGS": tag} for _, _, tag, _ in wanted]
    assert seen["tagged"] == 10
    everything = [[q, o] for q in range(3) for o in range(20)]
    assert seen["places"][-1] == everything
    assert seen["pulled"] == list(range(20))
    assert "did you mean 'startingOffsets'" in seen["mistake"]
    return seen


@pytest.mark.slow
@pytest.mark.skipif(not NEWEST, reason="tests.spark.matrix runs everything on this version")
def test_the_oldest_pyspark_reads_streams_and_writes(broker: RunningBroker, tmp_path: Path) -> None:
    """Oldest and newest supported run in the tests; this session is the newest."""
    seen = essentials("classic", oldest_pyspark, broker, tmp_path)
    assert seen["version"].startswith("4.0.")
    # 4.0 has no read limits for Python sources: one batch of the limit, in proportion to the queues.
    assert len(seen["places"][0]) == 15


@contextmanager
def connect_server(spark: "SparkSession") -> Iterator[str]:
    """A Spark Connect server in the JVM of the tests' session, since another JVM costs 20 s of CPU: sc://..."""
    context = spark.sparkContext
    package: Any = context._jvm
    for name in ("org", "apache", "spark", "sql", "connect", "service", "SparkConnectService$"):
        package = getattr(package, name)
    service = getattr(package, "MODULE$")
    service.start(context._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(*(getattr(service, f"stop$default${n}")() for n in (1, 2)))


@pytest.mark.slow
@pytest.mark.skipif(not NEWEST, reason="the packages are those of the newest version")
def test_a_spark_connect_session_reads_streams_and_writes(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    with connect_server(spark) as url:
        seen = essentials(url, connect_packages, broker, tmp_path)
    assert seen["version"] == pyspark.__version__
    assert "connect" in seen["session"]


_FRAMES = """
import sys
import duckdb, polars
from pocketmq import bulk

def scan(**options):
    return bulk.scan(sys.argv[1], **options)

frame = scan(columns="all").read_pandas()
assert len(frame) == 60
assert frame["body"].map(bytes).tolist() == [b"%d" % i for i in range(60)]
assert dict(frame["properties"][1]) == {"TAGS": "b"}

messages = scan()
counted = duckdb.sql("select tags, count(*), max(queueOffset) from messages group by tags order by tags")
assert counted.fetchall() == [("a", 30, 19), ("b", 30, 19)], counted

table = polars.from_arrow(scan(columns="tags,queueId,storeSize,storeTimestamp,body").read_all())
assert table.group_by("tags").len().sort("tags").rows() == [("a", 30), ("b", 30)]
assert table["body"].to_list()[59] == b"59"
"""


@pytest.mark.slow
def test_pandas_duckdb_and_polars_take_the_batches(tmp_path: Path) -> None:
    """The same batches without Spark."""
    try:
        folder = frame_packages()
    except PeerMissing as missing:
        or_missing(missing)
        raise
    store = written(tmp_path)
    answer = subprocess.run(
        [sys.executable, "-c", _FRAMES, str(store.root)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
