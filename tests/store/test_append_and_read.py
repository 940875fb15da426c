"""MessageStore as its users see it: what goes in comes out, in order, with RocketMQ's statuses."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.model.java_hash import string_hash
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.record import encode_batch, read_record, read_records
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.hosts import pack_host
from pocketmq.store import (
    MessageStore,
    ReadStatus,
    RecordIllegal,
    RecordTooLarge,
)
from tests.store.stores import (
    HOST,
    LONG_MAX,
    Arrivals,
    Tags,
    open_store,
    read_all,
    send,
    told_store,
)


def test_a_message_is_stored_with_all_its_fields(tmp_path: Path) -> None:
    """The record of disk.md 3, IPv4 and IPv6."""
    clock = ManualClock(1_700_000_000_123)
    store = open_store(tmp_path, clock)
    for born_host in (pack_host("10.1.2.3:4567"), pack_host("[fe80::1]:99")):
        appended = store.append(
            "Topic", 3, b"\x00body\xff", b"TAGS\x01a\x02K\x01v", 77, 0x2, 55, born_host, 4, 999
        )
        data = store.record_at(appended.position)
        assert data is not None
        record = read_record(data)
        assert record.size == appended.size == len(data)
        assert (record.topic, record.queue_id, record.queue_offset) == (
            "Topic",
            3,
            appended.queue_offset,
        )
        assert (record.flag, record.born_ms, record.store_ms) == (77, 55, 1_700_000_000_123)
        assert (record.born_host, record.store_host) == (born_host, HOST)
        assert record.sys_flag == 0x2 | (0x10 if len(born_host) == 20 else 0)
        assert (record.reconsume_times, record.prepared_offset) == (4, 999)
        assert (bytes(record.body), record.properties) == (b"\x00body\xff", b"TAGS\x01a\x02K\x01v")
    store.close()


def test_an_entry_has_20_bytes_position_size_and_hash_of_the_tag(tmp_path: Path) -> None:
    """S81, and the known answers of S42."""
    store = open_store(tmp_path)
    tags = ["tagA", "Aa", "BB", "polygenelubricants", "中文", "a😀b", ""]
    for tag in tags:
        send(store, tag=tag)
    entries = store.entries("Topic", 0, 0, 100)
    assert [code for _, _, code in entries] == [string_hash(tag) for tag in tags]
    store.close()
    data = (tmp_path / "consumequeue" / "Topic" / "0" / ("0" * 20)).read_bytes()
    assert len(data) == 1000
    assert list(struct.iter_unpack(">qiq", data))[: len(tags)] == entries
    assert not any(data[len(tags) * 20 :])


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (0, ReadStatus.FOUND, 5),
        (4, ReadStatus.FOUND, 5),
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
        (LONG_MAX, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (-(1 << 63), ReadStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_the_status_of_a_read_says_where_to_go_on(
    tmp_path: Path, offset: int, status: ReadStatus, following: int
) -> None:
    """disk.md 14."""
    store = open_store(tmp_path)
    for _ in range(5):
        send(store)
    result = store.read("Topic", 0, offset, 32)
    assert (result.status, result.next_offset) == (status, following)
    assert (result.min_offset, result.max_offset) == (0, 5)
    store.close()


def test_a_queue_that_does_not_exist_has_a_status_of_its_own(tmp_path: Path) -> None:
    """disk.md 14; reading makes no queue."""
    store = open_store(tmp_path)
    assert store.read("Topic", 9, 0, 32).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert list(store.queues()) == []
    assert store.max_offset("Topic", 9) == store.min_offset("Topic", 9) == 0
    assert store.earliest_time("Topic", 9) == store.store_time_at("Topic", 9, 0) == -1
    store.close()


def test_records_that_follow_each_other_are_one_slice(tmp_path: Path) -> None:
    """A pull of a batch costs one buffer."""
    store = open_store(tmp_path)
    for _ in range(10):
        send(store)
    result = store.read("Topic", 0, 0, 8)
    assert (len(result.buffers), result.count) == (1, 8)
    assert result.size == len(result.buffers[0])
    assert [r.queue_offset for r in read_records(result.buffers[0])] == list(range(8))
    store.close()


@pytest.mark.parametrize(("body_size", "buffers"), [(100, 1), (3_000, 32)])
def test_small_records_apart_are_returned_as_one_copy(
    tmp_path: Path, body_size: int, buffers: int
) -> None:
    """Whatever the way, what comes is what each entry of the queue points to."""
    store = open_store(tmp_path, mapped_file_size_commit_log=256 << 10)
    for number in range(64):
        send(store, queue_id=number % 2, body=bytes([number]) * body_size)
    entries = store.entries("Topic", 1, 0, 32)
    whole = store.read("Topic", 1, 0, 32, size_max=1 << 20)
    assert (len(whole.buffers), whole.count, whole.next_offset) == (buffers, 32, 32)
    records = [store.record_at(position) for position, _, _ in entries]
    assert b"".join(whole.buffers) == b"".join(record for record in records if record is not None)
    store.close()


def test_records_of_two_files_come_in_one_read(tmp_path: Path) -> None:
    """Their entries are looked at one by one, and nothing is missing."""
    store = open_store(tmp_path)
    for number in range(64):
        send(store, queue_id=number % 2, body=bytes([number]) * 1_500)
    read = store.read("Topic", 1, 0, 32, size_max=1 << 20)
    assert [bytes(record.body)[0] for each in read.buffers for record in read_records(each)] == [
        *range(1, 64, 2)
    ]
    store.close()


def test_the_first_record_ignores_the_size_limits(tmp_path: Path) -> None:
    """wire.md 3.4, 6."""
    store = open_store(tmp_path)
    for _ in range(4):
        send(store, body=b"x" * 10_000)
    assert store.read("Topic", 0, 0, 32, size_max=100).count == 1
    assert store.read("Topic", 0, 0, 32, size_max=25_000).count == 2
    assert store.read("Topic", 0, 0, 3, size_max=1 << 20).count == 3
    store.close()


def test_batch_records_get_outer_properties_after_their_own(tmp_path: Path) -> None:
    """wire.md 5.6; one store time, offsets that follow each other."""
    store = open_store(tmp_path)
    send(store)
    batch = encode_batch([(7, b"a", b"TAGS\x01t"), (8, b"bb", b"K\x01v\x02"), (9, b"ccc", b"")])
    stored = store.append_batch("Topic", 0, batch, b"CLUSTER\x01c\x02", 0, 5, HOST)
    assert (stored.count, stored.queue_offset, len(stored.positions)) == (3, 1, 3)
    records = read_all(store, offset=1)
    assert [(r.flag, bytes(r.body), r.queue_offset) for r in records] == [
        (7, b"a", 1),
        (8, b"bb", 2),
        (9, b"ccc", 3),
    ]
    assert [properties_to_dict(r.properties) for r in records] == [
        {"TAGS": "t", "CLUSTER": "c"},
        {"K": "v", "CLUSTER": "c"},
        {"CLUSTER": "c"},
    ]
    assert {r.store_ms for r in records} == {stored.store_ms}
    assert [r.position for r in records] == stored.positions
    assert store.entries("Topic", 0, 1, 1)[0][2] == string_hash("t")
    store.close()


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        b"\x00",
        encode_batch([(0, b"a", b"")])[:-1],
        encode_batch([(0, b"a", b"")]) + b"\x00\x00\x00\x16",
        struct.pack(">iiiii", 22, 0, 0, 0, 1 << 30) + b"\0\0",
        struct.pack(">iiiii", -5, 0, 0, 0, 0) + b"\0\0",
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0",
        struct.pack(">iiiii", 22, 0, 0, 0, 0) + b"\xff\xff",
    ],
)
def test_a_batch_of_wrong_lengths_is_refused_whole(tmp_path: Path, batch: bytes) -> None:
    """Part 8: nothing of it is stored."""
    store = open_store(tmp_path)
    good = encode_batch([(0, b"good", b"")])
    for bad in (batch, good + batch if batch else batch):
        with pytest.raises(RecordIllegal):
            store.append_batch("Topic", 0, bad, b"", 0, 1, HOST)
    assert store.max_offset("Topic", 0) == 0
    assert store.commit_log_max_position == 0
    store.close()


@pytest.mark.parametrize("long_topics", [True, False])
def test_what_can_never_be_stored_is_refused_and_changes_nothing(
    tmp_path: Path, long_topics: bool
) -> None:
    """Sizes, names and numbers beyond the format's limits (part 8)."""
    store = open_store(
        tmp_path, max_message_size=1000, auto_message_version_on_topic_len=long_topics
    )
    send(store)
    before = store.commit_log_max_position
    attempts = [
        ("Topic", 0, b"x" * 1001, b"", 0, 0),
        ("Topic", 0, b"", b"x" * 32768, 0, 0),
        ("T" * (256 if long_topics else 128), 0, b"", b"", 0, 0),
        ("../../etc", 0, b"", b"", 0, 0),
        ("a/b", 0, b"", b"", 0, 0),
        ("..", 0, b"", b"", 0, 0),
        ("", 0, b"", b"", 0, 0),
        ("nul\0", 0, b"", b"", 0, 0),
        ("Topic", -1, b"", b"", 0, 0),
        ("Topic", 0, b"", b"", 1 << 31, 0),
        ("Topic", 1 << 31, b"", b"", 0, 0),
    ]
    for topic, queue_id, body, properties, flag, sys_flag in attempts:
        with pytest.raises(RecordIllegal):
            store.append(topic, queue_id, body, properties, flag, sys_flag, 1, HOST)
    assert store.commit_log_max_position == before
    assert send(store) == 1
    store.close()


