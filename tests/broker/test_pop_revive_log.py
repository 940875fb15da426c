"""The revive log: its records as RocketMQ writes them, what a start reads of it, a disk that refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.broker.pop.check_point import Ack, CheckPoint, CheckPointName
from pocketmq.model.message_codec import get_property
from pocketmq.model.pop_receipt import Receipt, real_topic
from pocketmq.model.record import read_records
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import HeaderError
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.errors import DiskFull
from tests.broker.bare import HOST
from tests.broker.popping import Popper
from tests.broker.serving import Peer, serving
from tests.broker.test_pop_model import Bench
from tests.golden.golden_stores import unpack


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, rewrite_min=100)
    yield made
    made.close()


def test_records_are_those_of_the_real_broker(tmp_path: Path) -> None:
    """disk.md 10: every check point and ack of a 5.5.0 store, read and written again byte for byte."""
    root = unpack("v550-main.clean", tmp_path)
    store = MessageStore(
        StoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=65_536),
        clock=ManualClock(1_795_251_700_000),
        store_host=HOST,
    )
    store.open()
    kinds: dict[bytes, int] = {}
    for topic, queue_id in list(store.queues()):
        if topic == "rmq_sys_wheel_timer" or "REVIVE" in topic:
            for buffer in store.read(topic, queue_id, 0, 100).buffers:
                for record in read_records(buffer):
                    tag, body = get_property(record.properties, b"TAGS"), bytes(record.body)
                    made: CheckPoint | Ack
                    if tag == b"ck":
                        made = CheckPoint.from_body(body, "other")
                    elif tag == b"ack":
                        made = Ack.from_body(body, "other")
                    else:
                        continue
                    assert made.body() == body
                    key = get_property(record.properties, b"UNIQ_KEY")
                    assert made.unique_key().encode() == key
                    kinds[tag] = kinds.get(tag, 0) + 1
    store.close()
    assert kinds == {b"ck": 8, b"ack": 19}


def test_the_last_bit_of_a_full_check_point_is_a_java_ints_sign() -> None:
    point = CheckPoint(CheckPointName("T", "g", 0, 5, 1, "b"), 10, range(5, 37))
    for offset in range(5, 37):
        assert point.ack(offset)
    assert b'"bm":-1' in point.body()
    assert CheckPoint.from_body(point.body(), "b").is_acked


@pytest.mark.parametrize(
    "text", ["", "1 2 3", "a b c d e f g", "1 2 3 4 5", f"{1 << 63} 2 3 4 0 b 6"]
)
def test_a_text_that_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="not the receipt"):
        Receipt.parse(text)


def test_no_time_is_so_long_or_short_that_a_pop_fails(bench: Bench) -> None:
    bench.send(b"one", 0)
    [message] = bench.take(invisibleTime=-5)
    bench.pop.step()
    [message] = bench.take(invisibleTime=2**63 - 1)
    assert bench.change(message, 2**63 - 1).code == 0
    assert bench.take() == []


def test_a_retry_flag_that_does_not_exist_is_refused() -> None:
    assert real_topic("T", "g", "2") == "%RETRY%g+T"
    with pytest.raises(HeaderError, match="0, 1 or 2"):
        real_topic("T", "g", "3")


def test_a_start_reads_little_however_long_something_is_out(bench: Bench) -> None:
    """Invariant 4: what is out for a day does not keep the log of a day."""
    bench.send(b"slow", 0)
    [slow] = bench.take(invisibleTime=86_400_000)
    for number in range(1_500):
        bench.send(b"%d" % number, 1)
        [message] = bench.take()
        bench.clock.advance_ms(10)
        assert bench.ack(message) == 0
        if number % 50 == 0:
            bench.pop.tick()
    bench.pop.tick()
    bench.save()
    queues = bench.pop.log._queues.values()
    assert max(queue.read - queue.finished for queue in queues) < 300
    assert sum(queue.read for queue in queues) > 3_000
    bench.kill()
    assert len(bench.pop.log.state) == 1
    assert bench.take() == []
    assert bench.ack(slow) == 0
    assert len(bench.pop.log.state) == 0


def test_what_was_popped_under_another_cluster_name_stays_popped(bench: Bench) -> None:
    """Twice renamed, with kills: acknowledged messages do not come again, the others once."""
    for number in range(6):
        bench.send(b"%d" % number, 0)
    before = bench.take(maxMsgNums=4, invisibleTime=60_000)
    assert bench.ack(before[0]) == 0
    bench.save()
    bench.config.broker_cluster_name = "another"
    for _ in range(2):
        bench.kill()
        assert len(bench.pop.log.state) == 1
    assert bench.ack(before[1]) == 0
    bench.pop.tick()
    bench.save()
    bench.config.broker_cluster_name = "third"
    bench.kill()
    assert bench.ack(before[2]) == 0
    assert [each.body for each in bench.take(invisibleTime=600_000)] == [b"4", b"5"]
    bench.clock.advance_ms(60_000)
    bench.pop.step()
    assert [each.body for each in bench.take()] == [b"3"]
    assert bench.take() == []


def test_a_refused_copy_of_an_older_log_is_tried_again(bench: Bench) -> None:
    bench.send(b"one", 0)
    assert bench.take(invisibleTime=60_000)
    bench.config.broker_cluster_name = "another"
    bench.save()
    bench.store.refuse(DiskFull("here", "full"))
    bench.kill()
    assert len(bench.pop.log.state) == 0
    bench.store.refuse(None)
    bench.pop.tick()
    assert len(bench.pop.log.state) == 1


def test_a_record_that_is_none_is_left_out(bench: Bench) -> None:
    bench.send(b"one", 0)
    [message] = bench.take()
    queue_id = int(message.receipt.split(" ")[3])
    for body in (b"{", b"[]", b'{"t":"T"}', b'{"c":"g","n":99,"q":0,"so":0,"pt":1,"it":1,"t":"T"}'):
        for tag in (b"ck", b"ack", b"else"):
            properties = b"TAGS\x01" + tag + b"\x02"
            bench.store.append(bench.pop.log.topic, queue_id, body, properties, 0, 0, 1, HOST)
    bench.pop.tick()
    bench.kill()
    assert len(bench.pop.log.state) == 1
    assert bench.ack(message) == 0


def test_nothing_goes_out_that_cannot_be_written_down(bench: Bench) -> None:
    """A full disk: pops and acks are refused, what is due waits; all continues when there is room."""
    for text in (b"one", b"two"):
        bench.send(text, 0)
    [first] = bench.take(maxMsgNums=1, invisibleTime=1_000)
    bench.store.refuse(DiskFull("here", "full"))
    with pytest.raises(AssertionError, match="answer code=1"):
        bench.take()
    assert bench.ack(first) == 1
    assert bench.change(first, 5).code == 1
    bench.clock.advance_ms(1_000)
    bench.pop.step()
    bench.store.refuse(None)
    assert [message.body for message in bench.take()] == [b"two"]
    bench.clock.advance_ms(1_000)
    bench.pop.step()
    assert [message.body for message in bench.take()] == [b"one"]


def test_a_retry_topic_that_cannot_be_saved_is_tried_again(bench: Bench) -> None:
    """Nor is anything forgotten that is due at the same time."""
    for queue_id in range(2):
        bench.send(b"%d" % queue_id, queue_id)
    assert len(bench.take(invisibleTime=1_000)) == 2
    # A folder in the place of the file that is written.
    in_the_way = bench.folder / "config" / "topics.json.tmp"
    in_the_way.mkdir()
    bench.clock.advance_ms(1_000)
    bench.pop.step()
    in_the_way.rmdir()
    bench.clock.advance_ms(1_000)
    bench.pop.step()
    assert sorted(message.body for message in bench.take()) == [b"0", b"1"]


def test_a_copy_made_while_the_log_refused_comes_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it was copied is logged once the log takes it again, though the group is done with the copy."""
    bench.send(b"one", 0)
    bench.take(invisibleTime=1_000)
    append = bench.store.append

    def no_log(topic: str, *rest: Any) -> Any:
        if topic == bench.pop.log.topic:
            raise DiskFull("here", "full")
        return append(topic, *rest)

    bench.clock.advance_ms(1_000)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "append", no_log)
        bench.pop.step()
        bench.pop.step()
    [copy] = bench.take()
    assert bench.ack(copy) == 0
    assert bench.pop._is_busy
    bench.pop.step()
    bench.kill()
    bench.pop.step()
    assert bench.take() == []
    assert len(bench.pop.log.state) == 0


