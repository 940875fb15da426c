"""`pocketmq migrate --from`, step by step, with a master of ours as the broker that is left."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin
from pocketmq.admin.schedules import Schedule
from pocketmq.broker.broker import Broker
from pocketmq.cli.commands.migrate import before_out
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.migration.check import REFUSED, TOLD, PocketFeatures, inward, outward
from pocketmq.cli.migration.inwards import Inwards
from pocketmq.cli.migration.report import MigrationRefused, MigrationReport
from pocketmq.cli.migration.request import conf_in
from pocketmq.cli.migration.source import BrokerFacts, Source
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError, RequestTimeout
from pocketmq.remoting.transport.blocking import ask
from pocketmq.remoting.transport.proxy import Proxy
from pocketmq.testing import InProcess
from tests.broker.pairs import Pair, end_of, name_server
from tests.cli.servers import Server
from tests.kit.waiting import until_async as until

QUICK: dict[str, Any] = {"poll_name_server_interval_ms": 100, "heartbeat_interval_ms": 100}
EAGER: dict[str, Any] = {**QUICK, "persist_offset_interval_ms": 200}
STEPS = [
    "following",
    "level",
    "the same",
    "a question",
    "clients are directed",
    "waiting",
    "clients wait",
    "sends are refused",
]


class Interrupted(Exception):
    """What a test stops the steps with."""


class Moving:
    """A master, its slave, and the way from the one to the other; `at` is called with each line said."""

    def __init__(self, brokers: Pair, namesrv: str, admin: Admin) -> None:
        self.brokers = brokers
        self.namesrv = namesrv
        self.admin = admin
        self.said: list[str] = []
        self.clients = 0
        self.at: Callable[[str], None] = lambda line: None

    async def start(self) -> Inwards:
        self.master = await self.brokers.master()
        async with Producer("first", name_server=self.namesrv) as producer:
            for number in range(30):
                await producer.send(Message("T", b"before %d" % number))
        self.slave = await self.brokers.slave()
        self.source = source = await Source.found(self.admin, self.master.config.broker_name)
        refuse_sends = source.refuse_sends

        async def refused() -> None:
            await refuse_sends()
            self._say("sends are refused")

        source.refuse_sends = refused  # type: ignore[method-assign]
        return self.again(400)

    def again(self, route_ms: int) -> Inwards:
        talk = MigrationReport(self._say, self._confirm)
        inwards = Inwards(self.slave, self.source, talk, route_ms=route_ms, role="ASYNC_MASTER")
        wait_for_clients = inwards.wait_for_clients

        async def waited(passage: Proxy) -> None:
            await wait_for_clients(passage)
            await until(lambda: len(passage.passed) >= self.clients, "clients ask here")

        inwards.wait_for_clients = waited  # type: ignore[method-assign]
        return inwards

    def _say(self, line: str) -> None:
        self.said.append(line)
        self.at(line)

    async def _confirm(self, what: str) -> None:
        self._say("a question: " + what)


@asynccontextmanager
async def moving(folder: Path) -> AsyncIterator[Moving]:
    async with name_server() as namesrv, Admin(name_server=namesrv) as admin:
        brokers = Pair(folder, namesrv)
        try:
            yield Moving(brokers, namesrv, admin)
        finally:
            await brokers.stop_all()


async def stored(producer: Producer, body: bytes) -> None:
    """Send it until it is; a client that has not asked for the route yet is refused."""
    while True:
        try:
            await producer.send(Message("T", body))
        except PocketMQError:
            continue
        return


async def led_to(admin: Admin, broker: Broker) -> bool:
    masters = await admin.site.masters()
    return [each.address for each in masters] == [broker.address]


async def test_the_source_leads_again_whenever_the_copy_registers(tmp_path: Path) -> None:
    """The copy's table of topics follows the source's, and each change of it is a registration."""
    async with moving(tmp_path) as way:
        inwards = await way.start()
        register = way.source.register

        async def overtaken() -> None:
            await register()
            await way.slave.registration.start()

        way.source.register = overtaken  # type: ignore[method-assign]

        def stop(line: str) -> None:
            if line.startswith("sends are refused"):
                raise Interrupted

        way.at = stop
        with pytest.raises(Interrupted):
            await inwards.run()
        assert await led_to(way.admin, way.master)


@pytest.mark.parametrize("step", STEPS)
async def test_whoever_stops_it_leaves_the_source_as_it_was(tmp_path: Path, step: str) -> None:
    async with moving(tmp_path) as way:
        inwards = await way.start()

        def stop(line: str) -> None:
            if line.startswith(step):
                raise Interrupted

        way.at = stop
        async with Producer("goes-on", name_server=way.namesrv, **QUICK) as producer:
            await producer.send(Message("T", b"with a connection"))
            with pytest.raises(Interrupted):
                await inwards.run()
            assert await led_to(way.admin, way.master)
            assert way.master.config.start_accept_send_request_time_stamp == 0
            assert way.slave.registration.identity.broker_id == 1
            ended = end_of(way.master)
            await stored(producer, b"once it has asked for the route")
            for number in range(8):
                await producer.send(Message("T", b"after %d" % number))
            assert end_of(way.master) > ended
        # And nothing keeps it from another try.
        await until(lambda: end_of(way.slave) == end_of(way.master))
        way.at = lambda line: None
        await way.again(0).run()
        assert way.slave.config.broker_role == "ASYNC_MASTER"


@pytest.mark.parametrize(("failures", "is_level"), [(5, True), (6, False)])
async def test_a_source_too_busy_for_its_log_is_asked_again(
    tmp_path: Path, failures: int, is_level: bool
) -> None:
    async with moving(tmp_path) as way:
        inwards = await way.start()
        left = failures

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                host, _, port = way.master.registration.identity.ha_address.rpartition(":")
                upstream, up = await asyncio.open_connection(host, int(port))
                up.write(await reader.read(100))
                writer.write(await upstream.read(1 << 20))
                await writer.drain()
                up.close()
            writer.close()

        def at(line: str) -> None:
            if line.startswith("level"):
                port = busy.sockets[0].getsockname()[1]
                inwards.follower.state.master = f"127.0.0.1:{port}"
            if line.startswith("the same"):
                raise Interrupted

        way.at = at
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as busy:
            with pytest.raises(Interrupted if is_level else MigrationRefused):
                await inwards.run()
        assert left == (-1 if is_level else 0)


async def test_clients_go_on_over_the_connections_that_they_have(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def take(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    async with moving(tmp_path) as way:
        inwards = await way.start()
        # A source that is busy does not answer at first.
        master = inwards.follower.master
        end = master.end
        unanswered: list[str] = []

        async def late() -> int:
            if inwards.follower.state.connected and not unanswered:
                unanswered.append("once")
                raise RequestTimeout(way.source.address, "end", 3_000)
            return await end()

        master.end = late  # type: ignore[method-assign]
        consumer = PushConsumer(
            "g",
            listener=take,
            name_server=way.namesrv,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            **QUICK,
        )
        consumer.subscribe("T")
        async with consumer, Producer("p", name_server=way.namesrv, **QUICK) as producer:
            await until(lambda: len(seen) == 30)
            sent: list[bytes] = []
            over = False

            async def produce() -> None:
                while not over:
                    body = b"during %d" % len(sent)
                    await producer.send(Message("T", body))
                    sent.append(body)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce())
                way.clients = 2
                await inwards.run()
                connections = set(way.slave.server.connections)
                before = len(sent)
                await until(lambda: len(sent) > before + 50)
                over = True
            assert connections
            assert connections <= way.slave.server.connections
            await until(lambda: len(seen) >= 30 + len(sent), "all messages")
            assert sorted(seen[30:]) == sorted(sent)
            # The source registers once more, as it does every 30 s.
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(inwards.keep_route())
                await way.master.registration.start()
                while not await led_to(way.admin, way.slave):
                    await asyncio.sleep(0)
                keeping.cancel()
        assert unanswered
        assert inwards.pause_ms >= 0


def facts(**settings: str) -> BrokerFacts:
    runtime = {
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": "1000",
        "brokerVersionDesc": "V5_5_0",
    }
    return BrokerFacts({"mappedFileSizeCommitLog": "100", **settings}, runtime, {}, {})


async def test_no_table_is_ahead_of_the_log_that_is_taken_over(tmp_path: Path) -> None:
    """The source delivers and hands out by itself until it ends: what its tables are past is here, too."""
    async with moving(tmp_path) as way:
        inwards = await way.start()
        metadata = inwards._replication.metadata
        assert metadata is not None
        master, taken = way.master.parts, way.slave.parts
        real = metadata.round
        ends: list[int] = []

        async def amid_a_pop() -> None:
            if len(ends) < 3 and any("clients wait" in line for line in way.said):
                master.messages.store.append("T", 0, b"late", b"", 0, 0, 1, bytes(8))
                ends.append(master.messages.store.max_offset("T", 0))
                master.tables.offsets.commit("G", "T", 0, ends[-1], "c")
            await real()

        metadata.round = amid_a_pop  # type: ignore[method-assign]
        await inwards.run()
        assert ends
        assert taken.tables.offsets.query("G", "T", 0) == ends[-1]
        assert taken.messages.store.max_offset("T", 0) == ends[-1]


def test_what_cannot_be_followed_is_said_before() -> None:
    assert not list(inward(facts(), 2_000))
    for name in (
        "enableControllerMode",
        "enableDLegerCommitLog",
        "duplicationEnable",
        "aclEnable",
        "popConsumerKVServiceEnable",
    ):
        (found,) = inward(facts(**{name: "true"}), 2_000)
        assert (found.level, name in found.text) == (REFUSED, True) or "DLedger" in found.text
    (found,) = inward(facts(), 1_000)
    assert found.level == REFUSED
    assert "1000 bytes, and 1000 are free" in found.text
    (found,) = inward(replace(facts(), static_topics=("S",)), 2_000)
    assert found.level == REFUSED
    topics = {
        "L": {"attributes": {"message.type": "LITE"}},
        "C": {"attributes": {"cleanup.policy": "COMPACTION"}},
    }
    lite, compact = inward(replace(facts(storeType="default"), topics=topics), 2_000)
    assert (lite.level, compact.level) == (REFUSED, TOLD)


def test_what_rocketmq_4_would_never_deliver_is_refused() -> None:
    ours = PocketFeatures(timers=3, pops=2, long_topics=("x" * 130,), isolated=("g",))
    assert [each.level for each in outward(ours, "4.9")] == [REFUSED] * 3 + [TOLD] * 3
    assert [each.level for each in outward(ours, "5")] == [TOLD] * 2


async def test_a_move_to_apache_says_which_schedules_end() -> None:
    with InProcess() as server:
        async with Admin(name_server=server.namesrv) as admin:
            [broker] = await admin.brokers()
            before = await before_out(admin, broker.name, "5")
            await admin.topics.create("Reports")
            await admin.schedules.create(Schedule("nightly", "Reports", b"run", cron="0 3 * * *"))
            found = await before_out(admin, broker.name, "5")
    [more] = [each for each in found if each not in before]
    assert more.level == TOLD
    assert "end with this broker" in more.text
    assert "nightly" in more.text


def test_ctrl_c_ends_the_command_and_undoes_what_it_did(tmp_path: Path) -> None:
    """As a process; tests/interop lets one come to its end."""
    names = Server(tmp_path, "namesrv", "--port", "0")
    others: list[Server] = []
    try:
        where = names.ready()["namesrv"]
        words = ["--port", "0", "--namesrv", where, "--broker-name", "b"]
        others.append(Server(tmp_path, "broker", "--data", "a", *words))
        at = others[0].ready()
        more = ["--broker", "b", "--from", where, "--data", "b", "--port", "0", "--yes"]
        others.append(Server(tmp_path, "migrate", *more, "--route-time", "0.5"))
        moving = others[1].process
        assert moving.stdout is not None
        assert any(line.startswith("waiting") for line in iter(moving.stdout.readline, ""))
        moving.send_signal(signal.SIGINT)
        assert moving.stdout.read().splitlines()[-1] == "nothing was changed at the source"
        assert moving.wait(60) == 1
        settings = bytes(ask(at["broker"], RequestCode.GET_BROKER_CONFIG).body)
        assert b"startAcceptSendRequestTimeStamp=0\n" in settings
    finally:
        for each in (*others, names):
            each.kill()


def test_a_migration_that_is_over_is_not_begun_again(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerRole=SYNC_MASTER\n")
    with pytest.raises(CannotBegin, match="pocketmq broker -c"):
        conf_in(str(tmp_path))
