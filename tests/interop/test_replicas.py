"""Masters and slaves of both kinds: the logs become equal byte for byte, and so do queues and tables.

Real brokers at the other end: a Java slave at our master, and our slave at a Java master.
"""

import asyncio
import re
import time
from pathlib import Path

import pytest

from pocketmq.cli.mqadmin import main as mqadmin
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    TransactionState,
)
from pocketmq.client.sync import Producer, PushConsumer, SimpleConsumer, TransactionProducer
from pocketmq.remoting import fastjson
from tests.broker.pairs import caught_up, pair
from tests.broker.serving import Peer
from tests.cli.servers import Server
from tests.interop.brokers import JavaBroker, PocketBroker, RunningBroker
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import Session
from tests.interop.pairs import FILE, follow, log_of, send
from tests.kit.waiting import until

# The other two with --reference: a real broker takes ten seconds to start and stop.
JAVA_SLAVES = ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.reference)]
JAVA_MASTERS = ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.reference)]
SMALL_LOG = {"mappedFileSizeCommitLog": FILE}
SLAVE = {"brokerRole": "SLAVE", **SMALL_LOG}
SYNC = {"brokerRole": "SYNC_MASTER", **SMALL_LOG}


def table(broker: RunningBroker, file: str, name: str) -> dict[str, object]:
    path = broker.store / "config" / file
    try:
        return fastjson.loads(path.read_bytes())[name]  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {}


def consume(broker: RunningBroker, topic: str = "Replicated") -> None:
    """A group reads some of it and leaves its offsets."""
    seen: list[bytes] = []

    def take(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.body for message in messages)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        "readers",
        listener=take,
        name_server=broker.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    with consumer:
        until(lambda: len(seen) > 20, "a consumer reads at the master")


def special(broker: RunningBroker, *, as_five: bool) -> None:
    """What the brokers keep in topics of their own: delays, transactions, retries; of 5.x timers and pops."""
    seen: list[bytes] = []
    wanted = (
        [b"COMMIT", b"COMMIT", b"later", b"timed"] if as_five else [b"COMMIT", b"COMMIT", b"later"]
    )

    def take(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.body for message in messages)
        is_first = messages[0].body == b"COMMIT" and messages[0].reconsume_times == 0
        return ConsumeResult.RECONSUME_LATER if is_first else ConsumeResult.SUCCESS

    first = ConsumeFromWhere.FIRST_OFFSET
    with TransactionProducer(
        "special", check=lambda message: TransactionState.COMMIT, name_server=broker.namesrv
    ) as producer:
        producer.send(Message("Special", b"later"), delay_level=1)
        if as_five:
            producer.send(
                Message("Special", b"timed"), deliver_at_ms=int(time.time() * 1000) + 1_500
            )
            producer.send(Message("Popped", b"popped"))
        for body in (b"COMMIT", b"ROLLBACK"):
            producer.send_in_transaction(
                Message("Special", body), lambda message: TransactionState[message.body.decode()]
            )
    consumer = PushConsumer(
        "specials", listener=take, name_server=broker.namesrv, consume_from_where=first
    )
    consumer.subscribe("Special")
    with consumer:
        until(lambda: sorted(seen) == wanted, "delay, timer, transaction and retry")
    if as_five:
        popper = SimpleConsumer("poppers", name_server=broker.namesrv, consume_from_where=first)
        popper.subscribe("Popped")
        with popper:
            [message] = until(lambda: popper.receive(8, wait_ms=1_000), "a pop")
            popper.ack(message)


def go_on_at_the_slave(master: RunningBroker, count: int) -> None:
    """A running group gets the rest of its messages when the master is killed."""
    seen: set[tuple[int, int]] = set()

    def take(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        seen.update((message.queue_id, message.queue_offset) for message in messages)
        if len(seen) > count // 3:
            master.process.kill()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        "survivors",
        listener=take,
        name_server=master.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        poll_name_server_interval_ms=500,
        pull_batch_size=16,
        pull_threshold_count=32,
        concurrency=1,
    )
    consumer.subscribe("Replicated")
    with consumer:
        until(lambda: len(seen) >= count, "the group reads on at the slave")


