"""Half messages that nothing has decided: when a broker asks about them, and when it gives them up."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id, properties_to_dict
from pocketmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from pocketmq.model.record import read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectionLost
from tests.broker.serving import Peer, serving
from tests.broker.transactions import (
    BORN,
    COMMIT,
    ROLLBACK,
    asked,
    check,
    end,
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


async def test_an_undecided_message_is_checked_after_the_timeout(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """transactionTimeOut 6 s; the body is the message as it will be, the offsets those to answer with."""
    await prepare(peer, TAGS="t")
    clock.advance_ms(5_999)
    await check(broker)
    assert broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0) == 1
    clock.advance_ms(1)
    await check(broker)
    request, header = await asked(peer)
    record = read_record(request.body)
    assert (record.topic, record.queue_id, bytes(record.body)) == ("T", 1, b"half")
    properties = properties_to_dict(record.properties)
    assert (properties["PGROUP"], properties["TRANSACTION_CHECK_TIMES"]) == ("pg", "1")
    assert request.ext is not None
    assert request.ext["msgId"] == request.ext["transactionId"] == "half-id"
    assert parse_offset_msg_id(request.ext["offsetMsgId"])[1] == int(header["commitLogOffset"])
    assert (await peer.ask(RequestCode.END_TRANSACTION, header)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"half"]
    clock.advance_ms(60_000)
    await check(broker)
    assert (
        broker.parts.services.half.half_offset
        == broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0)
        == 2
    )
    assert await found(peer) == [b"half"]
    half = broker.parts.tables.topics.get(TRANS_HALF_TOPIC)
    assert half is not None
    assert (half.read_queues, half.perm) == (1, 6)


async def test_a_message_that_is_never_decided_is_given_up(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """transactionCheckMax checks, then TRANS_CHECK_MAX_TIME_TOPIC; it is not asked about again."""
    broker.config.transaction_check_max = 3
    await prepare(peer)
    for times in range(1, 4):
        clock.advance_ms(10_000)
        await check(broker)
        request, _ = await asked(peer)
        checked = properties_to_dict(read_record(request.body).properties)
        assert checked["TRANSACTION_CHECK_TIMES"] == str(times)
    clock.advance_ms(10_000)
    await check(broker)
    assert await peer.bodies("x", TRANS_CHECK_MAX_TIME_TOPIC) == [b"half"]
    halves = broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0)
    clock.advance_ms(10_000)
    await check(broker)
    assert (
        broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0)
        == halves
        == broker.parts.services.half.half_offset
    )


async def test_a_message_older_than_the_files_is_given_up(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """fileReservedTime: its record would be deleted soon."""
    await prepare(peer)
    clock.advance_ms(broker.parts.messages.store.config.file_reserved_time * 3_600_000 + 1)
    await check(broker)
    assert broker.parts.messages.store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) == 1


async def test_a_message_that_cannot_be_stored_again_holds_up_no_other(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """Its properties leave no room for the count of checks; it can be decided all the same."""
    full = await prepare(peer, b"full", TEXT="x" * 32_660)
    await prepare(peer, b"other")
    clock.advance_ms(10_000)
    await check(broker)
    request, _ = await asked(peer)
    assert bytes(read_record(request.body).body) == b"other"
    assert await peer.bodies("x", TRANS_CHECK_MAX_TIME_TOPIC) == [b"full"]
    assert (await end(peer, full, COMMIT)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"full"]


async def test_a_half_message_with_an_impossible_time_is_given_up(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    broker.config.transaction_check_max = 0
    await prepare(peer, b"never", TIMER_DELAY_SEC="100000")
    broker.config.timer_max_delay_sec = 10
    await prepare(peer, b"other")
    clock.advance_ms(10_000)
    await check(broker)
    assert await peer.bodies("x", TRANS_CHECK_MAX_TIME_TOPIC) == [b"never", b"other"]


async def test_a_half_message_is_committed_despite_a_smaller_limit(
    broker: Broker, peer: Peer
) -> None:
    """maxMessageSize is for senders."""
    answer = await prepare(peer)
    broker.parts.messages.store.appends._body_size_max = 3
    assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"half"]


async def test_a_check_without_a_producer_online_is_counted(
    broker: Broker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As RocketMQ's; the next round asks the producers that have come."""
    async with await Peer.at(broker) as gone:
        await prepare(gone)
    clock.advance_ms(10_000)
    await check(broker)
    assert "Check transaction failed, channel is null. groupId=pg" in caplog.text
    async with await Peer.at(broker) as late:
        await late.heartbeat("", {}, producer="pg")
        clock.advance_ms(10_000)
        await check(broker)
        request, header = await asked(late)
        checked = properties_to_dict(read_record(request.body).properties)
        assert checked["TRANSACTION_CHECK_TIMES"] == "2"
        await late.ask(RequestCode.END_TRANSACTION, header)
        assert await found(late) == [b"half"]


