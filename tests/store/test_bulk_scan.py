"""Selecting and planning: topics, offsets, times, tags; damaged stores; other file systems; exports."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from benchmarks import bulk_store
from pocketmq import bulk
from pocketmq.bulk import fetch
from pocketmq.bulk import store as layout
from pocketmq.bulk.export import export_parquet
from pocketmq.bulk.offsets import LossRule, Positions
from pocketmq.bulk.partition import Sizes, Topics
from pocketmq.bulk.planning.planner import Planner
from pocketmq.bulk.queue import Queue
from pocketmq.bulk.rows import Read
from pocketmq.bulk.scanner import read_partition
from pocketmq.bulk.side_files import offset_rows
from pocketmq.bulk.store import Root, StoreSnapshot, find_roots
from pocketmq.remoting.errors import IllegalArgument
from tests.store.bulk_stores import Message, WrittenStore

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenStore:
    """600 messages of topics T and U in three queues each, one a second, many small files."""
    store = WrittenStore(
        tmp_path_factory.mktemp("broker-a") / "store", log_file_size=8192, queue_file_entries=16
    )
    store.add(
        Message(
            topic="T" if i % 2 == 0 else "U",
            queue_id=i // 2 % 3,
            body=b"%d" % i,
            properties=f"TAGS\x01{['Aa', 'BB', 'x'][i // 6 % 3]}\x02KEYS\x01k{i} all\x02".encode(),
            store_ms=START_MS + i * 1000,
        )
        for i in range(600)
    )
    return store


def numbers(table: Any) -> list[int]:
    return [int(b) for b in table.column("body").to_pylist()]


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        ({}, lambda i: True),
        ({"topics": ["T"]}, lambda i: i % 2 == 0),
        ({"topic_pattern": "U|V"}, lambda i: i % 2 == 1),
        # "Aa" and "BB" have one hash code: the text decides.
        ({"tags": ["Aa"]}, lambda i: i // 6 % 3 == 0),
        ({"tags": ["Aa", "x"]}, lambda i: i // 6 % 3 != 1),
        ({"keys": ["k5", "k77"]}, lambda i: i in (5, 77)),
        ({"keys": ["all"], "topics": ["T"]}, lambda i: i % 2 == 0),
        ({"starting_ms": START_MS + 100_001}, lambda i: i > 100),
        ({"ending_ms": START_MS + 100_001}, lambda i: i <= 100),
        ({"starting_ms": START_MS - 1, "ending_ms": START_MS}, lambda i: False),
        ({"starting_ms": START_MS + 599_000}, lambda i: i == 599),
        ({"starting_ms": START_MS + 599_001}, lambda i: False),
        (
            {"tags": ["Aa"], "starting_ms": START_MS + 300_000},
            lambda i: i // 6 % 3 == 0 and i >= 300,
        ),
    ],
)
@pytest.mark.parametrize("walked", [False, True])
def test_selections_with_and_without_index_files(
    selection: dict[str, Any], wanted: Callable[[int], bool], walked: bool, written: WrittenStore
) -> None:
    path = str(written.root / "commitlog") if walked else str(written.root)
    table = bulk.scan(path, columns="body", **selection).read_all()
    assert numbers(table) == [i for i in range(600) if wanted(i)]


def test_rows_come_in_log_order_in_small_batches(written: WrittenStore) -> None:
    reader = bulk.scan(str(written.root), batch_bytes=2000)
    batches = list(reader)
    assert max(b.num_rows for b in batches) < 20
    assert [int(v) for b in batches for v in b.column("body").to_pylist()] == list(range(600))


def test_batches_come_queue_by_queue_when_asked(written: WrittenStore) -> None:
    roots = find_roots(str(written.root))
    read = Read(("topic", "queueId", "queueOffset", "body"), batch_bytes=2000)
    (ordered, grouped) = (
        [
            [(r["topic"], r["queueId"], r["queueOffset"], bytes(r["body"])) for r in b.to_pylist()]
            for p in bulk.plan(
                roots, Topics(), Positions(), Positions("latest"), Sizes(), LossRule()
            )
            for b in read_partition(p, one, LossRule())
        ]
        for one in (read, replace(read, by_queue=True))
    )
    assert grouped == [sorted(batch) for batch in ordered]
    assert grouped != ordered


@settings(max_examples=60, deadline=None)
@given(
    starts=st.lists(st.integers(0, 100), min_size=3, max_size=3),
    counts=st.lists(st.integers(0, 100), min_size=3, max_size=3),
    pieces=st.integers(1, 40),
)
def test_any_offsets_in_any_number_of_partitions_are_read_once(
    starts: list[int], counts: list[int], pieces: int, written: WrittenStore
) -> None:
    ends = [min(100, s + n) for s, n in zip(starts, counts, strict=True)]
    name = written.root.parent.name
    planner = Planner([Root(str(written.root), name)], Topics(("T",)), LossRule())
    partitions = planner.partitions(
        {"T": {name: dict(enumerate(starts))}},
        {"T": {name: dict(enumerate(ends))}},
        Sizes(partitions_min=pieces),
    )
    found = sorted(
        (row["queueId"], row["queueOffset"])
        for p in partitions
        for batch in read_partition(p, Read(("queueId", "queueOffset", "flag")), LossRule())
        for row in batch.to_pylist()
    )
    assert found == [(q, o) for q in range(3) for o in range(starts[q], ends[q])]


def test_partitions_are_of_one_size_whatever_is_selected(tmp_path: Path) -> None:
    bulk_store.write_store(tmp_path / "b", 20_000, body_size=200, log_file_size=1 << 20)
    planner = Planner([Root(str(tmp_path / "b"), "b")], Topics(), LossRule())
    starts, ends = planner.starts(Positions()), planner.ends(Positions("latest"))
    partitions = planner.partitions(starts, ends, Sizes(partition_bytes=1 << 20))
    rows = [
        sum(b.num_rows for b in read_partition(p, Read(("queueOffset",)), LossRule()))
        for p in partitions
    ]
    assert sum(rows) == 20_000
    assert 6 <= len(partitions) <= 9
    assert max(rows) < 2 * min(rows[:-1])
    few = planner.partitions(starts, ends, Sizes(partition_bytes=1 << 30))
    assert len(few) == 1
    # Where less of a record is read, tasks take more of them, as long as all that can run have one.
    for row_bytes, tasks, wanted in ((32, 1, 1), (32, 2, 2), (100, 1, 2), (100, 6, 6), (0, 2, 7)):
        sizes = Sizes(partition_bytes=1 << 20, row_bytes=row_bytes, tasks=tasks)
        found = planner.partitions(starts, ends, sizes)
        assert wanted <= len(found) <= wanted + 1, (row_bytes, tasks)


def test_planning_does_not_grow_with_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds are binary searches: a queue of a million entries costs some dozens of looks."""
    store = WrittenStore(tmp_path / "b" / "store")
    store.add([Message(body=b"x")])
    folder = tmp_path / "b" / "store" / "consumequeue" / "T" / "0"
    (path,) = folder.iterdir()
    entry = path.read_bytes()[:20]
    path.write_bytes(entry * 1_000_000 + bytes(20 * 1000))
    opened = layout.StoreSnapshot(Root(str(store.root), "b"))
    queue = opened.queue("T", 0)
    looks = 0
    original = Queue.entry

    def counted(queue: Queue, index: int) -> Any:
        nonlocal looks
        looks += 1
        return original(queue, index)

    monkeypatch.setattr(Queue, "entry", counted)
    assert queue.end_index() == 1_000_000
    assert looks < 30


