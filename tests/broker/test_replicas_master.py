"""The master's side of replication: what slaves are sent, and what an acknowledged send means."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.popping import Popper
from tests.broker.raw_slave import RawSlave
from tests.broker.replicating_master import FILE, SEND_V2, await_slave, end_of, master, slaves
from tests.broker.serving import Peer, batch, number
from tests.kit.waiting import until_async as until


def heard(broker: Broker, now_ms: int) -> bool:
    """Whether a slave was heard at this time."""
    return any(each.heard_ms == now_ms for each in slaves(broker))


async def fill(broker: Broker, peer: Peer, size: int = 3 * FILE) -> None:
    while end_of(broker) < size:
        assert (await peer.produce("T", b"x" * 10_000)).code == ResponseCode.SUCCESS


# ------------------------------------------------------------ what is sent


@pytest.mark.parametrize("first", [0, 1, 4_711, FILE - 1, FILE, FILE + 1, -1])
async def test_a_slave_is_sent_the_log_from_where_it_asks(tmp_path: Path, first: int) -> None:
    """Record boundary or not, with what is behind the blanks; -1 stands for the end."""
    async with master(tmp_path) as (broker, peer):
        await fill(broker, peer)
        first = end_of(broker) if first < 0 else first
        async with await RawSlave.at(broker) as slave:
            slave.report(first)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            # One more, which comes as it is stored.
            await peer.produce("T", b"later")
            sent = await slave.take(end_of(broker))
    log = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    assert sent == log[first : first + len(sent)]
    assert b"later" in sent


async def test_no_slice_crosses_a_file_or_is_larger_than_the_batch(tmp_path: Path) -> None:
    async with master(tmp_path, ha_transfer_batch_size=30_000) as (broker, peer):
        await fill(broker, peer)
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            at = 0
            while at < end_of(broker):
                offset, data = await slave.slice()
                assert offset == at
                assert 0 < len(data) <= 30_000
                assert offset // FILE == (offset + len(data) - 1) // FILE
                at += len(data)


async def test_zero_asks_for_everything_that_is_there(tmp_path: Path) -> None:
    """RocketMQ sends the last file only. Ours: from the log's beginning, wherever that is."""
    async with master(tmp_path) as (broker, peer):
        await fill(broker, peer)
        broker.parts.messages.store.commit_log.files.files.pop(0)
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            offset, _ = await slave.slice()
            assert offset == FILE


async def test_what_lies_before_the_log_is_refused_and_said(tmp_path: Path) -> None:
    clock = ManualClock()
    async with master(tmp_path, clock=clock) as (broker, peer):
        await fill(broker, peer)
        broker.parts.messages.store.commit_log.files.files.pop(0)
        async with await RawSlave.at(broker) as slave:
            slave.report(FILE - 1)
            await until(lambda: bool(slaves(broker)) and bool(slaves(broker)[0].refused))
            assert "the log begins at 65536" in slaves(broker)[0].refused
            clock.advance_ms(5_001)
            assert await slave.slice() == (FILE - 1, b"")


async def test_a_report_beyond_the_end_stays_refused_as_the_log_grows(
    tmp_path: Path,
) -> None:
    """Else it would continue in the middle of other records, and nothing would ever tell."""
    clock = ManualClock()
    async with master(tmp_path, clock=clock) as (broker, peer):
        await peer.produce("T")
        beyond = end_of(broker) + 1
        async with await RawSlave.at(broker) as slave:
            slave.report(beyond)
            await until(lambda: bool(slaves(broker)) and bool(slaves(broker)[0].refused))
            await fill(broker, peer)
            clock.advance_ms(5_001)
            assert await slave.slice() == (beyond, b"")
        await until(lambda: not slaves(broker))
        async with await RawSlave.at(broker) as again:
            again.report(beyond)
            await until(lambda: bool(slaves(broker)) and bool(slaves(broker)[0].refused))
            assert "has data that this master never sent" in slaves(broker)[0].refused
        await until(lambda: not slaves(broker))
        broker.parts.messages.durability.replicas.slaves.forget_refusals()
        async with await RawSlave.at(broker) as forgiven:
            forgiven.report(beyond)
            await forgiven.take(end_of(broker))


async def test_signs_of_life_and_the_end_of_a_silent_slave(tmp_path: Path) -> None:
    clock = ManualClock()
    async with master(tmp_path, clock=clock) as (broker, peer):
        await peer.produce("T")
        async with await RawSlave.at(broker) as slave, await RawSlave.at(broker) as mute:
            slave.report(end_of(broker))
            await until(lambda: sum(each.served for each in slaves(broker)) == 1)
            for _ in range(4):
                clock.advance_ms(5_001)
                assert await slave.slice() == (end_of(broker), b"")
                slave.report(end_of(broker))
                await until(partial(heard, broker, clock.monotonic_ms()))
            assert await mute.ended()
            await until(lambda: len(slaves(broker)) == 1)


