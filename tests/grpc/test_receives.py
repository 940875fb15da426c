"""Messages that are received over gRPC: waits, cancels, invisible times, attempts, order."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import (
    ClientType,
    Code,
    MessageType,
)
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.testing.in_process import InProcess
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import ack, front, message, receive, receiving, send


async def test_a_waiting_receive_is_answered_when_a_message_comes(client: Asking) -> None:
    stream = client.begin("ReceiveMessage", receiving())
    other = client.begin("ReceiveMessage", receiving(group="other"))
    await client.ask("Heartbeat", classes["HeartbeatRequest"](client_type=ClientType.PRODUCER))
    await send(client, message())
    await client.until(lambda: client.answers[stream].ended and client.answers[other].ended)
    assert [len(client.answers[each].messages) for each in (stream, other)] == [3, 3]


async def test_a_cancelled_receive_takes_no_message_with_it(client: Asking) -> None:
    stream = client.begin("ReceiveMessage", receiving())
    await client.ask("Heartbeat", classes["HeartbeatRequest"](client_type=ClientType.PRODUCER))
    client.cancel(stream)
    await send(client, message())
    assert [each.body for each in await receive(client)] == [b"hello"]


async def test_unread_messages_come_again_without_an_attempt(client: Asking) -> None:
    """Its window is shut, so the messages wait at the broker when it cancels."""
    for number in range(8):
        await send(client, message(body=bytes([number]) * 30_000))
    client.reads = False
    stream = client.begin("ReceiveMessage", receiving())
    await client.until(lambda: client.answers[stream].messages)
    client.reads = True
    client.cancel(stream)
    client.http2.increment_flow_control_window(1 << 20)
    client.flush()
    again: list[Any] = []
    while len(again) < 5:
        again += await receive(client)
    # All but those that went out before the window was shut.
    assert {each.system_properties.delivery_attempt for each in again} == {1}


async def test_a_receive_that_is_cancelled_at_once_returns_all_of_it(client: Asking) -> None:
    """Its frames and its RST_STREAM come in one read: popped and given back within a millisecond."""
    bodies = {b"%d" % number for number in range(8)}
    for body in sorted(bodies):
        await send(client, message("Q", body=body))
    # No byte of an answer may be sent.
    client.narrow(0)
    for _ in range(20):
        with client.in_one_write():
            client.cancel(client.begin("ReceiveMessage", receiving("Q")))
    client.narrow(65_535)
    again: set[bytes] = set()
    while again != bodies:
        found = await receive(client, "Q")
        assert found, f"only {sorted(again)} came again"
        assert {each.system_properties.delivery_attempt for each in found} == {1}
        again |= {each.body for each in found}


async def test_a_cancel_in_the_same_read_returns_the_messages(
    client: Asking,
) -> None:
    """Its windows are open: the answer is made before the RST_STREAM is seen."""
    bodies = {b"%d" % number for number in range(8)}
    for body in sorted(bodies):
        await send(client, message("Q", body=body))
    for auto_renew in (False, True):
        with client.in_one_write():
            client.cancel(client.begin("ReceiveMessage", receiving("Q", auto_renew=auto_renew)))
        again: dict[bytes, Any] = {}
        while again.keys() != bodies:
            found = await receive(client, "Q")
            assert found, f"only {sorted(again)} came again"
            again |= {each.body: each for each in found}
        assert {each.system_properties.delivery_attempt for each in again.values()} == {1}
        assert await ack(client, *again.values(), topic="Q") == [Code.OK] * 8
        for body in sorted(bodies):
            await send(client, message("Q", body=body))


async def test_a_delayed_answer_is_forgotten_once_it_has_left(
    tmp_path: Path,
) -> None:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        for number in range(3):
            await send(client, message("Q", body=bytes([number]) * 30_000))
        client.reads = False
        stream = client.begin("ReceiveMessage", receiving("Q"))
        await client.until(lambda: client.answers[stream].messages)
        client.http2.increment_flow_control_window(1 << 20)
        client.http2.increment_flow_control_window(1 << 20, stream)
        client.flush()
        await client.until(lambda: client.answers[stream].ended)
        (connection,) = server.connections
        assert not connection.calls


async def test_a_cancelled_receive_in_order_counts_no_attempt(tmp_path: Path) -> None:
    group: dict[str, Any] = {"message_group": "o", "message_type": MessageType.FIFO}
    async with front(tmp_path, {"F": "FIFO"}) as (broker, server), asking(server.address) as client:
        broker.parts.tables.groups.update(GroupConfig("g", extra={"consumeMessageOrderly": True}))
        for number in range(3):
            await send(client, message("F", b"%d" % number, **group))
        client.narrow(0)
        for number in range(3):
            with client.in_one_write():
                client.cancel(
                    client.begin("ReceiveMessage", receiving("F", attempt_id=f"{number}"))
                )
        client.narrow(65_535)
        found = await receive(client, "F", attempt_id="last")
        assert [each.body for each in found] == [b"0", b"1", b"2"]
        assert {each.system_properties.delivery_attempt for each in found} == {1}
        # Those that it got, it has tried.
        asked = classes["ChangeInvisibleDurationRequest"](
            group={"name": "g"},
            topic={"name": "F"},
            receipt_handle=found[2].system_properties.receipt_handle,
            invisible_duration={"seconds": 0},
        )
        assert await ack(client, *found[:2], topic="F") == [Code.OK, Code.OK]
        await client.ask("ChangeInvisibleDuration", asked)
        (again,) = await receive(client, "F", attempt_id="after")
        assert again.system_properties.delivery_attempt == 2


async def test_the_invisible_time_is_changed_and_the_old_handle_ends(client: Asking) -> None:
    await send(client, message())
    (got,) = await receive(client)
    asked = classes["ChangeInvisibleDurationRequest"](
        group={"name": "g"},
        topic={"name": "T"},
        receipt_handle=got.system_properties.receipt_handle,
        invisible_duration={"seconds": 0},
    )
    answer = await client.ask("ChangeInvisibleDuration", asked)
    assert answer.status.code == Code.OK
    assert await ack(client, got) == [Code.INVALID_RECEIPT_HANDLE]
    late = await client.ask("ChangeInvisibleDuration", asked)
    # Programs look for the name in the text.
    assert late.status.message.startswith("INVALID_RECEIPT_HANDLE: receipt handle is expired")
    (again,) = await receive(client)
    assert again.system_properties.delivery_attempt == 2
    assert again.topic.name == "T"
    assert await ack(client, again) == [Code.OK]


@pytest.mark.parametrize("topic", ["T", "F"])
async def test_auto_renew_holds_messages_until_their_client_leaves(topic: str) -> None:
    """Auto-renew: a minute is over, and the message is still its consumer's."""
    goodbye = classes["NotifyClientTerminationRequest"]()
    with InProcess() as server:
        for name, kind in (("T", "NORMAL"), ("F", "FIFO")):
            server.admin.topics.create(name, queues=1, attributes=f"+message.type={kind}")
        in_order = {"consumeMessageOrderly": topic == "F"}
        server.admin.groups.create(GroupConfig("g", extra=in_order))
        async with asking(server.grpc) as client, asking(server.grpc, "other@2") as other:
            group: dict[str, Any] = {}
            if topic == "F":
                group = {"message_group": "o", "message_type": MessageType.FIFO}
            await send(client, message(topic, **group))
            (got,) = await receive(client, topic, auto_renew=True)
            server.clock.advance(70)
            assert await receive(other, topic, wait_s=0) == []
            await client.ask("NotifyClientTermination", goodbye)
            server.clock.advance(2)
            (again,) = await receive(other, topic)
            assert again.body == got.body
            assert await ack(client, got, topic=topic) == [Code.INVALID_RECEIPT_HANDLE]
            assert await ack(other, again, topic=topic) == [Code.OK]