def test_what_could_not_be_logged_is_logged_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much it is: each step is a piece of work of its own, and the next follows at once."""
    for number in range(9):
        bench.send(b"%d" % number, 0)
    bench.take(invisibleTime=1_000)
    log = bench.pop.log
    [point] = log.state.due(bench.clock.monotonic_ms() + 10_000, 9)
    for offset in range(9):
        log.ack_unwritten(point.name, [offset], point.revive_queue)
    before = bench.store.max_offset(log.topic, point.revive_queue)
    monkeypatch.setattr("pocketmq.broker.pop.revive._STEP_MAX", 4)
    for left in (5, 1, 0):
        more = bench.pop.step()
        assert (len(log.unwritten), more) == (left, left > 0)
    assert bench.store.max_offset(log.topic, point.revive_queue) == before + 9


async def test_saved_offsets_never_pass_the_flushed_log(tmp_path: Path) -> None:
    """Invariant 3: after a power cut a group has not moved on behind messages whose pop is forgotten."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.produce("T", b"one")
        await Popper(peer, broker.clock.now_ms).pop()
        end = broker.parts.services.pop.log.end
        assert end > broker.parts.messages.store.flushed_position
        await Housekeeping(broker.parts, None)._save(broker.parts.tables.offsets, end)
        assert broker.parts.messages.store.flushed_position >= end


