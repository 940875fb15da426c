"""Offsets that an administrator stores for many queues at once, at a cluster in memory."""

from contextlib import AsyncExitStack

import pytest

from pocketmq.admin import Admin
from pocketmq.client import BrokerRefused
from pocketmq.model.message import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.client.fake_cluster import NAME_SERVER, Asked, FakeCluster
from tests.client.virtual_time import LoopClock, run_virtual


def test_one_look_up_serves_all_queues_and_a_refused_one_leaves_the_others_stored() -> None:
    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=100)

        def refuses_queue_7(asked: Asked) -> RemotingCommand | None:
            if asked.ext["queueId"] == "7":
                return asked.reply(ResponseCode.SYSTEM_ERROR, "not this one")
            return None

        cluster.on(RequestCode.UPDATE_CONSUMER_OFFSET, refuses_queue_7)
        async with AsyncExitStack() as stack:
            client = await cluster.transport(stack, {})
            admin = Admin(name_server=NAME_SERVER, clock=cluster.clock, around=lambda _: client)
            [broker] = cluster.brokers
            queues = [MessageQueue("T", broker.name, number) for number in range(100)]
            with pytest.raises(BrokerRefused, match="not this one"):
                await admin.groups.place_all("g", dict.fromkeys(queues, 5))
        assert len(cluster.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
        expected = {("g", "T", number): 5 for number in range(100) if number != 7}
        assert broker.offsets == expected

    run_virtual(main)
