"""A broker's place is taken while official clients produce and consume: nothing is lost or stored twice."""

import asyncio
import itertools
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.admin.cluster import NoMaster
from pocketmq.cli.migration.source import Source
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting.admin_headers import RegisterBrokerHeader
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from tests.interop import sdks
from tests.interop.brokers import JavaBroker
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import Driver, PeerError, Producer, PushConsumer, Session, message
from tests.interop.grpc_places import ProxyProcess
from tests.interop.processes import Process
from tests.kit.ports import free_ports
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
# Clients look up routes and beat once a second; as they come, every 30 s.
QUICK = {"pollNameServerInterval": 1_000, "heartbeatBrokerInterval": 1_000}
ROUTE_S = 2
# From so many messages on the pause is judged: a busy machine makes it longer.
FIGURES = 100_000


@pytest.fixture
def leave() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Traffic:
    """A producer that sends one message after the other, and a consumer of them all.

    count: messages that there will be; many are small ones, and sent by eight that share the producer.
    """

    def __init__(
        self, java: Session, namesrv: str, topic: str, group: str, count: int, *, tls: bool = False
    ) -> None:
        self.topic = topic
        self.group = group
        self._java = java
        self._namesrv = namesrv
        self._settings = {**QUICK, "useTLS": tls}
        patient = {**self._settings, "sendMsgTimeout": 3_000}
        self.producer: Producer = java.producer(namesrv, f"{group}-p", settings=patient)
        self._send("the first makes the topic")
        self.consumer = self._consumer()
        senders, size = (8, 100) if count >= FIGURES else (1, 1_500)
        self._floods = [
            self.producer.begin_flood(topic, prefix=f"{group}-{number}", size=size)
            for number in range(senders)
        ]

    def _consumer(self) -> PushConsumer:
        settings = {**FIRST, **self._settings}
        return self._java.push_consumer(self._namesrv, self.group, self.topic, settings=settings)

    def _send(self, body: str) -> None:
        """A broker that has just started may need longer than the producer waits."""

        def stored() -> bool:
            return self.producer.send(message(self.topic, body))[0].status == "SEND_OK"

        until(stored, f"a send of {body!r}", ignoring=PeerError)

    def _lag(self) -> int:
        async def ask() -> int:
            async with Admin(name_server=self._namesrv) as admin:
                rows = await admin.groups.progress(self.group, self.topic)
            return sum(row.broker_offset - row.consumer_offset for row in rows)

        return asyncio.run(ask())

    def wait_for(self, count: int) -> None:
        """So many acknowledged messages more."""
        wanted = len(self.producer.acks) + count
        self._java.driver.wait(
            lambda: len(self.producer.acks) >= wanted, f"{count} more", 600 + count / 100
        )

    def end(self, *, may_be_twice: bool = False) -> None:
        """No more; every acknowledged message is stored, once, in the order of its queue; offsets were kept.

        may_be_twice: one message a sender: its connection was closed before the answer came.
        """
        for flood in self._floods:
            self.producer.end_flood(flood)
        sent = {text for text, _ in self.producer.acks}
        assert sent

        def came() -> set[tuple[str, int, int]]:
            """By place: a consumer may be given a message again, and then it is the same one."""
            return {
                (each.text.rstrip("\0"), each.queue, each.offset) for each in self.consumer.received
            }

        until(
            lambda: (
                len(self.consumer.received) >= len(sent) and sent <= {text for text, _, _ in came()}
            ),
            "every acknowledged message",
            120 + len(sent) / 1_000,
        )
        stored = Counter(text for text, _, _ in came())
        twice = [text for text, count in stored.items() if count > 1 and text in sent]
        assert len(twice) <= may_be_twice * len(self._floods), twice
        queues = defaultdict(list)
        for text, queue, offset in came():
            sender, _, number = text.rpartition("-")
            if number.isdigit():
                queues[sender, queue].append((offset, int(number)))
        for found in queues.values():
            in_order = [number for _, number in sorted(found)]
            assert in_order == sorted(in_order)
        self.consumer.persist_offsets()
        # The source takes the route with it when it goes, until this broker has looked.
        until(lambda: self._lag() == 0, "the offsets of all", ignoring=NoMaster)
        self.consumer.close()
        self._send("the last")
        assert {each.text for each in self._consumer().wait(1)} == {"the last"}

    def pause_ms(self, begin_ms: float, end_ms: float) -> int:
        """The longest time between two messages that were stored then."""
        times = [each.store_ms for each in self.consumer.received]
        stored = sorted(each for each in times if begin_ms <= each <= end_ms)
        return max(later - earlier for earlier, later in pairwise(stored))


