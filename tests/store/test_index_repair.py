"""The index after a crash, without numpy, and beside the loop: what is built again, and in which steps."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore
from pocketmq.store.index import index_service
from pocketmq.store.index.index_round import index_round
from tests.store.keyed_messages import find, put
from tests.store.stores import HOST, LONG_MAX, open_store


def two_keys_each(root: Path) -> tuple[MessageStore, list[int]]:
    """Fill several files; keys of one record are in two of them, as entries are odd in number."""
    store = open_store(root)
    return store, [put(store, b"KEYS\x01a%d b%d\x02" % (n, n)) for n in range(200)]


def all_keys(store: MessageStore, count: int) -> list[list[int]]:
    return [find(store, f"a{n}") + find(store, f"b{n}") for n in range(count)]


class HurryingClock(ManualClock):
    """Two seconds pass with each look, once it hurries."""

    hurries = False

    def monotonic_ms(self) -> int:
        if self.hurries:
            self.advance_ms(2_000)
        return super().monotonic_ms()


@pytest.mark.parametrize("lost", ["files", "header", "last file", "nothing"])
def test_after_a_crash_every_key_is_found_again(tmp_path: Path, lost: str) -> None:
    """disk.md 13: RocketMQ loses the index of older records here."""
    store = open_store(tmp_path, max_index_num=40)
    positions = {f"k{n}": put(store, b"UNIQ_KEY\x01k%d\x02" % n) for n in range(150)}
    assert find(store, "k0") == [positions["k0"]]
    store.close()
    names = sorted(os.listdir(tmp_path / "index"))
    assert len(names) > 3
    if lost == "files":
        for name in names:
            (tmp_path / "index" / name).unlink()
        (tmp_path / "checkpoint").unlink()
    elif lost == "header":
        with (tmp_path / "index" / names[-1]).open("r+b") as file:
            file.write(bytes(40))
    elif lost == "last file":
        (tmp_path / "index" / names[-1]).unlink()
    if lost in ("header", "last file"):
        # The checkpoint is older than these files.
        (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path, max_index_num=40)
    for key, position in positions.items():
        assert find(store, key) == [position], key
    store.close()


def test_lost_newest_index_files_are_built_again(tmp_path: Path) -> None:
    store, positions = two_keys_each(tmp_path)
    store.close()
    *_, newer, newest = sorted((tmp_path / "index").iterdir())
    newest.unlink()
    newer.unlink()
    store = open_store(tmp_path)
    assert all_keys(store, 200) == [[each, each] for each in positions]
    store.close()


def test_an_index_ahead_of_an_older_log_takes_the_next_keys(
    tmp_path: Path,
) -> None:
    """As after the log alone was put back from a copy."""
    older = tmp_path / "older"
    store, positions = two_keys_each(tmp_path / "store")
    kept = positions[120]
    store.close()
    shutil.copytree(tmp_path / "store", older)
    [log] = (older / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(kept)
        file.write(bytes(positions[-1] + 200 - kept))
    store = open_store(older)
    assert all_keys(store, 200) == [[each, each] for each in positions[:120]] + [[]] * 80
    again = put(store, b"KEYS\x01new\x02")
    assert again == kept
    assert find(store, "new") == [again]
    store.close()


def test_a_clock_set_back_by_years_keeps_index_files_in_order(tmp_path: Path) -> None:
    """R14: names stay in order; found by the kill -9 loop, where the search went ms by ms."""
    clock = ManualClock(1_795_000_000_000)
    store = open_store(tmp_path, clock, max_index_num=6)
    first = put(store, b"UNIQ_KEY\x01k0\x02")
    assert find(store, "k0") == [first]
    clock.jump_ms(-100_000_000_000)
    positions = [put(store, b"UNIQ_KEY\x01n%d\x02" % n) for n in range(30)]
    for number, position in enumerate(positions):
        assert find(store, f"n{number}") == [position]
    store.close()
    store = open_store(tmp_path, clock, max_index_num=6)
    assert find(store, "k0") == [first]
    assert find(store, "n29") == [positions[-1]]
    store.close()


def test_sizes_of_a_file_are_found_in_its_contents(tmp_path: Path) -> None:
    """A store that was made with other numbers of slots and entries is read all the same."""
    for slots, entries in ((1, 9), (50, 150), (64, 128), (7, 5000)):
        root = tmp_path / f"{slots}-{entries}"
        store = open_store(root, max_hash_slot_num=slots, max_index_num=entries)
        positions = {f"k{n}": put(store, b"UNIQ_KEY\x01k%d\x02" % n) for n in range(30)}
        store.close()
        store = open_store(root)
        for key, position in positions.items():
            assert find(store, key) == [position]
        store.close()


def test_an_index_file_of_no_known_shape_is_left_alone(tmp_path: Path) -> None:
    """Never delete on doubt."""
    store = open_store(tmp_path)
    position = put(store, b"UNIQ_KEY\x01k\x02")
    store.close()
    strange = tmp_path / "index" / "20200101000000000"
    strange.write_bytes(b"\x01" * 1001)
    store = open_store(tmp_path)
    assert find(store, "k") == [position]
    put(store, b"UNIQ_KEY\x01k2\x02")
    assert len(find(store, "k2")) == 1
    store.close()
    assert strange.read_bytes() == b"\x01" * 1001


def test_a_message_with_many_keys_is_indexed_in_steps(tmp_path: Path) -> None:
    """KEYS of 32 KB hold 16,000 words: one step of the loop takes a few records of them, not 1,024."""
    store = open_store(
        tmp_path, mapped_file_size_commit_log=4 << 20, max_hash_slot_num=1000, max_index_num=400_000
    )
    words = [f"{number:x}" for number in range(6_000)]
    keys = f"KEYS\x01{' '.join(words)}".encode()
    for number in range(20):
        store.append("Topic", 0, b"%d" % number, keys, 0, 0, 1, HOST)
    index = store.index
    steps = []
    while index.behind:
        before = index.files[-1].count if index.files else 1
        index.step()
        steps.append(index.files[-1].count - before)
    assert len(steps) >= 10
    assert max(steps) <= 2 * 6_000
    assert sum(steps) == 20 * 6_000
    assert len(store.query_by_key("Topic", words[-1], 64, 0, 1 << 62).records) == 20
    for number in range(20):
        store.append("Topic", 0, b"%d" % number, keys, 0, 0, 1, HOST)
    before = index.files[-1].count
    # A query brings a bounded part of it up to date.
    store.query_by_key("Topic", words[0], 64, 0, 1 << 62)
    assert 32_768 <= index.files[-1].count - before <= 32_768 + 12_000
    store.close()


def test_a_stop_leaves_a_long_index_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Containers are killed after ten seconds; the stop is clean all the same."""
    clock = HurryingClock()
    store = open_store(tmp_path, clock, mapped_file_size_commit_log=32 << 20, max_index_num=100_000)
    body = bytes(600)
    positions = [
        store.append("Topic", 0, body, b"KEYS\x01k%d\x02" % number, 0, 0, 1, HOST).position
        for number in range(20_000)
    ]
    clock.hurries = True
    store.close()
    clock.hurries = False
    assert store.closed_cleanly
    assert "the next start of PocketMQ indexes the rest" in caplog.text
    # More than recovery looks at after a clean stop.
    assert int(caplog.text.rpartition("size=")[2]) > 4 << 20
    store = open_store(tmp_path, clock, mapped_file_size_commit_log=32 << 20, max_index_num=100_000)
    while store.index.behind:
        store.index.step()
    for number in range(0, 20_000, 97):
        assert find(store, f"k{number}") == [positions[number]]
    store.close()


