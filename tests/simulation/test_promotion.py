"""How long a promotion takes, in virtual time: disk, network and what is waited for, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pocketmq.admin import Admin
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.refused import Refused
from pocketmq.client import Message, Producer
from tests.simulation.ledger import Ledger
from tests.simulation.machine import Machine
from tests.simulation.network import HOST, Network
from tests.simulation.nodes import (
    ADDRESSES,
    BROKER_PORT,
    NAME_SERVER,
    BrokerNode,
    NameServerNode,
    NodeClock,
)

LIMIT_S = 1.0
ONE_NAME = {"brokerName": "pair", "haHousekeepingInterval": 5_000, "slaveSyncInterval": 1_000}


class Pair:
    """A name server, a master and a slave that has its log."""

    def __init__(self, machine: Machine, network: Network, tasks: asyncio.TaskGroup) -> None:
        parts = machine, network, tasks, Ledger()
        self._machine = machine
        self._network = network
        self._names = NameServerNode("name-server", *parts)
        self.master = BrokerNode("broker-a", *parts, {**ONE_NAME})
        follows = {"brokerRole": "SLAVE", "brokerId": 1}
        self.slave = BrokerNode("broker-b", *parts, {**ONE_NAME, **follows})

    @staticmethod
    def replication(node: BrokerNode) -> Replication:
        assert node.broker is not None
        return node.broker.parts.services.replication

    async def begin(self) -> None:
        for node in (self._names, self.master, self.slave):
            node.start()
            while not node.ready:
                await asyncio.sleep(0.01)
        HOST.set(self._network.host(ADDRESSES["producer-1"]))
        clock = NodeClock(self._machine)
        here = ADDRESSES["producer-1"]
        async with Producer("p", name_server=NAME_SERVER, client_ip=here, clock=clock) as producer:
            for number in range(50):
                await producer.send(Message("T", b"%d" % number))
        while self.replication(self.slave).status()["masterCommitLogMaxOffset"] < self.end:
            await asyncio.sleep(0.01)

    @property
    def end(self) -> int:
        """Where the master's log ends."""
        return int(self.replication(self.master).status()["masterCommitLogMaxOffset"])

    async def gone(self) -> None:
        """Wait until the slave has noticed that its master has died."""
        while True:
            follower = self.replication(self.slave).follower
            assert follower is not None
            if not follower.state.connected:
                return
            await asyncio.sleep(0.01)

    async def promoted(self) -> float:
        """How long it took, until the name server names the new master."""
        began_s = self._machine.loop.now_s
        assert self.slave.host is not None
        HOST.set(self.slave.host)
        await self.replication(self.slave).promote()
        took_s = self._machine.loop.now_s - began_s
        HOST.set(self._network.host(ADDRESSES["producer-1"]))
        clock = NodeClock(self._machine)
        async with Admin(name_server=NAME_SERVER, client_ip=self.slave.ip, clock=clock) as admin:
            known = {each.broker_id: each.address for each in await admin.site.brokers()}
        assert known[0] == f"{self.slave.ip}:{BROKER_PORT}"
        return took_s

    async def killed(self) -> None:
        self.master.kill()
        await self.gone()

    async def without_power(self) -> None:
        """Its address answers no client: a connection to it is neither accepted nor refused."""
        self.master.cut_power()
        await self.gone()

    async def demoted(self) -> None:
        assert self.master.host is not None
        HOST.set(self.master.host)
        await self.replication(self.master).demote(2)

    async def end_all(self) -> None:
        for node in (self.master, self.slave, self._names):
            node.stop()


@pytest.mark.parametrize("old", [Pair.killed, Pair.without_power, Pair.demoted])
def test_a_promotion_takes_under_a_second_and_enters_routes(
    old: Callable[[Pair], Awaitable[None]],
) -> None:
    async def main() -> float:
        network = Network(machine.loop, 1)
        async with asyncio.TaskGroup() as tasks:
            pair = Pair(machine, network, tasks)
            await pair.begin()
            await old(pair)
            took_s = await pair.promoted()
            await pair.end_all()
        return took_s

    with Machine(1) as machine:
        assert machine.run(main) < LIMIT_S


def test_a_promotion_reports_a_master_not_yet_expired() -> None:
    async def main() -> None:
        network = Network(machine.loop, 1)
        async with asyncio.TaskGroup() as tasks:
            pair = Pair(machine, network, tasks)
            await pair.begin()
            pair.master.cut_power()
            with pytest.raises(Refused, match=r"does not answer.*haHousekeepingInterval"):
                await pair.promoted()
            await pair.gone()
            await pair.promoted()
            await pair.end_all()

    with Machine(1) as machine:
        machine.run(main)
