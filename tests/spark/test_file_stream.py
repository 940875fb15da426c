"""readStream over store folders: batches, restarts, new queues, retention, kill -9."""

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

from pocketmq.bulk.errors import DataLoss
from pocketmq.bulk.offsets import Offsets, QueueKey, each, store_at
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.columns import projection_of, schema_of
from pocketmq.spark.file_stream import FileStream, make_file_stream
from pocketmq.spark.given_options import parse_options
from pocketmq.spark.home import make_home
from pocketmq.spark.stream import HAS_LIMITS, share_out
from pocketmq.spark.stream_offset import from_offset, to_offset
from tests.spark.conftest import CHILD_ENV, KILLS, need_java
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reader_of(store: WrittenStore, **options: str) -> FileStream:
    given = {"path": str(store.root), "startingOffsets": "earliest"} | options
    projection = projection_of(schema_of("queueOffset"), "")
    made = make_file_stream(parse_options(given), projection)
    assert isinstance(made, FileStream)
    return made


def counted(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {(k.topic, k.queue_id): n for k, n in each(offsets)}


def rows_of(reader: FileStream, start: Any, end: Any) -> list[int]:
    """Queue offsets that the tasks of a batch read."""
    found: list[int] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += batch.column("queueOffset").to_pylist()
    return sorted(found)


@pytest.fixture
def store(tmp_path: Path) -> WrittenStore:
    """Queues with 40, 20 and 4 messages; several log files."""
    made = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=4096)
    made.add(
        Message(queue_id=q, body=b"%d" % i) for q, n in ((0, 40), (1, 20), (2, 4)) for i in range(n)
    )
    return made


# ---------------------------------------------------------------- offsets, without Spark


def test_a_limit_is_divided_in_proportion_to_the_backlog() -> None:
    """Kafka's rule."""
    a, b, c = (QueueKey("T", "b", i) for i in range(3))
    assert share_out({a: 40, b: 20, c: 4}, 16) == {a: 10, b: 5, c: 1}
    assert share_out({a: 1000, b: 1, c: 0}, 10) == {a: 9, b: 1, c: 0}
    assert share_out({a: 3, b: 2, c: 0}, 10) == {a: 3, b: 2, c: 0}


def test_batches_of_a_limited_stream_cover_everything_once(store: WrittenStore) -> None:
    reader = reader_of(store)
    start = reader.initialOffset()
    seen: dict[tuple[str, int], list[int]] = {}
    for _ in range(20):
        end = to_offset(reader.latest_from(from_offset(start), 16, 0))
        if end == start:
            break
        for key, stop in each(from_offset(end)):
            begin = counted(from_offset(start))[key.topic, key.queue_id]
            seen.setdefault((key.topic, key.queue_id), []).extend(range(begin, stop))
        assert len(rows_of(reader, start, end)) <= 18
        start = end
    assert seen == {("T", 0): list(range(40)), ("T", 1): list(range(20)), ("T", 2): list(range(4))}


def test_a_limit_in_bytes_is_kept_about(store: WrittenStore) -> None:
    reader = reader_of(store)
    start = from_offset(reader.initialOffset())
    size = reader.mean_size(next(iter(reader.look(reader._loss(), must_exist=True).values())))
    ends = reader.latest_from(start, 0, 16 * size)
    assert sum(n for _, n in each(ends)) == pytest.approx(16, abs=3)


def test_a_stream_waits_for_its_minimum_but_not_forever(
    store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0] * 1_000_000)
    reader = reader_of(store, minOffsetsPerTrigger="100", maxTriggerDelay="60s")
    start = from_offset(reader.initialOffset())
    assert reader.latest_from(start, 0, 0) == start
    now[0] = 59_000
    assert reader.latest_from(start, 0, 0) == start
    now[0] = 60_000
    assert counted(reader.latest_from(start, 0, 0))["T", 0] == 40
    store.add(Message(queue_id=0) for _ in range(60))
    assert counted(reader.latest_from(start, 0, 0))["T", 0] == 100


