"""The calls of tools and of rarer messages: transactions, priorities, recall, pulls, offsets, probes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool

from pocketmq.grpc.messages import classes, make
from pocketmq.grpc.schema import (
    SERVICE,
    ClientType,
    Code,
    FilterType,
    MessageType,
    TransactionResolution,
)
from pocketmq.grpc.services.standard import HEALTH, REFLECTION, REFLECTION_ALPHA
from pocketmq.remoting.clock import ManualClock
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import front, message, receive, send


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
    assert "member lost" not in caplog.text
