"""Transactions: half messages, their end, check-back, and what a restart makes of them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from pocketmq.model.record import read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, number, records, serving
from tests.broker.transactions import (
    BORN,
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    asked,
    check,
    end,
    ending,
    found,
    prepare,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BORN)


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with serving(tmp_path, clock=clock) as running:
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[Peer]:
    async with await Peer.at(broker) as connected:
        await connected.heartbeat("", {}, producer="pg")
        yield connected


async def test_clients_of_5_are_told_the_id_of_a_transaction(peer: Peer) -> None:
    """In the answer of the send, and in the message that is committed; 4.9.7 says it in neither."""
    for offset, (version, told) in enumerate({407: None, 493: "t1"}.items()):
        half: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "t1"}
        how: dict[str, Any] = {"version": version}
        answer = await peer.produce("T", sys_flag=4, how=how, **half)
        assert (answer.ext or {}).get("transactionId") == told
        assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
        (found,) = records(await peer.pull("g", "T", offset, sys_flag=4, subscription="*"))
        assert properties_to_dict(found.properties).get("__transactionId__") == told


async def test_a_half_message_is_seen_by_nobody_until_it_is_committed(
    broker: Broker, peer: Peer
) -> None:
    """wire.md 3.8: half topic with REAL_TOPIC and REAL_QID; the answer has the half queue's offset."""
    await peer.produce("T")
    for offset in range(2):
        answer = await prepare(peer, b"half%d" % offset, TAGS="t", KEYS="k")
        assert (number(answer, "queueId"), number(answer, "queueOffset")) == (1, offset)
    broker.parts.tables.topics.create_internal(TRANS_HALF_TOPIC, 1)
    (first, _) = records(await peer.pull("x", TRANS_HALF_TOPIC, 0, sys_flag=4, subscription="*"))
    properties = properties_to_dict(first.properties)
    assert (first.topic, first.queue_id, first.sys_flag & 0xC) == (TRANS_HALF_TOPIC, 0, 0)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
    assert properties["PGROUP"] == "pg"
    pulled = await peer.pull("g", "T", 0, queue_id=1, sys_flag=4, subscription="*")
    assert pulled.code == ResponseCode.PULL_NOT_FOUND

    assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    (record,) = records(await peer.pull("g", "T", 0, queue_id=1, sys_flag=4, subscription="*"))
    assert bytes(record.body) == b"half1"
    assert record.sys_flag & 0xC == COMMIT
    assert record.prepared_offset == ending(answer, 0)["commitLogOffset"]
    assert record.born_ms == BORN
    properties = properties_to_dict(record.properties)
    # 4.9.7 leaves TRAN_MSG in the record, and clients make the transaction id of it (S51).
    assert properties["TRAN_MSG"] == "true"
    assert properties["UNIQ_KEY"] == "half1-id"
    assert properties["TAGS"] == "t"


async def test_a_rollback_is_neither_delivered_nor_checked(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    answer = await prepare(peer)
    assert (await end(peer, answer, ROLLBACK)).code == ResponseCode.SUCCESS
    op = broker.parts.messages.store.record_at(
        broker.parts.messages.store.entries(TRANS_OP_HALF_TOPIC, 0, 0, 1)[0][0]
    )
    assert op is not None
    record = read_record(op)
    assert (bytes(record.body), properties_to_dict(record.properties)["TAGS"]) == (b"0", "d")
    clock.advance_ms(60_000)
    await check(broker)
    assert broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) == 1
    assert broker.parts.services.half.half_offset == 1
    assert broker.parts.messages.store.max_offset("T", 1) == 0


async def test_an_undecided_end_is_not_answered(broker: Broker, peer: Peer) -> None:
    """Trap 9: type 0, and any other number, say nothing and do nothing."""
    answer = await prepare(peer)
    for decision in (UNKNOWN, 4, 99):
        peer.send(RequestCode.END_TRANSACTION, ending(answer, decision))
    assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"half"]


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 5}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 10**9}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 3}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
    ],
)
async def test_a_forged_end_is_refused(
    broker: Broker, peer: Peer, changed: dict[str, Any], remark: str
) -> None:
    """Group, half offset and position must be the half record's: nothing is written."""
    answer = await prepare(peer)
    for decision in (COMMIT, ROLLBACK):
        refused = await end(peer, answer, decision, **changed)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert broker.parts.messages.store.appends.put_count == 1