def test_a_run_of_what_is_available_now_ends_there(store: WrittenStore) -> None:
    reader = reader_of(store)
    start = from_offset(reader.initialOffset())
    reader.freeze()
    store.add(Message(queue_id=q) for q in (0, 3))
    assert counted(reader.latest_from(start, 0, 0)) == {("T", 0): 40, ("T", 1): 20, ("T", 2): 4}
    assert counted(from_offset(reader.newest()))["T", 3] == 1


def test_a_queue_that_appears_later_is_read_from_its_beginning(store: WrittenStore) -> None:
    reader = reader_of(store, startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latest_from(from_offset(start), 0, 0) == from_offset(start)
    store.add(Message(topic="New", queue_id=5) for _ in range(3))
    end = to_offset(reader.latest_from(from_offset(start), 0, 0))
    assert counted(from_offset(end))["New", 5] == 3
    assert rows_of(reader, start, end) == [0, 1, 2]


def _older_by_a_file(store: WrittenStore) -> None:
    """Retention takes the oldest log file."""
    sorted((store.root / "commitlog").iterdir())[0].unlink()


@pytest.mark.parametrize("taken", ["some", "all"])
def test_a_new_queue_trimmed_by_retention_is_reported(taken: str, tmp_path: Path) -> None:
    """No offset of the stream names the queue: only its own beginning shows that messages are missing."""
    store = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=4096)
    store.add([Message(topic="Old")])
    strict = reader_of(store, startingOffsets="latest")
    start = strict.initialOffset()
    store.add(Message(topic="New", queue_id=1) for _ in range(2 if taken == "all" else 60))
    store.add(Message(topic="Old") for _ in range(60))
    planned = strict.after(start, 0, 0)
    _older_by_a_file(store)
    lost = r"topic New, broker broker-a, queue 1: offset 0 is wanted, but the queue begins at"
    with pytest.raises(DataLoss, match=lost):
        strict.after(start, 0, 0)
    # A batch that was planned before, and runs again after a restart.
    with pytest.raises(DataLoss, match=lost):
        reader_of(store).partitions(start, planned)
    with_warning = reader_of(store, failOnDataLoss="false")
    for end in (planned, with_warning.after(start, 0, 0)):
        rows = rows_of(with_warning, start, end)
        news = [n for (topic, _), n in counted(from_offset(end)).items() if topic == "New"]
        assert news == [2 if taken == "all" else 60]
        assert 0 < len(rows) < sum(counted(from_offset(end)).values()) - 1


def test_the_calls_of_pyspark_4_0_read_everything_once(store: WrittenStore) -> None:
    """latestOffset() comes before initialOffset(), and partitions(x, x) first on a restart."""
    reader = reader_of(store, maxOffsetsPerTrigger="32")
    end = reader.latest_after_last()
    start = reader.initialOffset()
    assert counted(from_offset(start)) == {("T", 0): 0, ("T", 1): 0, ("T", 2): 0}
    total = rows_of(reader, start, end)
    after = reader.latest_after_last()
    total += rows_of(reader, end, after)
    again = reader_of(store, maxOffsetsPerTrigger="32")
    assert again.partitions(after, after) == []
    last = again.latest_after_last()
    total += rows_of(again, after, last)
    assert sorted(total) == sorted([*range(40), *range(20), *range(4)])
    assert again.latest_after_last() == last


def test_retention_past_the_checkpoint_is_reported_or_skipped(store: WrittenStore) -> None:
    strict = reader_of(store)
    start = strict.initialOffset()
    end = to_offset(strict.latest_from(from_offset(start), 0, 0))
    first = sorted((store.root / "commitlog").iterdir())[0]
    gone = {q: sum(1 for p in positions if p < 4096) for q, positions in _positions(store).items()}
    first.unlink()
    with pytest.raises(DataLoss, match=rf"queue 0: offset 0 is wanted, .* begins at {gone[0]}"):
        strict.partitions(start, end)
    lenient = reader_of(store, failOnDataLoss="false")
    assert len(rows_of(lenient, start, end)) == 64 - sum(gone.values())


