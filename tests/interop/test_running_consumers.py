"""What an operator asks and orders of a running official consumer."""

import asyncio

import pytest

from pocketmq.admin import Admin
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Producer, PushConsumer, Session, message
from tests.kit.waiting import until


@pytest.mark.parametrize("java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True)
async def test_a_running_consumer_tells_of_itself_and_takes_a_message_that_it_is_handed(
    broker: RunningBroker,
    java_client: Session,
    shared: Shared,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """Running info, stack traces and consume-directly, by our admin and by mqadmin."""

    def begin() -> tuple[PushConsumer, str, str]:
        make_topic(broker, topic)
        producer = java_client.producer(broker.namesrv, group + "-p")
        consumer = java_client.push_consumer(broker.namesrv, group, {topic: "A"})
        [fine] = producer.send(message(topic, "fine", tags="B"))
        # Its tag keeps it from being consumed as usual.
        [bad] = producer.send(message(topic, "bad", tags="B", properties={"fail_times": "1"}))
        return consumer, fine.msg_id, bad.msg_id

    consumer, fine, bad = await asyncio.to_thread(begin)
    async with Admin(name_server=broker.namesrv) as admin:
        [member] = (await admin.groups.connection(group)).members
        client_id = member.client_id
        info = await admin.groups.running_info(group, client_id, stack=True)
        while len([queue for queue in info.queues if queue.topic == topic]) < 4:
            # Its first rebalance is still under way.
            await asyncio.sleep(0.2)
            info = await admin.groups.running_info(group, client_id, stack=True)
        assert info.stack is not None
        assert "RebalanceService" in info.stack
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert len([queue for queue in info.queues if queue.topic == topic]) == 4
        assert info.subscriptions[topic].tags_set == {"A"}
        for msg_id, said in ((fine, "CR_SUCCESS"), (bad, "CR_LATER")):
            [found] = await admin.messages.by_unique_key(topic, msg_id)
            result = await admin.messages.consume_directly(found, group, client_id)
            assert result.result == said

    def ask_by_tool() -> None:
        tool = shared.mqadmin("4.9.7").at(broker.namesrv)
        status = tool("consumerStatus", "-g", group, "-i", client_id, "-s")
        assert "#Consumer jstack#" in status.out
        assert topic in status.out
        eaten = tool("queryMsgByUniqueKey", "-t", topic, "-i", fine, "-g", group, "-d", client_id)
        assert "consumeResult=CR_SUCCESS" in eaten.out

    await asyncio.to_thread(ask_by_tool)
    received = await asyncio.to_thread(consumer.wait, 3)
    assert [each.text for each in received] == ["fine", "bad", "fine"]


@pytest.mark.parametrize("by", ["mqadmin", "our admin"])
async def test_a_running_consumer_leaves_out_what_it_is_told_to_skip(
    by: str,
    broker: RunningBroker,
    java_498: Session,
    shared: Shared,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """skipAccumulatedMessage with 100 messages at a slow listener: its cache is emptied, the lag is 0.

    The broker and so mqadmin refuse while a queue has no committed offset; our admin helps itself. Java's
    client waits ten seconds after it was told.
    """

    def begin() -> tuple[Producer, PushConsumer]:
        make_topic(broker, topic)
        producer = java_498.producer(broker.namesrv, group + "-p")
        consumer = java_498.push_consumer(broker.namesrv, group, topic)
        if by == "mqadmin":
            producer.send(*(message(topic, f"first {number}") for number in range(8)))
            consumer.wait(8)
            consumer.persist_offsets()
        consumer.behave(delay_ms=15_000)
        producer.send(*(message(topic, f"waits {number}") for number in range(100)))
        return producer, consumer

    producer, consumer = await asyncio.to_thread(begin)
    async with Admin(name_server=broker.namesrv) as admin:
        assert sum(row.lag for row in await admin.groups.progress(group, topic)) == 100
        [member] = (await admin.groups.connection(group)).members

        def skip() -> None:
            tool = shared.mqadmin("4.9.7").at(broker.namesrv)
            printed = tool("skipAccumulatedMessage", "-g", group, "-t", topic)
            assert len([line for line in printed.lines if line.startswith(broker.broker_name)]) == 4

        if by == "mqadmin":
            await asyncio.to_thread(skip)
        else:
            steps = await admin.groups.reset(group, topic, -1)
            assert sum(step.new_offset - step.old_offset for step in steps) == 100
        await asyncio.to_thread(consumer.behave, delay_ms=0)
        async with asyncio.timeout(90):
            while True:
                rows = await admin.groups.progress(group, topic)
                info = await admin.groups.running_info(group, member.client_id)
                cached = [
                    state["cachedMsgCount"]
                    for queue, state in info.queues.items()
                    if queue.topic == topic
                ]
                if cached == [row.lag for row in rows] == [0] * 4:
                    break
                await asyncio.sleep(0.2)

    def go_on() -> None:
        producer.send(message(topic, "after"))
        until(lambda: "after" in [each.text for each in consumer.received], "what came after")

    await asyncio.to_thread(go_on)
    seen = [each.text for each in consumer.received]
    # A listener's 20 threads may have had one message each, and a slow machine a second one.
    assert len([text for text in seen if text.startswith("waits")]) < 100
    assert seen.count("after") == 1
