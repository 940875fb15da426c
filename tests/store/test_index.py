"""The index of keys: RocketMQ's layout, its answers, and its repair after a crash."""

import errno
import itertools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import encode_batch, read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore
from pocketmq.store.index import index_service
from pocketmq.store.index.index_columns import IndexColumns
from pocketmq.store.index.index_file import IndexFile, Row
from pocketmq.store.index.index_keys import key_hashes
from pocketmq.store.index.index_round import index_round
from pocketmq.store.index.index_service import index_hash
from pocketmq.store.index.record_keys import keys_of, rows_of
from tests.store.stores import HOST, LONG_MAX, open_store


def put(store: MessageStore, properties: bytes, topic: str = "Topic") -> int:
    return store.append(topic, 0, b"", properties, 0, 0, 1, HOST).position


def find(store: MessageStore, key: str, topic: str = "Topic", count: int = 64) -> list[int]:
    found = store.query_by_key(topic, key, count, 0, LONG_MAX)
    return [read_record(record).position for record in found.records]


def test_unique_key_and_each_word_of_keys_are_found(tmp_path: Path) -> None:
    """disk.md 7."""
    store = open_store(tmp_path)
    first = put(store, b"KEYS\x01a bb  c\x02UNIQ_KEY\x01u1\x02TAGS\x01t\x02")
    second = put(store, b"KEYS\x01a\x02UNIQ_KEY\x01u2\x02")
    other = put(store, b"KEYS\x01a\x02", "Other")
    assert find(store, "a") == [first, second]
    assert find(store, "bb") == find(store, "c") == find(store, "u1") == [first]
    assert find(store, "u2") == [second]
    assert find(store, "a", "Other") == [other]
    assert find(store, "") == find(store, "t") == find(store, "T#t") == find(store, "a bb") == []
    store.close()


def test_keys_of_any_alphabet_are_hashed_as_java_does(tmp_path: Path) -> None:
    """UTF-16 units, supplementary characters count twice."""
    store = open_store(tmp_path)
    for key in ("ключ", "鍵", "😀", "ß" * 40):
        position = put(store, b"KEYS\x01" + key.encode())
        assert find(store, key) == [position]
    store.close()


def test_tags_are_indexed_when_asked_for_as_5x_does(tmp_path: Path) -> None:
    store = open_store(tmp_path, message_index_tags=True)
    position = put(store, b"TAGS\x01red\x02")
    assert find(store, "T#red") == [position]
    store.close()


def test_an_answer_is_bounded_sorted_and_by_time(tmp_path: Path) -> None:
    """disk.md 7: the newest are kept, both times included."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(tmp_path, clock)
    positions = []
    for _ in range(50):
        positions.append(put(store, b"KEYS\x01k\x02"))
        clock.advance_ms(1000)
    assert find(store, "k") == positions
    assert find(store, "k", count=5) == positions[-5:]
    start = 1_700_000_000_000
    found = store.query_by_key("Topic", "k", 64, start + 10_000, start + 12_000).records
    assert [read_record(record).position for record in found] == positions[10:13]
    assert store.query_by_key("Topic", "k", 64, 0, start - 1).records == []
    result = store.query_by_key("Topic", "k", 64, 0, LONG_MAX)
    assert (result.index_last_ms, result.index_last_position) == (start + 49_000, positions[-1])
    store.close()


def test_a_message_is_found_by_each_range_that_holds_its_time(tmp_path: Path) -> None:
    """An entry knows seconds only, and counts them from the first message of its file."""
    start = 1_700_000_000_000
    clock = ManualClock(start)
    store = open_store(tmp_path, clock)
    put(store, b"KEYS\x01other\x02")
    clock.advance_ms(1_700)
    position, at = put(store, b"KEYS\x01k\x02"), start + 1_700

    def found(begin: int, end: int) -> list[int]:
        records = store.query_by_key("Topic", "k", 64, begin, end).records
        return [read_record(record).position for record in records]

    for begin, end in ((at, at), (at - 1, at + 1), (at, LONG_MAX), (0, at), (at - 500, at + 500)):
        assert found(begin, end) == [position], (begin - at, end - at)
    for begin, end in ((at + 1, LONG_MAX), (0, at - 1), (at - 900, at - 1), (at + 1, at + 900)):
        assert found(begin, end) == [], (begin - at, end - at)
    store.close()


def test_the_first_message_of_a_later_index_is_found_by_time(tmp_path: Path) -> None:
    """Its entry counts from the end of the file before, the others from it."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(tmp_path, clock, max_hash_slot_num=10, max_index_num=3)
    times = {}
    for _ in range(6):
        times[put(store, b"KEYS\x01k\x02")] = clock.now_ms()
        clock.advance_ms(7_300)
    for position, at in times.items():
        (record,) = store.query_by_key("Topic", "k", 64, at, at).records
        assert read_record(record).position == position
    store.close()