def _positions(store: WrittenStore) -> dict[int, list[int]]:
    from pocketmq import bulk

    table = bulk.scan(str(store.root), columns="queueId,commitLogOffset").read_all().to_pylist()
    found: dict[int, list[int]] = {}
    for row in table:
        found.setdefault(row["queueId"], []).append(row["commitLogOffset"])
    return found


def test_a_recreated_topic_is_reported_or_continued(store: WrittenStore, tmp_path: Path) -> None:
    reader = reader_of(store)
    end = to_offset(reader.latest_from(from_offset(reader.initialOffset()), 0, 0))
    shutil.rmtree(store.root)
    fresh = WrittenStore(store.root)
    fresh.add(Message(queue_id=q) for q in (0, 1, 2))
    with pytest.raises(DataLoss, match="truncated or recreated"):
        reader.latest_from(from_offset(end), 0, 0)
    lenient = reader_of(fresh, failOnDataLoss="false")
    assert counted(lenient.latest_from(from_offset(end), 0, 0))["T", 0] == 1


def test_a_checkpoint_of_another_store_is_reported_or_ignored(
    store: WrittenStore,
) -> None:
    """Its offsets fit into the other store, too."""
    reader = reader_of(store)
    start = json.loads(json.dumps(reader.initialOffset()))
    end = reader.after(start, 0, 0)
    store.add(Message(queue_id=0) for _ in range(40))
    later = reader_of(store)
    grown = later.after(end, 0, 0)
    assert len(rows_of(later, end, grown)) == 40
    assert grown["stores"] != end["stores"]
    shutil.rmtree(store.root)
    other = WrittenStore(store.root, log_file_size=4096)
    other.add(Message(queue_id=q, body=b"other", store_ms=1) for q in (0, 1, 2) for _ in range(90))
    for old, new in ((start, end), (end, grown)):
        with pytest.raises(DataLoss, match=r"store of broker broker-a is not the one"):
            reader_of(other).after(old, 0, 0)
        with pytest.raises(DataLoss, match=r"store of broker broker-a is not the one"):
            reader_of(other).partitions(old, new)
    lenient = reader_of(other, failOnDataLoss="false")
    after = lenient.after(end, 0, 0)
    assert len(rows_of(lenient, end, after)) == 270
    assert rows_of(lenient, start, end) == []


def test_a_topic_deleted_under_a_stream_is_reported_or_dropped(store: WrittenStore) -> None:
    """As with Kafka's source: a queue that was deleted is a loss, whatever was read of it."""
    store.add(Message(topic="Other") for _ in range(35))
    options = {"subscribe": "T,Other"}
    strict = reader_of(store, **options)
    start = from_offset(strict.initialOffset())
    end = strict.latest_from(start, 30, 0)
    shutil.rmtree(store.root / "consumequeue" / "Other")
    with pytest.raises(DataLoss, match=r"topic Other, broker broker-a, queue 0 is no longer there"):
        strict.latest_from(end, 0, 0)
    with pytest.raises(DataLoss, match=r"topic Other, broker broker-a, queue 0 is no longer there"):
        strict.partitions(to_offset(start), to_offset(end))
    lenient = reader_of(store, failOnDataLoss="false", **options)
    after = lenient.latest_from(end, 0, 0)
    assert counted(after) == {("T", 0): 40, ("T", 1): 20, ("T", 2): 4}
    assert len(rows_of(lenient, to_offset(end), to_offset(after))) == 64 - sum(
        n for k, n in counted(end).items() if k[0] == "T"
    )
    # A topic of the name that comes back is a new one: Kafka's source, too, begins at its beginning.
    store.add(Message(topic="Other", queue_id=1) for _ in range(3))
    assert counted(lenient.latest_from(after, 0, 0))["Other", 1] == 3


