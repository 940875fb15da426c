"""Archives in an object store, counted in requests: moto speaks S3 on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq import bulk
from pocketmq.bulk.archive import Archiver
from pocketmq.bulk.offsets import LossRule, Positions
from pocketmq.bulk.planning.planner import Planner
from tests.kit.object_store import Bucket, object_store
from tests.store.bulk_stores import Message, WrittenStore

MIB = 1 << 20


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with object_store() as made:
        yield made


def test_an_archive_is_planned_and_read_with_few_requests(bucket: Bucket, tmp_path: Path) -> None:
    """At most a request a file to plan, and two for 64 MiB of data."""
    store = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=2 * MIB)
    body = bytes(range(256)) * 32
    store.add(
        Message(topic=f"Topic{i % 5}", queue_id=i % 4, body=body, store_ms=i) for i in range(2000)
    )
    there = bucket.uri("lake-a/broker-a")
    copied = list(Archiver(str(store.root), there).run())
    assert len(copied) == 7
    bucket.counted()
    roots = bulk.find_roots(there)
    assert roots[0].broker_name == "broker-a"
    planner = Planner(roots, bulk.Topics(), LossRule())
    starts, ends = planner.starts(Positions()), planner.ends(Positions("latest"))
    partitions = planner.partitions(starts, ends, bulk.Sizes())
    assert bucket.counted() <= len(copied)
    wanted = bulk.scan(str(store.root), columns="topic,queueOffset,body", ending_offsets=ends)
    read = bulk.Read(("topic", "queueOffset", "body"))
    found = [b for p in partitions for b in bulk.read_partition(p, read, LossRule())]
    # A request says that a file is there, another one brings it: real files are 64 times a request's size.
    assert bucket.counted() == 2 * len(copied)
    rows = sum(b.num_rows for b in found)
    assert rows == sum(one.file.records for one in copied)
    assert sum(b.num_rows for b in wanted) == rows


def test_a_long_file_comes_in_few_requests(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.bulk.planning.log_partitions._PIECE", 4 * MIB)
    store = WrittenStore(tmp_path / "broker-b" / "store", log_file_size=16 * MIB)
    body = bytes(300_000)
    store.add(Message(topic="Big", body=body, store_ms=i) for i in range(60))
    there = bucket.uri("lake-b/broker-b")
    (copied,) = Archiver(str(store.root), there).run()
    (partition,) = bulk.plan(
        bulk.find_roots(there),
        bulk.Topics(),
        Positions(),
        Positions("latest"),
        bulk.Sizes(),
        LossRule(),
    )
    bucket.counted()
    read = bulk.Read(("queueOffset", "bodyCrc"))
    rows = sum(b.num_rows for b in bulk.read_partition(partition, read, LossRule()))
    assert rows == copied.file.records == 55
    # One says how long it is, four bring it, one the records that were cut.
    assert bucket.counted() <= 6