def test_a_record_that_fits_in_no_file_is_refused_not_lost(tmp_path: Path) -> None:
    """disk.md 3: both brokers write two blank files, answer SEND_OK and lose it."""
    store = open_store(tmp_path, mapped_file_size_commit_log=4096)
    send(store)
    with pytest.raises(RecordTooLarge):
        send(store, body=b"x" * 4096)
    fits = 4096 - 8 - 91 - len("Topic")
    with pytest.raises(RecordTooLarge):
        send(store, body=b"x" * (fits + 1))
    assert send(store, body=b"x" * fits) == 1
    assert len(read_all(store)) == 2
    store.close()


@pytest.mark.parametrize("spare", range(20))
def test_the_end_of_a_file_is_blank_whatever_is_left_of_it(tmp_path: Path, spare: int) -> None:
    """disk.md 3: blanks of 8, 9, ... bytes; a record never straddles two files."""
    store = open_store(tmp_path, mapped_file_size_commit_log=4096)
    send(store, body=b"x" * (4096 - 8 - 96 - spare))
    end = store.commit_log_max_position
    assert end == 4096 - 8 - spare
    send(store, body=b"y" * 50)
    assert store.entries("Topic", 0, 1, 1)[0][0] == 4096
    store.close()
    data = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    assert struct.unpack_from(">iI", data, end) == (8 + spare, 0xCBD43194)
    store = open_store(tmp_path)
    assert len(read_all(store)) == 2
    store.close()


