"""A master and its slave, a process each, under load, with a proxy between them that a test can make bad."""

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import SendMessageResponseHeader
from pocketmq.remoting.requests import ChangeRoleHeader, PocketRequestCode
from pocketmq.remoting.transport.client import RemotingClient
from tests.crash.test_kill_loop import TOPIC, send_request, stored_messages
from tests.interop.brokers import PocketBroker
from tests.kit.nursery import Nursery
from tests.kit.rough_proxy import RoughProxy
from tests.kit.waiting import until_async as until

PRODUCERS = 4
PAUSE_S = 0.005
FILE = 1 << 18
_STORED = {
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SERVICE_NOT_AVAILABLE,
}
Place = tuple[int, int]


class ReplicaPair:
    """Owner of both processes. sent: every body; promised: place -> body of each SEND_OK.

    answers: how often each code was answered.
    """

    def __init__(self, folder: Path, role: str, chance: random.Random) -> None:
        self._folder = folder
        self._role = role
        self._chance = chance
        self._numbers = itertools.count()
        self._leads = asyncio.Event()
        self.sent: set[bytes] = set()
        self.promised: dict[Place, bytes] = {}
        # SEND_OK for a place that had been promised to another body.
        self.twice: list[Place] = []
        self.answers: dict[int, int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ReplicaPair"]:
        """A name server, both brokers in sync, and producers that send whenever there is a master."""
        async with AsyncExitStack() as stack:
            namesrv = await stack.enter_async_context(
                NameServer(NamesrvConfig(listen_port=0), SystemClock())
            )
            address = await namesrv.listen()
            self._client = await stack.enter_async_context(RemotingClient({}, SystemClock()))
            nursery = stack.enter_context(Nursery())
            self._brokers = [
                PocketBroker(
                    self._folder / name, namesrv=address, config=self._settings(), nursery=nursery
                )
                for name in "ab"
            ]
            # In front of each broker's port for slaves.
            self.proxies = [
                await stack.enter_async_context(RoughProxy(broker.port + 1, self._chance))
                for broker in self._brokers
            ]
            for broker, proxy in zip(self._brokers, reversed(self.proxies), strict=True):
                broker.config["haMasterAddress"] = f"127.0.0.1:{proxy.port}"
                stack.callback(broker.kill)
            self._master = 0
            await self.start_master()
            await self.start_slave()
            await self.in_sync()
            async with asyncio.TaskGroup() as producers:
                load = [producers.create_task(self._produce(queue)) for queue in range(PRODUCERS)]
                yield self
                self._leads.clear()
                for task in load:
                    task.cancel()

    def _settings(self) -> dict[str, object]:
        return {
            "mappedFileSizeCommitLog": FILE,
            "mappedFileSizeConsumeQueue": 2_000,
            "slaveTimeout": 1_000,
            "haSendHeartbeatInterval": 200,
            "haHousekeepingInterval": 1_000,
            "slaveSyncInterval": 200,
            "slaveDivergence": "cut",
        }

    # ------------------------------------------------------------ the two

    @property
    def master(self) -> PocketBroker:
        return self._brokers[self._master]

    @property
    def slave(self) -> PocketBroker:
        return self._brokers[1 - self._master]

    @property
    def proxy(self) -> RoughProxy:
        """What lies between the slave and its master."""
        return self.proxies[self._master]

    async def start_master(self) -> None:
        self.master.config.update(brokerRole=self._role, brokerId=0)
        await asyncio.to_thread(self.master.start)
        self._leads.set()

    async def start_slave(self) -> None:
        self.slave.config.update(brokerRole="SLAVE", brokerId=1)
        await asyncio.to_thread(self.slave.start)

    async def kill_master(self) -> None:
        self._leads.clear()
        await asyncio.to_thread(self.master.kill)

    async def kill_slave(self) -> None:
        await asyncio.to_thread(self.slave.kill)

    async def promote(self) -> None:
        """The slave takes the place of the master, which is dead."""
        header = ChangeRoleHeader("promote", self._role)
        request = RemotingCommand(PocketRequestCode.CHANGE_ROLE, header.ext())

        async def done() -> bool:
            # Refused until the slave has seen that its master has died.
            answer = await self._client.invoke(self.slave.address, request, 30_000)
            return answer.code == ResponseCode.SUCCESS

        await until(done, "the slave is the master")
        self._master = 1 - self._master
        self._leads.set()

    async def status(self, broker: PocketBroker) -> dict[str, object]:
        """Nothing while it does not answer."""
        request = RemotingCommand(RequestCode.GET_BROKER_HA_STATUS, {})
        try:
            answer = await self._client.invoke(broker.address, request, 10_000)
        except RemotingError:
            return {}
        return dict(fastjson.loads(answer.body))

    async def in_sync(self) -> None:
        """Wait until the slave follows and has what the master had just now."""
        end: object = None

        async def state() -> bool:
            nonlocal end
            master, slave = await self.status(self.master), await self.status(self.slave)
            follows = slave.get("haClientRuntimeInfo")
            if end is None:
                end = master.get("masterCommitLogMaxOffset")
            if not isinstance(follows, dict) or not isinstance(end, int):
                return False
            rows = master["haConnectionInfo"]
            assert isinstance(rows, list)
            return (
                any(row["inSync"] and row["lagMs"] < 1_000 for row in rows)
                and bool(follows["isActivated"])
                and int(follows["maxOffset"]) >= end
            )

        await until(state, "the slave is in sync")

    # ------------------------------------------------------------ load

    async def more_answers(self, count: int, *codes: int) -> None:
        """Wait until so many more sends were answered with one of the codes; none named: SEND_OK."""
        wanted = codes or (0,)

        def so_far() -> int:
            return sum(self.answers.get(code, 0) for code in wanted)

        before = so_far()
        await until(lambda: so_far() >= before + count, f"answers {wanted}")

    async def _produce(self, queue_id: int) -> None:
        """One message after the other to one queue, at the master of the moment."""
        while True:
            await self._leads.wait()
            async with RemotingClient({}, SystemClock()) as client:
                await self._send_until_it_dies(client, self.master.address, queue_id)
            await asyncio.sleep(0.01)

    async def _send_until_it_dies(
        self, client: RemotingClient, address: str, queue_id: int
    ) -> None:
        while self._leads.is_set() and address == self.master.address:
            # Some hundred a second in all: a log that is read in the end, and a machine with other work.
            await asyncio.sleep(PAUSE_S)
            body = b"<%d-%d>" % (queue_id, next(self._numbers)) + b"x" * self._chance.randrange(800)
            self.sent.add(body)
            try:
                answer = await client.invoke(address, send_request(queue_id, body), 10_000)
            except RemotingError:
                return
            self.answers[answer.code] = self.answers.get(answer.code, 0) + 1
            if answer.code != ResponseCode.SUCCESS:
                assert answer.code in _STORED, answer.remark
                continue
            header = SendMessageResponseHeader.parse(answer.ext)
            place = header.queue_id, header.queue_offset
            if self.promised.setdefault(place, body) != body:
                self.twice.append(place)

    # ------------------------------------------------------------ judging

    async def settle(self) -> dict[Place, bytes]:
        """The load ends; wait until both have the same. Returns: what the master serves."""
        self._leads.clear()
        await self.in_sync()

        async def equal() -> bool:
            found = [await self.status(broker) for broker in self._brokers]
            return found[0]["masterCommitLogMaxOffset"] == found[1]["masterCommitLogMaxOffset"]

        await until(equal, "both logs end at the same place")
        served = await stored_messages(self.master.address)
        assert await stored_messages(self.slave.address) == served
        self.compare_logs()
        return served

    def compare_logs(self) -> None:
        """What both have is the same, byte for byte."""
        # The slave's first: the master had written all of that before.
        one, other = self.log_of(self.slave), self.log_of(self.master)
        for name in one.keys() & other.keys():
            shared = min(len(one[name].rstrip(b"\0")), len(other[name].rstrip(b"\0")))
            assert one[name][:shared] == other[name][:shared], f"the logs differ in {name}"

    @staticmethod
    def log_of(broker: PocketBroker) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in sorted((broker.store / "commitlog").glob("*"))
            if path.stat().st_size == FILE
        }

    def dropped(self) -> set[bytes]:
        """The messages that were cut off and kept."""
        return {
            body
            for broker in self._brokers
            for path in (broker.store / "dropped").glob("*")
            for body in re.findall(rb"<\d+-\d+>x*", path.read_bytes())
        }

    def check(self, served: dict[Place, bytes]) -> None:
        """Nothing was stored twice or without a sender, and no queue has a hole."""
        assert set(served.values()) <= self.sent
        assert len(set(served.values())) == len(served), "a message was stored twice"
        for queue_id in range(PRODUCERS):
            offsets = sorted(offset for queue, offset in served if queue == queue_id)
            assert offsets == list(range(len(offsets))), "a queue has a hole"

    def lost(self, served: dict[Place, bytes]) -> list[bytes]:
        """What was promised and is not served where it was promised to be."""
        return [body for place, body in self.promised.items() if served.get(place) != body]


__all__ = ["PRODUCERS", "TOPIC", "ReplicaPair"]