async def test_clients_come_first_while_the_log_is_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30,000,000 messages, sent faster than they were indexed, made the broker slow after the next start."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    index = store.index
    for number in range(1_200):
        put(store, b"KEYS\x01k%d\x02" % number)
    store.query_by_key("Topic", "k", 1, 0, LONG_MAX)
    index.cut(0)
    pauses: list[float] = []
    others_ms = 0

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        clock.advance_ms(others_ms)

    class Slow:
        """A step takes 2 ms. The service itself cannot be changed where it is compiled."""

        def __getattr__(self, name: str) -> Any:
            return getattr(index, name)

        def step(self) -> int:
            clock.advance_ms(2)
            return index.step()

    monkeypatch.setattr("asyncio.sleep", sleep)
    slow: Any = Slow()
    await index_round(slow, index.woken, clock)
    assert pauses == [0]
    others_ms = 1
    await index_round(slow, index.woken, clock)
    assert pauses == [0, 0, 0.006]
    # A query neither waits for all that, nor do messages that come meanwhile make it forget where it is.
    monkeypatch.setattr(index_service, "PENDING_MAX", 10)
    late = [put(store, b"KEYS\x01late%d\x02" % number) for number in range(20)]
    assert find(store, "late0") == []
    assert index.position < late[0]
    while index.behind:
        index.step()
    assert [find(store, f"late{number}") for number in range(20)] == [[each] for each in late]
    assert all(find(store, f"k{number}") for number in range(1_200))
    store.close()


