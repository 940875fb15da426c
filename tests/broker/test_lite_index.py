"""The index of lite topics against a model: a table and chains without an object for each of their rows."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.broker.lite.chains import Chains
from pocketmq.broker.lite.flight import Flights, Lane
from pocketmq.broker.lite.offsets import LiteOffsets
from pocketmq.broker.lite.packed import PARTS, PackedTable
from pocketmq.broker.lite_topics import LiteTopics
from pocketmq.broker.table_config import TableConfig
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore, StoreConfig
from tests.broker.bare import HOST

# Few parts, and few places in them, so that rows collide.
_KEYS = st.builds(lambda part, low: part << 54 | low, st.integers(0, 1), st.integers(1, 40))


@settings(max_examples=60)
@given(st.lists(st.tuples(_KEYS, st.integers(-1, 9)), max_size=120))
def test_a_table_is_a_dict(steps: list[tuple[int, int]]) -> None:
    table, model = PackedTable(), dict[int, int]()
    for key, value in steps:
        if value < 0:
            table.remove(key)
            model.pop(key, None)
        else:
            table.put(key, value)
            model[key] = value
    again = PackedTable()
    again.load(memoryview(b"".join(table.pieces())))
    for each in (table, again):
        assert len(each) == len(model)
        assert {key: each.get(key) for key, _ in steps} == {k: model.get(k, -1) for k, _ in steps}
        assert dict(row for part in range(PARTS) for row in each.rows(part)) == model


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=80), st.integers(0, 80))
def test_chains_find_every_message_of_a_lite_topic(keys: list[int], cut: int) -> None:
    """Also after a start, and behind a cut."""
    with tempfile.TemporaryDirectory() as folder:
        chains, last = Chains(Path(folder)), dict[int, int]()
        chains.open(0)
        model: dict[int, list[int]] = {}
        for number, key in enumerate(keys):
            chains.reserve()
            offset = len(model.setdefault(key, []))
            last[key] = chains.append(key, number << 16, offset, last.get(key, -1), 0)
            model[key].append(number)
        for key, numbers in model.items():
            for offset, number in enumerate(numbers):
                assert chains.up_to(last[key], offset) == number
                assert chains.earliest(last[key], number) == number
        chains.close()
        chains = Chains(Path(folder))
        chains.open(0)
        assert [entry.key for _, entry in chains.since(0)] == keys
        chains.cut(min(cut, len(keys)))
        chains.close()
        chains.open(0)
        assert [entry.key for _, entry in chains.since(0)] == keys[:cut]
        chains.close()


def _said(topics: LiteTopics, store: MessageStore, topic: TopicConfig, name: str) -> None:
    marked = topics.mark(topic, f"__LITE_TOPIC\x01{name}\x02".encode())
    assert marked is not None
    put = store.append(topic.topic, len(name) % 2, b"b", marked.properties, 0, 0, 1, HOST)
    topics.stored(marked, put.position, put.store_ms)


def test_the_index_is_made_anew_from_the_log(tmp_path: Path) -> None:
    """After a kill, with an older saved table; and from nothing, as with a store of an Apache broker."""
    parent = TopicConfig("P", 2, 2, attributes={"message.type": "LITE"})
    store = MessageStore(
        StoreConfig(store_path_root_dir=str(tmp_path / "store")),
        clock=ManualClock(),
        store_host=HOST,
    )
    store.open()

    def opened() -> LiteTopics:
        made = LiteTopics(TableConfig(), store, lambda: iter([parent]))
        made.load()
        return made

    def seen(topics: LiteTopics) -> dict[str, list[tuple[int, int]]]:
        index = topics.index
        return {n: index.positions(index.key("P", n), 0, 100) for n in ("a", "bb", "c", "d")}

    topics = opened()
    for name in ("a", "bb", "a", "c", "a", "bb"):
        _said(topics, store, parent, name)
    topics.offsets.set("g", topics.index.key("P", "a"), 2)
    topics.close()
    topics = opened()
    _said(topics, store, parent, "d")
    _said(topics, store, parent, "a")
    topics.index.remove(topics.index.key("P", "c"))
    _said(topics, store, parent, "c")
    expected = seen(topics)
    assert [offset for offset, _ in expected["a"]] == [0, 1, 2, 3]
    assert [len(each) for each in expected.values()] == [4, 2, 1, 1]
    # The first one is killed: nothing of it is saved.
    killed = opened()
    assert seen(killed) == expected
    assert killed.index.count("P") == 4
    assert killed.offsets.get("g", killed.index.key("P", "a")) == 2
    for path in (tmp_path / "store" / "lite" / "entries").iterdir():
        path.unlink()
    assert seen(opened()) == expected
    for path in (tmp_path / "store" / "lite").glob("parents.json*"):
        path.unlink()
    topics = opened()
    assert seen(topics) == expected
    assert topics.offsets.get("g", topics.index.key("P", "a")) == -1
    store.close()


def test_offsets_last_over_a_kill_and_the_file_begins_anew(tmp_path: Path) -> None:
    offsets = LiteOffsets(tmp_path / "offsets")
    offsets.open()
    for number in range(10):
        offsets.set("g", 1 + number % 2, number)
    offsets.remove("g", 2)
    for rows in (11, 0, 1):
        assert (tmp_path / "offsets").stat().st_size == 16 * rows
        killed = LiteOffsets(tmp_path / "offsets")
        killed.open()
        assert (killed.get("g", 1), killed.get("g", 2), killed.get("h", 1)) == (8, -1, -1)
        killed.close()
        if rows:
            offsets.save()
        else:
            offsets.set("g", 1, 8)


def test_what_is_out_blocks_its_lane_and_what_is_done_stays_done() -> None:
    flights, lane = Flights(), Lane("g", 1)
    assert flights.out(lane, [4, 5, 6], 100, 200, None) == [0, 0, 0]
    assert flights.is_blocked(lane, 199)
    assert flights.done(lane, 5, 4) == 4
    assert (flights.passed(lane, 5), flights.is_out(lane, 5, 100, 150)) == (True, False)
    assert flights.due(200) == [lane]
    assert [flights.pop_ms(100), flights.pop_ms(100)] == [100, 101]
    assert flights.out(lane, [4, 6], 101, 300, None) == [1, 1]
    assert not flights.is_out(lane, 4, 100, 250)
    flights.postpone(lane, 4, 250, untried=True)
    assert flights.done(lane, 4, 4) == 6
    assert flights.done(lane, 6, 6) == 7
    assert len(flights) == 0