def migrate(folder: Path, *words: object) -> Process:
    program = Path(sys.executable).parent / "pocketmq"
    command = [str(program), "migrate", *map(str, words)]
    return Process(command, folder / "migrate.out", cwd=folder)


class Successor(JavaBroker):
    """An Apache broker with the configuration that the command has written."""

    conf: Path

    def _write_config(self, more: Mapping[str, object]) -> Path:
        return self.conf


class Moves:
    """One broker's way from a real broker to ours, and back; its clients keep working."""

    def __init__(self, folder: Path, leave: ExitStack, version: str, *, tls: bool = False) -> None:
        self._folder = folder
        self._tls = tls
        self._leave = leave
        self._version = version
        # Several files, for a real master treats the first one in its own way.
        small = {"mappedFileSizeCommitLog": 1 << 20}
        self.source = or_missing(
            lambda: JavaBroker(folder / "java", version=version, config=small, heap="1g")
        )
        leave.callback(self.source.kill)
        self.source.tls = tls
        self.source.start()

    def _migrate(self, *words: object) -> Process:
        words = ("--broker", self.source.broker_name, "--route-time", ROUTE_S, "--yes", *words)
        moving = migrate(self._folder, *words)
        self._leave.callback(moving.kill)
        return moving

    def to_us(self) -> Process:
        """Returns: the command, which is the broker now."""
        (port,) = free_ports(1)
        self._ours = f"127.0.0.1:{port}"
        ours, stop = self._folder / "ours", f"kill {self.source.process.pid}"
        words = ("--from", self.source.namesrv, "--data", ours, "--port", port)
        moving = self._migrate(*words, "--stop-command", stop)
        moving.wait_for_line("ready", 600)
        moving.wait_for_line("the old broker is stopped", 120)
        conf = (ours / "broker.conf").read_text().splitlines()
        assert {"brokerRole=ASYNC_MASTER", "brokerId=0", f"listenPort={port}"} <= set(conf)
        return moving

    async def _found(self) -> Source:
        async with Admin(name_server=self.source.namesrv) as admin:
            return await Source.found(admin, self.source.broker_name)

    def back(self) -> None:
        there = Successor(
            self._folder / "back", version=self._version, namesrv=self.source.namesrv, heap="1g"
        )
        there.conf = self._folder / "back.conf"
        there.tls = self._tls
        # The stop of the old broker takes the name out of the route for a moment.
        until(lambda: asyncio.run(self._found()), "the route to our broker", ignoring=PocketMQError)
        self._leave.callback(there.kill)
        words = ("--to", there.conf, "--namesrv", there.namesrv, "--port", there.port)
        kind = self._version[0].replace("4", "4.9")
        moving = self._migrate(*words, "--data", self._folder / "theirs", "--apache", kind)
        moving.wait_for_line(f"{there.conf} has been written")
        there.launch()
        # A slave of 5.x copies offsets once a minute.
        moving.wait_for_line("restart the Apache broker now", 900)
        there.process.stop()
        there.launch()
        moving.wait_for_line(f"{self._ours} is now its slave", 300)
        print(moving.printed())  # noqa: T201