async def test_a_decision_that_comes_after_the_question_counts_once(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """The producer's own commit and its answer to the check cross: the message is delivered once."""
    answer = await prepare(peer)
    clock.advance_ms(10_000)
    await check(broker)
    _, header = await asked(peer)
    assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    assert (await peer.ask(RequestCode.END_TRANSACTION, header)).code == ResponseCode.SUCCESS
    assert await found(peer) == [b"half"]
    clock.advance_ms(60_000)
    await check(broker)
    assert broker.parts.services.half.half_offset == broker.parts.messages.store.max_offset(
        TRANS_HALF_TOPIC, 0
    )


async def test_a_message_with_its_own_immunity_is_left_alone_that_long(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS; younger ones behind it are looked at, and a late end finds it."""
    immune = await prepare(peer, b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="30")
    await prepare(peer, b"plain")
    clock.advance_ms(10_000)
    await check(broker)
    request, header = await asked(peer)
    assert bytes(read_record(request.body).body) == b"plain"
    await peer.ask(RequestCode.END_TRANSACTION, header)
    clock.advance_ms(10_000)
    await check(broker)
    assert (await end(peer, immune, COMMIT)).code == ResponseCode.SUCCESS
    clock.advance_ms(60_000)
    await check(broker)
    assert sorted(await found(peer)) == [b"immune", b"plain"]
    assert broker.parts.services.half.half_offset == broker.parts.messages.store.max_offset(
        TRANS_HALF_TOPIC, 0
    )

    late = await prepare(peer, b"late", CHECK_IMMUNITY_TIME_IN_SECONDS="30")
    clock.advance_ms(30_000)
    await check(broker)
    request, _ = await asked(peer)
    assert bytes(read_record(request.body).body) == b"late"
    assert (await end(peer, late, ROLLBACK)).code == ResponseCode.SUCCESS


async def test_a_producer_that_cannot_be_asked_holds_up_no_other(
    broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One over gRPC that does not read what it is sent: each round of checks ended at its first message."""
    async with await Peer.at(broker) as deaf, await Peer.at(broker) as other:
        await deaf.heartbeat("", {}, producer="deaf")
        await other.heartbeat("", {}, producer="pg")
        for number_ in range(3):
            await prepare(deaf, b"deaf %d" % number_, PGROUP="deaf")
        await prepare(other)
        connection = broker.parts.members.producers.available("deaf")

        def tell(*_: object) -> None:
            raise ConnectionLost("the client does not read what it is sent")

        monkeypatch.setattr(connection, "tell", tell)
        clock.advance_ms(10_000)
        await check(broker)
        request, _ = await asked(other)
        assert bytes(read_record(request.body).body) == b"half"


async def test_a_clock_that_is_set_back_stops_no_check(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """A message from the future is asked about at once, whatever its own time, and at last given up."""
    await prepare(peer)
    await prepare(
        peer, b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="30", TRANSACTION_CHECK_TIMES="-1000000"
    )
    clock.jump_ms(-3_600_000)
    await check(broker)
    found = {bytes(read_record((await asked(peer))[0].body).body) for _ in range(2)}
    assert found == {b"half", b"immune"}
    for _ in range(broker.config.transaction_check_max):
        await check(broker)
    half = broker.parts.services.half
    assert half.half_offset == broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0)


async def test_many_half_messages_move_the_offset_on(
    broker: Broker, peer: Peer, clock: ManualClock
) -> None:
    """700 of them, every second one decided; a round has no limit but the queue's end."""
    answers = [await prepare(peer, b"%d" % place) for place in range(700)]
    for answer in answers[::2]:
        assert (await end(peer, answer, COMMIT)).code == ResponseCode.SUCCESS
    clock.advance_ms(10_000)
    await check(broker)
    assert broker.parts.services.half.half_offset == 700
    for _ in range(350):
        _, header = await asked(peer)
        await peer.ask(RequestCode.END_TRANSACTION, {**header, "commitOrRollback": ROLLBACK})
    clock.advance_ms(10_000)
    await check(broker)
    assert (
        broker.parts.services.half.half_offset
        == broker.parts.messages.store.max_offset(TRANS_HALF_TOPIC, 0)
        == 1050
    )
    assert broker.parts.services.half.op_offset == broker.parts.messages.store.max_offset(
        TRANS_OP_HALF_TOPIC, 0
    )
    assert broker.parts.services.half._decided == {}
    assert broker.parts.services.half._replaced_by == {}