def test_only_committed_transaction_records_have_entries(
    tmp_path: Path,
) -> None:
    """disk.md 4."""
    store = open_store(tmp_path)
    for sys_flag in (0x4, 0xC, 0x8):
        appended = store.append("Topic", 0, b"t", b"KEYS\x01k\x02", 0, sys_flag, 1, HOST)
        assert appended.queue_offset == 0
        assert store.record_at(appended.position) is not None
    assert store.max_offset("Topic", 0) == 1
    # The index has all but the rolled-back one.
    assert len(store.query_by_key("Topic", "k", 64, 0, LONG_MAX).records) == 2
    store.close()


def test_store_times_never_go_back(tmp_path: Path) -> None:
    """R14: the clock is set back; the log's times are in order all the same."""
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    first = store.append("Topic", 0, b"", b"", 0, 0, 1, HOST).store_ms
    clock.jump_ms(-3_600_000)
    assert store.append("Topic", 0, b"", b"", 0, 0, 1, HOST).store_ms == first
    store.close()
    store = open_store(tmp_path, clock)
    assert store.append("Topic", 0, b"", b"", 0, 0, 1, HOST).store_ms == first
    store.close()


def test_every_new_entry_is_announced_in_order(tmp_path: Path) -> None:
    """Long polling lives on it."""
    seen: list[tuple[object, ...]] = []
    arrivals = Arrivals()
    arrivals.arrived = lambda *event: seen.append(event)
    store = told_store(tmp_path, arrivals)
    send(store, tag="tagA")
    store.append("Topic", 0, b"", b"", 0, 0x4, 1, HOST)
    batch = encode_batch([(0, b"1", b"TAGS\x01tagB"), (0, b"2", b"")])
    store.append_batch("Topic", 1, batch, b"W\x01w", 0, 1, HOST)
    now_ms = store.store_ms
    assert seen == [
        ("Topic", 0, 1, 3552231, now_ms, b"TAGS\x01tagA\x02"),
        ("Topic", 1, 1, 3552232, now_ms, b"TAGS\x01tagB\x02W\x01w"),
        ("Topic", 1, 2, 0, now_ms, b"W\x01w"),
    ]
    store.close()