async def test_an_end_that_names_an_ordinary_message_is_refused(broker: Broker, peer: Peer) -> None:
    """A record of another topic that carries PGROUP is no half message."""
    answer = await peer.produce("T", PGROUP="pg", REAL_TOPIC="U", REAL_QID="0")
    refused = await end(peer, answer, COMMIT)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert broker.parts.messages.store.appends.put_count == 1


async def test_a_decision_that_comes_twice_is_carried_out_once(broker: Broker, peer: Peer) -> None:
    """Ours: RocketMQ delivers once more."""
    answer = await prepare(peer)
    for decision in (COMMIT, COMMIT, ROLLBACK):
        assert (await end(peer, answer, decision)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"half"]
    assert broker.parts.messages.store.max_offset(TRANS_OP_HALF_TOPIC, 0) == 1


async def test_a_broker_may_refuse_transactions(broker: Broker, peer: Peer) -> None:
    broker.config.reject_transaction_message = True
    answer = await peer.produce("T", sys_flag=4, TRAN_MSG="true", PGROUP="pg")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] sending transaction message is forbidden"


# ---------------------------------------------------------------- restarts


async def test_half_messages_and_decisions_survive_a_restart(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Invariant 5: decided ones stay decided, the others are asked about, nothing comes twice."""
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        done = await prepare(peer, b"done")
        await prepare(peer, b"open")
        await end(peer, done, COMMIT)
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.heartbeat("", {}, producer="pg")
        assert (await end(peer, done, COMMIT)).code == ResponseCode.SUCCESS
        clock.advance_ms(10_000)
        await check(broker)
        request, header = await asked(peer)
        assert bytes(read_record(request.body).body) == b"open"
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.heartbeat("", {}, producer="pg")
        assert (await peer.ask(RequestCode.END_TRANSACTION, header)).code == ResponseCode.SUCCESS
        clock.advance_ms(60_000)
        await check(broker)
        assert sorted(await found(peer)) == [b"done", b"open"]


@pytest.mark.parametrize("stops", [False, True])
async def test_saved_offsets_pass_no_unflushed_transaction(
    tmp_path: Path, clock: ManualClock, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a decided half message is asked about again, if its commit or rollback is lost."""
    flushed: list[int] = []
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        store, offsets = broker.parts.messages.store, broker.parts.tables.offsets
        await end(peer, await prepare(peer), COMMIT)
        await check(broker)
        position = store.commit_log_max_position
        assert offsets.dirty
        monkeypatch.setattr(offsets._file, "save", lambda _: flushed.append(store.flushed_position))
        if not stops:
            await Housekeeping(broker.parts, None).save_offsets()
            assert flushed
    assert flushed[0] >= position


async def test_a_decision_on_a_checked_message_counts_once(
    tmp_path: Path, clock: ManualClock
) -> None:
    """It names the half message as it was sent: its producer takes longer than the first question."""
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        answer = await prepare(peer)
        await prepare(peer, b"other")
        clock.advance_ms(10_000)
        await check(broker)
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
        half = broker.parts.services.half
        assert (half.waiting_count, await found(peer)) == (1, [b"half"])


async def test_a_check_whose_offsets_were_not_saved_asks_nobody_twice(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A crash between the check and the save of consumerOffset.json: invariant 3."""
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        first = await prepare(peer)
        clock.advance_ms(10_000)
        await check(broker)
        assert broker.parts.services.half.half_offset == 1
        broker.parts.tables.offsets.offsets.clear()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.heartbeat("", {}, producer="pg")
        assert broker.parts.services.half.half_offset == 0
        # The producer's late decision names the replaced message: it counts for the new one.
        assert (await end(peer, first, COMMIT)).code == ResponseCode.SUCCESS
        clock.advance_ms(60_000)
        await check(broker)
        assert broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) == 2
        assert await found(peer) == [b"half"]


# ---------------------------------------------------------------- what is named by another's key or clock


async def test_a_late_end_decides_no_half_message_of_the_same_key(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """Whatever differs: topic, group, or the message; it was decided, and is answered as before."""
    await peer.produce("Other")
    key: dict[str, Any] = {"UNIQ_KEY": "same"}
    old = await prepare(peer, b"old", **key)
    assert (await end(peer, old, ROLLBACK)).code == ResponseCode.SUCCESS
    clock.advance_ms(10_000)
    await check(broker)
    assert broker.parts.services.half.half_offset == 1
    later: list[tuple[str, RemotingCommand]] = []
    for topic, group, body in (("Other", "pg", b"old"), ("T", "pg2", b"old"), ("T", "pg", b"new")):
        own: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": group, **key}
        later.append((group, await peer.produce(topic, body, queue_id=1, sys_flag=4, **own)))
    for decision in (ROLLBACK, COMMIT):
        assert (await end(peer, old, decision)).code == ResponseCode.SUCCESS
    assert broker.parts.messages.store.max_offset("T", 1) == 0
    for group, answer in later:
        assert (await end(peer, answer, COMMIT, producerGroup=group)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"old", b"new"]
    assert await peer.bodies("g", "Other", queue_id=1) == [b"old"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_commit_repeated_after_the_check_counts_once(
    tmp_path: Path, clock: ManualClock, restarts: bool
) -> None:
    """Before, what was decided below the half offset was committed once more."""
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        answer = await prepare(peer)
        assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
        clock.advance_ms(10_000)
        await check(broker)
        assert broker.parts.services.half.half_offset == 1
        if not restarts:
            assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
            assert await found(peer) == [b"half"]
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for decision in (COMMIT, ROLLBACK, COMMIT):
            assert (await end(peer, answer, decision)).code == ResponseCode.SUCCESS
        assert await found(peer) == [b"half"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_given_up_message_can_be_committed_once(
    tmp_path: Path, clock: ManualClock, restarts: bool
) -> None:
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        broker.config.transaction_check_max = 1
        answer = await prepare(peer)
        await peer.heartbeat("", {}, producer="pg")
        clock.advance_ms(10_000)
        await check(broker)
        _, header = await asked(peer)
        clock.advance_ms(10_000)
        await check(broker)
        assert await peer.bodies("x", TRANS_CHECK_MAX_TIME_TOPIC) == [b"half"]
        if not restarts:
            for _ in range(2):
                assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
                assert (await peer.ask(RequestCode.END_TRANSACTION, header)).code == 0
            assert await found(peer) == [b"half"]
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        if restarts:
            for _ in range(2):
                assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
        assert await found(peer) == [b"half"]


@pytest.mark.parametrize("property_", ["TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
@pytest.mark.parametrize("text", ["soon", str(BORN + 400 * 86_400_000)])
async def test_a_half_message_with_a_refused_time_is_refused(
    broker: Broker, peer: Peer, property_: str, text: str
) -> None:
    own: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "k", property_: text}
    time: dict[str, Any] = {property_: text}
    plain = await peer.produce("T", **time)
    half = await peer.produce("T", sys_flag=4, **own)
    assert (half.code, half.remark) == (plain.code, plain.remark)
    assert half.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) == 0


async def test_a_half_message_outlives_a_smaller_time_limit(broker: Broker, peer: Peer) -> None:
    """The limit was made smaller meanwhile: the producer has committed, and is not asked again."""
    answer = await prepare(peer, TIMER_DELAY_SEC="100000")
    broker.config.timer_max_delay_sec = 10
    assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"half"]


@pytest.mark.parametrize("behind_ms", [30_000, 4 * 86_400_000, BORN - 1_000, -30_000])
@pytest.mark.parametrize("immunity", [None, "20"])
async def test_the_age_of_a_half_message_ignores_the_producer_clock(
    broker: Broker, peer: Peer, clock: ManualClock, behind_ms: int, immunity: str | None
) -> None:
    own: dict[str, Any] = {} if immunity is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity}
    half_: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "k", **own}
    await peer.produce("T", b"half", sys_flag=4, more={"g": BORN - behind_ms}, **half_)
    left_ms = 6_000 if immunity is None else 20_000
    half = broker.parts.services.half
    while left_ms > 1:
        step_ms = min(left_ms - 1, 5_000)
        clock.advance_ms(step_ms)
        left_ms -= step_ms
        await check(broker)
        end_ = broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0)
        assert half.waiting_count == 1
        assert not any("TRANSACTION_CHECK_TIMES" in each for each in _halves(broker, end_))
    clock.advance_ms(1)
    await check(broker)
    request, header = await asked(peer)
    assert properties_to_dict(read_record(request.body).properties)["UNIQ_KEY"] == "k"
    assert (await peer.ask(RequestCode.END_TRANSACTION, header)).code == ResponseCode.SUCCESS
    [record] = records(await peer.pull("g", "T", 0, sys_flag=4, subscription="*"))
    assert "__HALF_STORED_MS" not in properties_to_dict(record.properties)
    assert record.born_ms == BORN - behind_ms


def _halves(broker: Broker, end_: int) -> list[dict[str, str]]:
    store = broker.parts.messages.store
    return [
        properties_to_dict(read_record(buffer).properties)
        for offset in range(end_)
        for buffer in store.read(TRANS_HALF_TOPIC, 0, offset, 1).buffers
    ]
