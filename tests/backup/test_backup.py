"""Cuts of a store, and stores made of them: what is in them, what is shared, what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.backup.cut import names_of_cuts, read_cut
from pocketmq.backup.errors import BackupDamaged, BackupRefused
from pocketmq.backup.place import opened_place
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.doctor.examination import diagnose
from pocketmq.store.repair.reader import StoreReader
from tests.backup.stores import damaged, fill, restored, take, unlike
from tests.store.stores import HOST, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """One of some files of 64 KiB, open while it is backed up."""
    opened = open_store(tmp_path / "store")
    fill(opened, 600)
    yield opened
    opened.close()


@pytest.fixture(params=["folder", "objects"])
def dest(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "backup")
    return f"memory://{tmp_path.name}"


def test_a_store_comes_back_as_of_its_last_backup(
    store: MessageStore, dest: str, tmp_path: Path
) -> None:
    first = take(tmp_path / "store", dest)
    assert take(tmp_path / "store", dest).written == 0
    fill(store, 20, 600)
    second = take(tmp_path / "store", dest, 2)
    # What is whole is not written again, and of what is not the last piece.
    assert 0 < second.written < first.written / 5
    restored(dest, tmp_path / "made")
    assert unlike(tmp_path / "store", tmp_path / "made") == []
    assert diagnose(StoreReader(str(tmp_path / "made")), now_ms=1 << 40).problems == []
    assert damaged(opened_place(dest)) == []


def test_the_index_is_made_as_well(store: MessageStore, dest: str, tmp_path: Path) -> None:
    take(tmp_path / "store", dest)
    restored(dest, tmp_path / "made")
    made = open_store(tmp_path / "made")
    found = made.query_by_key("T", "key7", 10, 0, 1 << 60)
    made.close()
    assert len(found.records) == 1


def test_an_earlier_backup_is_chosen_by_time_or_position(
    store: MessageStore, tmp_path: Path
) -> None:
    dest = str(tmp_path / "backup")
    ends = []
    for ms in (1_000, 2_000, 3_000):
        ends.append(take(tmp_path / "store", dest, ms).cut.position)
        fill(store, 10, ms)
    for name, at in (
        ("a", {"ms": 2_999}),
        ("b", {"position": ends[1]}),
        ("c", {"position": ends[2] - 1}),
    ):
        assert restored(dest, tmp_path / name, **at).cut.position == ends[1]
    assert restored(dest, tmp_path / "d").cut.position == ends[2]
    with pytest.raises(BackupRefused, match="later than that"):
        restored(dest, tmp_path / "e", ms=999)


def test_old_backups_are_removed_with_what_only_they_have(
    store: MessageStore, dest: str, tmp_path: Path
) -> None:
    for ms in range(1, 5):
        fill(store, 30, ms * 1_000)
        take(tmp_path / "store", dest, ms)
    place = opened_place(dest)
    before = len(place.listed("objects"))
    assert take(tmp_path / "store", dest, 5, keep=2).removed == 3
    cuts = [read_cut(place, name) for name in names_of_cuts(place)]
    assert [cut.ms for cut in cuts] == [4, 5]
    there = {name.rpartition("/")[2] for name in place.listed("objects")}
    assert there == cuts[0].objects | cuts[1].objects
    assert len(there) < before
    restored(dest, tmp_path / "made")
    assert unlike(tmp_path / "store", tmp_path / "made") == []


def test_no_store_is_made_of_a_changed_or_missing_object(
    store: MessageStore, tmp_path: Path
) -> None:
    dest = tmp_path / "backup"
    take(tmp_path / "store", str(dest))
    objects = sorted(path for path in (dest / "objects").rglob("*") if path.is_file())
    assert len(objects) > 5
    # A piece of the log, and side files.
    for path in [next(each for each in objects if not each.suffix), *objects[:2]]:
        whole = path.read_bytes()
        for bad in whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), None:
            path.unlink() if bad is None else path.write_bytes(bad)
            (problem,) = damaged(opened_place(str(dest)))
            assert path.name in problem
        with pytest.raises(BackupDamaged, match=path.name):
            restored(str(dest), tmp_path / "made")
        assert not (tmp_path / "made").exists()
        path.write_bytes(whole)
    (cut,) = (dest / "cuts").iterdir()
    cut.write_bytes(cut.read_bytes().replace(b'"ours": true', b'"ours": false'))
    with pytest.raises(BackupDamaged, match="checksum"):
        restored(str(dest), tmp_path / "made")


def test_a_backup_is_of_one_log(store: MessageStore, tmp_path: Path) -> None:
    dest = str(tmp_path / "backup")
    take(tmp_path / "store", dest)
    other = open_store(tmp_path / "other")
    fill(other, 700, 5_000)
    other.close()
    with pytest.raises(BackupRefused, match="another log"):
        take(tmp_path / "other", dest, 2)
    # One that was restored, and has gone its own way since.
    restored(dest, tmp_path / "made")
    made = open_store(tmp_path / "made")
    fill(made, 20, 9_000)
    fill(store, 30, 9_000)
    take(tmp_path / "store", dest, 2)
    made.close()
    with pytest.raises(BackupRefused, match="another log"):
        take(tmp_path / "made", dest, 3)


def test_a_store_is_made_in_an_empty_folder_only(store: MessageStore, tmp_path: Path) -> None:
    dest = str(tmp_path / "backup")
    take(tmp_path / "store", dest)
    with pytest.raises(BackupRefused, match="not empty"):
        restored(dest, tmp_path / "store")
    (tmp_path / "empty").mkdir()
    restored(dest, tmp_path / "empty")
    assert unlike(tmp_path / "store", tmp_path / "empty") == []


def test_a_queue_whose_messages_expired_keeps_its_offset(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    fill(store, 90, topic="Old")
    fill(store, 900)
    store.close()
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    for path in files[:2]:
        path.unlink()
    dest = str(tmp_path / "backup")
    cut = take(tmp_path / "store", dest).cut
    assert cut.begin == int(files[2].name)
    restored(dest, tmp_path / "made")
    made = open_store(tmp_path / "made")
    assert [made.next_offset("Old", queue_id) for queue_id in range(3)] == [30, 30, 30]
    source = open_store(tmp_path / "store")
    assert made.min_offset("Old", 0) == source.min_offset("Old", 0)
    source.close()
    made.close()
    assert unlike(tmp_path / "store", tmp_path / "made") == []


def test_a_log_that_is_damaged_comes_back_with_its_damage(
    store: MessageStore, tmp_path: Path
) -> None:
    store.close()
    path = min((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[30_000:30_010] = bytes(10)
    path.write_bytes(data)
    dest = str(tmp_path / "backup")
    take(tmp_path / "store", dest)
    assert restored(dest, tmp_path / "made").damages == 1
    assert path.read_bytes() == (tmp_path / "made" / "commitlog" / path.name).read_bytes()


def test_deleted_queues_stay_deleted(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 9, topic="Gone")
    store.delete_topic("Gone")
    fill(store, 9)
    dest = str(tmp_path / "backup")
    take(tmp_path / "store", dest)
    restored(dest, tmp_path / "made")
    assert {queue.topic for queue in StoreReader(str(tmp_path / "made")).queues()} == {"T"}


def test_the_size_of_files_is_kept(tmp_path: Path) -> None:
    dest = str(tmp_path / "backup")
    store = open_store(tmp_path / "store", mapped_file_size_consume_queue=2_000)
    fill(store, 30)
    store.close()
    take(tmp_path / "store", dest)
    restored(dest, tmp_path / "made")
    config = StoreConfig(store_path_root_dir=str(tmp_path / "made"))
    made = MessageStore(config, clock=SystemClock(), store_host=HOST)
    made.open()
    assert made.log_file_size == 64 << 10
    made.close()
    queue = tmp_path / "made" / "consumequeue" / "T" / "0" / f"{0:020d}"
    assert queue.stat().st_size == 2_000
