"""One answer to one question, whoever is asked: guard, console, command line, figures, administration."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.console.console_peer import Site, site, until

from pocketmq.admin import Admin
from pocketmq.broker.metrics import snapshot
from pocketmq.cli.group_commands import examine
from pocketmq.client import (
    ConsumeContext,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageModel,
    Producer,
    PushConsumer,
)
from pocketmq.console.metrics_page import to_text


@asynccontextmanager
async def member(running: Site, name: str, expression: str) -> AsyncIterator[PushConsumer]:
    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        pass

    consumer = PushConsumer(
        "S", listener=listener, name_server=running.name_server, instance_name=name
    )
    consumer.subscribe("T", expression)
    async with consumer:
        yield consumer


async def test_members_that_write_the_same_tags_differently_agree_on_every_face(
    tmp_path: Path,
) -> None:
    """`A || B` and `B||A` let the same messages through."""
    async with site(tmp_path, group_guard_grace_time=0) as running:
        await running.user.do("PUT", "/topics/T", {"readQueues": 4, "writeQueues": 4})
        async with member(running, "one", "A || B"), member(running, "two", "B||A"):

            async def both() -> Any:
                reply = await running.user.get("/groups/S")
                found = reply.json
                if reply.status != 200 or len(found["members"]) < 2:
                    return None
                # Both have queues, so that nothing but the subscriptions could be wrong.
                owned = {row["owner"] for row in found["queues"] if row["topic"] == "T"}
                return found if len(owned - {None}) == 2 else None

            async with Producer("P", name_server=running.name_server) as producer:
                for queue in await producer.queues("T"):
                    await producer.send(Message("T", b"x", tags="A"), queue=queue)
            found = await until(both)
            assert found["verdict"]["agree"] is True
            assert [each["differs"] for each in found["members"]] == [[], []]
            broker = running.brokers["b"]
            assert broker.guard.findings("S") == []
            text = to_text([snapshot(broker)]).decode()
            camps = "pocketmq_group_subscription_camps{"
            assert [line for line in text.splitlines() if line.startswith(camps)] == []
            async with Admin(name_server=running.name_server) as admin:
                diagnosis = await examine(admin, "S")
            assert "subscribe" not in json.dumps(diagnosis["warnings"])


async def test_a_tracks_type_is_the_same_from_the_broker_and_from_administration(
    tmp_path: Path,
) -> None:
    """A pull consumer says nothing of what it has done, broadcasting or not: RocketMQ's type is PULL."""
    async with site(tmp_path) as running:
        await running.user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        consumer = LitePullConsumer(
            "S", name_server=running.name_server, message_model=MessageModel.BROADCASTING
        )
        consumer.subscribe("T")
        async with (
            Producer("P", name_server=running.name_server) as producer,
            Admin(name_server=running.name_server) as admin,
            consumer,
        ):
            sent = await producer.send(Message("T", b"x"))

            async def online() -> bool:
                return running.brokers["b"].consumers.get("S") is not None

            await until(online)
            told = await admin.doctor.track(msg_id=sent.offset_msg_id, group="S")
            assert told is not None
            message = await admin.messages.by_offset_id(sent.offset_msg_id)
            [computed] = await admin.messages.track(message, group="S")
            assert told["tracks"][0]["trackType"] == computed.type == "PULL"