@pytest.mark.parametrize("version", JAVA_SLAVES)
def test_a_java_slave_at_our_master(
    tmp_path: Path,
    version: str,
    running: list[RunningBroker],
    count: int,
    shared: Shared,
    names: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SYNC_MASTER: each send is answered when the Java slave has it, which serves once the master died."""
    namesrv = names.ready()["namesrv"]
    master = PocketBroker(tmp_path / "master", config=SYNC, namesrv=namesrv)
    running.append(master.start())
    # Before there is a slave: stored, and said.
    with Producer("early", name_server=master.namesrv) as producer:
        early = producer.send(Message("Replicated", b"early"))
    assert early.status.name == "SLAVE_NOT_AVAILABLE"
    slave = or_missing(
        lambda: JavaBroker(
            tmp_path / "slave",
            version=version,
            config=SLAVE,
            namesrv=master.namesrv,
            broker_id=1,
        )
    )
    running.append(slave.start())
    with Producer("waits", name_server=master.namesrv) as producer:
        until(
            lambda: producer.send(Message("Replicated", b"now?")).status.name == "SEND_OK",
            "the Java slave acknowledges",
        )
    send(master, count)
    consume(master)
    special(master, as_five=version != "4.9.7")
    follow(master, slave)
    words = ("haStatus", "-b", master.address)
    printed = shared.mqadmin("5.5.0").at(master.namesrv)(*words).out
    assert re.search(r"#InSyncSlaveNum\s+1\b", printed), printed
    assert re.search(r"127\.0\.0\.1:\d+ +\d+ +0 .* OK ", printed), printed
    assert mqadmin.run([*words, "-n", master.namesrv]) == 0
    # But for the speed.
    ours, theirs = (
        re.sub(r" +\d+\.\d\d ", " ", text).strip() for text in (capsys.readouterr().out, printed)
    )
    assert ours == theirs
    until(lambda: "Replicated" in table(slave, "topics.json", "topicConfigTable"), "topics", 90)
    if version != "4.9.7":
        # kill -9 of either side, and what is sent meanwhile.
        for broker in (master, slave, master):
            broker.kill()
            if broker is slave:
                send(master, count // 2)
            broker.start()
            send(master, count // 2)
            follow(master, slave)
    if version == "4.9.7":
        until(
            lambda: "Replicated@readers" in table(slave, "consumerOffset.json", "offsetTable"),
            "offsets",
            90,
        )
    go_on_at_the_slave(master, count)


@pytest.mark.parametrize("version", JAVA_MASTERS)
def test_our_slave_at_a_java_master(
    tmp_path: Path, version: str, running: list[RunningBroker], count: int, names: Server
) -> None:
    """In the end the master stays dead, and its consumers read on at our slave."""
    namesrv = names.ready()["namesrv"]
    master = or_missing(
        lambda: JavaBroker(tmp_path / "master", version=version, config=SMALL_LOG, namesrv=namesrv)
    )
    running.append(master.start())
    send(master, count)
    special(master, as_five=version != "4.9.7")
    slave = PocketBroker(
        tmp_path / "slave",
        config={**SLAVE, "slaveSyncInterval": 500},
        namesrv=master.namesrv,
        broker_id=1,
    )
    running.append(slave.start())
    consume(master)
    send(master, count // 2)
    follow(master, slave)
    until(
        lambda: (
            table(slave, "topics.json", "topicConfigTable").get("Replicated") is not None
            and "readers" in table(slave, "subscriptionGroup.json", "subscriptionGroupTable")
        ),
        "topics and groups",
    )
    until(
        lambda: "Replicated@readers" in table(slave, "consumerOffset.json", "offsetTable"),
        "offsets",
    )
    # Across a kill of the slave in the middle of what comes.
    slave.kill()
    send(master, count // 2)
    slave.start()
    follow(master, slave)
    go_on_at_the_slave(master, count + 2 * (count // 2))


@pytest.mark.reference
def test_java_consumers_go_on_at_our_slave(
    tmp_path: Path, java_498: Session, running: list[RunningBroker], names: Server, group: str
) -> None:
    namesrv = names.ready()["namesrv"]
    master = PocketBroker(tmp_path / "master", config=SYNC, namesrv=namesrv)
    slave = PocketBroker(
        tmp_path / "slave",
        config={**SLAVE, "slaveSyncInterval": 500},
        namesrv=namesrv,
        broker_id=1,
    )
    running += [master.start(), slave.start()]
    send(master, 40)
    consumer = java_498.push_consumer(
        namesrv,
        group,
        "Replicated",
        settings={
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "pollNameServerInterval": 1_000,
        },
    )
    consumer.wait(40)
    consumer.suspend()
    send(master, 40)
    follow(master, slave)
    master.kill()
    consumer.resume()
    java_498.driver.wait(
        lambda: len({(each.queue, each.offset) for each in consumer.received}) == 80, "the rest"
    )


@pytest.mark.parametrize("version", JAVA_SLAVES)
def test_an_old_java_master_with_records_of_its_own_is_refused(
    tmp_path: Path, version: str, running: list[RunningBroker], names: Server
) -> None:
    """It comes back as a slave of the broker that leads now; RocketMQ sends it the middle of records."""
    namesrv = names.ready()["namesrv"]
    old = or_missing(
        lambda: JavaBroker(tmp_path / "old", version=version, config=SMALL_LOG, namesrv=namesrv)
    )
    running.append(old.start())
    ours = PocketBroker(tmp_path / "ours", config=SLAVE, namesrv=namesrv, broker_id=1)
    running.append(ours.start())
    send(old, 30)
    until(lambda: log_of(ours) == log_of(old), "the slave has the log")
    ours.stop()
    send(old, 3)
    old.stop()
    own = log_of(old)
    leads = PocketBroker(tmp_path / "leads", config=SMALL_LOG, namesrv=namesrv, store=ours.store)
    running.append(leads.start())
    send(leads, 40)
    assert len(log_of(leads)) > len(own)
    back = JavaBroker(
        tmp_path / "back",
        version=version,
        config=SLAVE,
        namesrv=namesrv,
        store=old.store,
        broker_id=1,
    )
    running.append(back.start())
    until(lambda: "it has records that this master never had" in leads.log(), "it is refused")
    send(leads, 5)
    assert log_of(back) == own


@pytest.mark.reference
async def test_a_java_consumer_far_behind_reads_at_our_slave(
    tmp_path: Path, java_498: Session, group: str
) -> None:
    """slaveReadEnable: the master suggests the slave, and the client pulls there from then on."""
    async with pair(tmp_path) as brokers:
        master = await brokers.master(slave_read_enable=True)
        slave = await brokers.slave(slave_read_enable=True)
        async with await Peer.at(master) as peer:
            for number in range(60):
                await peer.produce("Replicated", b"%d" % number, queue_id=number % 4)
        await caught_up(slave, master)
        # As if the machine's memory held nothing of the log: what is read is far behind.
        for each in (master, slave):
            each.store_config.access_message_in_memory_max_ratio = 0
        settings = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "pullBatchSize": 5}

        def read() -> int:
            consumer = java_498.push_consumer(
                brokers.namesrv, group, "Replicated", settings=settings
            )
            found = len({(each.queue, each.offset) for each in consumer.wait(60)})
            consumer.close()
            return found

        assert await asyncio.to_thread(read) == 60
        counts = [each.parts.messages.store.reads.get_transferred_count for each in (master, slave)]
        # The first five of each queue.
        assert counts[0] <= 20
        assert counts[1] >= 40