def test_a_repeated_key_finds_its_message_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    positions = [
        put(store, b"KEYS\x01k\x02"),
        *(put(store, b"KEYS\x01k k k\x02") for _ in range(3)),
    ]
    # Another key of this hash: "Aa" and "BB" have one in Java.
    put(store, b"KEYS\x01BB Aa\x02")
    only = put(store, b"KEYS\x01Aa\x02")
    for _ in range(4):
        put(store, b"KEYS\x01BB\x02")
    assert find(store, "k") == positions
    assert find(store, "k", count=4) == positions
    assert find(store, "Aa", count=1) == [only]
    store.close()


def test_a_file_has_rocketmqs_layout(tmp_path: Path) -> None:
    """disk.md 7, read with struct: header, slots, entries, chain of one slot."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(tmp_path, clock, max_hash_slot_num=4, max_index_num=50)
    positions = []
    for number in range(10):
        positions.append(put(store, b"UNIQ_KEY\x01key%d\x02" % number))
        clock.advance_ms(1500)
    assert find(store, "key3") == [positions[3]]
    store.close()
    [name] = os.listdir(tmp_path / "index")
    assert len(name) == 17
    assert name.isdecimal()
    data = (tmp_path / "index" / name).read_bytes()
    assert len(data) == 40 + 4 * 4 + 20 * 50
    header = struct.unpack_from(">qqqqii", data)
    assert header[:4] == (
        1_700_000_000_000,
        1_700_000_013_500,
        positions[0],
        positions[9],
    )
    slots: dict[int, int] = {}
    for number in range(1, 11):
        key_hash = index_hash(f"Topic#key{number - 1}")
        entry = struct.unpack_from(">iqii", data, 40 + 16 + 20 * number)
        seconds = (number - 1) * 1500 // 1000
        assert entry == (key_hash, positions[number - 1], seconds, slots.get(key_hash % 4, 0))
        slots[key_hash % 4] = number
    assert struct.unpack_from(">4i", data, 40) == tuple(slots.get(slot, 0) for slot in range(4))
    assert header[4:] == (len(slots), 11)


def test_a_full_index_file_is_followed_by_the_next(tmp_path: Path) -> None:
    """disk.md 7: the first entry's seconds count from the end of the file before."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(tmp_path, clock, max_hash_slot_num=4, max_index_num=6)
    positions = []
    for number in range(12):
        positions.append(put(store, b"UNIQ_KEY\x01k%d\x02" % number))
        clock.advance_ms(2000)
    for number, position in enumerate(positions):
        assert find(store, f"k{number}") == [position]
    store.close()
    names = sorted(os.listdir(tmp_path / "index"))
    assert len(names) == 3
    second = (tmp_path / "index" / names[1]).read_bytes()
    assert struct.unpack_from(">q", second) == (1_700_000_010_000,)
    # 10 s after the first file's begin is 2 s after its end (8 s).
    assert struct.unpack_from(">iqii", second, 40 + 16 + 20)[2] == 2


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


def two_keys_each(root: Path) -> tuple[MessageStore, list[int]]:
    """Fill several files; keys of one record are in two of them, as entries are odd in number."""
    store = open_store(root)
    return store, [put(store, b"KEYS\x01a%d b%d\x02" % (n, n)) for n in range(200)]


def all_keys(store: MessageStore, count: int) -> list[list[int]]:
    return [find(store, f"a{n}") + find(store, f"b{n}") for n in range(count)]


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


def test_a_disabled_index_finds_and_writes_nothing(tmp_path: Path) -> None:
    """messageIndexEnable=false."""
    store = open_store(tmp_path, message_index_enable=False)
    put(store, b"UNIQ_KEY\x01k\x02")
    assert find(store, "k") == []
    store.close()
    assert not (tmp_path / "index").exists()


