"""A recorded store is cut off anywhere near its end (R3)."""

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pocketmq.model.record import read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.repair.recovery import Recovery
from pocketmq.store.store_lock import LastStop
from tests.crash.recorded_store import HOST, RecordedStore, config, open_store, record, served

TAIL = 64 << 10
# Bytes of a record, from either end, that are not its body; in a body every cut is like the next.
NOT_BODY = 128
IN_BODY_STEP = 61


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    """Few and large records: each opening walks over all of them."""
    root = tmp_path_factory.mktemp("cut") / "store"
    return record(root, bodies_of=9000, count=45)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These tests open a store many thousand times; whether it is durable is for others to show."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Restored:
    """Files that are put back, by their open descriptors, to what they were."""

    def __init__(self, paths: list[Path]) -> None:
        self._files = [(os.open(path, os.O_RDWR), path.read_bytes()) for path in paths]

    def restore(self) -> None:
        for descriptor, data in self._files:
            os.ftruncate(descriptor, len(data))
            os.pwrite(descriptor, data, 0)

    def close(self) -> None:
        for descriptor, _ in self._files:
            os.close(descriptor)


@pytest.mark.parametrize("part", range(8))
def test_a_store_cut_at_any_byte_serves_all_before_the_cut(
    recorded: RecordedStore,
    quick_folder: Path,
    quick: None,
    part: int,
    pytestconfig: pytest.Config,
) -> None:
    """R3: every byte after a crash, and some after a clean stop; every eighth with a whole store.

    Within bodies every 61st byte, unless --every-cut asks for all.
    """
    root = recorded.copy_to(quick_folder / "store")
    shutil.rmtree(root / "index")
    log_file = root / "commitlog" / sorted(os.listdir(root / "commitlog"))[-1]
    start = int(log_file.name)
    assert recorded.end - start >= TAIL
    # Head before the body, topic and properties behind it.
    assert all(size - 9000 <= NOT_BODY for _, size, _ in recorded.records)
    whole = log_file.read_bytes()
    others = Restored([root / "checkpoint", *(root / "consumequeue").rglob("0" * 10 + "*")])
    log_descriptor = os.open(log_file, os.O_RDWR)
    last = recorded.end - part * (TAIL // 8)
    cuts: Sequence[int] = range(last, last - TAIL // 8, -1)
    if not pytestconfig.getoption("--every-cut"):
        edges = {
            cut
            for position, size, _ in recorded.records
            for end in (position, position + size)
            for cut in range(end - NOT_BODY, end + NOT_BODY)
        }
        cuts = [cut for cut in cuts if cut in edges or not cut % IN_BODY_STEP]
    for cut in cuts:
        # The opening before has zeroed the record that the cut was in.
        low = max(0, cut - start - 10_000)
        os.pwrite(log_descriptor, whole[low : cut - start], low)
        os.ftruncate(log_descriptor, cut - start)
        others.restore()
        # Recovery keeps there what it cuts off, and tries the names that are taken one after the other.
        shutil.rmtree(root / "dropped", ignore_errors=True)
        if cut % 8:
            check_recovery(root, recorded, cut, clean=cut % 16 == 1)
        else:
            (root / "abort").touch()
            check_cut(root, recorded, cut)
    others.close()
    os.close(log_descriptor)


def check_recovery(root: Path, recorded: RecordedStore, cut: int, *, clean: bool) -> None:
    """What MessageStore.open does to log and queues, without the rest of it."""
    last_stop = LastStop.CLEAN if clean else LastStop.UNKNOWN
    checkpoint = Checkpoint.load(str(root / "checkpoint"))
    log = CommitLog(str(root / "commitlog"), 0)
    log.files.load(file_size=checkpoint.log_file_size)
    table = ConsumeQueueTable(
        str(root), 0, batch_file_size=46, ext_file_size=None, store_host_size=8, long_topics=False
    )
    table.load(checkpoint.queue_file_size)
    recovery = Recovery(
        str(root), log, table, checkpoint, last_stop=last_stop, delay_levels=(1, 2, 3)
    )
    report = recovery.run()
    left = [place for position, size, place in recorded.records if position + size <= cut]
    assert report.end <= cut
    table.open_all()
    assert sum(queue.max_offset for queue in table.queues.values()) == len(left)
    for position, size, place in recorded.records[: len(left)][-8:]:
        entry = table.queues[place[:2]].entry(place[2])
        assert entry is not None
        assert entry[:2] == (position, size)
        assert log.slice(position, size) is not None
    log.close()
    table.close()


def check_cut(root: Path, recorded: RecordedStore, cut: int) -> None:
    """Everything wholly before the cut is there, nothing else, and the store takes more."""
    store = MessageStore(
        config(root, message_index_enable=False, mapped_file_size_consume_queue=4000),
        clock=ManualClock(),
        store_host=HOST,
    )
    store.open()
    try:
        left = [place for position, size, place in recorded.records if position + size <= cut]
        assert sum(store.max_offset(*queue) for queue in store.queues()) == len(left)
        ends = {place[:2]: place for place in left}
        for topic, queue_id, offset in ends.values():
            # The last of each queue: those before it stand in front of it in the log.
            result = store.read(topic, queue_id, offset, 1)
            body = read_record(result.buffers[0]).body
            assert body == recorded.bodies[topic, queue_id, offset]
        appended = store.append("TopicA", 0, b"on", b"", 0, 0, 1, HOST)
        assert appended.queue_offset == sum(1 for p in left if p[:2] == ("TopicA", 0))
        assert cut >= store.recovery.end
    finally:
        store.close()


def test_a_cut_store_serves_every_message_before_the_cut(
    recorded: RecordedStore, quick_folder: Path, quick: None
) -> None:
    """R3, the whole content, at some cuts; with the index."""
    for number, cut in enumerate(range(recorded.end, recorded.end - TAIL, -2003)):
        root = recorded.copy_to(quick_folder / str(number))
        log_file = root / "commitlog" / sorted(os.listdir(root / "commitlog"))[-1]
        os.truncate(log_file, cut - int(log_file.name))
        (root / "abort").touch()
        store = open_store(root)
        try:
            left = [p for position, size, p in recorded.records if position + size <= cut]
            assert served(store) == {place: recorded.bodies[place] for place in left}
            for place in left[-20:]:
                found = store.query_by_key(place[0], recorded.keys[place], 64, 0, (1 << 63) - 1)
                bodies = [bytes(read_record(found_).body) for found_ in found.records]
                assert recorded.bodies[place] in bodies
        finally:
            store.close()
        # And once more: what was recovered is a store like any other.
        store = open_store(root)
        assert store.recovery.damages == []
        assert len(served(store)) == len(left)
        store.close()
