"""Stores that are looked at again and again: what is kept equals what is there, and little is opened."""

import os
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pocketmq import bulk
from pocketmq.bulk.fetch import LocalFolders
from pocketmq.bulk.offsets import LossRule, QueueKey
from pocketmq.bulk.planning import live_store as looks
from pocketmq.bulk.planning.plan_cache import CachedPlan
from pocketmq.bulk.planning.planner import Planner
from pocketmq.files.layout import Listed
from pocketmq.files.store_files import StoreFiles
from tests.store.bulk_stores import Message, WrittenStore

Found = dict[QueueKey, tuple[int, int]]


class Watched:
    """Stores in a folder, looked at with what was kept of earlier looks, and anew."""

    def __init__(self, folder: Path, stores: int = 1) -> None:
        self.stores = [
            WrittenStore(folder / f"b{n}" / "store", log_file_size=1 << 14, queue_file_entries=64)
            for n in range(stores)
        ]
        self.topics = bulk.Topics(pattern="T.*")
        self._kept = CachedPlan()
        self._aged = 0

    def look(self, *, kept: bool = True) -> Found:
        roots = [bulk.Root(str(s.root), s.root.parent.name) for s in self.stores]
        planner = Planner(
            roots, self.topics, LossRule(), must_exist=False, kept=self._kept if kept else None
        )
        return {key: (one.min_offset, one.max_offset) for key, one in planner.bounds.items()}

    def let_time_pass(self) -> None:
        """Folders changed long ago, each at a time of its own."""
        recently = time.time() - 1_000_000
        for store in self.stores:
            for folder in (store.root / "consumequeue").rglob("*"):
                if folder.is_dir() and folder.stat().st_mtime > recently:
                    self._aged += 1
                    os.utime(folder, (recently - 1e8, recently - 1e8 + self._aged))


def fill(store: WrittenStore, topics: int = 30, queues: int = 8) -> None:
    store.add(Message(f"T{t}", q) for t in range(topics) for q in range(queues))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of files opened from here on."""
    opened: list[str] = []
    real = os.open

    def count(path: str, flags: int) -> int:
        opened.append(str(path))
        return real(path, flags)

    monkeypatch.setattr(os, "open", count)
    return opened


def test_a_look_opens_what_has_changed_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, stores=3)
    for store in watched.stores:
        fill(store)
    watched.let_time_pass()
    first = watched.look()
    assert watched.look() == first
    opened = counted(monkeypatch)
    assert watched.look() == first
    assert len(opened) <= 4 * 3
    assert not any("consumequeue" in path for path in opened)
    opened.clear()
    watched.stores[1].add(Message("T3", q) for q in (1, 1, 5))
    after = watched.look()
    assert {key: after[key] for key in after if after[key] != first[key]} == {
        QueueKey("T3", "b1", 1): (0, 3),
        QueueKey("T3", "b1", 5): (0, 2),
    }
    assert len([p for p in opened if "consumequeue" in p]) == 2


@pytest.mark.parametrize("seed", range(int(os.environ.get("POCKETMQ_LOOKS", "8"))))
def test_what_is_kept_is_what_is_there(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages, queues that lag behind, topics that go and come, files that go, a log that is cut off; and
    the same where no broker runs that would index what the log holds."""
    chance = random.Random(seed)
    monkeypatch.setattr(looks, "_FOLLOWED_MAX", chance.choice((2_000, 20_000, 1 << 26)))
    monkeypatch.setattr(looks, "_PIECE", chance.choice((300, 5_000, 1 << 20)))
    watched = Watched(tmp_path)
    (store,) = watched.stores
    fill(store, 5, 3)
    if seed % 3 == 0:
        (store.root / "abort").touch()
    late: list[tuple[Message, int, int]] = []
    for _ in range(25):
        step = chance.choices(
            ("send", "lag", "catch up", "nothing", "delete", "retention", "cut", "anew"),
            (30, 10, 15, 20, 4, 3, 3, 1),
        )[0]
        message = Message(f"T{chance.randrange(7)}", chance.randrange(3))
        if step == "send":
            store.add([message, Message("Unwanted"), message][: chance.randint(1, 3)])
        elif step == "lag":
            key = (message.topic, message.queue_id)
            # The record is there before its entry; no other may pass it.
            if not late:
                offset = store.offsets.get(key, 0)
                late.append((message, offset, add_unindexed(store, message, offset)))
                store.offsets[key] = offset + 1
        if step != "lag":
            for late_message, offset, position in late:
                size = len(store.record_of(late_message, offset, position))
                store.index(late_message, offset, position, size)
            late.clear()
        if step == "delete":
            shutil.rmtree(store.root / "consumequeue" / message.topic, ignore_errors=True)
            for queue_id in range(3):
                store.offsets.pop((message.topic, queue_id), None)
        files = sorted((store.root / "commitlog").iterdir())
        if step == "retention" and len(files) > 1:
            files[0].unlink()
        if step == "cut":
            before = {p: p.read_bytes() for p in store.root.rglob("*") if p.is_file()}
            position, offsets = store.position, dict(store.offsets)
            store.add(Message(f"T{n % 5}", n % 3, b"lost") for n in range(chance.randint(1, 9)))
            watched.look()
            for path in list(store.root.rglob("*")):
                if path.is_file():
                    path.write_bytes(before[path]) if path in before else path.unlink()
            store.position, store.offsets = position, offsets
            store.add([message] * chance.randint(0, 3))
        if step == "anew":
            shutil.rmtree(store.root)
            watched.stores[:] = [store] = [WrittenStore(store.root, 1 << 14, 64)]
            fill(store, 2, 2)
            late.clear()
        watched.let_time_pass()
        assert watched.look() == watched.look(kept=False), f"after {step}"


def add_unindexed(store: WrittenStore, message: Message, offset: int) -> int:
    """A record whose queue does not point to it yet."""
    room = store.log_file_size - store.position % store.log_file_size
    raw = store.record_of(message, offset, store.position)
    if len(raw) + 8 > room:
        store.add([Message("Unwanted")])
        raw = store.record_of(message, offset, store.position)
    position = store.position
    store._write(raw)
    store.position += len(raw)
    return position


def test_roots_on_a_slow_disk_are_looked_into_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one shows that it waits; the lists of the others are then asked for at one time."""
    watched = Watched(tmp_path, stores=4)
    for store in watched.stores:
        fill(store, 1, 1)
    together = threading.Barrier(3, timeout=60)
    real = LocalFolders.list

    def slow(self: LocalFolders, path: str) -> list[Listed]:
        if path.endswith("commitlog"):
            if "b0" in path:
                threading.Event().wait(0.5)
            else:
                together.wait()
        return real(self, path)

    monkeypatch.setattr(LocalFolders, "list", slow)
    assert len(watched.look()) == 4


def test_a_log_file_begun_during_a_look_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are listed before queues are read; a broker fills a file and begins another in between."""
    store = WrittenStore(tmp_path / "b" / "store", log_file_size=1 << 14)
    store.add([Message(body=b"%d" % 0)])
    real = StoreFiles.topic_folders

    def slow(self: Any, wanted: Any) -> Any:
        monkeypatch.undo()
        store.add(Message(body=b"%d" % i * 100) for i in range(1, 100))
        return real(self, wanted)

    monkeypatch.setattr(StoreFiles, "topic_folders", slow)
    rows = bulk.scan(str(store.root), columns="body").read_all()
    assert rows.num_rows == 100
    assert len(list((store.root / "commitlog").iterdir())) > 1
