"""Lags: a scrape opens a bounded number of queues, however many there are, and tells the truth in the end."""

from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures import lags
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.queue import consume_queue_table
from pocketmq.store.queue.consume_queue import ConsumeQueue
from tests.broker.bare import HOST, bare_parts

TOPICS, QUEUES = 50, 4


def test_a_scrape_opens_few_queues_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store = MessageStore(
        StoreConfig(
            store_path_root_dir=str(tmp_path),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=4_000,
        ),
        clock=clock,
        store_host=HOST,
    )
    store.open()
    parts = bare_parts(store, clock, BrokerConfig(broker_name="b"))
    names = [f"Topic{number}" for number in range(TOPICS)]
    parts.tables.groups.find("g")
    for name in names:
        parts.tables.topics.update(TopicConfig(name, QUEUES, QUEUES))
        for queue_id in range(QUEUES):
            store.append(name, queue_id, b"x", b"", 0, 0, clock.now_ms(), HOST)
            parts.tables.offsets.place("g", name, queue_id, queue_id % 2)
    assert store.flushing is not None
    store.flushing.flush_all_now()
    monkeypatch.setattr(consume_queue_table, "OPEN_KEPT", 0)
    store.table.use()
    assert not store.table.queues
    opened: list[str] = []
    load = ConsumeQueue.load

    def counted(queue: ConsumeQueue, file_size: int | None = None) -> None:
        opened.append(queue.topic)
        load(queue, file_size)

    monkeypatch.setattr(ConsumeQueue, "load", counted)
    monkeypatch.setattr(lags, "LOOKS", 10 * lags.OPENING)

    parts.lags.refresh()
    assert 0 < len(opened) < 10 + QUEUES
    while len(parts.lags.rows) < TOPICS:
        before = len(opened)
        parts.lags.go_on()
        assert before < len(opened) < before + 10 + QUEUES
    assert len(opened) == TOPICS * QUEUES
    assert not store.table.queues
    assert {row.count for row in parts.lags.rows.values()} == {QUEUES // 2}
    clock.advance_ms(5_000)
    assert parts.lags.rows["g", names[0]].age_ms(clock.now_ms()) == 5_000

    parts.tables.offsets.place("g", names[7], 0, 1)
    for _ in range(TOPICS):
        parts.lags.refresh()
    assert opened[TOPICS * QUEUES :] == [names[7]]
    assert parts.lags.rows["g", names[7]].count == 1

    # A queue that was open meanwhile may have grown: all are looked at anew, a few at a time.
    store.append(names[3], 0, b"x", b"", 0, 0, clock.now_ms(), HOST)
    store.flushing.flush_all_now()
    store.table.use()
    for _ in range(TOPICS):
        parts.lags.refresh()
    assert parts.lags.rows["g", names[3]].count == QUEUES // 2 + 1

    # Rows of groups that left are dropped a few at a time, too.
    monkeypatch.setattr(lags, "LOOKS", 5)
    parts.tables.offsets.offsets.clear()
    for _ in range(TOPICS):
        before = len(parts.lags.rows)
        parts.lags.refresh()
        assert before - len(parts.lags.rows) <= 2 * lags.LOOKS
    assert not parts.lags.rows
    store.close()
