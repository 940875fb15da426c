"""The index of keys: RocketMQ's layout, its answers, and its repair after a crash."""

import itertools
import os
import struct
import tempfile
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import encode_batch, read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.store.index.index_columns import IndexColumns
from pocketmq.store.index.index_file import IndexFile, Row
from pocketmq.store.index.index_keys import key_hashes
from pocketmq.store.index.index_service import index_hash
from pocketmq.store.index.record_keys import keys_of, rows_of
from tests.store.keyed_messages import find, put
from tests.store.stores import HOST, LONG_MAX, open_store


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