@pytest.fixture
def count(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--migrate-messages"))


def test_from_rocketmq_to_us(
    tmp_path: Path, java_498: Session, leave: ExitStack, count: int, topic: str, group: str
) -> None:
    moves = Moves(tmp_path, leave, "4.9.7")
    traffic = Traffic(java_498, moves.source.namesrv, topic, group, count)
    traffic.wait_for(count // 2)
    moving = moves.to_us()
    traffic.wait_for(count // 2)
    traffic.end()
    assert moving.stop() == 0


@pytest.mark.reference
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_from_rocketmq_to_us_and_back(
    tmp_path: Path,
    java_498: Session,
    leave: ExitStack,
    count: int,
    version: str,
    topic: str,
    group: str,
) -> None:
    """The clients are the same from the beginning to the end."""
    moves = Moves(tmp_path, leave, version)
    traffic = Traffic(java_498, moves.source.namesrv, topic, group, count)
    traffic.wait_for(count * 2 // 5)
    began_ms = time.time() * 1000
    print(moves.to_us().printed())  # noqa: T201
    ours_ms = time.time() * 1000
    traffic.wait_for(count // 5)
    moves.back()
    traffic.wait_for(count * 2 // 5)
    traffic.end(may_be_twice=True)
    pauses = [traffic.pause_ms(began_ms, ours_ms), traffic.pause_ms(ours_ms, math.inf)]
    print(f"{version} {len(traffic.producer.acks)} pauses {pauses} ms {os.getloadavg()}")  # noqa: T201
    assert count < FIGURES or (pauses[0] <= 5_000 and pauses[1] <= 15_000)


@pytest.mark.reference
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_clients_with_tls_go_both_ways(
    tmp_path: Path,
    java_498: Session,
    leave: ExitStack,
    count: int,
    version: str,
    topic: str,
    group: str,
) -> None:
    moves = Moves(tmp_path, leave, version, tls=True)
    traffic = Traffic(java_498, moves.source.namesrv, topic, group, count, tls=True)
    traffic.wait_for(count // 3)
    moves.to_us()
    traffic.wait_for(count // 3)
    moves.back()
    traffic.wait_for(count // 3)
    traffic.end(may_be_twice=True)


@pytest.mark.reference
@pytest.mark.parametrize("name", ["python", "java"])
def test_an_sdk_goes_both_ways_with_the_proxy_of_apache(
    tmp_path: Path, shared: Shared, leave: ExitStack, name: str, topic: str, group: str
) -> None:
    """Its address stays, so that the SDK notices nothing but the pauses."""
    moves = Moves(tmp_path, leave, "5.5.0")
    namesrv, address = moves.source.namesrv, moves.source.address
    mqadmin = shared.mqadmin("5.5.0").at(namesrv)
    attributes = ["-a", "+message.type=NORMAL"]
    mqadmin("updateTopic", "-b", address, "-t", topic, "-r", 4, "-w", 4, *attributes)
    mqadmin("updateSubGroup", "-b", address, "-g", group)
    proxy = ProxyProcess(tmp_path / "proxy", namesrv=namesrv)
    leave.callback(proxy.kill)
    proxy.start()
    driver = shared.get(f"sdk-{name}", lambda: sdks.start(name, tmp_path), Driver.close)
    sdk = leave.enter_context(sdks.Sdk(driver, f"127.0.0.1:{proxy.grpc_port}"))
    producer, consumer = sdk.producer(topic), sdk.push(group, {topic: "*"})
    kept: set[str] = set()
    numbers = itertools.count()

    def send() -> None:
        body = str(next(numbers))
        with suppress(PeerError):
            producer.send({"topic": topic, "body": body})
            kept.add(body)

    def send_until(done: Callable[[], object]) -> None:
        before = len(kept)

        def is_over() -> bool:
            send()
            return bool(done()) and len(kept) >= before + 50

        until(is_over, "sends work again", 600)

    pool = leave.enter_context(ThreadPoolExecutor(1))
    send_until(lambda: True)
    for move in (moves.to_us, moves.back):
        moved = pool.submit(move)
        send_until(moved.done)
        moved.result()
        send_until(lambda: True)
        until(lambda: kept <= {body for body, _ in consumer.seen}, "every acknowledged message")


@pytest.mark.reference
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_what_keeps_a_real_broker_from_storing(
    shared: Shared, java_498: Session, version: str, topic: str, group: str
) -> None:
    """Not its write permission, for a producer that has the route; its time of accepting does, at once."""
    broker = shared.broker(f"rocketmq-{version}")
    producer = java_498.producer(broker.namesrv, group)
    producer.send(message(topic, "before"))

    async def steps() -> None:
        async with Admin(name_server=broker.namesrv) as admin:
            source = await Source.found(admin, broker.broker_name)
            await admin.settings.update_broker(source.address, brokerPermission="4")
            producer.send(message(topic, "not to be written"))
            await admin.settings.update_broker(source.address, brokerPermission="6")
            await source.refuse_sends()
            with pytest.raises(PeerError, match="code=1: Send"):
                producer.send(message(topic, "refused"))
            await source.accept_sends()
            producer.send(message(topic, "after"))
            # A broker that names itself as the master takes the place back at once.
            other = "127.0.0.1:1"
            header = RegisterBrokerHeader(
                source.name, other, source.cluster, other, MASTER_ID, compressed=False, body_crc32=0
            )
            await admin.site.api.requests.ask(broker.namesrv, RequestCode.REGISTER_BROKER, header)
            assert await source.is_routed_to(other)
            await source.register()
            assert await source.is_routed_to(source.address)

    asyncio.run(steps())
