"""Messages that are stored together, while a call to the disk fails: all of them are there, or none."""

import errno
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from pocketmq.model.record import encode_batch
from pocketmq.store import MessageStore
from pocketmq.store.log.alike_run import AlikeRecords, AlikeRun
from tests.faults.faulty_disk import FaultyDisk
from tests.store.stores import HOST, open_store, read_all, send

_COUNT = 130


def run(store: MessageStore) -> bool:
    """130 messages in turns to two queues, whose files hold 50 entries."""
    rows = numpy.array([b"x" * 8] * _COUNT, "V8")
    ids = [place % 2 for place in range(_COUNT)]
    alike = AlikeRun(
        ids, numpy.ones(_COUNT, numpy.int64), rows, [zlib.crc32(b"x" * 8)] * _COUNT, [], 0, None
    )
    common = AlikeRecords(0, 0, 8, b"WAIT\x01true", [])
    return store.appends.append_run("Topic", alike, common, HOST) is not None


def batch(store: MessageStore) -> bool:
    members = encode_batch([(0, b"x" * 8, b"")] * _COUNT)
    store.append_batch("Topic", 0, members, b"", 0, 1, HOST)
    return True


@pytest.mark.parametrize("append", [run, batch])
def test_each_call_of_messages_stored_together_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, append: Callable[[MessageStore], bool]
) -> None:
    """A failure behind the write to the log would have them stored twice, and their offsets given twice."""
    disk = FaultyDisk(tmp_path, monkeypatch)
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        store = open_store(folder, mapped_file_size_consume_queue=1_000)
        for place in range(90):
            send(store, queue_id=place % 2)
        before = store.commit_log_max_position
        disk.fail(number, errno.EIO)
        stored = False
        try:
            stored = append(store)
        except Exception:  # whatever it is, nothing may have been stored
            if disk.hit is None:
                raise
        hit, said = disk.hit, f"{disk.hit} {stored}"
        disk.heal()
        assert (store.commit_log_max_position > before) is stored, said
        ends = [store.max_offset("Topic", queue_id) for queue_id in (0, 1)]
        assert sum(ends) == 90 + stored * _COUNT, said
        assert append(store), said
        found = [len(read_all(store, queue_id=queue_id)) for queue_id in (0, 1)]
        assert sum(found) == 90 + (1 + stored) * _COUNT, said
        store.close()
        if hit is None:
            return
