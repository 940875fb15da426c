"""Opening a store: one broker a directory, clear refusals, side files that are whole or not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq import bulk
from pocketmq.store import ConfigFile, RecordIllegal, StoreForeign, StoreLocked, StoreUnreadable
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.repair.reader import StoreReader
from tests.store.stores import open_store, read_all, send


def test_a_store_that_is_open_is_refused_to_others(tmp_path: Path) -> None:
    """Same process and another one; the lock goes with its holder."""
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked, match="in use by another broker"):
        open_store(tmp_path)
    code = (
        "import fcntl, os, sys; f = os.open(sys.argv[1], os.O_RDWR)\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError: sys.exit(3)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    assert subprocess.run(command, check=False).returncode == 3
    store.close()
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "lock").read_bytes() == b"lock"
    open_store(tmp_path).close()


def test_queues_without_a_log_are_not_thrown_away(tmp_path: Path) -> None:
    """RocketMQ deletes them; the log may be on a disk that is not mounted."""
    store = open_store(tmp_path)
    send(store)
    store.close()
    os.rename(tmp_path / "commitlog", tmp_path / "elsewhere")
    with pytest.raises(StoreForeign, match="mount it or set storePathCommitLog"):
        open_store(tmp_path)
    store = open_store(tmp_path, store_path_commit_log=str(tmp_path / "elsewhere"))
    assert len(read_all(store)) == 1
    store.close()


def test_a_log_in_several_folders_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folders = f"{tmp_path}/a,{tmp_path}/b"
    with pytest.raises(RecordIllegal, match=rf"{folders}.*Move the files .* into one folder"):
        open_store(tmp_path, store_path_commit_log=folders)


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        ("config/consumerOffsets", "rocksDBConfigToJson"),
        ("config/rdb", "pocketmq migrate"),
        ("config/metadata", "pocketmq migrate"),
        ("kvStore", "mqadmin exportPopRecord"),
    ],
)
def test_what_is_in_rocksdb_is_not_forgotten(tmp_path: Path, place: str, advice: str) -> None:
    """Groups without offsets would begin at the end, or read everything again; and what was popped and not
    acknowledged would never come again."""
    open_store(tmp_path).close()
    database = tmp_path / place
    database.mkdir(parents=True)
    (database / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    with pytest.raises(StoreForeign, match=rf"{place} .*{advice}"):
        open_store(tmp_path)
    database.rename(tmp_path / "set aside")
    open_store(tmp_path).close()


def test_the_log_of_a_dledger_broker_is_no_log_that_is_lost(tmp_path: Path) -> None:
    """Who used DLedger later has both; the queues must not be cut to the end of the old log."""
    store = open_store(tmp_path)
    send(store)
    store.close()
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    open_store(tmp_path).close()
    (data / "00000000000000000000").write_bytes(bytes(100))
    with pytest.raises(StoreForeign, match="in dledger-n0, a log of DLedger"):
        open_store(tmp_path)


@pytest.mark.parametrize("size", [1, 19, 20, 21, 300, 510, 599, 600, 601, 999])
def test_a_lone_queue_file_that_was_cut_off_is_filled_again(tmp_path: Path, size: int) -> None:
    """A store of RocketMQ, which does not start then; its checkpoint does not tell the size of the files."""
    store = open_store(tmp_path)
    for number in range(30):
        send(store, body=b"%d" % number)
    store.close()
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    [queue] = (tmp_path / "consumequeue").glob("*/*/*")
    os.truncate(queue, size)
    store = open_store(tmp_path)
    assert [bytes(record.body) for record in read_all(store)] == [b"%d" % n for n in range(30)]
    send(store, body=b"more")
    store.close()


def test_who_only_reads_is_told_where_else_the_messages_are(tmp_path: Path) -> None:
    """Of a store that had DLedger added later, all readers saw the messages before that, and no word."""
    store = open_store(tmp_path)
    send(store)
    store.close()
    (tmp_path / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreForeign, match=r"has no folder `commitlog`.*put a link `commitlog`"):
        StoreReader(str(tmp_path))
    with pytest.raises(bulk.NotAStore, match=r"has no folder `commitlog`.*put a link `commitlog`"):
        bulk.scan(str(tmp_path))
    (tmp_path / "commitlog").symlink_to("elsewhere")
    assert len(list(StoreReader(str(tmp_path)).walk())) == 1
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    assert bulk.scan(str(tmp_path)).read_all().num_rows == 1
    (data / "00000000000000000000").write_bytes(bytes(100))
    with pytest.raises(StoreForeign, match=r"in dledger-n0, a log of DLedger.*Consume them"):
        StoreReader(str(tmp_path))
    with pytest.raises(bulk.NotAStore, match=r"in dledger-n0, a log of DLedger.*Consume them"):
        bulk.scan(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "is_served"),
    [
        ({}, True),
        ({"totalQueues": 2}, False),
        ({"queueId": 1}, False),
        ({"logicOffset": 100}, False),
        ({"hostedQueues": None}, False),
    ],
)
def test_a_static_topic_is_served_with_its_local_queues_only(
    tmp_path: Path, change: dict[str, int | None], is_served: bool
) -> None:
    """A queue that was moved continues at another offset than on this disk."""
    part = {
        "bname": "b",
        "queueId": 0,
        "logicOffset": 0,
        "startOffset": 0,
        "endOffset": -1,
        **change,
    }
    mapping = {"totalQueues": 1, "hostedQueues": {"0": [part]}, **change}
    file = tmp_path / "config" / "topicQueueMapping.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"topicQueueMappingInfoMap": {"S": mapping}}), encoding="utf-8")
    if is_served:
        open_store(tmp_path).close()
    else:
        with pytest.raises(StoreForeign, match=r"1 topics are static \(S\).*deleteTopic"):
            open_store(tmp_path)


def test_topics_that_are_more_at_rocketmq_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config" / "topics.json"
    file.parent.mkdir()
    rows = {
        "C": {"attributes": {"cleanup.policy": "COMPACTION"}},
        "D": {"attributes": {"cleanup.policy": "DELETE", "message.type": "NORMAL"}},
        "L": {"attributes": {"message.type": "LITE", "queue.type": ["?"]}},
    }
    file.write_text(json.dumps({"topicConfigTable": rows}), encoding="utf-8")
    open_store(tmp_path).close()
    named = [
        each.message.rpartition("topic=")[2] for each in caplog.records if "topic=" in each.message
    ]
    assert named == ["C"]


def test_a_failed_recovery_leaves_no_queues_without_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power took the whole log; the queues of what it held cannot be cut at the first start."""
    store = open_store(tmp_path)
    send(store)
    store.close()
    [log] = (tmp_path / "commitlog").iterdir()
    log.write_bytes(bytes(log.stat().st_size))
    (tmp_path / "abort").touch()

    def fail(queue: ConsumeQueue, end: int) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(ConsumeQueue, "truncate", fail)
        with pytest.raises(OSError, match="Input/output"):
            open_store(tmp_path)
    store = open_store(tmp_path)
    assert read_all(store) == []
    send(store)
    assert len(read_all(store)) == 1
    store.close()


