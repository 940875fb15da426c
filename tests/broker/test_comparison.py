"""A slave that compares nothing itself is asked for the end of its log before it is served."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import RegisterBrokerHeader
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.server import RemotingServer
from tests.broker.pairs import Pair, caught_up, pair
from tests.broker.raw_slave import RawSlave
from tests.broker.serving import At, Peer
from tests.kit.waiting import until_async as until
from tests.store.stores import running_store, send

# What the slave has: its log, and what its port says of a position.
Log = Callable[[], bytes]
RECORD_MIN = 91


def log_of(broker: Broker) -> bytes:
    store = broker.parts.messages.store
    found = bytearray()
    while len(found) < store.commit_log_max_position:
        found += store.raw(len(found), 1 << 20) or b""
    return bytes(found)


class Member:
    """The port of a slave of another kind."""

    def __init__(self, log: bytes) -> None:
        self.log = log
        self.asked: list[int] = []
        self.refuses = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {"table": {"commitLogMaxOffset": str(len(self.log))}}
            return request.answer(ResponseCode.SUCCESS, body=fastjson.dumps(table))
        assert request.code == RequestCode.VIEW_MESSAGE_BY_ID
        assert "Signature" not in (request.ext or {})
        position = int((request.ext or {})["offset"])
        self.asked.append(position)
        await self.may_answer.wait()
        if self.refuses:
            return request.answer(ResponseCode.SYSTEM_ERROR, "No accessKey is configured")
        # As RocketMQ: what begins there, whatever it is, if its size fits.
        size = int.from_bytes(self.log[position : position + 4], "big", signed=True)
        if size < 0 or position + size > len(self.log):
            remark = f"can not find message by the offset, {position}"
            return request.answer(ResponseCode.SYSTEM_ERROR, remark)
        return request.answer(ResponseCode.SUCCESS, body=self.log[position : position + size])


@asynccontextmanager
async def member(brokers: Pair, log: bytes) -> AsyncIterator[Member]:
    found = Member(log)
    async with RemotingServer({}, SystemClock(), default_handler=found.answer) as server:
        host, port = await server.listen("127.0.0.1", 0)
        header = RegisterBrokerHeader(
            broker_name="b",
            broker_addr=f"{host}:{port}",
            cluster_name="DefaultCluster",
            ha_server_addr="127.0.0.1:1",
            broker_id=1,
        )
        async with await Peer.at(At(brokers.namesrv)) as peer:
            assert (await peer.ask(RequestCode.REGISTER_BROKER, header.ext())).code == 0
            yield found


async def filled(brokers: Pair, count: int = 5) -> Broker:
    master = await brokers.master()
    async with await Peer.at(master) as peer:
        for number in range(count):
            await peer.produce("T", b"%d" % number)
    return master


async def refusal(master: Broker, end: int) -> str:
    """Why a slave is refused whose log ends there; empty if it is served."""
    slaves = master.parts.messages.durability.replicas.slaves
    async with await RawSlave.at(master) as slave:
        slave.report(end)
        await until(lambda: bool(slaves.connected) and slaves.connected[0].next >= 0)
        return slaves.connected[0].refused


def changed(log: bytes, position: int) -> bytes:
    return log[:position] + bytes([log[position] ^ 1]) + log[position + 1 :]


async def test_a_slave_with_the_same_end_is_served(tmp_path: Path) -> None:
    async with pair(tmp_path) as brokers:
        log = log_of(master := await filled(brokers))
        async with member(brokers, log[:-1]) as other:
            # Within a record, as where a connection broke.
            assert await refusal(master, len(log) - 1) == ""
            other.log = log
            assert await refusal(master, len(log)) == ""
        assert len(other.asked) == 3


@pytest.mark.parametrize("back", [1, RECORD_MIN - 1])
async def test_a_slave_with_other_bytes_is_refused_with_a_sentence(
    tmp_path: Path, back: int
) -> None:
    async with pair(tmp_path) as brokers:
        log = log_of(master := await filled(brokers))
        async with member(brokers, changed(log, len(log) - back)):
            why = await refusal(master, len(log))
            assert why.startswith(f"its log ends at {len(log)} and differs from this one at ")
            assert "empty the other's store" in why
            assert master.parts.services.replication.trouble.endswith(why)


async def test_records_of_its_own_behind_the_common_end_are_found(tmp_path: Path) -> None:
    """The old master had one more record, other than the one that this master has there."""
    async with pair(tmp_path) as brokers:
        log = log_of(master := await filled(brokers))
        common = master.parts.messages.store.last_record_before(len(log))
        assert common is not None
        own = bytearray(log[common[0] :])
        own[:4] = RECORD_MIN.to_bytes(4, "big")
        async with member(brokers, log[: common[0]] + bytes(own[:RECORD_MIN])) as other:
            assert "differs from this one" in await refusal(master, common[0] + RECORD_MIN)
            assert common[0] in other.asked


async def test_what_cannot_be_asked_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as brokers:
        log = log_of(master := await filled(brokers))
        assert await refusal(master, len(log)) == ""
        assert "no member of this broker's name is registered" in caplog.text
        async with member(brokers, changed(log, len(log) - 1)) as other:
            other.refuses = True
            assert await refusal(master, len(log)) == ""
        assert "No accessKey is configured" in caplog.text


async def test_a_broker_that_stops_waits_for_no_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.comparison._TIMEOUT_MS", 3_600_000)
    async with pair(tmp_path) as brokers:
        log = log_of(master := await filled(brokers))
        async with member(brokers, log) as other, await RawSlave.at(master) as slave:
            other.may_answer.clear()
            slave.report(len(log))
            await until(lambda: bool(other.asked))
            await brokers.stop("m")
            assert await slave.ended()
            other.may_answer.set()


async def test_a_slave_of_ours_is_not_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as brokers:
        master = await filled(brokers)
        slave = await brokers.slave()
        await caught_up(slave, master)
        await brokers.stop("s")
        await caught_up(await brokers.slave(), master)
        assert "without a look at its log" not in caplog.text


async def test_the_last_record_is_found_from_its_end(tmp_path: Path) -> None:
    """In small and large records, over the ends of files, and from within a record."""
    async with running_store(tmp_path, mapped_file_size_commit_log=1 << 18) as store:
        assert store.last_record_before(0) is None
        ends: list[tuple[int, int]] = []
        for number in range(40):
            before = store.commit_log_max_position
            send(store, body=b"x" * (number * 4_000 % 90_001))
            await asyncio.sleep(0)
            found = store.last_record_before(store.commit_log_max_position)
            assert found is not None
            assert found[0] >= before
            ends.append(found)
        for last, (position, size) in pairwise(ends):
            assert store.last_record_before(position + size - 1) == last
            assert store.last_record_before(position) == last
            assert store.boundary_before(position + size) == position + size
