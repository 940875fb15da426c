"""Batches, retries, delays and disks: what an answer to a send promises."""

import asyncio
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.wire.sends import long_batches
from pocketmq.model.message_codec import parse_offset_msg_id, properties_to_dict
from pocketmq.model.record import BATCH_COUNT_MAX, read_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.store import FlushFailed
from tests.broker.serving import Peer, batch, number, records, serving
from tests.broker.stored_messages import stored

CODE = RequestCode


_BATCH_FIELDS = {
    "a": "p",
    "b": "T",
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1,
    "h": 0,
    "m": True,
}


class _Flush:
    """The store's flush, under the test's control."""

    def __init__(self, broker: Broker) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        broker.parts.messages.store.flushed = lambda position: self.future  # type: ignore[method-assign]


async def test_a_batch_is_stored_as_messages_that_follow_each_other(
    broker: Broker, peer: Peer
) -> None:
    """One id per message, the first one's offset; own properties first, then the batch's."""
    await peer.produce("T", queue_id=1)
    body = batch((b"b0", b"KEYS\x01k0"), (b"b1", b"KEYS\x01k1\x02TAGS\x01t\x02"), (b"b2", b""))
    answer = await peer.produce(
        "T", body, queue_id=1, code=CODE.SEND_BATCH_MESSAGE, more={"m": True}, WAIT="true"
    )
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext is not None
    ids = answer.ext["msgId"].split(",")
    assert len(ids) == 3
    assert number(answer, "queueOffset") == 1
    pulled = records(await peer.pull("g", "T", 1, queue_id=1, sys_flag=4, subscription="*"))
    assert [bytes(record.body) for record in pulled] == [b"b0", b"b1", b"b2"]
    assert [record.queue_offset for record in pulled] == [1, 2, 3]
    assert [record.position for record in pulled] == [parse_offset_msg_id(i)[1] for i in ids]
    assert properties_to_dict(pulled[1].properties) == {
        "KEYS": "k1",
        "TAGS": "t",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
    }
    counter = broker.parts.messages.stats.put_counter("T", 1)
    assert (counter.nums, counter.calls) == (4, 2)


@pytest.mark.parametrize(
    "body",
    [
        b"\0",
        batch((b"a", b""))[:-1],
        batch((b"a", b"")) + b"\0\0\0\x16",
        b"\x7f\xff\xff\xff" + b"\0" * 40,
        b"\xff\xff\xff\xff" + b"\0" * 40,
        batch((b"a", b""))[:16] + b"\xff\xff\xff\xff" + b"a\0\0",
    ],
)
async def test_a_batch_whose_lengths_do_not_add_up_is_refused_whole(
    broker: Broker, peer: Peer, body: bytes
) -> None:
    """Nothing of it is stored, and the connection stays."""
    answer = await peer.produce("T", body, code=CODE.SEND_BATCH_MESSAGE, more={"m": True})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark
    assert broker.parts.messages.store.appends.put_count == 0
    assert (await peer.produce("T")).code == ResponseCode.SUCCESS


async def test_a_large_batch_is_stored_in_pieces_and_answered_once(
    broker: Broker, peer: Peer
) -> None:
    """RocketMQ has no limit: its example SplitBatchProducer sends 13,000 at once. Several wait in turn."""
    count = 2 * BATCH_COUNT_MAX + 1
    store = broker.parts.messages.store
    whole = batch(*((b"%d" % n, b"K\x01v\x02") for n in range(count)))
    broken = whole + b"\0\0\0\x16"
    first = await peer.produce("T", whole, code=CODE.SEND_BATCH_MESSAGE, more={"m": True})
    assert first.code == ResponseCode.SUCCESS
    assert store.appends.put_count == count
    # As a header that is known, and not one after the other.
    opaques = [
        peer.send(CODE.SEND_BATCH_MESSAGE, _BATCH_FIELDS, body) for body in (whole, broken, whole)
    ]
    second, wrong, third = [await peer.answer(opaque) for opaque in opaques]
    assert wrong.code == ResponseCode.MESSAGE_ILLEGAL
    offsets = [number(answer, "queueOffset") for answer in (first, second, third)]
    assert offsets == [0, count, 2 * count]
    assert store.max_offset("T", 0) == 3 * count
    ids = [
        each for answer in (first, second, third) for each in (answer.ext or {})["msgId"].split(",")
    ]
    assert len(set(ids)) == 3 * count
    for place in (0, BATCH_COUNT_MAX, count - 1, 2 * count - 1):
        data = store.record_at(parse_offset_msg_id(ids[place])[1])
        assert data is not None
        record = read_record(data)
        assert (bytes(record.body), record.queue_offset) == (b"%d" % (place % count), place)