async def test_the_last_of_several_split_reports_counts(
    tmp_path: Path,
) -> None:
    async with master(tmp_path) as (broker, peer):
        await fill(broker, peer, 20_000)
        async with await RawSlave.at(broker) as slave:
            slave.report(1)
            await slave.take(end_of(broker))
            words = b"".join(offset.to_bytes(8, "big") for offset in (50, 60, 70))
            slave.writer.write(words[:13])
            await slave.writer.drain()
            slave.writer.write(words[13:])
            await until(lambda: slaves(broker)[0].acked == 70)


async def test_a_slave_that_does_not_read_costs_little(tmp_path: Path) -> None:
    async with master(tmp_path, store={"mapped_file_size_commit_log": 1 << 23}) as (broker, peer):
        while end_of(broker) < 24 << 20:
            await peer.produce("T", b"x" * 1_000_000)
        async with await RawSlave.at(broker, limit=4096) as slave:
            slave.report(1)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].sent.total > 0)
            listener = broker.parts.services.replication.listener
            connection = next(iter(listener.connections))
            await until(lambda: connection._paused)
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() < 2 << 20
            assert slaves(broker)[0].next < end_of(broker)
            # The others are served, and it is sent the rest as it reads on.
            assert (await peer.produce("T")).code == ResponseCode.SUCCESS
            await slave.take(end_of(broker))


async def test_a_stop_brings_the_end_of_the_log_to_the_slaves(tmp_path: Path) -> None:
    async with await_slave() as taken:
        async with master(tmp_path) as (broker, peer):
            slave = await RawSlave.at(broker)
            taken.append(slave)
            await peer.produce("T")
            slave.report(1)
            await slave.take(end_of(broker))
            for _ in range(50):
                await peer.produce("T", b"y" * 5_000)
            end = end_of(broker)
            following = asyncio.ensure_future(_acknowledge(slave, end))  # noqa: TID251
        assert len(await following) == end - 1


async def _acknowledge(slave: RawSlave, end: int) -> bytes:
    while slave.offset < end:
        offset, data = await slave.slice()
        slave.data += data
        slave.offset = offset + len(data)
        slave.report(slave.offset)
    return bytes(slave.data)


# ------------------------------------------------------------ SYNC_MASTER


async def _send(peer: Peer) -> RemotingCommand:
    return await peer.produce("T")


async def _batch(peer: Peer) -> RemotingCommand:
    return await peer.produce(
        "T",
        batch((b"one", b""), (b"two", b"")),
        code=RequestCode.SEND_BATCH_MESSAGE,
        more={"m": True},
    )


async def _half(peer: Peer) -> RemotingCommand:
    return await peer.produce("T", b"h", sys_flag=4, TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="k")


async def _delayed(peer: Peer) -> RemotingCommand:
    return await peer.produce("T", DELAY="3")


async def _commit(peer: Peer) -> RemotingCommand:
    half = await peer.produce(
        "T", b"h", sys_flag=4, TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="k", WAIT="false"
    )
    assert half.code == ResponseCode.SUCCESS
    assert half.ext is not None
    header = {
        "producerGroup": "pg",
        "tranStateTableOffset": number(half, "queueOffset"),
        "commitLogOffset": parse_offset_msg_id(half.ext["msgId"])[1],
        "commitOrRollback": 8,
        "fromTransactionCheck": False,
        "msgId": "id",
    }
    return await peer.ask(RequestCode.END_TRANSACTION, header)


async def _send_back(peer: Peer) -> RemotingCommand:
    sent = await peer.produce("T", WAIT="false")
    assert sent.ext is not None
    await peer.heartbeat("g", {"T": "*"})
    header = {
        "offset": parse_offset_msg_id(sent.ext["msgId"])[1],
        "group": "g",
        "delayLevel": 0,
    }
    return await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def _acknowledged_pop(peer: Peer) -> RemotingCommand:
    await peer.produce("T", WAIT="false")
    await peer.heartbeat("g", {"T": "*"})
    popper = Popper(peer, lambda: 1_700_000_000_000)
    return await popper.ack((await popper.pop())[0])


KINDS = [_send, _batch, _half, _delayed, _commit, _send_back, _acknowledged_pop]
Kind = Callable[[Peer], Awaitable[RemotingCommand]]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))


