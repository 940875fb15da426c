"""A broker's place is taken while official clients produce and consume: nothing is lost or stored twice."""

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.interop.brokers import JavaBroker, PocketBroker
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import PeerError, Producer, PushConsumer, Session, message
from tests.interop.processes import Process, free_ports
from tests.kit.waiting import until

from pocketmq.admin import Admin
from pocketmq.cli.migration.source import Source
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import RegisterBrokerHeader
from pocketmq.remoting.names import MASTER_ID

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
# Clients look up routes and beat once a second; as they come, every 30 s.
QUICK = {"pollNameServerInterval": 1_000, "heartbeatBrokerInterval": 1_000}
ROUTE_S = 2
# From so many messages on the pause is judged: a busy machine makes it longer.
FIGURES = 100_000
# With --reference both: a real broker takes ten seconds to start and stop.
VERSIONS = ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.reference)]


@pytest.fixture
def leave() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Traffic:
    """A producer that sends one message after the other, and a consumer of them all."""

    def __init__(self, java: Session, namesrv: str, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self._java = java
        self._namesrv = namesrv
        patient = {**QUICK, "sendMsgTimeout": 3_000}
        self.producer: Producer = java.producer(namesrv, f"{group}-p", settings=patient)
        self._send("the first makes the topic")
        self.consumer = self._consumer()
        self._flood = self.producer.begin_flood(topic, prefix=group, size=1_500)

    def _consumer(self) -> PushConsumer:
        settings = {**FIRST, **QUICK}
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
        acks = self.producer.acks
        wanted = len(acks) + count
        self._java.driver.wait(lambda: len(self.producer.acks) >= wanted, f"{count} more", 600)

    def end(self, twice_max: int = 0) -> None:
        """No more; every acknowledged message is stored, once, in the order of its queue; offsets were kept.

        twice_max: messages that may be stored twice: their connection was closed before the answer came.
        """
        self.producer.end_flood(self._flood)
        sent = {text for text, _ in self.producer.acks}
        assert sent

        def came() -> set[tuple[str, int, int]]:
            """By place: a consumer may be given a message again, and then it is the same one."""
            return {
                (each.text.rstrip("\0"), each.queue, each.offset) for each in self.consumer.received
            }

        until(lambda: sent <= {text for text, _, _ in came()}, "every acknowledged message", 120)
        stored = Counter(text for text, _, _ in came())
        twice = [text for text, count in stored.items() if count > 1 and text in sent]
        assert len(twice) <= twice_max, twice
        queues = defaultdict(list)
        for text, queue, offset in came():
            number = text.rpartition("-")[2]
            if number.isdigit():
                queues[queue].append((offset, int(number)))
        for found in queues.values():
            in_order = [number for _, number in sorted(found)]
            assert in_order == sorted(in_order)
        self.consumer.persist_offsets()
        until(lambda: self._lag() == 0, "the offsets of all")
        self.consumer.close()
        self._send("the last")
        assert {each.text for each in self._consumer().wait(1)} == {"the last"}

    @property
    def pause_ms(self) -> int:
        """The longest time between two messages that were stored."""
        stored = sorted(each.store_ms for each in self.consumer.received)
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


@pytest.mark.reference
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_from_us_to_rocketmq(
    tmp_path: Path,
    java_498: Session,
    leave: ExitStack,
    pytestconfig: pytest.Config,
    version: str,
    topic: str,
    group: str,
) -> None:
    count = int(pytestconfig.getoption("--migrate-messages"))
    source = leave.enter_context(PocketBroker(tmp_path / "ours"))
    traffic = Traffic(java_498, source.namesrv, topic, group)
    traffic.wait_for(count // 2)
    there = or_missing(
        lambda: Successor(tmp_path / "java", version=version, namesrv=source.namesrv)
    )
    there.conf = tmp_path / "java.conf"
    leave.callback(there.kill)
    kind = "5" if version[0] == "5" else "4.9"
    words = ["--to", there.conf, "--broker", source.broker_name, "--namesrv", source.namesrv]
    words += [
        "--data",
        tmp_path / "theirs",
        "--port",
        there.port,
        "--apache",
        kind,
    ]
    moving = migrate(tmp_path, *words, "--route-time", ROUTE_S, "--yes")
    leave.callback(moving.kill)
    moving.wait_for_line(f"{there.conf} is written")
    there.launch()
    # A slave of 5.x copies offsets once a minute.
    moving.wait_for_line("restart the Apache broker now", 300)
    # Whether all is there is looked at after the restart, so it may be a quick one.
    there.kill()
    there.launch()
    moving.wait_for_line(f"{source.address} is a slave of it now")
    traffic.wait_for(count // 2)
    traffic.end(twice_max=1)
    print(moving.printed(), f"pause {traffic.pause_ms} ms", sep="\n")  # noqa: T201
    assert count < FIGURES or traffic.pause_ms <= 15_000


@pytest.mark.parametrize("version", VERSIONS)
def test_from_rocketmq_to_us(
    tmp_path: Path,
    java_498: Session,
    leave: ExitStack,
    pytestconfig: pytest.Config,
    version: str,
    topic: str,
    group: str,
) -> None:
    count = int(pytestconfig.getoption("--migrate-messages"))
    # Several files, for a real master treats the first one in its own way.
    small = {"mappedFileSizeCommitLog": 1 << 20}
    source = or_missing(lambda: JavaBroker(tmp_path / "java", version=version, config=small))
    leave.callback(source.kill)
    source.start()
    traffic = Traffic(java_498, source.namesrv, topic, group)
    traffic.wait_for(count // 2)
    words = ["--from", source.namesrv, "--broker", source.broker_name, "--data", tmp_path / "ours"]
    (port,) = free_ports(1)
    stop = f"kill {source.process.pid}"
    moving = migrate(
        tmp_path, *words, "--port", port, "--route-time", ROUTE_S, "--yes", "--stop-command", stop
    )
    leave.callback(moving.kill)
    moving.wait_for_line("ready")
    traffic.wait_for(count // 2)
    traffic.end()
    moving.wait_for_line("the old broker is stopped")
    assert moving.stop() == 0
    conf = (tmp_path / "ours" / "broker.conf").read_text().splitlines()
    assert {"brokerRole=ASYNC_MASTER", "brokerId=0", f"listenPort={port}"} <= set(conf)
    print(moving.printed(), f"pause {traffic.pause_ms} ms", sep="\n")  # noqa: T201
    assert count < FIGURES or traffic.pause_ms <= 5_000


@pytest.mark.parametrize("version", VERSIONS)
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
            await admin.site.api.ask(broker.namesrv, RequestCode.REGISTER_BROKER, header)
            assert await source.is_routed_to(other)
            await source.register()
            assert await source.is_routed_to(source.address)

    asyncio.run(steps())