def test_a_filter_by_code_skips_and_says_where_it_stopped(tmp_path: Path) -> None:
    """S80, E3: hash on the queue; next_offset is behind the entries that were looked at."""
    store = open_store(tmp_path, mapped_file_size_consume_queue=100_000)
    for number in range(3000):
        send(store, body=str(number).encode(), tag="tagA" if number % 100 == 50 else "tagB")
    wanted = Tags(string_hash("tagA"))
    result = store.read("Topic", 0, 0, 32, wanted)
    assert (result.status, result.count) == (ReadStatus.FOUND, 30)
    assert result.next_offset == 3000
    result = store.read("Topic", 0, 0, 5, wanted)
    assert (result.count, result.next_offset) == (5, 451)
    result = store.read("Topic", 0, 51, 32, Tags(string_hash("none")))
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 3000)
    both = read_all(store, matches=Tags(string_hash("tagA"), string_hash("tagB")))
    assert len(both) == 3000
    store.close()


def test_a_second_look_at_the_record_filters_too(tmp_path: Path) -> None:
    """S78: what SQL92 hangs on."""
    store = open_store(tmp_path)
    for number in range(100):
        send(store, body=bytes([number]), tag="tagA" if number % 2 else "tagB")

    class Even:
        codes = None

        @staticmethod
        def record(data: memoryview) -> bool:
            return bytes(read_record(data).body)[0] % 4 == 0

    assert [r.queue_offset for r in read_all(store, matches=Even())] == list(range(0, 100, 4))
    store.close()


def test_slices_outlive_their_file_and_their_store(tmp_path: Path) -> None:
    """A reply may still be on its way out."""
    store = open_store(tmp_path)
    send(store, body=b"early")
    result = store.read("Topic", 0, 0, 1)
    for _ in range(100):
        send(store, body=b"x" * 3000)
    store.config.file_reserved_time = 0
    store.close()
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    assert bytes(read_record(result.buffers[0]).body) == b"early"


operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.sampled_from([("A", 0), ("A", 1), ("B", 0)]),
            st.binary(max_size=900),
            st.sampled_from(["", "tagA", "tagB"]),
        ),
        st.tuples(st.just("batch"), st.sampled_from([("A", 0), ("B", 0)]), st.integers(1, 60)),
        st.tuples(st.just("reopen"), st.booleans()),
        st.tuples(st.just("time"), st.integers(0, 5000)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(operations)
def test_a_store_behaves_like_lists_of_messages(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    """A model: one list a queue; clean stops and crashes in between lose and invent nothing."""
    root = tmp_path_factory.mktemp("model")
    clock = ManualClock()
    model: dict[tuple[str, int], list[tuple[bytes, str, int]]] = {}
    store = open_store(root, clock, mapped_file_size_commit_log=8 << 10)
    for step in steps:
        match step:
            case ("send", (str() as topic, int() as queue_id), bytes() as body, str() as tag):
                messages = model.setdefault((topic, queue_id), [])
                assert send(store, topic, queue_id, body, tag) == len(messages)
                messages.append((body, tag, clock.now_ms()))
            case ("batch", (str() as topic, int() as queue_id), int() as count):
                messages = model.setdefault((topic, queue_id), [])
                batch = encode_batch([(0, bytes([n]), b"") for n in range(count)])
                store.append_batch(topic, queue_id, batch, b"", 0, 1, HOST)
                messages += [(bytes([n]), "", clock.now_ms()) for n in range(count)]
            case ("reopen", bool() as crash):
                store.close()
                if crash:
                    (root / "abort").touch()
                store = open_store(root, clock)
            case ("time", int() as passed):
                clock.advance_ms(passed)
    check_model(store, model)
    store.close()


def check_model(
    store: MessageStore, model: dict[tuple[str, int], list[tuple[bytes, str, int]]]
) -> None:
    for (topic, queue_id), messages in model.items():
        records = read_all(store, topic, queue_id)
        assert [bytes(record.body) for record in records] == [body for body, _, _ in messages]
        assert [record.queue_offset for record in records] == list(range(len(messages)))
        tagged = read_all(store, topic, queue_id, matches=Tags(string_hash("tagA")))
        assert [r.queue_offset for r in tagged] == [
            offset for offset, (_, tag, _) in enumerate(messages) if tag == "tagA"
        ]
        times = [ms for _, _, ms in messages]
        for probe in {0, times[0] - 1, *times[::7], times[-1] + 1}:
            lower = store.offset_by_time(topic, queue_id, probe, "LOWER")
            assert lower == sum(1 for ms in times if ms < probe)
            upper = store.offset_by_time(topic, queue_id, probe, "UPPER")
            assert upper == max(0, sum(1 for ms in times if ms <= probe) - 1)
            nearest = store.offset_by_time(topic, queue_id, probe)
            assert abs(times[nearest] - probe) == min(abs(ms - probe) for ms in times)