@kinds
async def test_without_a_slave_it_says_so_at_once(tmp_path: Path, kind: Kind) -> None:
    """The clock stands still: nothing waits for its time."""
    async with master(tmp_path, clock=ManualClock(), broker_role="SYNC_MASTER") as (broker, peer):
        assert (await kind(peer)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert end_of(broker) > 0


@kinds
async def test_a_slave_that_acknowledges_makes_it_a_success(tmp_path: Path, kind: Kind) -> None:
    async with master(tmp_path, clock=ManualClock(), broker_role="SYNC_MASTER") as (broker, peer):
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            acknowledging = asyncio.ensure_future(_acknowledge(slave, 1 << 40))  # noqa: TID251
            assert (await kind(peer)).code == ResponseCode.SUCCESS
            assert slaves(broker)[0].acked == end_of(broker)
            acknowledging.cancel()


@kinds
async def test_a_slave_that_is_silent_is_waited_for_and_then_named(
    tmp_path: Path, kind: Kind
) -> None:
    clock = ManualClock()
    async with master(tmp_path, clock=clock, broker_role="SYNC_MASTER") as (broker, peer):
        replicas = broker.parts.messages.durability.replicas
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            answer = asyncio.ensure_future(kind(peer))  # noqa: TID251
            await until(lambda: replicas.waiting == 1)
            clock.advance_ms(2_999)
            replicas.expire()
            assert replicas.waiting == 1
            clock.advance_ms(1)
            assert (await answer).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_who_does_not_want_to_wait_does_not(tmp_path: Path) -> None:
    async with master(tmp_path, broker_role="SYNC_MASTER") as (_, peer):
        assert (await peer.produce("T", WAIT="false")).code == ResponseCode.SUCCESS


async def test_a_slave_that_claims_too_much_frees_nobody(tmp_path: Path) -> None:
    """RocketMQ 4.9.7 and 5.5.0 answer 0 here: the largest report ever counts."""
    clock = ManualClock()
    async with master(tmp_path, clock=clock, broker_role="SYNC_MASTER") as (broker, peer):
        async with await RawSlave.at(broker) as liar, await RawSlave.at(broker) as late:
            liar.report(1 << 20)
            await until(lambda: any(each.refused for each in slaves(broker)))
            assert (await peer.produce("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            late.report(0)
            await late.take(end_of(broker))
            late.report(end_of(broker) + 1)
            await until(lambda: all(each.refused for each in slaves(broker)))
            assert (await peer.produce("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_as_many_slaves_as_are_asked_for(tmp_path: Path) -> None:
    async with master(
        tmp_path, clock=ManualClock(), broker_role="SYNC_MASTER", in_sync_replicas=3
    ) as (broker, peer):
        async with await RawSlave.at(broker) as one, await RawSlave.at(broker) as two:
            one.report(0)
            await until(lambda: sum(each.served for each in slaves(broker)) == 1)
            assert (await peer.produce("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            two.report(0)
            await until(lambda: sum(each.served for each in slaves(broker)) == 2)
            opaque = peer.send(RequestCode.SEND_MESSAGE_V2, {**SEND_V2}, b"b")
            replicas = broker.parts.messages.durability.replicas
            await until(lambda: replicas.waiting == 1)
            one.report(end_of(broker))
            await until(lambda: any(each.acked == end_of(broker) for each in slaves(broker)))
            assert replicas.waiting == 1
            two.report(end_of(broker))
            assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("kind", KINDS[:4], ids=lambda kind: kind.__name__.strip("_"))
async def test_with_fewer_than_the_minimum_nothing_is_stored(tmp_path: Path, kind: Kind) -> None:
    """Until there are enough again; nor for what the short way had sent before, as another master."""
    async with master(
        tmp_path, clock=ManualClock(), broker_role="SYNC_MASTER", min_in_sync_replicas=2
    ) as (broker, peer):
        refused = await kind(peer)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == "in-sync replicas not enough"
        assert end_of(broker) == 0
        assert (await peer.produce("T", WAIT="false")).code == ResponseCode.SUCCESS
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            acknowledging = asyncio.ensure_future(_acknowledge(slave, 1 << 40))  # noqa: TID251
            assert (await kind(peer)).code == ResponseCode.SUCCESS
            acknowledging.cancel()
        await until(lambda: not slaves(broker))
        before = end_of(broker)
        assert (await kind(peer)).code == ResponseCode.SYSTEM_ERROR
        assert end_of(broker) == before


async def test_a_later_in_sync_minimum_holds_for_topics_in_use(tmp_path: Path) -> None:
    async with master(tmp_path, broker_role="SYNC_MASTER") as (broker, peer):
        assert (await peer.produce("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        text = b"minInSyncReplicas=2"
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text)).code == 0
        assert (await peer.produce("T")).code == ResponseCode.SYSTEM_ERROR
        assert "refused" in broker.parts.services.replication.trouble


async def test_as_many_slaves_as_there_are_where_that_is_enough(tmp_path: Path) -> None:
    async with master(
        tmp_path,
        clock=ManualClock(),
        broker_role="SYNC_MASTER",
        in_sync_replicas=3,
        min_in_sync_replicas=2,
        enable_auto_in_sync_replicas=True,
    ) as (broker, peer):
        assert (await peer.produce("T")).code == ResponseCode.SYSTEM_ERROR
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: bool(slaves(broker)) and slaves(broker)[0].served)
            acknowledging = asyncio.ensure_future(_acknowledge(slave, 1 << 40))  # noqa: TID251
            assert (await peer.produce("T")).code == ResponseCode.SUCCESS
            assert slaves(broker)[0].acked == end_of(broker)
            acknowledging.cancel()
        await until(lambda: not slaves(broker))
        broker.config.min_in_sync_replicas = 1
        assert (await peer.produce("T")).code == ResponseCode.SUCCESS
        assert "with success anyway" in broker.parts.services.replication.trouble