async def test_a_broker_that_stops_stores_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch beyond those that may wait is sent back."""
    monkeypatch.setattr(long_batches, "_WAITING_MAX", 1)
    count = 2 * BATCH_COUNT_MAX
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.produce("T")
        store = broker.parts.messages.store
        whole = batch(*[(b"x", b"")] * count)
        for _ in range(2):
            last = peer.send(CODE.SEND_BATCH_MESSAGE, _BATCH_FIELDS, whole)
        assert (await peer.answer(last)).code == ResponseCode.SYSTEM_BUSY
    assert store.max_offset("T", 0) == 1 + count


async def test_retry_sends_beyond_the_maximum_become_dead_letters(
    broker: Broker, peer: Peer
) -> None:
    """wire.md 3.2.8: the client's fallback when a send-back fails."""
    for times, topic in ((0, "%RETRY%g"), (15, "%RETRY%g"), (16, "%DLQ%g"), (99, "%DLQ%g")):
        answer = await peer.produce("%RETRY%g", more={"j": times}, RETRY_TOPIC="T")
        record = await stored(broker, answer)
        assert (record.topic, record.queue_id, record.reconsume_times) == (topic, 0, times)
    dead = broker.parts.tables.topics.get("%DLQ%g")
    assert dead is not None
    assert (dead.write_queues, dead.perm) == (1, 6)
    limited = await peer.produce("%RETRY%g", more={"j": 3, "l": 3})
    assert (await stored(broker, limited)).topic == "%DLQ%g"
    old = await peer.produce("%RETRY%g", more={"j": 3, "l": 3}, how={"version": 120})
    assert (await stored(broker, old)).topic == "%RETRY%g"


async def test_a_retry_send_of_an_unknown_group_is_refused(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, auto_create_subscription_group=False) as broker:
        async with await Peer.at(broker) as peer:
            answer = await peer.produce("%RETRY%absent")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert (answer.remark or "").startswith("subscription group not exist, absent ")


async def test_a_delayed_message_waits_in_the_schedule_topic(broker: Broker, peer: Peer) -> None:
    """Level n is queue n - 1; the entry holds the due time; levels above the last are the last."""
    for level, queue_id in ((3, 2), (18, 17), (99, 17)):
        answer = await peer.produce("T", b"later", queue_id=2, DELAY=str(level), TAGS="t")
        assert number(answer, "queueId") == 2
        record = await stored(broker, answer)
        assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue_id)
        properties = properties_to_dict(record.properties)
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
    due = broker.parts.messages.store.entries("SCHEDULE_TOPIC_XXXX", 2, 0, 1)[0][2]
    assert 9_000 <= due - broker.clock.now_ms() <= 10_000
    assert broker.parts.messages.store.max_offset("T", 2) == 0


async def test_a_delayed_message_comes_when_it_is_due(broker: Broker, peer: Peer) -> None:
    """Level 1 is one second; a held pull is woken by the delivery."""
    await peer.produce("T")
    began = broker.clock.monotonic_ms()
    await peer.produce("T", b"later", queue_id=1, DELAY="1")
    answer = await peer.pull("g", "T", 0, queue_id=1, sys_flag=6, subscription="*")
    assert broker.clock.monotonic_ms() - began >= 1_000
    (record,) = records(answer)
    assert (bytes(record.body), record.topic) == (b"later", "T")
    assert properties_to_dict(record.properties)["DELAY"] == "1"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_a_delay_below_one_is_not_delayed(broker: Broker, peer: Peer, level: str) -> None:
    record = await stored(broker, await peer.produce("T", DELAY=level))
    assert record.topic == "T"


