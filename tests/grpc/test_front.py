"""The services over a connection: what they answer, and what becomes of the messages."""

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf import descriptor_pool

from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.broker import Broker
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.http2.call import GrpcStatus
from pocketmq.grpc.messages import classes, make
from pocketmq.grpc.schema import (
    SERVICE,
    ClientType,
    Code,
    FilterType,
    MessageType,
    TransactionResolution,
)
from pocketmq.grpc.server import GrpcServer
from pocketmq.grpc.services.standard import HEALTH, REFLECTION, REFLECTION_ALPHA
from pocketmq.model.record import read_records
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig
from pocketmq.testing.in_process import InProcess
from tests.broker.raw_slave import RawSlave
from tests.broker.serving import serving
from tests.grpc.asking import Asking, asking
from tests.kit.waiting import until_async as until


@asynccontextmanager
async def front(
    folder: Path, types: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[tuple[Broker, GrpcServer]]:
    """A broker with a port for SDKs, and topics of these types."""
    async with serving(folder, **settings) as broker:
        for name, kind in {"T": "NORMAL", **(types or {})}.items():
            attributes = {"message.type": kind}
            broker.parts.tables.topics.update(TopicConfig(name, 4, 4, attributes=attributes))
        async with GrpcServer(broker, GrpcConfig(port=0), tls=ServerTls(TlsConfig())) as server:
            yield broker, server


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Asking]:
    kinds = {"F": "FIFO", "D": "DELAY", "X": "TRANSACTION", "M": "MIXED"}
    async with front(tmp_path, kinds) as (broker, server), asking(server.address) as asked:
        broker.parts.tables.topics.update(TopicConfig("Q", 1, 1))
        yield asked


def message(topic: str = "T", body: bytes = b"hello", **system: Any) -> Any:
    system = {"message_id": f"01{abs(hash((topic, body))):032X}"[:34], "message_type": 1, **system}
    return classes["Message"](topic={"name": topic}, body=body, system_properties=system)


async def send(client: Asking, *messages: Any) -> Any:
    return await client.ask("SendMessage", classes["SendMessageRequest"](messages=messages))


def receiving(topic: str = "T", group: str = "g", wait_s: int = 10, **fields: Any) -> Any:
    return classes["ReceiveMessageRequest"](
        group={"name": group},
        message_queue={"topic": {"name": topic}},
        batch_size=32,
        invisible_duration={"seconds": 60},
        long_polling_timeout={"seconds": wait_s},
        **fields,
    )


async def receive(client: Asking, topic: str = "T", group: str = "g", **fields: Any) -> list[Any]:
    """The messages of one call, whose answer has the form that SDKs want."""
    answers = await client.ask_stream("ReceiveMessage", receiving(topic, group, **fields))
    assert answers[0].WhichOneof("content") == "status"
    assert answers[-1].WhichOneof("content") == "delivery_timestamp"
    messages = [each.message for each in answers[1:-1]]
    assert answers[0].status.code == (Code.OK if messages else Code.MESSAGE_NOT_FOUND)
    return messages


async def ack(client: Asking, *received: Any, topic: str = "T") -> list[int]:
    entries = [
        {
            "message_id": each.system_properties.message_id,
            "receipt_handle": each.system_properties.receipt_handle,
        }
        for each in received
    ]
    asked = classes["AckMessageRequest"](
        group={"name": "g"}, topic={"name": topic}, entries=entries
    )
    answer = await client.ask("AckMessage", asked)
    return [entry.status.code for entry in answer.entries]


class _Bytes:
    """Keeps what is written."""

    written = b""

    def write(self, data: bytes) -> None:
        self.written += data


