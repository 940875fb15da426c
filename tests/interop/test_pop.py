"""Pop consumption by the official Java 5.5.0 client and by ours: messages shared by message."""

import asyncio
import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq.admin import Admin
from pocketmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    SimpleConsumer,
)
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from tests.interop.brokers import PocketBroker, RunningBroker, make_broker
from tests.interop.conftest import MakeTopic, Shared, or_missing
from tests.interop.driver import PushConsumer, Session, message
from tests.kit.waiting import until, until_async

# The broker shares out the queues; what is not acknowledged comes back as soon as the client allows.
POP = {
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "clientRebalance": False,
    "popInvisibleTime": 5_000,
    "heartbeatBrokerInterval": 2_000,
}


def pops(shared: Shared, broker: RunningBroker, topic: str, group: str) -> None:
    """An operator makes the group pop the topic."""
    tool = shared.mqadmin("5.5.0").at(broker.namesrv)
    printed = tool(
        "setConsumeMode", "-b", broker.address, "-t", topic, "-g", group, "-m", "POP", "-q", 0
    )
    assert "success" in printed.out, printed


def texts(*consumers: PushConsumer) -> Counter[str]:
    return Counter(got.text for consumer in consumers for got in consumer.received)


def test_a_pop_consumer_gets_each_message_and_failures_again(
    five_broker: RunningBroker, shared: Shared, java_550: Session, topic: str, group: str
) -> None:
    """Once each; the one that fails comes again with a count, under the topic's own name."""
    producer = java_550.producer(five_broker.namesrv, f"{group}-p")
    producer.create_topic(topic)
    pops(shared, five_broker, topic, group)
    sent = [f"m{number}" for number in range(60)]
    producer.send(*(message(topic, text, tags="AB"[n % 2]) for n, text in enumerate(sent)))
    producer.send(message(topic, "fails", tags="A", properties={"fail_times": "1"}))
    consumer = java_550.push_consumer(five_broker.namesrv, group, {topic: "A"}, settings=POP)
    wanted = Counter(dict.fromkeys(sent[::2], 1) | {"fails": 2})
    until(lambda: texts(consumer) == wanted, "every message once, the failed one twice")
    again = [got for got in consumer.received if got.text == "fails"]
    assert [got.reconsume_times for got in again] == [0, 1]
    assert {got.topic for got in again} == {topic}
    # A message that comes now wakes the pop that waits.
    producer.send(message(topic, "late", tags="A"))
    until(lambda: texts(consumer)["late"] == 1, "the message for a waiting pop")