async def test_an_unwritable_store_answers_14_and_serves_pulls(
    broker: Broker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """Code 14 with a remark that names the reason; pulls are served."""
    from pocketmq.store import DiskFull

    await peer.produce("T", b"kept")
    broker.parts.messages.store.refuse(DiskFull("/data", "4 KiB left"))
    for code in (CODE.SEND_MESSAGE_V2, CODE.SEND_BATCH_MESSAGE):
        body = batch((b"x", b"")) if code == CODE.SEND_BATCH_MESSAGE else b"x"
        answer = await peer.produce("T", body, code=code)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the disk of /data is full (4 KiB left)" in (answer.remark or "")
        assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert await peer.bodies("g", "T") == [b"kept"]
    broker.parts.messages.store.refuse(None)
    assert (await peer.produce("T")).code == ResponseCode.SUCCESS
    said = [each for each in caplog.messages if each.startswith("send refused")]
    # The second refusal is counted: under load there are thousands a second.
    assert len(said) == 1
    assert "code=14" in said[0]


async def test_with_sync_flush_an_answer_means_that_it_is_on_the_disk(tmp_path: Path) -> None:
    """Answers of one read wait for one group commit; WAIT=false does not wait."""
    async with serving(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as broker:
        async with await Peer.at(broker) as peer:
            await peer.produce("T")
            ext = {"a": "g", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
            opaques = [
                peer.send(CODE.SEND_MESSAGE_V2, {**ext, "i": "a\x01b"}, b"x") for _ in range(64)
            ]
            for opaque in opaques:
                answer = await peer.answer(opaque)
                assert answer.code == ResponseCode.SUCCESS
                record = await stored(broker, answer)
                assert broker.parts.messages.store.flushed_position >= record.position + record.size
            body = batch((b"x", b""), (b"y", b""))
            answer = await peer.produce("T", body, code=CODE.SEND_BATCH_MESSAGE)
            assert answer.code == ResponseCode.SUCCESS


async def test_a_flush_that_fails_is_never_answered_with_success(tmp_path: Path) -> None:
    """Code 10 with the message's place; WAIT=false is answered at once."""
    async with serving(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as broker:
        async with await Peer.at(broker) as peer, await Peer.at(broker) as other:
            await peer.produce("T")
            flush = _Flush(broker)
            ext = {"a": "g", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
            waiting = [peer.send(310, {**ext, "i": "a\x01b"}, b"x") for _ in range(3)]
            binary = peer.send(310, {**ext, "i": "a\x01b"}, b"x", encoding=1)
            late = other.send(310, {**ext, "i": "a\x01b"}, b"x")
            unhurried = await peer.ask(310, {**ext, "i": "WAIT\x01false"}, b"x")
            assert unhurried.code == ResponseCode.SUCCESS
            assert (await other.produce("T", WAIT="false")).code == ResponseCode.SUCCESS
            flush.future.set_exception(FlushFailed("EIO"))
            for connection, opaque in [
                *((peer, w) for w in waiting),
                (peer, binary),
                (other, late),
            ]:
                answer = await connection.answer(opaque)
                assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
                assert answer.ext is not None
                assert {"msgId", "queueId", "queueOffset"} <= answer.ext.keys()


async def test_a_slow_flush_is_answered_and_so_are_later_ones(
    tmp_path: Path,
) -> None:
    """syncFlushTimeout: code 10 at that time, for those too that wait for the same flush later."""
    store = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout": 50}
    async with serving(tmp_path, store=store) as broker:
        async with await Peer.at(broker) as peer:
            await peer.produce("T", WAIT="false")
            flush = _Flush(broker)
            for _ in range(2):
                assert (await peer.produce("T")).code == ResponseCode.FLUSH_DISK_TIMEOUT
            flush.future.set_result(None)
            assert (await peer.produce("T", WAIT="false")).code == ResponseCode.SUCCESS


async def test_the_region_and_trace_switch_of_the_settings_are_told(tmp_path: Path) -> None:
    """A percent sign or a quote in the region does not break the answer's template."""
    async with serving(tmp_path, region_id='50% "here"', trace_on=False) as broker:
        async with await Peer.at(broker) as peer:
            for _ in range(2):
                answer = await peer.produce("T", a="b")
                assert answer.ext is not None
                assert answer.ext["MSG_REGION"] == '50% "here"'
                assert answer.ext["TRACE_ON"] == "false"