def test_an_entry_left_behind_a_truncation_is_no_message(tmp_path: Path) -> None:
    """A recovered broker leaves old index entries behind the end; another record lies there now."""
    store = WrittenStore(tmp_path / "b" / "store")
    positions = store.add(Message(topic="Old", body=b"%d" % i) for i in range(3))
    store.position = positions[2]
    store.add(Message(topic="New", body=b"x") for _ in range(3))
    rows = bulk.scan(str(store.root), columns="topic,body").read_all().to_pylist()
    assert [(r["topic"], r["body"]) for r in rows] == [
        ("Old", b"0"), ("Old", b"1"), ("New", b"x"), ("New", b"x"), ("New", b"x"),
    ]  # fmt: skip


# Fewer bytes would cut properties only, which no length and no checksum covers.
@pytest.mark.parametrize("lost", [8, 50, 91])
def test_a_cut_in_the_last_record_is_reported_or_left_out(lost: int, tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store")
    store.add(Message(queue_id=i % 2, body=b"%d" % i) for i in range(10))
    store.patch(store.position - lost, bytes(lost))
    with pytest.raises(bulk.DataLoss, match="is not whole") as caught:
        bulk.scan(str(store.root))
    assert caught.value.position < store.position
    kept = bulk.scan(str(store.root), columns="body", fail_on_data_loss=False).read_all()
    assert numbers(kept) == list(range(9))
    walked = bulk.scan(str(store.root / "commitlog"), columns="body", fail_on_data_loss=False)
    assert numbers(walked.read_all()) == list(range(9))


def test_half_messages_are_not_read(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store")
    store.add(
        [
            Message(body=b"0"),
            Message(body=b"half", sys_flag=0x4, indexed=False),
            Message(body=b"back", sys_flag=0xC, indexed=False),
            Message(body=b"1", sys_flag=0x8),
        ]
    )
    for path in (store.root, store.root / "commitlog"):
        assert numbers(bulk.scan(str(path), columns="body").read_all()) == [0, 1]


def test_system_topics_are_read_when_named_or_asked_for(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store")
    names = ["T", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"]
    store.add(Message(topic=t) for t in names)

    def topics(**selection: Any) -> set[str]:
        table = bulk.scan(str(store.root), columns="topic", **selection).read_all()
        return set(table.column("topic").to_pylist())

    assert topics() == {"T", "%RETRY%g"}
    assert topics(system_topics=True) == set(names)
    assert topics(topics=["SCHEDULE_TOPIC_XXXX"]) == {"SCHEDULE_TOPIC_XXXX"}


def test_offsets_out_of_bounds_follow_fail_on_data_loss(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=4096)
    positions = store.add(Message(body=b"%d" % i) for i in range(100))
    store.log_path(0).unlink()
    first = sum(1 for p in positions if p < 4096)
    for name, offsets, text in (
        ("starting_offsets", 0, f"begins at {first}"),
        ("starting_offsets", 101, "ends at 100"),
        ("ending_offsets", 101, "ends at 100"),
    ):
        selection: dict[str, Any] = {name: {"T": {"b": {0: offsets}}}}
        with pytest.raises(bulk.DataLoss, match=text):
            bulk.scan(str(store.root), **selection)
    lenient = bulk.scan(
        str(store.root), columns="body", fail_on_data_loss=False,
        starting_offsets={"T": {"b": {0: 0}}},
    )  # fmt: skip
    assert numbers(lenient.read_all()) == list(range(first, 100))


def test_other_file_systems_give_the_same_rows(
    written: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object stores go through pyarrow.fs: each read is a request."""
    local = bulk.scan(str(written.root), columns="all").read_all()

    def through_arrow(path: str) -> tuple[Any, str]:
        return fetch.ArrowFolders(fs.LocalFileSystem()), path

    monkeypatch.setattr(layout, "folders_of", through_arrow)
    assert bulk.scan(str(written.root), columns="all").read_all() == local
    chosen = bulk.scan(str(written.root), tags=["x"], starting_ms=START_MS + 50_000).read_all()
    assert chosen.num_rows == sum(1 for i in range(50, 600) if i // 6 % 3 == 2)


def test_a_file_uri_is_a_local_folder(written: WrittenStore) -> None:
    assert bulk.scan(f"file://{written.root}", columns="flag").read_all().num_rows == 600


def test_roots_are_found_and_named(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "store" / "commitlog").mkdir(parents=True)
    a, b = (str(tmp_path / n / "store") for n in ("broker-a", "broker-b"))
    both = [Root(a, "broker-a"), Root(b, "broker-b")]
    assert find_roots(f"{a}, {b}/") == both
    assert find_roots([a, b, a]) == both
    assert find_roots(str(tmp_path / "*" / "store")) == both
    assert find_roots(a, "x") == [Root(a, "x")]
    assert find_roots(f"{a},{b}", {b: "x"}) == [Root(a, "broker-a"), Root(b, "x")]
    assert find_roots(a + "/commitlog") == [Root(a + "/commitlog", "broker-a")]
    with pytest.raises(IllegalArgument, match="names one broker"):
        find_roots(f"{a},{b}", "x")
    with pytest.raises(IllegalArgument, match="would both be broker 'x'"):
        find_roots(f"{a},{b}", {a: "x", b: "x"})
    with pytest.raises(IllegalArgument, match="path is empty"):
        find_roots(" , ")
    with pytest.raises(bulk.NotAStore, match="no folder matches"):
        find_roots(str(tmp_path / "x*"))
    with pytest.raises(bulk.NotAStore, match="there is no such folder"):
        bulk.scan(str(tmp_path / "nowhere"))


def test_an_open_read_survives_deletion_of_its_file(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store")
    store.add(Message(body=b"%d" % i) for i in range(2000))
    reader = bulk.scan(str(store.root), columns="body", batch_bytes=1000)
    first = reader.read_next_batch()
    store.log_path(0).unlink()
    rest = reader.read_all()
    assert first.num_rows + rest.num_rows == 2000


def test_exports_hold_the_same_rows(written: WrittenStore, tmp_path: Path) -> None:
    exported = export_parquet(str(written.root), tmp_path / "out", tags=["x"])
    assert sorted(Path(f).name for f in exported.files) == ["T-00000.parquet", "U-00000.parquet"]
    wanted = bulk.scan(str(written.root), columns="all", tags=["x"]).read_all()
    found = pa.concat_tables([pq.read_table(f) for f in sorted(exported.files)])
    order = [("commitLogOffset", "ascending")]
    assert found.sort_by(order).cast(wanted.schema).equals(wanted)
    assert exported.rows == wanted.num_rows == sum(1 for i in range(600) if i // 6 % 3 == 2)
    with pytest.raises(IllegalArgument, match="compression must be one of"):
        export_parquet(str(written.root), tmp_path / "out", compression="rar")
    # Together with an earlier export's files a reader would get rows twice.
    with pytest.raises(IllegalArgument, match="has Parquet files already, such as"):
        export_parquet(str(written.root), tmp_path / "out", topics=["V"])
    # The folder above it is read with it, too.
    with pytest.raises(IllegalArgument, match="such as out/"):
        export_parquet(str(written.root), tmp_path, topics=["V"])
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_failed_export_leaves_no_half_file(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=4096)
    positions = store.add(Message(body=b"%d" % i) for i in range(100))
    store.patch(positions[50], b"\0" * 8)
    out = tmp_path / "out"
    with pytest.raises(bulk.DataLoss):
        export_parquet(str(store.root), out)
    assert list(out.iterdir()) == []


def test_offsets_come_from_the_backup_where_the_file_is_no_json(
    written: WrittenStore, tmp_path: Path
) -> None:
    """As a broker starts with them; bulk reading refused such a store."""
    root = Path(shutil.copytree(written.root, tmp_path / "store"))
    offsets = root / "config" / "consumerOffset.json"
    offsets.parent.mkdir(exist_ok=True)
    offsets.write_bytes(b'{"offsetTable":{"T@G":{0:')
    offsets.with_name("consumerOffset.json.bak").write_bytes(b'{"offsetTable":{"T@G":{0:3}}}')
    assert list(offset_rows(StoreSnapshot(Root(str(root), "b")))) == [("G", "T", 0, 3)]


def test_offsets_with_light_queues_are_in_the_other_file(
    written: WrittenStore, tmp_path: Path
) -> None:
    """The newer one, where the setting (enableLmq) was changed."""
    root = Path(shutil.copytree(written.root, tmp_path / "store"))
    light = root / "config" / "lmqConsumerOffset.json"
    light.parent.mkdir(exist_ok=True)
    light.write_bytes(b'{"lmqOffsetTable":{},"offsetTable":{"T@G":{0:3}}}')
    assert list(offset_rows(StoreSnapshot(Root(str(root), "b")))) == [("G", "T", 0, 3)]
    usual = light.with_name("consumerOffset.json")
    usual.write_bytes(b'{"offsetTable":{"T@G":{0:2}}}')
    now = usual.stat().st_mtime
    os.utime(light, (now - 60, now - 60))
    assert list(offset_rows(StoreSnapshot(Root(str(root), "b")))) == [("G", "T", 0, 2)]
    os.utime(light, (now + 60, now + 60))
    assert list(offset_rows(StoreSnapshot(Root(str(root), "b")))) == [("G", "T", 0, 3)]
    usual.unlink()
    light.rename(light.with_name("lmqConsumerOffset.json.bak"))
    assert list(offset_rows(StoreSnapshot(Root(str(root), "b")))) == [("G", "T", 0, 3)]


def test_a_generated_store_matches_its_generator(tmp_path: Path) -> None:
    """In small: the benchmark does the same with 1 GiB."""
    count = 5000
    root = tmp_path / "b"
    bulk_store.write_store(root, count, body_size=64, queues=4, tags=10, log_file_size=1 << 17)
    noise = bulk_store.body_noise(64)
    table = bulk.scan(str(root), columns="all", verify_crc=True).read_all()
    assert table.num_rows == count
    for i, row in enumerate(table.to_pylist()):
        assert row["body"] == bulk_store.body_of(i, 64, noise)
        assert row["propertiesRaw"].encode() == bulk_store.properties_of(i, 10)
        assert (row["queueId"], row["queueOffset"]) == (i % 4, i // 4)
        assert (row["tags"], row["uniqKey"]) == (f"tag{i % 10:03d}", f"{i:032X}")


def test_bulk_needs_no_broker_no_loop_and_no_spark() -> None:
    """It may import numpy, pyarrow, pocketmq.files and .remoting only: executors get no more."""
    code = (
        "import sys; before = set(sys.modules); import pocketmq.bulk.api, pocketmq.bulk.export\n"
        "ours = {m.split('.')[1] for m in sys.modules if m.startswith('pocketmq.')}\n"
        "print(sorted(ours), 'pyspark' in sys.modules, 'pandas' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "['bulk', 'files', 'model', 'remoting'] False False"


def test_a_missing_middle_file_is_reported_with_any_index(
    tmp_path: Path,
) -> None:
    """Retention takes files from the front only: a hole is a loss, never a shorter answer."""
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=4096)
    positions = store.add(Message(body=b"%d" % i) for i in range(100))
    hole = store.log_path(positions[40])
    hole.unlink()
    for path in (store.root, store.root / "commitlog"):
        with pytest.raises(bulk.DataLoss) as caught:
            bulk.scan(str(path), columns="body").read_all()
        assert caught.value.file == str(hole)
        left = bulk.scan(str(path), columns="body", fail_on_data_loss=False).read_all()
        assert numbers(left) == [i for i, p in enumerate(positions) if p // 4096 != 1]