@pytest.mark.parametrize("topic", ["T", "F"])
async def test_what_a_lost_answer_brought_is_held_three_hours_at_most(topic: str) -> None:
    """As at the proxy (renewMaxTimeMillis): the receive ended after its answer had left, its client lives."""
    with InProcess() as server:
        for name, kind in (("T", "NORMAL"), ("F", "FIFO")):
            server.admin.topics.create(name, queues=1, attributes=f"+message.type={kind}")
        server.admin.groups.create(GroupConfig("g", extra={"consumeMessageOrderly": topic == "F"}))
        async with asking(server.grpc) as client, asking(server.grpc, "other@2") as other:
            fields: dict[str, Any] = {}
            if topic == "F":
                fields = {"message_group": "o", "message_type": MessageType.FIFO}
            await send(client, message(topic, **fields))
            (got,) = await receive(client, topic, auto_renew=True)
            left_s = 3 * 3_600
            while left_s > 60:
                server.clock.advance(60)
                left_s -= 60
                for each in (client, other):
                    await each.ask("Heartbeat", classes["HeartbeatRequest"](group={"name": "g"}))
            assert await receive(other, topic, wait_s=0) == []
            server.clock.advance(70)
            (again,) = await receive(other, topic)
            assert again.body == got.body


async def test_a_dead_letter_names_the_first_message(client: Asking) -> None:
    await send(client, message())
    (got,) = await receive(client)
    asked = classes["ForwardMessageToDeadLetterQueueRequest"](
        group={"name": "g"},
        topic={"name": "T"},
        receipt_handle=got.system_properties.receipt_handle,
        message_id=got.system_properties.message_id,
    )
    answer = await client.ask("ForwardMessageToDeadLetterQueue", asked)
    assert answer.status.code == Code.OK
    (dead,) = await receive(client, "%DLQ%g", "undertaker")
    assert dead.body == b"hello"
    assert dead.system_properties.dead_letter_queue.topic == "T"
    assert dead.system_properties.dead_letter_queue.message_id == got.system_properties.message_id


