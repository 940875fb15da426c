"""`pocketmq migrate --to`, step by step, with a broker of ours that is started anew as the one that leads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.broker.broker import Broker
from pocketmq.broker.wire.consumer_manage import ConsumerManageProcessor
from pocketmq.cli.migration.outwards import (
    ANYTHING,
    EMPTY_AGAIN,
    Outwards,
    Successor,
)
from pocketmq.cli.migration.report import MigrationReport
from pocketmq.cli.migration.source import Source
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from pocketmq.model.names import REVIVE_GROUP
from pocketmq.model.record import read_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.pairs import Pair, end_of, name_server
from tests.cli.test_migrate import EAGER, QUICK, Interrupted, stored
from tests.kit.waiting import until_async as until


class Moving:
    """A master of ours, and the broker that follows it and is to lead."""

    def __init__(self, brokers: Pair, admin: Admin, folder: Path) -> None:
        self.brokers = brokers
        self.admin = admin
        self._folder = folder
        self.at: Callable[[str], None] = lambda line: None
        self.restart = asyncio.Event()

    async def start(self) -> Outwards:
        self.master = await self.brokers.master()
        self.next = await self.brokers.slave("next")
        async with Producer("first", name_server=self.admin.name_servers[0]) as producer:
            for number in range(30):
                await producer.send(Message("T", b"before %d" % number))
        return await self.again()

    async def again(self, takes: str = ANYTHING) -> Outwards:
        source = await Source.found(self.admin, self.master.config.broker_name)
        conf = self._folder / "broker.conf"
        store = str(self._folder / "next")
        successor = Successor(self.next.address, store, conf, None, takes)

        async def confirm(what: str) -> None:
            self._say(what)

        return Outwards(
            self.admin, source, successor, MigrationReport(self._say, confirm), route_ms=300
        )

    def _say(self, line: str) -> None:
        self.at(line)
        if line.startswith("restart"):
            self.restart.set()

    async def restarted(self) -> Broker:
        """The other broker, started anew as its configuration says when it is time."""
        await self.restart.wait()
        assert "brokerRole=ASYNC_MASTER" in (self._folder / "broker.conf").read_text()
        port = self.next.config.listen_port
        await self.brokers.stop("next")
        return await self.brokers.start("next", listen_port=port)


@asynccontextmanager
async def moving(folder: Path) -> AsyncIterator[Moving]:
    async with name_server() as namesrv, Admin(name_server=namesrv) as admin:
        brokers = Pair(folder, namesrv)
        try:
            yield Moving(brokers, admin, folder)
        finally:
            await brokers.stop_all()


async def test_clients_go_on_at_the_other_broker(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def take(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    async with moving(tmp_path) as way:
        outwards = await way.start()
        namesrv = way.admin.name_servers[0]
        consumer = PushConsumer(
            "g",
            listener=take,
            name_server=namesrv,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            **EAGER,
        )
        consumer.subscribe("T")
        async with consumer, Producer("p", name_server=namesrv, **QUICK) as producer:
            await until(lambda: len(seen) == 30)
            sent: list[bytes] = []
            over = False

            async def produce() -> None:
                while not over:
                    body = b"during %d" % len(sent)
                    await stored(producer, body)
                    sent.append(body)

            facts = await (await Source.found(way.admin, way.master.config.broker_name)).facts()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce())
                restarting = tasks.create_task(way.restarted())
                await outwards.run(facts)
                before = len(sent)
                await until(lambda: len(sent) > before + 50)
                over = True
            await until(lambda: set(seen) >= {*sent}, "all messages")
            leads = restarting.result()
            assert way.master.config.broker_role == "SLAVE"
            await until(lambda: end_of(way.master) == end_of(leads), "this broker follows")
            offsets = leads.parts.tables.offsets.offsets
            await until(lambda: sum(offsets["T@g"].values()) == len(sent) + 30, "offsets")


async def test_a_refused_offset_does_not_undo_the_handover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ 5 answers 26 for the group with which a broker looks after pops."""

    def refuse(processor: object, request: RemotingCommand, connection: object) -> RemotingCommand:
        group = (request.ext or {})["consumerGroup"]
        code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        return request.answer(code if group == REVIVE_GROUP else 0, None, {})

    monkeypatch.setattr(ConsumerManageProcessor, "update_offset", refuse)
    async with moving(tmp_path) as way:
        outwards = await way.start()
        await outwards._write_offsets({f"T@{REVIVE_GROUP}": {"0": 7}, "T@g": {"0": 7}})
    assert f"an offset was not accepted key=T@{REVIVE_GROUP}" in caplog.text
    assert "T@g" not in caplog.text


