"""Brokers whose roles a controller decides: real brokers, controller and name server, in this process."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.election.controllers import NoController
from pocketmq.broker.election.switch_listener import SwitchConnection
from pocketmq.client import Message, Producer, SendStatus
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.election_sets import controlled, equal, leads, replication_of
from tests.broker.pairs import end_of
from tests.broker.serving import Peer, number, records
from tests.kit.waiting import until_async as until


async def test_three_brokers_elect_and_replicate(tmp_path: Path) -> None:
    async with controlled(tmp_path) as set_:
        brokers = await set_.of(3)
        async with Producer("p", name_server=set_.namesrv) as producer:
            for number in range(50):
                result = await producer.send(Message("T", b"%d" % number))
                assert result.status == SendStatus.SEND_OK
        await equal(brokers)
        assert [replication_of(each).last_epoch for each in brokers] == [1, 1, 1]
        assert [replication_of(each).in_sync.own_id for each in brokers] == [1, 2, 3]


async def test_a_master_that_stops_hands_over_and_nothing_is_lost(tmp_path: Path) -> None:
    async with controlled(tmp_path) as set_:
        brokers = await set_.of(3)
        async with Producer("p", name_server=set_.namesrv) as producer:
            for number in range(20):
                await producer.send(Message("T", b"%d" % number))
            await set_.stop("b0")
            rest = brokers[1:]
            await until(lambda: any(map(leads, rest)), "another leads")
            for number in range(20):
                message = Message("T", b"more %d" % number)
                result = await producer.send(message, timeout_ms=20_000)
                assert result.status == SendStatus.SEND_OK
            back = await set_.member("b0")
            await set_.in_sync([back, *rest])
            await equal([back, *rest])
            assert end_of(back) > 0
            assert replication_of(back).last_epoch >= 2


async def test_a_master_cut_from_its_controller_loses_no_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients still reach it. RocketMQ 5.5.0 lost 377 of 2,218 acknowledged messages so."""
    async with controlled(tmp_path) as set_:
        # What heartbeats say counts for the controller, 10 s by default.
        settings = {"slave_timeout": 300, "controller_heart_beat_timeout_mills": 2_000}
        old, *others = await set_.of(3, **settings)
        async with Producer("p", name_server=set_.namesrv) as producer:
            await producer.send(Message("T", b"first"))
        kept: list[bytes] = []
        doubtful: list[bytes] = []
        election = replication_of(old).election
        assert election is not None
        controllers = election.controllers

        async def out_of_reach(*_: Any) -> Any:
            raise NoController("cut off")

        async with await Peer.at(old) as peer:

            async def send(body: bytes) -> int:
                answer = await peer.answer(peer.send_message("T", body))
                (kept if answer.code == ResponseCode.SUCCESS else doubtful).append(body)
                return answer.code

            with monkeypatch.context() as cut:
                cut.setattr(controllers, "ask", out_of_reach)
                cut.setattr(controllers, "beat", out_of_reach)
                number = 0
                while not any(map(leads, others)):
                    await send(b"before %d" % (number := number + 1))
                before = len(kept)
                assert before
                assert leads(old), "nothing has told it"
                codes = {await send(b"after %d" % number) for number in range(5)}
                assert codes <= {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            await until(lambda: not leads(old), "it learns that another leads")
            refused = await peer.answer(peer.send_message("T", b"late"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        master = await set_.in_sync([old, *others])
        assert master is not old
        await equal([old, *others])
        async with await Peer.at(master) as reader:
            found: list[bytes] = []
            end = master.parts.messages.store.max_offset("T", 0)
            while len(found) < end:
                found += await reader.bodies("G", "T", len(found))
            there = set(found)
            assert set(kept) <= there
            assert not {each for each in doubtful if each.startswith(b"after")} & there
        assert replication_of(master).last_epoch == 2


async def test_enough_brokers_in_sync_or_nothing_is_stored(tmp_path: Path) -> None:
    async with controlled(tmp_path) as set_:
        brokers = await set_.of(2, min_in_sync_replicas=2)
        async with await Peer.at(brokers[0]) as peer:
            async with Producer("p", name_server=set_.namesrv) as producer:
                await producer.send(Message("T", b"kept"))
            end = end_of(brokers[0])
            await set_.stop("b1")
            await until(
                lambda: replication_of(brokers[0]).in_sync.confirmed == {1}, "the slave has left"
            )
            answer = await peer.answer(peer.send_message("T", b"refused"))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert end_of(brokers[0]) == end


async def test_a_reader_sees_what_no_failover_takes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave's reports are held up: the message is stored, and not with every broker in sync."""
    async with controlled(tmp_path) as set_:
        brokers = await set_.of(2, ha_send_heartbeat_interval=100)
        late: list[tuple[SwitchConnection, bytes]] = []
        async with await Peer.at(brokers[0]) as peer:
            await peer.answer(peer.send_message("T", b"first"))
            assert await peer.bodies("G", "T", 0) == [b"first"]
            store = brokers[0].parts.messages.store

            async def end() -> int:
                fields = {"topic": "T", "queueId": 0}
                return number(await peer.ask(RequestCode.GET_MAX_OFFSET, fields), "offset")

            with monkeypatch.context() as held:
                held.setattr(SwitchConnection, "data_received", lambda *report: late.append(report))
                sent = peer.send_message("T", b"second")
                waiting = peer.send_pull("G", "T", 1, sys_flag=2 | 4, subscription="*")
                await until(lambda: store.next_offset("T", 0) == 2, "it is stored")
                await until(lambda: late, "the slave has it")
                assert await end() == 1
                at_once = await peer.pull("G", "T", 1, sys_flag=4, subscription="*")
                assert at_once.code == ResponseCode.PULL_NOT_FOUND
            for connection, data in late:
                connection.data_received(data)
            found = await peer.answer(waiting)
            assert [bytes(each.body) for each in records(found)] == [b"second"]
            assert (await peer.answer(sent)).code == ResponseCode.SUCCESS
            assert await end() == 2
        slave = brokers[1].parts.messages.store
        await until(lambda: slave.max_offset("T", 0) == 2, "the slave hears that it is confirmed")


async def test_an_idle_client_is_known_to_the_new_master_at_once(tmp_path: Path) -> None:
    """It asks nothing and its next heartbeat is far: that the connection ended is all it knows."""
    async with controlled(tmp_path) as set_:
        brokers = await set_.of(2)

        def knows(broker: Broker) -> bool:
            return any(group == "idle" for group, _ in broker.parts.members.producers.channels())

        async with Producer(
            "idle",
            name_server=set_.namesrv,
            heartbeat_interval_ms=900_000,
            poll_name_server_interval_ms=900_000,
        ) as producer:
            await producer.send(Message("T", b"first"))
            await until(lambda: knows(brokers[0]), "the master knows it")
            await set_.stop("b0")
            await until(lambda: knows(brokers[1]), "the new master knows it")