async def test_an_operators_mode_decides_what_a_member_is_told(
    five_broker: RunningBroker, shared: Shared, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """mqadmin's setConsumeMode in each form, and QUERY_ASSIGNMENT after it: the same at the real broker."""
    tool = shared.mqadmin("5.5.0").at(five_broker.namesrv)
    await asyncio.to_thread(make_topic, five_broker, topic, queues=2)

    async def mode(*words: object) -> str:
        named = words if "-t" in words else ("-t", topic, *words)
        printed = await asyncio.to_thread(tool, "setConsumeMode", "-g", group, *named)
        return printed.out + printed.err

    consumer = LitePullConsumer(group, name_server=five_broker.namesrv)
    consumer.subscribe(topic)
    async with consumer, Admin(name_server=five_broker.namesrv) as admin:
        asked = {
            "clientId": consumer.client_id,
            "consumerGroup": group,
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": topic,
        }

        async def assigned(**more: str) -> Any:
            answer = await admin.site.api.requests.ask(
                five_broker.address,
                RequestCode.QUERY_ASSIGNMENT,
                None,
                json.dumps({**asked, **more}).encode(),
            )
            return fastjson.loads(answer.body).get("messageQueueAssignments")

        def told(how: str, *queues: int, of: str = topic) -> list[dict[str, Any]]:
            return [
                {
                    "messageQueue": {
                        "brokerName": "broker-a",
                        "queueId": queue,
                        "topic": of,
                    },
                    "mode": how,
                }
                for queue in queues
            ]

        await until_async(assigned, "the member is known")
        at = ("-b", five_broker.address)
        assert await assigned() == told("PULL", 0, 1)
        assert "success" in await mode(*at, "-m", "POP", "-q", 0)
        assert await assigned() == told("POP", -1)
        assert await assigned(topic=f"%RETRY%{group}") == told("PULL", 0, of=f"%RETRY%{group}")
        assert await assigned(strategyName="DICE") is None
        # One member's share is all there is, whatever -q says.
        assert "success" in await mode(*at, "-m", "POP", "-q", 1)
        assert await assigned() == told("POP", -1)
        assert "success" in await mode(*at, "-m", "PULL")
        assert await assigned() == told("PULL", 0, 1)
        assert "success" in await mode("-c", "DefaultCluster", "-m", "POP", "-q", 0)
        assert await assigned() == told("POP", -1)
        for words, refused in (
            (("-t", f"no{topic}", *at, "-m", "POP"), "CODE: 17"),
            (("-t", f"%RETRY%{group}", *at, "-m", "POP"), "CODE: 16"),
        ):
            assert refused in await mode(*words)
        assert await assigned() == told("POP", -1)


def test_no_loss_when_a_consumer_and_the_broker_are_killed(
    tmp_path: Path, shared: Shared, java_550: Session, topic: str, group: str
) -> None:
    """kill -9 of one of two members, then of the broker, each in the middle: every message is consumed."""
    with PocketBroker(tmp_path / "b") as broker:
        producer = java_550.producer(broker.namesrv, f"{group}-p")
        producer.create_topic(topic)
        pops(shared, broker, topic, group)
        slow = {**POP, "popBatchNums": 8, "consumeThreadMin": 2, "consumeThreadMax": 2}
        mine = java_550.push_consumer(broker.namesrv, group, topic, settings=slow, delay_ms=30)
        twin = java_550.driver.twin()
        session = twin.session()
        victim = session.push_consumer(broker.namesrv, group, topic, settings=slow, delay_ms=30)
        sent: list[str] = []

        def send_more() -> None:
            more = [f"m{len(sent) + number}" for number in range(100)]
            producer.send(*(message(topic, text) for text in more))
            sent.extend(more)

        def victim_is_busy() -> bool:
            """It may have started when the other had consumed all that was sent before."""
            send_more()
            return len(victim.consumed) > 20

        until(victim_is_busy, "the victim is in the middle of its work")
        twin.kill()
        send_more()
        send_more()
        until(lambda: len(mine.consumed) > 100, "the other is, too")
        broker.kill()
        broker.start()
        until(lambda: set(texts(mine, victim)) == set(sent), "every message", within_s=120)
        again = sum(texts(mine, victim).values()) - len(sent)
        # What was out when a process was killed: at most what the client holds of its pops.
        assert again < 200, again
        twin.close()


@pytest.mark.reference
def test_what_is_in_flight_moves_to_an_apache_broker_and_back(
    tmp_path: Path, shared: Shared, java_550: Session, topic: str, group: str
) -> None:
    """R19: a member dies with popped messages, the broker stops, and one of the other kind takes its store.

    What was acknowledged does not come again, what was not does, on both ways.
    """
    with ExitStack() as leave:

        def taking(kind: str, other: RunningBroker | None) -> RunningBroker:
            place = tmp_path / f"{kind}{len(list(tmp_path.iterdir()))}"
            broker = or_missing(lambda: make_broker(kind, place))
            if other is not None:
                broker.take_the_place_of(other)
            leave.callback(broker.kill)
            return broker.start()

        def popped_by_one_that_dies(broker: RunningBroker, sent: list[str]) -> None:
            """Send messages that a member pops, and kills it while it works on the first."""
            producer = java_550.producer(broker.namesrv, f"{group}-p{len(sent)}")
            producer.send(*(message(topic, text) for text in sent))
            twin = java_550.driver.twin()
            twin.session().push_consumer(
                broker.namesrv, group, topic, settings=POP, delay_ms=600_000
            )
            tool = shared.mqadmin("5.5.0").at(broker.namesrv)
            words = ["-g", group, "-t", topic]
            until(
                lambda: (
                    int(tool("consumerProgress", *words).value("Consume Diff Total").split()[0])
                    == 0
                ),
                "all are popped",
            )
            twin.kill()
            producer.close()

        def consumed(broker: RunningBroker, wanted: list[str]) -> None:
            consumer = java_550.push_consumer(broker.namesrv, group, topic, settings=POP)
            until(lambda: texts(consumer) == Counter(wanted), f"{wanted} and no more", within_s=120)
            consumer.close()

        ours = taking("pocketmq", None)
        producer = java_550.producer(ours.namesrv, f"{group}-p")
        producer.create_topic(topic)
        pops(shared, ours, topic, group)
        done = [f"done{number}" for number in range(20)]
        producer.send(*(message(topic, text) for text in done))
        consumed(ours, done)
        producer.close()
        first = [f"first{number}" for number in range(8)]
        popped_by_one_that_dies(ours, first)
        ours.stop()
        apache = taking("rocketmq-5.5.0", ours)
        consumed(apache, first)
        second = [f"second{number}" for number in range(8)]
        popped_by_one_that_dies(apache, second)
        apache.stop()
        back = taking("pocketmq", apache)
        consumed(back, second)


async def test_our_simple_consumer_pops_acknowledges_and_renews(
    five_broker: RunningBroker, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """The same at ours and at the real one: what is acknowledged is done, what is given back comes again."""
    await asyncio.to_thread(make_topic, five_broker, topic, queues=1)
    async with Producer("P", name_server=five_broker.namesrv) as producer:
        for number in range(3):
            await producer.send(Message(topic, str(number).encode(), tags="a"))
    consumer = SimpleConsumer(
        group,
        name_server=five_broker.namesrv,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
    )
    consumer.subscribe(topic, "a")
    async with consumer:
        got: list[MessageExt] = []
        while len(got) < 3:
            got += await consumer.receive(1)
        first, second, third = got
        await consumer.ack(first)
        await consumer.renew(second, 300_000)
        await consumer.ack(second)
        await consumer.renew(third, 1)
        [again] = await until_async(consumer.receive, "what was given back comes again")
        assert (again.body, again.reconsume_times) == (b"2", 1)
        await consumer.ack(again)
