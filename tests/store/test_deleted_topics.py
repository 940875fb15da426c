"""Topics that are deleted, and made again: no message of the old one comes back."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.store import (
    MessageStore,
)
from pocketmq.store.doctor.examination import diagnose
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.deleted_queues import DeletedQueues
from pocketmq.store.repair.reader import StoreReader
from tests.store.stores import (
    open_store,
    read_all,
    send,
)


class _Killed(BaseException):
    """The process ends here."""

    @staticmethod
    def after(count: int, work: Callable[..., None]) -> Callable[..., None]:
        """Return `work` for the first `count` calls, then the end."""
        left = iter(range(count))

        def once(*args: object) -> None:
            if next(left, None) is None:
                raise _Killed
            work(*args)

        return once


def test_deleting_a_topic_takes_its_queues_and_leaves_the_others(tmp_path: Path) -> None:
    """disk.md 16: the records stay in the log; a topic made again begins at 0."""
    store = open_store(tmp_path)
    for topic in ("A", "B"):
        for queue_id in (0, 1):
            send(store, topic, queue_id)
    assert store.delete_topic("A") == 2
    assert sorted(store.queues()) == [("B", 0), ("B", 1)]
    assert not (tmp_path / "consumequeue" / "A").exists()
    assert store.clean_unused_topics({"A"}) == ["B"]
    assert send(store, "A") == 0
    store.close()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path)
    assert len(read_all(store, "A")) == 1
    store.close()


@pytest.mark.parametrize("stop", ["clean", "killed", "repaired"])
def test_a_recreated_topic_has_only_its_own_messages(tmp_path: Path, stop: str) -> None:
    """The records are in the log still, and each start reads its end again."""

    def restarted(store: MessageStore) -> MessageStore:
        store.close()
        if stop == "killed":
            (tmp_path / "abort").touch()
        elif stop == "repaired":
            # What `pocketmq store repair` has made again.
            shutil.rmtree(tmp_path / "consumequeue")
            (tmp_path / "checkpoint").unlink()
        return open_store(tmp_path)

    store = open_store(tmp_path)
    for topic in ("Again", "Gone"):
        for number in range(5):
            send(store, topic, body=b"old %d" % number)
        store.delete_topic(topic)
    send(store, "Again", body=b"new")
    store = restarted(store)
    assert store.queues() == [("Again", 0)]
    assert [bytes(record.body) for record in read_all(store, "Again")] == [b"new"]
    assert not diagnose(StoreReader(str(tmp_path))).problems
    assert send(store, "Gone") == 0
    store = restarted(store)
    assert len(read_all(store, "Gone")) == 1
    store.close()


def test_a_killed_deletion_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a topic that is made again would have what is left of the old one."""
    store = open_store(tmp_path)
    for queue_id in range(3):
        send(store, "Again", queue_id, body=b"old")
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueueTable, "_remove", _Killed.after(1, ConsumeQueueTable._remove))
        with pytest.raises(_Killed):
            store.delete_topic("Again")
    send(store, "Again", 2, body=b"new")
    store.close()
    store = open_store(tmp_path)
    assert store.queues() == [("Again", 2)]
    store.close()


def test_a_topic_is_deleted_also_where_that_cannot_be_noted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, "Gone")
    (tmp_path / "deletedqueues").mkdir()
    assert store.delete_topic("Gone") == 1
    assert store.queues() == []
    store.close()


def test_messages_stored_at_a_deleted_queues_place_are_kept(tmp_path: Path) -> None:
    """After a power cut, or a slave's cut, the log is shorter than a deleted queue was."""
    queues = [ConsumeQueue("", 20, topic, 0) for topic in ("Lost", "Expired", "Kept")]
    for queue, end in zip(queues, (900, 100, 300), strict=True):
        queue.max_position = end
    deleted = DeletedQueues(str(tmp_path))
    deleted.note(queues)
    deleted.settle(100, 500)
    again = DeletedQueues(str(tmp_path))
    again.load()
    for each in (deleted, again):
        found = [each.has(topic, 0, at) for topic in ("Lost", "Kept") for at in (200, 400, 600)]
        assert found == [True, True, False, True, False, False]
        assert not each.has("Expired", 0, 50)
    again.settle(0, 0)
    assert not (tmp_path / "deletedqueues").exists()