async def test_messages_of_a_group_share_a_queue_in_their_order(client: Asking) -> None:
    for number in range(5):
        answer = await send(
            client,
            message("F", b"%d" % number, message_group="order-1", message_type=MessageType.FIFO),
        )
        assert answer.status.code == Code.OK
    got = await receive(client, "F")
    assert [each.body for each in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert len({each.system_properties.queue_id for each in got}) == 1
    assert {each.system_properties.message_group for each in got} == {"order-1"}


@pytest.mark.parametrize(
    ("topic", "system", "code"),
    [
        ("T", {"message_group": "g", "message_type": 2}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("F", {}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("M", {"message_group": "g", "message_type": 2}, Code.OK),
        ("absent", {}, Code.TOPIC_NOT_FOUND),
        ("no/name", {}, Code.ILLEGAL_TOPIC),
        ("SCHEDULE_TOPIC_XXXX", {}, Code.ILLEGAL_TOPIC),
        ("T", {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ("T", {"keys": [" "]}, Code.ILLEGAL_MESSAGE_KEY),
        # Neither the names that they are stored under count, nor what stands between the keys.
        ("T", {"tag": "x" * 16_382, "keys": ["a", "b"]}, Code.OK),
        ("T", {"tag": "x" * 16_383, "keys": ["a", "b"]}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ("T", {"message_id": ""}, Code.ILLEGAL_MESSAGE_ID),
        ("F", {"message_group": "x" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ("D", {"delivery_timestamp": {"seconds": 1 << 40}}, Code.ILLEGAL_DELIVERY_TIME),
    ],
)
async def test_what_cannot_be_stored_is_refused_with_its_code(
    client: Asking, topic: str, system: dict[str, Any], code: Code
) -> None:
    assert (await send(client, message(topic, **system))).status.code == code
