"""Brokers whose roles a controller decides: real brokers, controller and name server, in this process."""

from pathlib import Path

from pocketmq.client import Message, Producer, SendStatus
from tests.broker.election_sets import controlled, equal, leads, replication_of
from tests.broker.pairs import end_of
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
                result = await producer.send(Message("T", b"more %d" % number))
                assert result.status == SendStatus.SEND_OK
            back = await set_.member("b0")
            await set_.in_sync([back, *rest])
            await equal([back, *rest])
            assert end_of(back) > 0
            assert replication_of(back).last_epoch == 2
