"""What readers see of a log whose end may be taken away."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import read_records
from pocketmq.store import MessageStore, ReadStatus
from pocketmq.store.appends import Appended
from tests.store.stores import HOST, LONG_MAX, Tags, open_store


def put(
    store: MessageStore, topic: str, queue_id: int, body: bytes, properties: bytes = b""
) -> Appended:
    return store.append(topic, queue_id, body, properties, 0, 0, 1, HOST)


def limited(root: Path, position: int) -> MessageStore:
    store = open_store(root)
    store.reads.limit.set(lambda: position)
    return store


def test_no_reader_sees_what_lies_behind_the_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    places = [put(store, "T", 0, b"%d" % n, b"TAGS\x01a\x02KEYS\x01k\x02") for n in range(5)]
    store.reads.limit.set(lambda: places[3].position)
    assert (store.max_offset("T", 0), store.next_offset("T", 0)) == (3, 5)
    for filter_ in (None, Tags(string_hash("a"))):
        found = store.read("T", 0, 0, 32, filter_)
        assert (found.count, found.next_offset, found.max_offset) == (3, 3, 3)
    for offset in (3, 4, 5):
        beyond = store.read("T", 0, offset, 32)
        assert (beyond.status, beyond.next_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, offset)
    assert store.read("T", 0, 6, 32).status is ReadStatus.OFFSET_OVERFLOW_BADLY
    assert len(store.entries("T", 0, 0, 32)) == 3
    assert (store.backlog("T", 0, 4).at, store.backlog("T", 0, 1).end) == (3, 3)
    assert store.offset_by_time("T", 0, LONG_MAX) == 3
    assert store.message_at(places[2].position) is not None
    assert store.message_at(places[3].position) is None
    assert len(store.query_by_key("T", "k", 32, 0, LONG_MAX).records) == 3
    store.reads.limit.set(lambda: places[4].position)
    assert store.read("T", 0, 3, 32).count == 1
    store.close()


def test_the_topics_of_the_system_are_read_whole(tmp_path: Path) -> None:
    store = limited(tmp_path, 0)
    places = {
        topic: put(store, topic, 0, b"x").position for topic in ("rmq_sys_wheel_timer", "%RETRY%g")
    }
    assert store.message_at(places["rmq_sys_wheel_timer"]) is not None
    assert store.message_at(places["%RETRY%g"]) is None
    assert store.read("rmq_sys_wheel_timer", 0, 0, 32).count == 1
    assert store.read("%RETRY%g", 0, 0, 32).count == 0
    store.close()


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 200), min_size=1, max_size=80), data=st.data())
def test_a_queue_ends_where_its_records_do(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    store = open_store(tmp_path_factory.mktemp("limit"))
    ends = [(one := put(store, "T", n % 2, b"x" * n)).position + one.size for n in sizes]
    limit = data.draw(st.integers(0, ends[-1] + 1))
    store.reads.limit.set(lambda: limit)
    for queue_id in (0, 1):
        expected = sum(
            end <= limit for end, size in zip(ends, sizes, strict=True) if size % 2 == queue_id
        )
        assert store.max_offset("T", queue_id) == expected
        found = store.read("T", queue_id, 0, 32)
        bodies = [len(each.body) for view in found.buffers for each in read_records(view)]
        assert bodies == [size for size in sizes if size % 2 == queue_id][: min(expected, 32)]
    assert all(a < b for a, b in pairwise(ends))
    store.close()