async def test_the_brokers_own_port_speaks_grpc_too(tmp_path: Path) -> None:
    """A client of that port is sent nowhere else, and is closed with the others; the limit counts it, too."""
    async with front(tmp_path, max_connections_per_address=1) as (broker, server):
        host, _, port = broker.address.rpartition(":")
        endpoints = {"scheme": 1, "addresses": [{"host": host, "port": int(port)}]}
        async with asking(broker.address) as client:
            asked = classes["QueryRouteRequest"](topic={"name": "T"}, endpoints=endpoints)
            route = await client.ask("QueryRoute", asked)
            [there] = {str(each.broker.endpoints) for each in route.message_queues}
            assert f"port: {port}\n" in there
            await send(client, message())
            [got] = await receive(client)
            assert got.body == b"hello"
            await until(lambda: not broker.server.connections)
            # One too many asks with its first bytes.
            reader, writer = await asyncio.open_connection(host, int(port))
            bytes_of = _Bytes()
            other = Asking(reader, cast(asyncio.StreamWriter, bytes_of), "other")
            other.begin("SendMessage", classes["SendMessageRequest"](messages=[message()]))
            writer.write(bytes_of.written)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            store = broker.parts.messages.store
            assert sum(store.max_offset("T", each) for each in range(4)) == 1
            await server.__aexit__(None, None, None)
            await client.until(lambda: client.closed)


async def test_a_route_does_not_repeat_endpoints_of_any_size(client: Asking) -> None:
    """Each queue of the answer has those of the request."""
    endpoints = {"scheme": 1, "addresses": [{"host": "h" * 20_000, "port": 1}]}
    asked = classes["QueryRouteRequest"](topic={"name": "T"}, endpoints=endpoints)
    answer = await client.ask("QueryRoute", asked)
    assert (answer.status.code, len(answer.message_queues)) == (Code.ILLEGAL_ACCESS_POINT, 0)


async def test_a_message_comes_as_it_was_sent_and_is_acknowledged(client: Asking) -> None:
    sent = message(tag="A", keys=["k1", "k2"], born_timestamp={"seconds": 1_700_000_000})
    sent.user_properties["colour"] = "blue"
    answer = await send(client, sent)
    assert (answer.status.code, answer.entries[0].message_id) == (
        Code.OK,
        sent.system_properties.message_id,
    )
    (got,) = await receive(client)
    system = got.system_properties
    assert (got.body, dict(got.user_properties)) == (b"hello", {"colour": "blue"})
    assert (system.tag, list(system.keys)) == ("A", ["k1", "k2"])
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert (system.delivery_attempt, system.born_timestamp.seconds) == (1, 1_700_000_000)
    assert not system.HasField("message_group")
    assert await ack(client, got) == [Code.OK]


@pytest.mark.parametrize("topic", ["T", "F"])
async def test_who_acknowledges_again_in_time_is_told_that_it_is_done(topic: str) -> None:
    """An answer may be lost. Nothing is written, and after the invisible time the handle is over."""
    with InProcess() as server:
        for name, kind in (("T", "NORMAL"), ("F", "FIFO")):
            server.admin.topics.create(name, queues=1, attributes=f"+message.type={kind}")
        server.admin.groups.create(GroupConfig("g", extra={"consumeMessageOrderly": topic == "F"}))
        async with asking(server.grpc) as client:
            group: dict[str, Any] = {}
            if topic == "F":
                group = {"message_group": "o", "message_type": MessageType.FIFO}
            for _ in range(2):
                await send(client, message(topic, **group))
            one, two = await receive(client, topic)
            for _ in range(2):
                assert await ack(client, two, topic=topic) == [Code.OK]
            assert await ack(client, one, two, topic=topic) == [Code.OK, Code.OK]
            assert await ack(client, one, two, topic=topic) == [Code.OK, Code.OK]
            server.clock.advance(70)
            assert await ack(client, one, topic=topic) == [Code.INVALID_RECEIPT_HANDLE]
            assert await receive(client, topic, wait_s=0) == []


async def test_the_messages_of_a_pop_are_acknowledged_in_one_record(tmp_path: Path) -> None:
    """What is late, or no handle, has its own status; an acknowledgement is no second one."""
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        for number in range(4):
            await send(client, message(body=b"%d" % number))
        one, *others = await receive(client)
        assert await ack(client, one) == [Code.OK]
        log, store = broker.parts.services.pop.log, broker.parts.messages.store
        before = sum(store.max_offset(log.topic, queue_id) for queue_id in range(8))
        wrong = classes["Message"](system_properties={"receipt_handle": "9 9"})
        assert await ack(client, one, *others[:2], wrong, others[0]) == [
            *[Code.OK] * 3,
            Code.INVALID_RECEIPT_HANDLE,
            Code.OK,
        ]
        assert sum(store.max_offset(log.topic, queue_id) for queue_id in range(8)) == before + 1
        (point,) = log.state.of_topic("g", "T")
        assert point.unacked == [3]