def test_a_recreated_topic_is_recognised_by_its_positions(store: WrittenStore) -> None:
    """It has grown past the offset, so nothing else tells."""
    store.add(Message(topic="Other") for _ in range(5))
    options = {"subscribe": "T,Other"}
    strict = reader_of(store, **options)
    end = strict.after(strict.initialOffset(), 0, 0)
    assert strict.after(end, 0, 0) == reader_of(store, **options).after(end, 0, 0) == end
    shutil.rmtree(store.root / "consumequeue" / "Other")
    del store.offsets["Other", 0]
    store.add(Message(topic="Other") for _ in range(12))
    for reader in (strict, reader_of(store, **options)):
        with pytest.raises(DataLoss, match=r"topic Other of broker broker-a .* made again"):
            reader.after(end, 0, 0)
    lenient = reader_of(store, failOnDataLoss="false", **options)
    after = lenient.after(end, 0, 0)
    assert len(rows_of(lenient, end, after)) == 12
    assert lenient.after(after, 0, 0) == after


def test_a_planned_batch_that_lacks_a_queue_reports_it(
    store: WrittenStore,
) -> None:
    """On a restart only partitions(start, end) sees a checkpoint's last batch."""
    reader = reader_of(store)
    start = from_offset(reader.initialOffset())
    end = reader.latest_from(start, 0, 0)
    store_at(start, QueueKey("Gone", "broker-a", 0), 7)
    with pytest.raises(DataLoss, match="topic Gone, broker broker-a, queue 0 is no longer there"):
        reader.partitions(to_offset(start), to_offset(end))


def test_an_emptied_store_is_reported(store: WrittenStore) -> None:
    """It would idle for ever."""
    reader = reader_of(store)
    start = from_offset(reader.initialOffset())
    for folder in ("consumequeue", "commitlog"):
        shutil.rmtree(store.root / folder)
        (store.root / folder).mkdir()
    with pytest.raises(DataLoss, match="queue 0 is no longer there"):
        reader.latest_from(start, 0, 0)


def test_a_checkpoint_of_something_else_is_refused() -> None:
    with pytest.raises(IllegalArgument, match="checkpointLocation"):
        from_offset({"v": 2, "offsets": {}})
    with pytest.raises(IllegalArgument, match="checkpointLocation"):
        from_offset({"T": {"b": {"0": 1}}})


def test_a_store_without_index_files_cannot_be_streamed(store: WrittenStore) -> None:
    shutil.rmtree(store.root / "consumequeue")
    with pytest.raises(IllegalArgument, match="Read it as a batch"):
        reader_of(store).initialOffset()


# ---------------------------------------------------------------- queries


def run(spark: "SparkSession", store: Path, checkpoint: Path, out: Path, **options: str) -> Any:
    given = {"startingOffsets": "earliest"} | options
    query = (
        spark.readStream.format("pocketmq")
        .options(**given)
        .load(str(store))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(out))
    )
    query.awaitTermination()
    return query


def test_a_stream_that_cannot_be_made_says_why(
    spark: "SparkSession", store: WrittenStore, tmp_path: Path
) -> None:
    """It was Spark's own: cannot access local variable 'reader'."""
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, store.root, tmp_path / "checkpoint", tmp_path / "out", endingTimestamp="2h")
    text = str(caught.value)
    assert "endingTimestamp" in text
    assert "local variable" not in text


def places(spark: "SparkSession", out: Path) -> list[tuple[str, int, int]]:
    rows = spark.read.parquet(str(out)).select("topic", "queueId", "queueOffset").collect()
    return sorted((r.topic, r.queueId, r.queueOffset) for r in rows)