@pytest.mark.parametrize("step", ["clients wait", "restart the"])
async def test_whoever_stops_it_leaves_this_broker_as_it_was(tmp_path: Path, step: str) -> None:
    async with moving(tmp_path) as way:
        outwards = await way.start()

        def stop(line: str) -> None:
            if line.startswith(step):
                raise Interrupted

        way.at = stop
        source = await Source.found(way.admin, way.master.config.broker_name)
        async with Producer("p", name_server=way.admin.name_servers[0], **QUICK) as producer:
            await producer.send(Message("T", b"with a connection"))
            with pytest.raises(Interrupted):
                await outwards.run(await source.facts())
            assert "brokerRole=SLAVE" in (tmp_path / "broker.conf").read_text()
            assert way.master.role.leads
            assert way.master.role.running
            assert not way.master.registration._is_let_go
            await stored(producer, b"here")
            await until(lambda: end_of(way.next) == end_of(way.master), "the slave follows on")


async def test_a_command_that_is_killed_leaves_this_broker_as_it_was(tmp_path: Path) -> None:
    """Its connection ends while clients wait."""
    async with moving(tmp_path) as way:
        await way.start()
        address = way.master.address
        async with Admin(name_server=way.admin.name_servers[0]) as killed:
            await killed.replicas.change(address, "begin")
            await killed.replicas.change(address, "hold")
            assert not way.master.role.leads
        await until(lambda: way.master.role.leads, "it leads again")
        async with Producer("p", name_server=way.admin.name_servers[0]) as producer:
            await stored(producer, b"here")


async def test_what_rocketmq_4_would_never_deliver_is_waited_for(tmp_path: Path) -> None:
    """A message that was popped keeps --drain waiting until it is acknowledged."""
    async with moving(tmp_path) as way:
        await way.start()
        popper = SimpleConsumer(
            "poppers",
            name_server=way.admin.name_servers[0],
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
        popper.subscribe("T")
        said: list[str] = []
        async with popper, asyncio.TaskGroup() as tasks:
            popped: list[MessageExt] = []
            while not popped:
                popped = list(await popper.receive(1, wait_ms=1_000))
            waiting = tasks.create_task(
                (await Source.found(way.admin, way.master.config.broker_name)).drained(said.append)
            )
            await until(lambda: said)
            assert said == ["waiting for 0 timers and 1 pops"]
            assert not waiting.done()
            await popper.ack(popped[0])


async def test_a_late_timer_is_not_left_to_a_broker_without_timers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when clients go by the passage already, and nothing is delivered any more."""
    async with moving(tmp_path) as way:
        await way.start()
        outwards = await way.again(EMPTY_AGAIN)
        namesrv, said = way.admin.name_servers[0], list[str]()
        way.at = said.append
        settle = outwards.settle
        async with Producer("late", name_server=namesrv, **QUICK) as producer:

            async def settle_and_send() -> None:
                await settle()
                monkeypatch.setattr(outwards, "settle", settle)
                due_ms = way.admin.clock.now_ms() + 1_000
                await producer.send(Message("T", b"late"), deliver_at_ms=due_ms)

            monkeypatch.setattr(outwards, "settle", settle_and_send)
            source = await Source.found(way.admin, way.master.config.broker_name)
            facts = await source.facts()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(way.restarted())
                await outwards.run(facts)
            assert sum(line.startswith("1 timers and 0 pops have") for line in said) == 1
            assert said.count("clients wait now") == 2
            store = way.master.parts.messages.store
            found = [
                read_record(store.record_at(entry[0]) or b"").body
                for queue_id in range(4)
                for entry in store.entries("T", queue_id, 0, 100)
            ]
            assert b"late" in found