@pytest.mark.parametrize(
    ("topic", "system"),
    [
        ("T", {"tag": "A", "keys": ["k1", "k2"], "born_timestamp": {"seconds": 1_700_000_000}}),
        (
            "T",
            {"born_host": "bench", "body_encoding": 2, "trace_context": "00-1", "message_type": 0},
        ),
        ("F", {"message_group": "g1", "message_type": MessageType.FIFO}),
    ],
)
async def test_the_short_path_of_a_send_stores_what_the_long_one_does(
    tmp_path: Path, topic: str, system: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with front(tmp_path, {"F": "FIFO"}) as (broker, server), asking(server.address) as client:
        # One queue, so that both lie side by side.
        kind = {"T": "NORMAL", "F": "FIFO"}[topic]
        table = broker.parts.tables.topics
        table.update(TopicConfig(topic, 1, 1, attributes={"message.type": kind}))
        sent = message(topic, **{"born_timestamp": {"seconds": 1_600_000_000}, **system})
        sent.user_properties["colour"] = "blue"
        first = await send(client, sent)
        # The act of the long way is not asked any more.
        monkeypatch.setattr(SendActs, "send", None)
        second = await send(client, sent)
        assert second.entries[0].offset == first.entries[0].offset + 1 == 1
        second.entries[0].offset = 0
        assert second == first
        found = broker.parts.messages.store.read(topic, 0, 0, 32)
        one, two = (
            record._replace(queue_offset=0, position=0, store_ms=0)
            for record in read_records(b"".join(map(bytes, found.buffers)))
        )
        assert one == two
        # A changed topic is looked at anew.
        monkeypatch.undo()
        table.update(TopicConfig(topic, 1, 1, attributes={"message.type": "DELAY"}))
        refused = await send(client, sent)
        assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_settings_come_back_with_the_servers_part(client: Asking) -> None:
    settings = classes["Settings"](client_type=ClientType.PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add(topic={"name": "T"}, expression={"expression": "A"})
    _, command = await client.talk(settings)
    told = command.settings
    assert command.status.code == Code.OK
    assert (told.backoff_policy.max_attempts, told.subscription.receive_batch_size) == (17, 32)
    assert [each.seconds for each in told.backoff_policy.customized_backoff.next][:3] == [1, 5, 10]
    assert told.subscription.long_polling_timeout.seconds == 20


async def test_what_a_client_is_in_is_bounded(client: Asking) -> None:
    """Each heartbeat is one in all of it, in one turn of the loop."""
    beat = classes["HeartbeatRequest"]
    codes = [
        (
            await client.ask("Heartbeat", beat(client_type=3, group={"name": f"g{number}"}))
        ).status.code
        for number in range(101)
    ]
    assert codes == [Code.OK] * 100 + [Code.BAD_REQUEST]


async def test_a_heartbeat_that_names_nothing_is_a_producers(client: Asking) -> None:
    """SDKs before 5.0.5 send one."""
    settings = classes["Settings"](
        client_type=ClientType.PRODUCER, publishing={"topics": [{"name": "T"}]}
    )
    await client.talk(settings)
    answer = await client.ask("Heartbeat", classes["HeartbeatRequest"]())
    assert answer.status.code == Code.OK


async def test_a_receive_without_a_wait_uses_the_settings(
    client: Asking,
) -> None:
    """SDKs of 5.0 say it once; the deadline of their calls leaves them more."""
    settings = classes["Settings"](client_type=ClientType.SIMPLE_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.long_polling_timeout.nanos = 1_000_000
    await client.talk(settings)
    asked = receiving()
    asked.ClearField("long_polling_timeout")
    [answer, *_] = await client.ask_stream("ReceiveMessage", asked)
    assert answer.status.code == Code.MESSAGE_NOT_FOUND


@pytest.mark.parametrize(
    ("seconds", "words"), [(9, "small. min is: 10000"), (43201, "large. max is: 43200000")]
)
async def test_an_invisible_time_is_refused_in_the_proxys_words(
    client: Asking, seconds: int, words: str
) -> None:
    asked = receiving()
    asked.invisible_duration.seconds = seconds
    [answer, *_] = await client.ask_stream("ReceiveMessage", asked)
    assert answer.status.code == Code.ILLEGAL_INVISIBLE_TIME
    assert f"the invisibleTime is too {words}" in answer.status.message


async def test_members_are_told_when_their_group_is_changed(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        settings = classes["Settings"](client_type=ClientType.PUSH_CONSUMER)
        settings.subscription.group.name = "g"
        stream, first = await client.talk(settings)
        policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 250, "max": 9_000}}
        extra = {"consumeMessageOrderly": True, "groupRetryPolicy": policy}
        broker.parts.tables.groups.update(GroupConfig("g", retry_max_times=3, extra=extra))
        server.scan()
        await client.until(lambda: len(client.answers[stream].messages) == 2)
        told = classes["TelemetryCommand"].FromString(client.answers[stream].messages[1]).settings
        assert (first.settings.subscription.fifo, told.subscription.fifo) == (False, True)
        assert told.backoff_policy.max_attempts == 4
        assert told.backoff_policy.exponential_backoff.initial.nanos == 250_000_000
        broker.parts.tables.groups.update(GroupConfig("another"))
        server.scan()
        await client.ask("Heartbeat", classes["HeartbeatRequest"](client_type=ClientType.PRODUCER))
        assert len(client.answers[stream].messages) == 2


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


@pytest.mark.parametrize(("name", "value"), [("TAGS", "x"), ("a", "b\x01c"), ("a\x02", "b")])
async def test_a_property_cannot_forge_one_of_rocketmqs(
    client: Asking, name: str, value: str
) -> None:
    sent = message()
    sent.user_properties[name] = value
    assert (await send(client, sent)).status.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY


@pytest.mark.parametrize(
    ("resolution", "count"),
    [(TransactionResolution.COMMIT, 1), (TransactionResolution.ROLLBACK, 0)],
)
async def test_a_transaction_is_seen_when_it_is_committed(
    client: Asking, resolution: int, count: int
) -> None:
    sent = await send(client, message("X", message_type=MessageType.TRANSACTION))
    name = sent.entries[0].transaction_id
    asked = classes["EndTransactionRequest"](
        topic={"name": "X"}, transaction_id=name, resolution=resolution
    )
    assert await receive(client, "X", wait_s=0) == []
    assert (await client.ask("EndTransaction", asked)).status.code == Code.OK
    received = await receive(client, "X", wait_s=0)
    assert [each.user_properties["__transactionId__"] for each in received] == [name] * count
    asked.transaction_id = "absent"
    answer = await client.ask("EndTransaction", asked)
    assert answer.status.code == Code.INVALID_TRANSACTION_ID


async def test_the_highest_priority_is_received_first(tmp_path: Path) -> None:
    """Each has a queue, the highest queue all that are above it; retries come last."""
    async with front(tmp_path, {"P": "PRIORITY"}, pop_from_retry_probability=100) as (_, server):
        async with asking(server.address) as client:
            sent = [
                (await send(client, message("P", b"%d" % priority, priority=priority))).entries[0]
                for priority in (0, 2, 7, 1)
            ]
            assert [(each.status.code, each.offset) for each in sent] == [
                (Code.OK, offset) for offset in (0, 0, 0, 0)
            ]
            received = await receive(client, "P")
            assert [
                (each.body, each.system_properties.queue_id, each.system_properties.priority)
                for each in received
            ] == [(b"7", 3, 7), (b"2", 2, 2), (b"1", 1, 1), (b"0", 0, 0)]
            refused = await send(client, message("P", b"none"))
            assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_an_orphan_is_asked_about_over_telemetry(tmp_path: Path) -> None:
    settings = {"transaction_time_out": 0, "transaction_check_interval": 3_600_000}
    async with front(tmp_path, {"X": "TRANSACTION"}, **settings) as (broker, server):
        async with asking(server.address) as client:
            stream, _ = await client.talk(
                classes["Settings"](publishing={"topics": [{"name": "X"}]})
            )
            await send(client, message("X", b"orphan", message_type=MessageType.TRANSACTION))
            await broker.parts.services.check.check()
            await client.until(lambda: len(client.answers[stream].messages) == 2)
            command = classes["TelemetryCommand"].FromString(client.answers[stream].messages[1])
            asked = command.recover_orphaned_transaction_command
            assert (asked.message.body, asked.message.topic.name) == (b"orphan", "X")
            assert asked.message.system_properties.delivery_attempt == 1
            end = classes["EndTransactionRequest"](
                topic={"name": "X"}, transaction_id=asked.transaction_id, resolution=1
            )
            assert (await client.ask("EndTransaction", end)).status.code == Code.OK
            assert len(await receive(client, "X")) == 1


async def test_an_orphan_of_before_a_restart_is_ended_without_an_index(tmp_path: Path) -> None:
    """Its place is in the question. The index does not have it where it is off, or made anew, or where the
    clock had run ahead: refused 15 times, a committed message was given up.
    """
    settings: dict[str, Any] = {
        "transaction_time_out": 0,
        "transaction_check_interval": 3_600_000,
        "store": {"message_index_enable": False},
    }
    async with front(tmp_path, {"X": "TRANSACTION"}, **settings) as (_, server):
        async with asking(server.address) as client:
            await send(client, message("X", b"orphan", message_type=MessageType.TRANSACTION))
    async with front(tmp_path, {"X": "TRANSACTION"}, **settings) as (broker, server):
        async with asking(server.address) as client:
            stream, _ = await client.talk(
                classes["Settings"](publishing={"topics": [{"name": "X"}]})
            )
            await broker.parts.services.check.check()
            await client.until(lambda: len(client.answers[stream].messages) == 2)
            command = classes["TelemetryCommand"].FromString(client.answers[stream].messages[1])
            end = classes["EndTransactionRequest"](
                topic={"name": "X"},
                transaction_id=command.recover_orphaned_transaction_command.transaction_id,
                resolution=1,
            )
            assert (await client.ask("EndTransaction", end)).status.code == Code.OK
            assert len(await receive(client, "X")) == 1


async def test_a_recalled_message_does_not_come(tmp_path: Path) -> None:
    """Its answer waits for the disk, as that of a send does."""
    clock = ManualClock()
    settings: dict[str, Any] = {"clock": clock, "store": {"flush_disk_type": "SYNC_FLUSH"}}
    async with front(tmp_path, {"D": "DELAY"}, **settings) as (broker, server):
        async with asking(server.address) as client:
            due = {"seconds": clock.now_ms() // 1000 + 60}
            bodies = (b"recalled", b"kept")
            sent = [
                await send(client, message("D", body, delivery_timestamp=due)) for body in bodies
            ]
            handle = sent[0].entries[0].recall_handle
            asked = classes["RecallMessageRequest"](topic={"name": "D"}, recall_handle=handle)
            answer = await client.ask("RecallMessage", asked)
            assert (answer.status.code, answer.message_id) == (
                Code.OK,
                sent[0].entries[0].message_id,
            )
            assert broker.parts.messages.store.flush_behind_size == 0
            asked.topic.name = "T"
            wrong = await client.ask("RecallMessage", asked)
            assert wrong.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            clock.advance_ms(61_000)
            while broker.parts.services.timer.step() == 0:
                pass
            assert [each.body for each in await receive(client, "D")] == [b"kept"]


async def pull(client: Asking, offset: int, wait_s: int = 0, **fields: Any) -> tuple[Any, ...]:
    """Code, bodies, and the next offset; -1 without one."""
    queue = {"topic": {"name": "Q"}, "id": 0}
    asked = classes["PullMessageRequest"](
        group={"name": "reader"},
        message_queue=queue,
        offset=offset,
        batch_size=2,
        long_polling_timeout={"seconds": wait_s},
        **fields,
    )
    status, *rest = await client.ask_stream("PullMessage", asked)
    going_on = rest.pop().next_offset if rest else -1
    return status.status.code, [each.message.body for each in rest], going_on


async def test_a_queue_is_read_from_an_offset_on(client: Asking) -> None:
    """Nothing of it is claimed: it is read as often as anybody likes."""
    for body, tag in ((b"0", "A"), (b"1", "B"), (b"2", "A")):
        await send(client, message("Q", body, tag=tag))
    for _ in range(2):
        assert await pull(client, 0) == (Code.OK, [b"0", b"1"], 2)
    assert await pull(client, 2) == (Code.OK, [b"2"], 3)
    assert await pull(client, 3) == (Code.MESSAGE_NOT_FOUND, [], 3)
    assert await pull(client, 99) == (Code.ILLEGAL_OFFSET, [], 3)
    only_a = {"expression": "A"}
    assert await pull(client, 0, filter_expression=only_a) == (Code.OK, [b"0", b"2"], 3)
    by_sql = {"type": FilterType.SQL, "expression": "colour = ("}
    assert (await pull(client, 0, filter_expression=by_sql))[0] == Code.ILLEGAL_FILTER_EXPRESSION
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(pull(client, 3, wait_s=10))
        await client.ask("Heartbeat", classes["HeartbeatRequest"](client_type=ClientType.PRODUCER))
        await send(client, message("Q", b"3"))
    assert waiting.result() == (Code.OK, [b"3"], 4)


async def test_probes_and_tools_are_answered(client: Asking) -> None:
    """Health as probes ask for it; the descriptions, which a tool puts together."""
    check = make(HEALTH)["HealthCheckRequest"]
    for service, status in (("", 0), (SERVICE, 0), ("other", 5)):
        stream = client.begin("/grpc.health.v1.Health/Check", check(service=service))
        assert (await client.end_of(stream)).status == status
    for schema in (REFLECTION, REFLECTION_ALPHA):
        parts = make(schema)
        asked = parts["ServerReflectionRequest"](list_services="*")
        path = f"/{schema.path}/ServerReflectionInfo"
        stream = client.begin(path, asked, ended=False)
        client.send(stream, parts["ServerReflectionRequest"](file_containing_symbol=SERVICE))
        client.send(
            stream, parts["ServerReflectionRequest"](file_by_filename="no.proto"), ended=True
        )
        listed, described, unknown = (
            parts["ServerReflectionResponse"].FromString(each)
            for each in (await client.end_of(stream)).messages
        )
        assert SERVICE in {each.name for each in listed.list_services_response.service}
        pool = descriptor_pool.DescriptorPool()
        for each in reversed(described.file_descriptor_response.file_descriptor_proto):
            pool.AddSerializedFile(each)
        found = pool.FindServiceByName(SERVICE)
        assert found.FindMethodByName("SendMessage").input_type.name == "SendMessageRequest"
        assert unknown.error_response.error_code == 5


async def test_offsets_are_set_and_told(client: Asking) -> None:
    await send(client, message())
    (got,) = await receive(client)
    queue = {"topic": {"name": "T"}, "id": got.system_properties.queue_id}
    named = {"group": {"name": "reader"}, "message_queue": queue}
    get = classes["GetOffsetRequest"](**named)
    assert (await client.ask("GetOffset", get)).status.code == Code.OFFSET_NOT_FOUND
    update = classes["UpdateOffsetRequest"](**named, offset=1)
    assert (await client.ask("UpdateOffset", update)).status.code == Code.OK
    assert (await client.ask("GetOffset", get)).offset == 1
    ends = [
        (await client.ask("QueryOffset", classes["QueryOffsetRequest"](**asked))).offset
        for asked in (
            {"message_queue": queue, "query_offset_policy": 0},
            {"message_queue": queue, "query_offset_policy": 1},
        )
    ]
    assert ends == [0, 1]
    get.message_queue.id = 99
    assert (await client.ask("GetOffset", get)).status.code == Code.BAD_REQUEST


async def test_lite_topics_are_refused_with_a_sentence(client: Asking) -> None:
    """The limits in the settings let Python's consumer start, and be told; it waits for them for ever.

    Without the second refusal it would get the messages of all lite topics.
    """
    settings = classes["Settings"](client_type=ClientType.LITE_PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add(topic={"name": "T"}, expression={"expression": "*"})
    _, told = await client.talk(settings)
    limits = told.settings.subscription
    assert (limits.lite_subscription_quota, limits.max_lite_topic_size) == (2_000, 64)
    asked = classes["SyncLiteSubscriptionRequest"](topic={"name": "T"}, group={"name": "g"})
    receiving_ = classes["ReceiveMessageRequest"](
        group={"name": "g"}, message_queue={"topic": {"name": "T"}}, auto_renew=True
    )
    sends = [message("M", lite_topic="l"), message("M", message_type=MessageType.LITE)]
    refusals = [
        *[(await send(client, message("M"), each)).status for each in sends],
        (await client.ask("SyncLiteSubscription", asked)).status,
        (await client.ask_stream("ReceiveMessage", receiving_))[0].status,
    ]
    for refusal in refusals:
        assert (refusal.code, "lite topics" in refusal.message) == (Code.NOT_IMPLEMENTED, True)
    client.metadata["x-mq-client-id"] = "other"
    assert await receive(client, "M", wait_s=0) == []


async def test_clients_stand_in_the_brokers_tables_and_leave_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is wrong with one that says goodbye.

    It ends its lasting call itself: Node's SDK takes another's end for a fault, and comes back.
    """
    async with front(tmp_path) as (broker, server), asking(server.address, "sdk@7") as client:
        settings = classes["Settings"](client_type=ClientType.SIMPLE_CONSUMER)
        settings.subscription.group.name = "g"
        settings.subscription.subscriptions.add(topic={"name": "T"}, expression={"expression": "A"})
        stream_id, _ = await client.talk(settings)
        group = broker.parts.members.consumers.get("g")
        assert group is not None
        assert group.client_ids() == ["sdk@7"]
        assert group.subscriptions["T"].tags_set == {"A"}
        await client.ask("NotifyClientTermination", classes["NotifyClientTerminationRequest"]())
        assert broker.parts.members.consumers.get("g") is None
        assert not client.answers[stream_id].ended
        client.http2.end_stream(stream_id)
        client.flush()
        assert (await client.end_of(stream_id)).status == 0
    assert "not active" not in caplog.text


def signed(secret: str, key: str = "writer-key") -> dict[str, str]:
    moment = "20261122T070000Z"
    made = hmac.new(secret.encode(), moment.encode(), "sha1").hexdigest().upper()
    text = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={made}"
    return {"x-mq-date-time": moment, "authorization": text}


ACL = """
accounts:
  - {accessKey: writer-key, secretKey: writer-secret, topicPerms: [T=PUB]}
"""


async def test_accounts_are_those_of_the_classic_wire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused is logged once, then counted, though an SDK asks again each second."""
    file = tmp_path / "acl.yml"
    file.write_text(ACL)
    clock = ManualClock()
    settings: dict[str, Any] = {"acl_enable": True, "acl_file": str(file), "clock": clock}
    async with front(tmp_path / "store", {"U": "NORMAL"}, **settings) as (_, server):
        async with asking(server.address) as client:
            codes = {}
            for name, topic, headers in (
                ("right", "T", signed("writer-secret")),
                ("wrong secret", "T", signed("other-secret")),
                ("no signature", "T", {}),
                ("unknown key", "T", signed("writer-secret", "absent")),
                ("other topic", "U", signed("writer-secret")),
            ):
                asked = classes["SendMessageRequest"](messages=[message(topic)])
                codes[name] = (await client.ask("SendMessage", asked, headers)).status.code
            assert codes.pop("right") == Code.OK
            assert set(codes.values()) == {Code.UNAUTHORIZED}
            got = await client.ask_stream("ReceiveMessage", receiving(), signed("writer-secret"))
            assert got[0].status.code == Code.UNAUTHORIZED

            def told() -> list[str]:
                lines = [each.getMessage() for each in caplog.records]
                return [each for each in lines if "signature failed" in each]

            [line] = told()
            assert "call=SendMessage peer=127.0.0.1:" in line
            asked = classes["SendMessageRequest"](messages=[message()])
            for _ in range(3):
                await client.ask("SendMessage", asked, signed("other-secret"))
            assert told() == [line]
            clock.advance_ms(60_000)
            await client.ask("SendMessage", asked, signed("other-secret"))
            assert "times=4 seconds=60" in told()[1]


async def test_tls_works_on_the_same_port_with_its_own_certificate(tmp_path: Path) -> None:
    async with front(tmp_path) as (_, server):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        chosen = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        client = Asking(reader, writer, "tls@1")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(client.run())
            answer = await send(client, message())
            running.cancel()
        writer.close()
        assert (chosen, answer.status.code) == ("h2", Code.OK)


async def test_what_is_no_call_of_ours_ends_with_a_status(client: Asking) -> None:
    async def status_of(path: str, data: bytes) -> int | None:
        stream = client.begin(path, data)
        await client.until(lambda: client.answers[stream].ended)
        return client.answers[stream].status

    assert await status_of("Nothing", b"") == GrpcStatus.UNIMPLEMENTED
    assert await status_of("/other.Service/Call", b"") == GrpcStatus.UNIMPLEMENTED
    assert await status_of("SendMessage", b"\xff\xff\xff") == GrpcStatus.INTERNAL
    assert await status_of("Telemetry", b"\xff\xff\xff") == GrpcStatus.INTERNAL


async def test_a_giant_message_is_refused_by_its_first_bytes(client: Asking) -> None:
    stream = client.begin("SendMessage", ended=False)
    client.http2.send_data(stream, b"\0\x7f\xff\xff\xff" + b"x" * 100)
    client.flush()
    await client.until(lambda: client.answers[stream].ended)
    assert client.answers[stream].status == 8


async def test_other_content_is_told_so(client: Asking) -> None:
    stream = client.begin("SendMessage", headers={"content-type": "text/html"})
    await client.until(lambda: client.answers[stream].http_status)
    assert client.answers[stream].http_status == "415"


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_stop_says_goodbye_and_ends_lasting_calls(tmp_path: Path, *, leaves: bool) -> None:
    """Those, too, of a client that said goodbye itself, and has not yet ended its call."""
    async with front(tmp_path) as (_, server), asking(server.address) as client:
        stream, _ = await client.talk(classes["Settings"](publishing={"topics": [{"name": "T"}]}))
        if leaves:
            await client.ask("NotifyClientTermination", classes["NotifyClientTerminationRequest"]())
        await server.__aexit__(None, None, None)
        await client.until(lambda: client.closed)
        assert client.goodbye
        assert client.answers[stream].status == 0


async def test_a_success_means_what_it_means_to_classic_clients(tmp_path: Path) -> None:
    """SYNC_MASTER: without a slave it is said at once; with one, the answer waits until the slave has it."""
    settings: dict[str, Any] = {"clock": ManualClock(), "broker_role": "SYNC_MASTER"}
    async with front(tmp_path, **settings) as (broker, server), asking(server.address) as client:
        alone = await send(client, message())
        assert alone.status.code == alone.entries[0].status.code == Code.HA_NOT_AVAILABLE
        replicas = broker.parts.messages.durability.replicas
        async with await RawSlave.at(broker) as slave:
            slave.report(0)
            await until(lambda: any(each.served for each in replicas.slaves.connected))
            sent = asyncio.ensure_future(send(client, message(body=b"two")))  # noqa: TID251
            await until(lambda: replicas.waiting == 1)
            assert not sent.done()
            await slave.take(broker.parts.messages.store.commit_log_max_position)
            slave.report(slave.offset)
            assert (await sent).status.code == Code.OK


async def test_a_broker_that_does_not_lead_says_where_to_go(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, server), asking(server.address) as client:
        await send(client, message())
        (got,) = await receive(client)
        replication = broker.parts.services.replication
        await replication.stand_still()
        refused = (await send(client, message())).status
        assert refused.code == Code.HA_NOT_AVAILABLE
        assert "this broker is a slave" in refused.message
        (nothing, *_) = await client.ask_stream("ReceiveMessage", receiving())
        assert nothing.status.code == Code.HA_NOT_AVAILABLE
        assert await ack(client, got) == []
        route = classes["QueryRouteRequest"](topic={"name": "T"})
        assert (await client.ask("QueryRoute", route)).status.code == Code.HA_NOT_AVAILABLE
        await replication.go_on_leading()
        assert await ack(client, got) == [Code.OK]
