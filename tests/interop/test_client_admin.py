"""Our admin client at our broker and at Apache's: a working session, as mqadmin's in test_mqadmin.py."""

import asyncio

import pytest

from pocketmq.admin import Admin, GroupConfig, TrackType
from pocketmq.client import Message, NoRoute, Producer
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import Shared
from tests.interop.our_clients import push
from tests.interop.test_client_send_and_consume import Got
from tests.kit.waiting import until_async


@pytest.fixture(
    scope="session",
    params=[
        "pocketmq",
        pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
        pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference),
    ],
)
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    return shared.broker(request.param)


async def test_a_producer_is_listed_soon_after_its_first_send(
    broker: RunningBroker, topic: str, group: str
) -> None:
    """S37: no topic of its own has a route yet, so the template's keeps the broker told of it."""
    async with (
        Admin(name_server=broker.namesrv) as admin,
        Producer(group, name_server=broker.namesrv) as producer,
    ):
        await producer.send(Message(topic, b"x"))
        async with asyncio.timeout(40):
            while not (listed := await admin.groups.producers(group)):
                await asyncio.sleep(0.1)
    assert [each.client_id for each in listed] == [producer.client_id]


async def test_an_operator_makes_looks_moves_and_removes(
    broker: RunningBroker, topic: str, group: str
) -> None:
    """S86 to S89: topics, groups, lag, owners, messages, tracks, direct consumption, resets."""
    async with (
        Admin(name_server=broker.namesrv) as admin,
        Producer(f"{group}-p", name_server=broker.namesrv) as producer,
    ):
        # RocketMQ 5.5.0 says that it is up before its name server knows it.
        async with asyncio.timeout(60):
            while broker.address not in (found := {at.address: at for at in await admin.brokers()}):
                await asyncio.sleep(0.1)
        listed = found[broker.address]
        assert (listed.name, listed.broker_id) == (broker.broker_name, 0)
        await admin.topics.create(topic, queues=2)
        await admin.groups.create(GroupConfig(group, retry_max_times=3))
        configs = await admin.groups.configs()
        assert configs[broker.broker_name][group].retry_max_times == 3
        assert topic in await admin.topics.names()
        sent = [await producer.send(Message(topic, b"%d" % n, keys=f"key-{n}")) for n in range(6)]
        assert sorted(each.max_offset for each in await admin.topics.status(topic)) == [3, 3]

        [by_key] = await admin.messages.by_key(topic, "key-4")
        assert (by_key.body, by_key.msg_id) == (b"4", sent[4].msg_id)
        assert (await admin.messages.by_id(sent[4].msg_id, topic)).body == b"4"
        assert (await admin.messages.by_offset_id(sent[4].offset_msg_id)).body == b"4"

        got = Got()
        consumer = push(broker, group, got)
        consumer.subscribe(topic)
        async with consumer:
            await got.wait(6)
            await consumer.persist_offsets()
            await until_async(
                lambda: all(
                    (consumer.committed(each) or 0) == 3
                    for each in consumer.assignment()
                    if each.topic == topic
                ),
                "offsets at the end",
            )
            await consumer.persist_offsets()
            progress = await admin.groups.progress(group, topic, owners=True)
            assert [(each.lag, each.owner) for each in progress] == [(0, consumer.client_id)] * 2
            connection = await admin.groups.connection(group)
            assert [each.client_id for each in connection.members] == [consumer.client_id]
            assert connection.subscriptions[topic].sub_string == "*"
            assert group in await admin.topics.groups(topic)
            [track] = await admin.messages.track(by_key, group=group)
            assert track.type is TrackType.CONSUMED
            info = await admin.groups.running_info(group, consumer.client_id)
            assert len([queue for queue in info.queues if queue.topic == topic]) == 2
            direct = await admin.messages.consume_directly(by_key, group, consumer.client_id)
            assert direct.result == "CR_SUCCESS"
            assert got.messages[-1].body == b"4"

            # Online: the broker tells the members, which begin again.
            before = len(got.messages)
            await admin.groups.reset(group, topic, 0)
            await got.wait(before + 6, 90)
        [track] = await admin.messages.track(by_key, group=group)
        assert track.type is TrackType.NOT_ONLINE

        await admin.groups.delete(group)
        await admin.topics.delete(topic)
        with pytest.raises(NoRoute, match="pocketmq topic create"):
            await admin.topics.route(topic)
