"""One flipped bit anywhere (R5): the store opens, serves all else, never a wrong body."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.model.record import read_record
from pocketmq.store import ConfigFile, StoreUnreadable
from pocketmq.store.message_store import MessageStore
from tests.crash.recorded_store import (
    LONG_MAX,
    RecordedStore,
    flip,
    open_store,
    record,
    served,
)

# Bytes of a record, from either end, that are not its body.
NOT_BODY = 100


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    return record(tmp_path_factory.mktemp("flip") / "store", bodies_of=300, count=60)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thousands of openings; whether they are durable is for others to show."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def step(pytestconfig: pytest.Config) -> int:
    """Of bytes and bits that are alike every fifth, unless --every-cut asks for all."""
    return 1 if pytestconfig.getoption("--every-cut") else 5


def log_file_of(root: Path, position: int) -> tuple[Path, int]:
    """The commit log file of a position, and the place in it."""
    start = max(int(name) for name in os.listdir(root / "commitlog") if int(name) <= position)
    return root / "commitlog" / f"{start:020d}", position - start


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("which", [20, -1], ids=["in the middle", "the last"])
def test_a_flipped_bit_in_a_record_costs_that_record_at_most(
    recorded: RecordedStore, quick_folder: Path, quick: None, clean: bool, which: int, step: int
) -> None:
    """R5, the bytes of a record: all of header, topic and properties, and some or all of the body."""
    position, size, place = recorded.records[which]
    body = range(NOT_BODY, size - NOT_BODY)
    for at in [each for each in range(size) if each not in body or not each % step]:
        root = recorded.copy_to(quick_folder / "store")
        path, byte = log_file_of(root, position + at)
        flip(path, byte, at % 8)
        if not clean:
            (root / "abort").touch()
        store = open_store(root, message_index_enable=False)
        try:
            check_all_but(store, recorded, place)
        finally:
            store.close()
        shutil.rmtree(root)


def check_all_but(
    store: MessageStore, recorded: RecordedStore, damaged: tuple[str, int, int]
) -> None:
    """Every other message is served where it was; of the damaged one nothing but its true body."""
    found = served(store)
    others = {place: body for place, body in recorded.bodies.items() if place != damaged}
    assert {place: body for place, body in found.items() if place != damaged} == others
    assert found.get(damaged, recorded.bodies[damaged]) == recorded.bodies[damaged]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("offset", [0, 7, -1], ids=["the first", "in the middle", "the last"])
def test_a_flipped_bit_in_a_queue_entry_is_mended(
    recorded: RecordedStore, quick_folder: Path, quick: None, clean: bool, offset: int, step: int
) -> None:
    """R5, the bits of an entry, in all its bytes: position, size, tags code."""
    topic, queue_id = "TopicA", 1
    count = sum(1 for place in recorded.bodies if place[:2] == (topic, queue_id))
    entry = offset % count
    for bit in range(0, 160, step):
        root = recorded.copy_to(quick_folder / "store")
        path = root / "consumequeue" / topic / str(queue_id)
        file = path / f"{entry * 20 // 2000 * 2000:020d}"
        before = file.read_bytes()
        flip(file, entry * 20 % 2000 + bit // 8, bit % 8)
        if not clean:
            (root / "abort").touch()
        store = open_store(root, message_index_enable=False)
        try:
            assert served(store) == recorded.bodies
        finally:
            store.close()
        assert file.read_bytes() == before
        shutil.rmtree(root)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_a_flipped_bit_in_the_checkpoint_loses_nothing(
    recorded: RecordedStore, quick_folder: Path, quick: None, clean: bool
) -> None:
    """R5: every byte that is used, and some that are not."""
    for at in [*range(48), *range(64, 2048, 173), *range(2048, 2100), *range(4080, 4096)]:
        root = recorded.copy_to(quick_folder / "store")
        flip(root / "checkpoint", at, at % 8)
        if not clean:
            (root / "abort").touch()
        store = open_store(root)
        try:
            assert served(store) == recorded.bodies
        finally:
            store.close()
        shutil.rmtree(root)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_a_flipped_bit_in_an_index_file_gives_no_wrong_record(
    recorded: RecordedStore, quick_folder: Path, quick: None, clean: bool, step: int
) -> None:
    """R5: header, slots, entries; a query may miss what the bit stood for, and answers real records."""
    name = sorted(os.listdir(recorded.root / "index"))[0]
    size = (recorded.root / "index" / name).stat().st_size
    asked = list(recorded.keys.items())[::9]
    for at in range(0, size, 2 * step + 1):
        root = recorded.copy_to(quick_folder / "store")
        flip(root / "index" / name, at, at % 8)
        if not clean:
            (root / "abort").touch()
        store = open_store(root)
        try:
            wrong = 0
            for (topic, queue_id, offset), key in asked:
                found = store.query_by_key(topic, key, 64, 0, LONG_MAX)
                bodies = []
                for data in found.records:
                    got = read_record(data)
                    if got.body:
                        bodies.append(bytes(got.body))
                wrong += recorded.bodies[topic, queue_id, offset] not in bodies
            # One bit breaks one chain, or the header of one file of several.
            assert wrong < len(asked)
            assert served(store) == recorded.bodies
        finally:
            store.close()
        shutil.rmtree(root)


@pytest.mark.parametrize("name", ["abort", "lock"])
def test_what_is_in_abort_and_lock_does_not_matter(
    recorded: RecordedStore, quick_folder: Path, quick: None, name: str
) -> None:
    """R5: their being there counts."""
    for content in (b"", b"lock", b"4711", os.urandom(4096)):
        root = recorded.copy_to(quick_folder / "store")
        (root / name).write_bytes(content)
        store = open_store(root, message_index_enable=False)
        assert served(store) == recorded.bodies
        store.close()
        shutil.rmtree(root)


def test_a_flipped_bit_in_a_side_file_is_served_from_the_backup_or_refused(tmp_path: Path) -> None:
    """R5, config/*.json, every bit: the value, the previous one, or a clear error; never nothing."""
    file = ConfigFile(str(tmp_path / "config" / "consumerOffset.json"))
    previous = {"offsetTable": {"TopicA@group": {0: 5, 1: 6}}}
    current = {"offsetTable": {"TopicA@group": {0: 7, 1: 8}, "TopicB@group": {0: 1}}}
    file.save(previous)
    file.save(current)
    good = Path(file.path).read_bytes()
    for bit in range(len(good) * 8):
        Path(file.path).write_bytes(good)
        flip(Path(file.path), bit // 8, bit % 8)
        # A changed digit or letter is JSON like any other: no format without a checksum can tell.
        assert isinstance(file.load(), dict)
    Path(file.path).write_bytes(b"{not json")
    Path(file.path + ".bak").write_bytes(b"\x00\x01")
    with pytest.raises(StoreUnreadable, match="move it away"):
        file.load()
