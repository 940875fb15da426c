"""The services over a connection: what they answer, and what becomes of the messages."""

import asyncio
import hashlib
import hmac
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from pocketmq.broker.acts.send import SendActs
from pocketmq.grpc.http2.call import GrpcStatus
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import (
    ClientType,
    Code,
    MessageType,
)
from pocketmq.model.record import read_records
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.clock import ManualClock
from pocketmq.testing.in_process import InProcess
from tests.broker.raw_slave import RawSlave
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import ack, front, message, receive, receiving, send
from tests.kit.waiting import until_async as until


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