@settings(max_examples=100, deadline=None)
@given(
    entries=st.lists(st.tuples(st.integers(0, 0x7FFF_FFFF), st.integers(0, 9_000)), max_size=40),
    cuts=st.lists(st.integers(0, 7), min_size=1, max_size=9),
    before=st.sampled_from([(0, 0), (1_699_999_999_000, 5)]),
)
def test_entries_one_by_one_are_the_bytes_of_many_at_once(
    entries: list[tuple[int, int]], cuts: list[int], before: tuple[int, int]
) -> None:
    """Chains of few slots, times that jump, files that are full; before: the end of the file before."""
    rows: list[Row] = [
        (key_hash, 100 + place, 1_700_000_000_000 + ms)
        for place, (key_hash, ms) in enumerate(entries)
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("1", "2"):
            file = IndexFile.create(folder, name, 5, 32, *before)
            left = list(rows)
            for size in itertools.cycle([*cuts, 1]):
                some = left[:size]
                if name == "1":
                    done = file.put(some)
                else:
                    columns = [
                        numpy.array(column, numpy.int64) for column in zip(*some, strict=True)
                    ]
                    done = IndexColumns(file).put_many(*columns) if some else 0
                del left[:done]
                if not left or file.full:
                    break
            files.append((bytes(file.map), len(left), file.used_slots, file.end_ms))
            file.delete()
    assert files[0] == files[1]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters=" \x01\x02", codec="utf-8"), max_size=20),
            st.lists(
                st.text(
                    st.characters(exclude_characters=" \x01\x02", codec="utf-8"),
                    min_size=1,
                    max_size=40,
                ),
                max_size=4,
            ),
        ),
        max_size=30,
    )
)
def test_hashing_many_keys_at_once_is_hashing_each(records: list[tuple[str, list[str]]]) -> None:
    """Java's hash of "TOPIC#KEY", whatever lengths and alphabets are mixed."""
    start = string_hash("Topic#") & 0xFFFF_FFFF
    batch = []
    expected: list[tuple[int, int]] = []
    for place, (unique, keys) in enumerate(records):
        properties = f"UNIQ_KEY\x01{unique}\x02KEYS\x01{' '.join(keys)}\x02".encode()
        batch.append((start, place + 1, 5, properties))
        words = [unique] * bool(unique) + keys
        expected += [(index_hash(f"Topic#{word}"), place + 1) for word in words]
    assert [row[:2] for row in rows_of(batch, 0, tags=False)] == expected
    found = key_hashes(batch, 0, tags=False)
    ours = (
        []
        if found is None
        else list(zip(found.hashes.tolist(), found.positions.tolist(), strict=True))
    )
    assert ours == expected


# What stands around a UNIQ_KEY in properties of one length: as clients write them, and what only looks so.
_BEFORE = st.sampled_from(["", "TAGS\x01A\x02", "X", "KEYS\x01k\x02", "UNIQ_KEY\x01u\x02"])
_BEHIND = st.sampled_from(
    ["", "\x02", "\x02CLUSTER\x01c", "\x02KEYS\x01k\x02", "\x02UNIQ_KEY\x01u"]
)
_UNIQUE = st.text("ab\x02é", min_size=4, max_size=4)


@given(
    shape=st.tuples(_BEFORE, _BEHIND),
    keys=st.lists(_UNIQUE, min_size=8, max_size=12),
    others=st.lists(st.tuples(_BEFORE, _UNIQUE, _BEHIND), max_size=2),
)
def test_keys_cut_out_of_one_shape_are_those_of_each_record(
    shape: tuple[str, str], keys: list[str], others: list[tuple[str, str, str]]
) -> None:
    """Records of one shape, with a few of another among them, give the keys that each alone gives."""
    texts = [f"{shape[0]}UNIQ_KEY\x01{key}{shape[1]}" for key in keys]
    texts += [f"{before}UNIQ_KEY\x01{key}{behind}" for before, key, behind in others]
    start = string_hash("Topic#") & 0xFFFF_FFFF
    batch = [(start, place + 1, 5, text.encode()) for place, text in enumerate(texts)]
    expected = [
        (index_hash(f"Topic#{key.decode()}"), position)
        for _, position, _, properties in batch
        for key in keys_of(properties, tags=False)
    ]
    found = key_hashes(batch, 0, tags=False)
    ours = (
        [] if found is None else zip(found.hashes.tolist(), found.positions.tolist(), strict=True)
    )
    assert list(ours) == expected


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


class HurryingClock(ManualClock):
    """Two seconds pass with each look, once it hurries."""

    hurries = False

    def monotonic_ms(self) -> int:
        if self.hurries:
            self.advance_ms(2_000)
        return super().monotonic_ms()


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


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["batch", "one", "look"]), st.sampled_from(["k1", "key2", "clé"])
        ),
        max_size=16,
    ),
    st.booleans(),
)
def test_batches_and_singles_are_indexed_in_log_order(
    tmp_path_factory: pytest.TempPathFactory, given_keys: list[tuple[str, str]], tags: bool
) -> None:
    """Each message of a batch is found by its key, whatever waits beside the batch."""
    store = open_store(tmp_path_factory.mktemp("batches"), message_index_tags=tags)
    expected: dict[str, list[int]] = {}
    tagged: list[int] = []
    for what, key in given_keys:
        if what == "look":
            # What waits is indexed now.
            assert find(store, f"{key}0") == expected.get(f"{key}0", [])
            continue
        own = [f"UNIQ_KEY\x01{key}{place}\x02TAGS\x01t\x02".encode() for place in range(3)]
        if what == "batch":
            batch = encode_batch([(0, b"body", properties) for properties in own])
            positions = list(
                store.append_batch("Topic", 0, batch, b"A\x01a\x02", 0, 1, HOST).positions
            )
        else:
            positions = [put(store, properties) for properties in own]
        for place, position in enumerate(positions):
            expected.setdefault(f"{key}{place}", []).append(position)
        tagged += positions
    assert {key: find(store, key) for key in expected} == expected
    assert find(store, "T#t") == (tagged if tags else [])
    store.close()