def test_a_log_with_a_missing_or_a_strange_file_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(80):
        send(store, body=b"x" * 3000)
    store.close()
    names = sorted(os.listdir(tmp_path / "commitlog"))
    os.rename(tmp_path / "commitlog" / names[1], tmp_path / "away")
    with pytest.raises(StoreForeign, match=f"{names[1]} should stand"):
        open_store(tmp_path)
    os.rename(tmp_path / "away", tmp_path / "commitlog" / names[1])
    with (tmp_path / "commitlog" / names[0]).open("ab") as file:
        file.write(b"more")
    with pytest.raises(StoreForeign, match="another program has changed it"):
        open_store(tmp_path)


def test_a_store_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnreadable, match="file"):
        open_store(tmp_path / "file" / "store")


def test_the_sizes_of_an_existing_store_are_kept(tmp_path: Path) -> None:
    """disk.md 2: they are part of its identity; RocketMQ refuses to start with others."""
    store = open_store(tmp_path)
    for _ in range(60):
        send(store, body=b"x" * 3000)
    store.close()
    store = open_store(
        tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=60_000
    )
    for _ in range(60):
        send(store, body=b"x" * 3000)
    assert len(read_all(store)) == 120
    store.close()
    assert {p.stat().st_size for p in (tmp_path / "commitlog").iterdir()} == {64 << 10}
    queue = tmp_path / "consumequeue" / "Topic" / "0"
    assert {p.stat().st_size for p in queue.iterdir()} == {1000}


def test_a_preallocated_file_that_was_never_used_does_not_matter(tmp_path: Path) -> None:
    """disk.md 2: after a crash it is there, all zeros; and an empty one of a crash in the making."""
    store = open_store(tmp_path)
    send(store)
    store.close()
    for start, size in ((64 << 10, 64 << 10), (128 << 10, 0)):
        with (tmp_path / "commitlog" / f"{start:020d}").open("wb") as file:
            file.truncate(size)
    (tmp_path / "abort").touch()
    store = open_store(tmp_path)
    assert send(store) == 1
    assert len(read_all(store)) == 2
    store.close()