def test_messages_of_both_kinds_of_retry_topics_are_popped(bench: Bench) -> None:
    """enableRetryTopicV2 was switched on: what lies under the old name is not forgotten."""
    for text in (b"one", b"two"):
        bench.send(text, 0)
    # The topic itself first.
    bench.chance = 50
    bench.take(maxMsgNums=1, invisibleTime=0)
    bench.pop.step()
    bench.config.enable_retry_topic_v2 = True
    bench.take(maxMsgNums=1, invisibleTime=0)
    bench.pop.step()
    found = bench.take()
    assert {(message.body, message.topic) for message in found} == {
        (b"one", "%RETRY%g_T"),
        (b"two", "%RETRY%g+T"),
    }
    for message in found:
        assert bench.ack(message) == 0
    assert len(bench.pop.log.state) == 0


def test_a_popped_message_whose_topic_is_gone_is_forgotten(bench: Bench) -> None:
    bench.send(b"one", 0)
    bench.take(invisibleTime=1_000)
    bench.topics.delete("T")
    bench.clock.advance_ms(1_000)
    bench.pop.step()
    assert len(bench.pop.log.state) == 0
    assert bench.topics.get("%RETRY%g_T") is None


def test_a_pop_of_an_unsaved_group_returns_after_a_kill(bench: Bench) -> None:
    """A kill between the first pop of a group and the saving of the table of groups."""
    bench.send(b"one", 0)
    bench.take(invisibleTime=1_000)
    bench.groups.groups.clear()
    bench.clock.advance_ms(1_000)
    bench.pop.step()
    assert [message.body for message in bench.take()] == [b"one"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("with_offsets", [False, True])
async def test_a_deleted_group_is_not_revived_by_its_pops(
    tmp_path: Path, with_offsets: bool, restarts: bool
) -> None:
    """mqadmin's deleteSubGroup keeps the offsets, unless it is asked to remove them."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for text in (b"0", b"1", b"2"):
            await peer.produce("T", text)
        popper = Popper(peer, clock.now_ms)
        found = await popper.pop()
        await popper.ack(found[0])
        clock.advance_ms(60_000)
        broker.parts.services.pop.step()
        assert await popper.bodies(maxMsgNums=1) == [b"1"]
        await peer.produce("T", b"3")
        assert b"3" in await popper.bodies()
        ext = {"groupName": "g", "removeOffset": with_offsets, "cleanOffset": with_offsets}
        assert (await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)).code == 0
        ext = {"topic": "%RETRY%g_T"}
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext)).code == 0
        if not restarts:
            clock.advance_ms(60_000)
            broker.parts.services.pop.step()
            assert broker.parts.tables.groups.get("g") is None
            assert broker.parts.tables.topics.get("%RETRY%g_T") is None
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        clock.advance_ms(60_000)
        broker.parts.services.pop.step()
        assert len(broker.parts.services.pop.log.state) == 0
        assert broker.parts.tables.groups.get("g") is None
        assert broker.parts.tables.topics.get("%RETRY%g_T") is None
        # A new group of this name begins anew, or with what the old one had not done.
        assert b"3" in await Popper(peer, clock.now_ms).bodies()
