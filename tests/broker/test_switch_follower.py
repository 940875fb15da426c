"""A slave under a controller, and a master that it cannot follow."""

import asyncio
from pathlib import Path

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.election.epochs import Epochs
from pocketmq.broker.election.switch_follower import SwitchFollower
from pocketmq.broker.election.switch_wire import Epoch, welcome
from pocketmq.broker.ha.tail import Ends
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.store import MessageStore
from tests.kit.waiting import until_async
from tests.store.stores import HOST, open_store, send, small_config


class StrangerAsMaster:
    """A master whose log began in another epoch; it greets each slave, and counts the connections."""

    def __init__(self) -> None:
        self.address, self.ha_address = "127.0.0.1:1", ""
        self.open = self.greeted = 0

    def look_again(self) -> None: ...

    async def settings(self) -> dict[str, str]:
        return {"enableControllerMode": "true", "brokerRole": "ASYNC_MASTER"}

    async def ends(self) -> Ends:
        return Ends(0, 100)

    async def end(self) -> int:
        return 100

    async def ticket(self) -> int | None:
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        await reader.readexactly(16)
        writer.write(welcome(100, [Epoch(9, 0)]))
        self.greeted += 1
        while await reader.read(100):
            pass
        self.open -= 1
        writer.close()


async def test_each_refusal_ends_its_connection(tmp_path: Path) -> None:
    """Logs without a common epoch are an operator's; until then the slave asks again and again."""
    store = open_store(tmp_path)
    send(store)
    store.close()
    epochs = Epochs(str(tmp_path))
    epochs.append(Epoch(1, 0))
    master = StrangerAsMaster()
    server = await asyncio.start_server(master.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    master.ha_address = f"{host}:{port}"
    store = MessageStore(small_config(tmp_path), clock=ManualClock(), store_host=HOST)
    store.opens_following = True
    store.open()
    config = BrokerConfig(broker_id=2)
    follower = SwitchFollower(config, SystemClock(), store, master, lambda: None, epochs)
    async with server, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follower.run())
        while master.greeted < 4:
            follower.hurry()
            await until_async(lambda: "share no epoch" in follower.state.trouble)
            await asyncio.sleep(0)
        await until_async(lambda: master.open <= 1)
        assert "share no epoch" in follower.state.trouble
        task.cancel()
    store.close()