def test_opening_does_not_get_slower_with_what_is_stored(tmp_path: Path) -> None:
    """Reads at start after a clean stop: about the same for ten times the messages."""
    reads = []
    for count in (2_000, 20_000):
        root = tmp_path / str(count)
        sizes: dict[str, int] = {
            "mapped_file_size_commit_log": 64 << 20,
            "mapped_file_size_consume_queue": 6_000_000,
        }
        store = open_store(root, None, **sizes)
        for _ in range(count):
            send(store, body=b"x" * 1000)
        store.close()
        store = open_store(root, None, **sizes)
        reads.append(store.recovery.records)
        assert len(read_all(store, offset=count - 10)) == 10
        store.close()
    assert reads[1] < reads[0] * 2


def test_a_side_file_is_replaced_as_a_whole_and_the_old_one_kept(tmp_path: Path) -> None:
    file = ConfigFile(str(tmp_path / "config" / "topics.json"))
    assert file.load() is None
    file.save({"a": 1})
    file.save({"a": 2, "table": {0: 3, 1: 4}})
    assert Path(file.path).read_bytes() == b'{"a":2,"table":{0:3,1:4}}'
    assert json.loads(Path(file.path + ".bak").read_bytes()) == {"a": 1}
    assert not Path(file.path + ".tmp").exists()
    assert file.load() == {"a": 2, "table": {"0": 3, "1": 4}}
    # A crash in a save: a half .tmp; then the file itself missing, empty, cut.
    Path(file.path + ".tmp").write_bytes(b"{")
    assert file.load() == {"a": 2, "table": {"0": 3, "1": 4}}
    for content in (b"", b"  ", b'{"a":'):
        Path(file.path).write_bytes(content)
        assert file.load() == {"a": 1}
    Path(file.path).unlink()
    assert file.load() == {"a": 1}


@pytest.mark.parametrize("fails", ["fsync", "replace", "link"])
def test_a_save_that_fails_leaves_the_old_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    file = ConfigFile(str(tmp_path / "offsets.json"))
    file.save({"a": 1})

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, fail)
        if fails == "link":
            file.save({"a": 2})
        else:
            with pytest.raises(OSError, match="Input/output error"):
                file.save({"a": 2})
    assert file.load() == {"a": 2 if fails == "link" else 1}


def test_a_thousand_queues_open_without_a_wait_for_each(tmp_path: Path) -> None:
    """BenchmarkTest has 1,024 queues: a first touch through the map waits for the journal, 16 ms each.

    So every queue's new stretch is written by a call before; a time limit would break on a busy machine.
    """
    store = open_store(tmp_path, mapped_file_size_consume_queue=6_000_000)
    filled: list[str] = []
    reserve = MappedFile.reserve

    def note(file: MappedFile, end: int, *, fill: bool = False) -> None:
        before = file.reserved
        reserve(file, end, fill=fill)
        if file.reserved > before and fill:
            filled.append(file.path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MappedFile, "reserve", note)
        for queue_id in range(1024):
            assert send(store, "BenchmarkTest", queue_id) == 0
    assert len(set(filled)) == 1024
    store.close()
    store = open_store(tmp_path)
    assert len(list(store.queues())) == 1024
    assert all(store.max_offset("BenchmarkTest", queue_id) == 1 for queue_id in range(1024))
    store.close()


@pytest.mark.parametrize("killed", [False, True])
def test_plain_queues_stay_plain_whatever_the_topic_says(tmp_path: Path, killed: bool) -> None:
    """The attribute came when the queues were there already."""
    store = open_store(tmp_path)
    for _ in range(120):
        send(store)
    store.close()
    first = tmp_path / "consumequeue" / "Topic" / "0" / f"{0:020}"
    before = first.read_bytes()
    if killed:
        (tmp_path / "abort").touch()
    topic = {"topicName": "Topic", "attributes": {"queue.type": "BatchCQ"}}
    ConfigFile(str(tmp_path / "config" / "topics.json")).save(
        {"topicConfigTable": {"Topic": topic}}
    )
    for count in (121, 122):
        store = open_store(tmp_path)
        assert send(store) == count - 1
        assert len(read_all(store)) == count
        store.close()
        assert first.read_bytes() == before
    assert not (tmp_path / "batchconsumequeue").exists()


@pytest.mark.parametrize("lost", [1, 3, 40])
def test_what_stands_before_lost_records_can_still_be_found(tmp_path: Path, lost: int) -> None:
    """Blank entries in the middle of a queue do not hide those in front of them."""
    queue = ConsumeQueue(str(tmp_path), 100 * 20, "T", 0)
    for number in range(10):
        queue.put(number * 100, 100, 0)
    queue.skip_to(10 + lost)
    for number in range(10, 20):
        queue.put(number * 100, 100, 0)
    for number in range(20):
        expected = number if number < 10 else number + lost
        assert queue.first_at_or_behind(number * 100) == expected
    assert queue.min_offset(0) == 0
    assert queue.first_at_or_behind(2_000) == queue.max_offset
    queue.close()
