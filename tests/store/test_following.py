"""The log of a slave: a master's bytes, cut anywhere, become the same log, queues and index."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from pocketmq.files.records import Entry
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore, StoreNotWriteable
from pocketmq.store.errors import Diverged
from pocketmq.store.following import STEP, STEP_SIZE, Following
from pocketmq.store.queue.consume_queue import GAP_MAX
from pocketmq.store.repair.reader import StoreReader
from tests.store.stores import (
    HOST,
    LONG_MAX,
    Arrivals,
    open_store,
    read_all,
    send,
    small_config,
)

KEYS = "KEYS\x01"


def follower(root: Path, arrivals: Arrivals | None = None, **changes: object) -> MessageStore:
    """An open store that follows."""
    config = small_config(root, **changes)
    store = MessageStore(config, clock=ManualClock(), store_host=HOST, arrivals=arrivals)
    store.opens_following = True
    store.open()
    return store


def filled(root: Path, count: int = 300) -> MessageStore:
    """A master with several files: plain, tagged, prepared, delayed and batched messages."""
    store = open_store(root)
    chance = random.Random(7)
    for number in range(count):
        body = chance.randbytes(chance.randrange(1, 1500))
        topic, queue_id = f"T{number % 3}", number % 2
        properties = f"{KEYS}k{number}\x02TAGS\x01t{number % 5}\x02".encode()
        sys_flag = 0x4 if number % 11 == 0 else 0
        store.append(topic, queue_id, body, properties, 0, sys_flag, 1, HOST)
        if number % 13 == 0:
            store.append("SCHEDULE_TOPIC_XXXX", 1, body, b"DELAY\x012\x02", 0, 0, 1, HOST)
    return store


def copy(
    master: MessageStore, slave: MessageStore, *, chance: random.Random | None = None
) -> Following:
    """Everything that the slave lacks, in pieces of any size."""
    following = slave.following
    assert following is not None
    chance = chance or random.Random(3)
    while following.received < master.commit_log_max_position:
        piece = master.raw(following.received, chance.randrange(1, 40_000))
        assert piece is not None
        following.receive(piece)
        if chance.random() < 0.5:
            following.step(chance.randrange(1, 50))
    while following.step():
        pass
    return following


def files(root: Path, folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_log_and_the_queues_become_those_of_the_master(tmp_path: Path, seed: int) -> None:
    master, slave = filled(tmp_path / "m"), follower(tmp_path / "s")
    following = copy(master, slave, chance=random.Random(seed))
    assert following.received == slave.commit_log_max_position == master.commit_log_max_position
    assert sorted(slave.queues()) == sorted(master.queues())
    for topic, queue_id in master.queues():
        assert slave.entries(topic, queue_id, 0, 1000) == master.entries(topic, queue_id, 0, 1000)
        assert read_all(slave, topic, queue_id) == read_all(master, topic, queue_id)
    asked = ("T1", "k100", 10, 0, 1 << 62)
    assert [bytes(each) for each in slave.query_by_key(*asked).records] == [
        bytes(each) for each in master.query_by_key(*asked).records
    ]
    slave.close()
    master.close()
    assert files(tmp_path / "s", "commitlog") == files(tmp_path / "m", "commitlog")


def test_a_partial_record_is_unread_and_cut_at_a_clean_stop(
    tmp_path: Path,
) -> None:
    master, slave = filled(tmp_path / "m", 20), follower(tmp_path / "s")
    following = slave.following
    assert following is not None
    rest = master.raw(0, master.commit_log_max_position - 1)
    assert rest is not None
    following.receive(rest)
    while following.step():
        pass
    last = slave.commit_log_max_position
    assert last < following.received == master.commit_log_max_position - 1
    slave.close()
    again = follower(tmp_path / "s")
    assert not again.recovery.damages
    assert again.following is not None
    assert again.following.received == last
    copy(master, again)
    assert again.commit_log_max_position == master.commit_log_max_position
    again.close()
    master.close()
    assert files(tmp_path / "s", "commitlog") == files(tmp_path / "m", "commitlog")


def test_the_log_may_begin_in_the_middle_of_the_masters(tmp_path: Path) -> None:
    master, slave = filled(tmp_path / "m"), follower(tmp_path / "s")
    begin = 2 * (64 << 10)
    assert slave.following is not None
    slave.following.begin_at(begin)
    copy(master, slave)
    assert slave.commit_log_min_position == begin
    high = master.max_offset("T0", 0)
    assert slave.max_offset("T0", 0) == high
    assert slave.min_offset("T0", 0) > 0
    assert slave.entries("T0", 0, high - 1, 1) == master.entries("T0", 0, high - 1, 1)
    position = slave.entries("T0", 0, high - 1, 1)[0][0]
    assert slave.record_at(position) == master.record_at(position)
    slave.close()
    master.close()


def test_a_slave_appends_nothing_until_it_leads(tmp_path: Path) -> None:
    master, slave = filled(tmp_path / "m", 20), follower(tmp_path / "s")
    copy(master, slave)
    with pytest.raises(StoreNotWriteable, match="slave"):
        send(slave, "T0")
    # What the disk says about room changes nothing about it.
    slave.refuse(None)
    with pytest.raises(StoreNotWriteable, match="slave"):
        send(slave, "T0")
    offset = slave.max_offset("T0", 0)
    slave.lead()
    for number in range(200):
        assert send(slave, "T0", 0, b"x" * 700) == offset + number
    slave.close()
    again = open_store(tmp_path / "s")
    assert not again.recovery.damages
    assert again.max_offset("T0", 0) == offset + 200
    again.close()
    master.close()


def test_a_master_that_follows_goes_on_with_what_comes(tmp_path: Path) -> None:
    """Also with a file made ahead, which the other way of writing does not use."""
    master, slave = filled(tmp_path / "m", 20), follower(tmp_path / "s")
    copy(master, slave)
    master.follow()
    slave.lead()
    for _ in range(200):
        send(slave, "T0", 0, b"x" * 700)
    copy(slave, master)
    assert read_all(master, "T0", 0) == read_all(slave, "T0", 0)
    master.close()
    slave.close()
    assert files(tmp_path / "s", "commitlog") == files(tmp_path / "m", "commitlog")


@pytest.mark.parametrize("where", ["size", "magic", "position", "body"])
def test_what_is_no_record_stops_it_for_good(tmp_path: Path, where: str) -> None:
    master, slave = filled(tmp_path / "m", 3), follower(tmp_path / "s")
    whole = master.raw(0, 1 << 20)
    assert whole is not None
    second = int.from_bytes(whole[:4], "big")
    data = bytearray(whole)
    data[second + {"size": 3, "magic": 5, "position": 30, "body": 100}[where]] ^= 1
    following = slave.following
    assert following is not None
    following.receive(bytes(data))
    with pytest.raises(Diverged, match=rf"position {second} "):
        following.step()
    assert slave.commit_log_max_position == second
    with pytest.raises(Diverged):
        following.step()
    slave.close()
    master.close()


def received_with_a_gap(master: MessageStore, slave: MessageStore, offset: int) -> Following:
    """Three records of a queue have arrived, the third with another queue offset: it has no checksum."""
    for _ in range(3):
        send(master)
    data = bytearray(master.raw(0, 1 << 20) or b"")
    third = len(data) // 3 * 2
    data[third + 20 : third + 28] = offset.to_bytes(8, "big", signed=True)
    following = slave.following
    assert following is not None
    following.receive(bytes(data))
    return following


@pytest.mark.parametrize("offset", [-1, 2 + GAP_MAX + 1, LONG_MAX])
def test_an_impossible_queue_offset_stops_the_following(tmp_path: Path, offset: int) -> None:
    master, slave = open_store(tmp_path / "m"), follower(tmp_path / "s")
    following = received_with_a_gap(master, slave, offset)
    for _ in range(2):
        with pytest.raises(Diverged, match=rf"its queue offset is {offset}, and .* ends at 2\)"):
            following.step()
    assert slave.max_offset("Topic", 0) == 2
    assert len(following.table.queues["Topic", 0].files.files) == 1
    slave.close()
    master.close()


@pytest.mark.parametrize("kind", ["plain", "batch"])
def test_a_gap_in_a_queue_of_the_master_is_one_here(tmp_path: Path, kind: str) -> None:
    master, slave = open_store(tmp_path / "m"), follower(tmp_path / "s")
    following = received_with_a_gap(master, slave, 500)
    following.table.batch_topics |= {"Topic"} if kind == "batch" else set()
    while following.step():
        pass
    assert slave.max_offset("Topic", 0) == 501
    assert [each.queue_offset for each in read_all(slave)] == [0, 1, 500]
    slave.close()
    again = follower(tmp_path / "s")
    assert (again.max_offset("Topic", 0), again.recovery.damages) == (501, [])
    again.close()
    master.close()


def test_many_at_once_is_the_same_as_one_by_one(tmp_path: Path) -> None:
    """Whatever byte of a plain record is another one: the same is taken, or the same is said."""
    master = open_store(tmp_path / "m")
    for number in range(3):
        properties = f"{KEYS}k{number}\x02TAGS\x01t\x02".encode()
        master.append("T", 0, b"body", properties, 0, 0, 1, HOST)
    whole = bytes(master.raw(0, 1 << 20) or b"")
    master.close()
    size = int.from_bytes(whole[:4], "big")
    made = 0

    def taken(data: bytes, *, special: bool = False) -> tuple[object, ...]:
        nonlocal made
        slave = follower(tmp_path / str(made))
        made += 1
        following = slave.following
        assert following is not None
        # The first alone: from then on its queue is known.
        following.receive(data[:size])
        following.step()
        for queue in following.table.queues.values():
            queue.special = special
        following.receive(data[size:])
        said = ""
        try:
            following.step()
        except Diverged as error:
            said = str(error)
        pending = list(following.index.pending)
        entries = {queue: slave.entries(*queue, 0, 10) for queue in slave.queues()}
        found = (slave.commit_log_max_position, said, pending, entries)
        slave.close()
        return found

    # The last byte of each field and of the body, the topic with its size, and where the properties begin.
    last = [3, 7, 11, 15, 19, 27, 35, 39, 47, 55, 63, 71, 75, 83, 87, 91]
    for place in (*last, *range(92, 97)):
        data = bytearray(whole)
        data[size + place] ^= 0x41
        assert taken(bytes(data)) == taken(bytes(data), special=True), place


def test_who_waits_for_a_queue_is_told_of_each_entry(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []
    awaited = {("T0", 0)}
    arrivals = Arrivals(
        arrived=lambda *event: told.append(event[:3]),
        awaited=lambda *queue: queue in awaited,
    )
    master, slave = open_store(tmp_path / "m"), follower(tmp_path / "s", arrivals)
    for number in range(12):
        send(master, f"T{number % 2}", 0)
    copy(master, slave, chance=random.Random(1))
    # A queue's first record makes it, and is told without being asked for.
    assert [event for event in told if event != ("T1", 0, 1)] == [
        ("T0", 0, offset) for offset in range(1, 7)
    ]
    slave.close()
    master.close()


def steps_of(master: MessageStore, slave: MessageStore) -> list[tuple[int, int]]:
    """(records, bytes) of each step after everything has arrived."""
    following = slave.following
    assert following is not None
    while following.received < master.commit_log_max_position:
        piece = master.raw(following.received, 1 << 20)
        assert piece is not None
        following.receive(piece)
    found = [(0, 0)]
    while following.step():
        records = sum(slave.max_offset(*queue) for queue in slave.queues())
        found.append((records, slave.commit_log_max_position))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(found)]


def test_a_step_is_bounded_in_records(tmp_path: Path) -> None:
    master, slave = open_store(tmp_path / "m"), follower(tmp_path / "s")
    for _ in range(3 * STEP):
        send(master)
    records = [count for count, _ in steps_of(master, slave)]
    assert max(records) <= STEP
    assert len(records) <= 5
    slave.close()
    master.close()


def test_a_step_is_bounded_in_bytes(tmp_path: Path) -> None:
    """But for its last record."""
    master, slave = (
        make(tmp_path / name, mapped_file_size_commit_log=16 << 20)
        for make, name in ((open_store, "m"), (follower, "s"))
    )
    for _ in range(30):
        send(master, body=b"x" * 300_000)
    assert max(size for _, size in steps_of(master, slave)) < STEP_SIZE + 301_000
    slave.close()
    master.close()


@pytest.mark.parametrize(
    ("queue_id", "first", "at_most"),
    [(lambda n: n, 0, 8), (lambda n: n, 7, 1), (lambda n: 0, 0, 64)],
    ids=["new queues", "queues that begin later", "delayed"],
)
def test_records_that_cost_more_are_fewer_in_a_step(
    tmp_path: Path, queue_id: Callable[[int], int], first: int, at_most: int
) -> None:
    """A new queue makes files, and one that does not begin with 0 is filled up to there."""
    master, slave = open_store(tmp_path / "m"), follower(tmp_path / "s")
    topic = "Topic" if queue_id(1) else "SCHEDULE_TOPIC_XXXX"
    for number in range(100):
        if first:
            master.table.open(topic, queue_id(number)).skip_to(first)
        send(master, topic, queue_id(number))
    steps = [count - first * at_most for count, _ in steps_of(master, slave)]
    assert len(steps) >= 100 // at_most
    assert max(steps) <= at_most
    slave.close()
    master.close()


def test_a_queue_that_begins_anew_at_the_master_does_so_here(tmp_path: Path) -> None:
    master, slave = filled(tmp_path / "m", 30), follower(tmp_path / "s")
    copy(master, slave)
    master.delete_topic("T0")
    assert send(master, "T0", 0, b"first again") == 0
    copy(master, slave)
    assert slave.max_offset("T0", 0) == 1
    assert read_all(slave, "T0", 0) == read_all(master, "T0", 0)
    slave.close()
    master.close()


def test_a_cut_tail_is_kept_in_a_file_and_the_log_follows(tmp_path: Path) -> None:
    """After a promotion: the old master has a tail that the new one never had."""
    old, new = filled(tmp_path / "old", 100), follower(tmp_path / "new")
    copy(old, new)
    common = old.commit_log_max_position
    for number in range(150):
        send(old, "T0", 0, b"lost %d" % number + b"x" * 500)
    # It ends with zeros.
    old.append("T0", 0, b"last", b"", 0, 0, 1, HOST)
    earlier = tmp_path / "old" / "dropped" / f"commitlog-{common:020d}"
    earlier.parent.mkdir()
    earlier.write_bytes(b"of an earlier cut")
    new.lead()
    for number in range(200):
        new.append("T1", 0, b"y" * 600, f"{KEYS}n{number}\x02".encode(), 0, 0, 1, HOST)
    old.follow()
    tail = b"".join(
        bytes(old.raw(position, 64 << 10) or b"")
        for position in range(common - common % (64 << 10), old.commit_log_max_position, 64 << 10)
    )[common % (64 << 10) :]
    kept = old.cut_back(common)
    assert b"lost 0x" in tail
    assert earlier.read_bytes() == b"of an earlier cut"
    assert Path(kept[0]).name == f"commitlog-{common:020d}.1"
    assert tail.startswith(Path(kept[0]).read_bytes()[:1000])
    assert len(kept) == 2
    found = [each for path in kept for each in StoreReader(path).walk()]
    assert len([each for each in found if isinstance(each, Entry)]) == len(found) == 151
    copy(new, old)
    for topic, queue_id in new.queues():
        assert read_all(old, topic, queue_id) == read_all(new, topic, queue_id)
    asked = ("T1", "n150", 10, 0, 1 << 62)
    assert len(old.query_by_key(*asked).records) == 1
    old.close()
    new.close()
    assert files(tmp_path / "old", "commitlog") == files(tmp_path / "new", "commitlog")
    again = follower(tmp_path / "old")
    assert not again.recovery.damages
    assert not again.recovery.entries_repaired
    again.close()