def test_keys_split_over_two_files_survive_a_failed_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file says that the message is indexed; the rest of its keys is not forgotten."""
    store = open_store(tmp_path)
    keys = [f"k{number}" for number in range(200)]
    store.append("Topic", 0, b"x", f"KEYS\x01{' '.join(keys)}".encode(), 0, 0, 1, HOST)
    real = os.makedirs

    def makedirs(path: str, *args: object, **kwargs: object) -> None:
        if path.endswith("index") and store.index.files:
            raise OSError(errno.EROFS, "Read-only file system")
        real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "makedirs", makedirs)
    assert store.query_by_key("Topic", "k199", 9, 0, 1 << 62).records == []
    assert store.dispatch_behind_size > 0
    assert "Read-only" in store.side_tasks.troubles["index"].reason
    monkeypatch.setattr(os, "makedirs", real)
    for key in keys:
        assert len(store.query_by_key("Topic", key, 9, 0, 1 << 62).records) == 1, key
    assert store.side_tasks.troubles == {}
    store.close()


def test_numpy_is_imported_beside_the_loop(tmp_path: Path) -> None:
    """A few messages do without it; what wants it does not hold up the broker for a seventh of a second."""
    program = """
import asyncio, sys, threading
from pathlib import Path
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore, StoreConfig

class Look:
    threads = []
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "numpy":
            cls.threads.append(threading.current_thread())

async def indexed(store):
    async with asyncio.timeout(60):
        while store.dispatch_behind_size:
            await asyncio.sleep(0.01)

async def main():
    config = StoreConfig(store_path_root_dir=sys.argv[1], mapped_file_size_commit_log=1 << 20)
    async with MessageStore(config, clock=SystemClock(), store_host=bytes(8)) as store:
        assert "numpy" not in sys.modules
        sys.meta_path.insert(0, Look)
        store.append("T", 0, b"x", b"KEYS\\x01k", 0, 0, 1, bytes(8))
        await indexed(store)
        assert store.query_by_key("T", "k", 1, 0, 1 << 62).records
        assert "numpy" not in sys.modules
        for number in range(500):
            store.append("T", 0, b"x", b"KEYS\\x01k", 0, 0, 1, bytes(8))
        await indexed(store)
        assert len(store.query_by_key("T", "k", 64, 0, 1 << 62).records) == 64
    assert Look.threads and threading.main_thread() not in Look.threads, Look.threads

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