def test_a_query_goes_on_from_its_checkpoint(
    spark: "SparkSession", store: WrittenStore, tmp_path: Path
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    # Before 4.2 a run of what is available is one batch, which a limit would cut off.
    limits = {"maxOffsetsPerTrigger": "32"} if HAS_LIMITS else {}
    first = run(spark, store.root, checkpoint, out, **limits)
    assert sum(p["numInputRows"] for p in first.recentProgress) == 64
    assert len(first.recentProgress) >= (2 if HAS_LIMITS else 1)
    reports = [json.loads(p["sources"][0]["latestOffset"]) for p in first.recentProgress]
    left = [report["behind"]["broker-a"]["messages"] for report in reports if HAS_LIMITS]
    assert left[-2:] == [64 - first.recentProgress[0]["numInputRows"], 0][: len(left)]
    store.add(Message(queue_id=q) for q in (1, 3, 3))
    run(spark, store.root, checkpoint, out)
    run(spark, store.root, checkpoint, out)
    wanted = [("T", q, o) for q, n in ((0, 40), (1, 21), (2, 4), (3, 2)) for o in range(n)]
    assert places(spark, out) == wanted


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Polls a state of files; False when the time or the process ends first."""
    end = time.monotonic() + within_s
    while time.monotonic() < end and process.poll() is None:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_a_query_killed_at_any_moment_loses_and_repeats_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Kill -9 of a streaming query in a loop, a Parquet sink."""
    need_java()
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    store = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 16)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    child = Path(__file__).with_name("stream_child.py")
    command = [sys.executable, str(child), str(store.root), str(checkpoint), str(out), "60"]
    env = _quickly_started(tmp_path)
    total = 0

    def more() -> None:
        nonlocal total
        store.add(Message(queue_id=i % 5, body=os.urandom(50)) for i in range(400))
        total += 400

    more()
    # The first one ends by itself, and leaves the classes that its JVM has loaded to those that are killed.
    archive = tmp_path / "classes.jsa"
    first = subprocess.run(
        [*command, "once"],
        capture_output=True,
        text=True,
        check=False,
        env=_with_flag(env, f"-XX:ArchiveClassesAtExit={archive}"),
    )
    assert first.returncode == 0, first.stderr[-2000:]
    env = _with_flag(env, f"-XX:SharedArchiveFile={archive}")
    for round_ in range(KILLS):
        more()
        # A batch is planned when its offsets file is there, done when its commits file is.
        folder = checkpoint / ("offsets", "commits")[round_ % 2]
        before = _newest(folder)
        wanted = before + chance.randint(1, 3)
        errors = _kill_when(command, env, partial(_has_reached, folder, wanted))
        assert not errors, f"round {round_}, seed {seed}: {errors}"
    # Before 4.2 the first run does no more than the batch that a killed query had planned.
    for _ in range(1 if HAS_LIMITS else 2):
        _run_patiently(spark, store.root, checkpoint, out)
    found = places(spark, out)
    assert len(found) == total, f"seed {seed}"
    assert found == [("T", q, o) for q in range(5) for o in range(total // 5)], f"seed {seed}"


def _quickly_started(tmp_path: Path) -> dict[str, str]:
    """An environment in which Spark's Python processes do not compile PySpark each time."""
    home = tmp_path / "home"
    home.mkdir()
    make_home(home, Path(pyspark.__file__).parent)
    return CHILD_ENV | {"SPARK_HOME": str(home)}


def _with_flag(env: dict[str, str], flag: str) -> dict[str, str]:
    return env | {"SHORT_LIVED_JVM": f"{env['SHORT_LIVED_JVM']} {flag}"}


_log = logging.getLogger(__name__)
_NOT_CONNECTED = "Python worker failed to connect back"


def _run_patiently(spark: "SparkSession", store: Path, checkpoint: Path, out: Path) -> None:
    """run(), started again where Spark gave a planner too little time, as in _kill_when()."""
    for _ in range(10):
        try:
            run(spark, store, checkpoint, out)
            return
        except StreamingQueryException as error:
            if _NOT_CONNECTED not in str(error):
                raise
            _log.warning("started again: %s", _NOT_CONNECTED)
    run(spark, store, checkpoint, out)


def _kill_when(command: list[str], env: dict[str, str], condition: Callable[[], bool]) -> str:
    """Start a query, kill it when the condition holds. Returns: its errors, if it ended by itself.

    Spark gives a planner 10 s to start, which no setting changes and a crowded machine may need: then the
    query is started again.
    """
    for _ in range(10):
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
        try:
            reached = until(condition, process, 300)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            errors = process.communicate()[1].decode()
        if reached or _NOT_CONNECTED not in errors:
            break
        _log.warning("started again: %s", _NOT_CONNECTED)
    return "" if reached else errors[-2000:] or "it does not get on"


def _has_reached(folder: Path, batch: int) -> bool:
    return _newest(folder) >= batch


def _newest(folder: Path) -> int:
    """The highest batch that has a file in an offsets or commits folder; -1 for none."""
    if not folder.is_dir():
        return -1
    return max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=-1)
