"""What the tests of the services send, receive and acknowledge."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import (
    Code,
)
from pocketmq.grpc.server import GrpcServer
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig
from tests.broker.serving import serving
from tests.grpc.asking import Asking


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
