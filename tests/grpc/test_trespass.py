"""What an account can take over gRPC that is not its own: other topics, groups, clients."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import ClientType, Code
from pocketmq.model.record import read_record, read_records
from pocketmq.model.tables import GroupConfig
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import front, message, receiving
from tests.grpc.test_front import signed
from tests.kit.waiting import until_async as until

ACCOUNTS = """
accounts:
  - {accessKey: victim-key, secretKey: victim-secret, topicPerms: [T=PUB|SUB], groupPerms: [g=SUB]}
  - {accessKey: intruder-key, secretKey: intruder-secret, topicPerms: [A=PUB|SUB], groupPerms: [ga=SUB]}
  - {accessKey: nothing-key, secretKey: nothing-secret}
"""
SECRET = b"what only the victim may read"


class Scene(NamedTuple):
    """broker; a client of each account, with the same client id."""

    broker: Broker
    victim: Asking
    intruder: Asking

    def stored(self, topic: str) -> list[bytes]:
        """The bodies of a topic's messages."""
        store = self.broker.parts.messages.store
        found = self.broker.parts.tables.topics.get(topic)
        queues = range(found.read_queues if found is not None else 0)
        return [
            bytes(record.body)
            for queue_id in queues
            for data in store.read(topic, queue_id, 0, 32).buffers
            for record in read_records(data)
        ]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    file = tmp_path / "acl.yml"
    file.write_text(ACCOUNTS)
    settings: dict[str, Any] = {"acl_enable": True, "acl_file": str(file)}
    async with AsyncExitStack() as stack:
        broker, server = await stack.enter_async_context(
            front(tmp_path / "store", {"A": "NORMAL", "M": "MIXED"}, **settings)
        )
        clients = [
            await stack.enter_async_context(asking(server.address, "same@1")) for _ in range(2)
        ]
        for client, name in zip(clients, ("victim", "intruder"), strict=True):
            client.metadata |= signed(f"{name}-secret", f"{name}-key")
        yield Scene(broker, *clients)


async def sent(client: Asking, topic: str, body: bytes) -> Any:
    asked = classes["SendMessageRequest"](messages=[message(topic, body)])
    answer = await client.ask("SendMessage", asked)
    assert answer.status.code == Code.OK
    return answer


async def test_a_dead_letter_is_the_message_of_its_receipt_handle(scene: Scene) -> None:
    """A handle of one's own with the place of another topic's message copied that one."""
    store = scene.broker.parts.messages.store
    await sent(scene.victim, "T", SECRET)
    position = 0
    await sent(scene.intruder, "A", b"own")
    answers = await scene.intruder.ask_stream("ReceiveMessage", receiving("A", "ga"))
    own = answers[1].message.system_properties.receipt_handle
    forged = " ".join([*own.split(" ")[:-1], str(position)])
    assert read_record(store.message_at(position)).body == SECRET  # type: ignore[arg-type]
    ask = {"group": {"name": "ga"}, "topic": {"name": "A"}}
    asked = classes["ForwardMessageToDeadLetterQueueRequest"](**ask, receipt_handle=forged)
    answer = await scene.intruder.ask("ForwardMessageToDeadLetterQueue", asked)
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
    assert scene.stored("%DLQ%ga") == []
    asked.receipt_handle = own
    answer = await scene.intruder.ask("ForwardMessageToDeadLetterQueue", asked)
    assert answer.status.code == Code.OK
    assert scene.stored("%DLQ%ga") == [b"own"]


async def test_a_client_id_is_its_accounts_own(scene: Scene) -> None:
    """Who knew the id of another's client could end it, or be asked in its place."""
    consumers = scene.broker.parts.members.consumers
    subscribed = {"topic": {"name": "T"}, "expression": {"type": 1, "expression": "*"}}
    subscription = {"group": {"name": "g"}, "subscriptions": [subscribed]}
    settings = classes["Settings"](client_type=ClientType.PUSH_CONSUMER, subscription=subscription)
    stream, _ = await scene.victim.talk(settings)
    members = consumers.get("g")
    assert members is not None
    goodbye = classes["NotifyClientTerminationRequest"]()
    await scene.intruder.ask("NotifyClientTermination", goodbye)
    settings = classes["Settings"](
        client_type=ClientType.PRODUCER, publishing={"topics": [{"name": "A"}]}
    )
    await scene.intruder.talk(settings)
    assert consumers.get("g") is members
    # It is still the one that is told.
    scene.broker.parts.tables.groups.update(GroupConfig("g", retry_max_times=3))
    await until(lambda: len(scene.victim.answers[stream].messages) == 2)
    assert await scene.victim.ask("NotifyClientTermination", goodbye)
    assert consumers.get("g") is None


async def test_a_lite_topic_name_cannot_inject_properties(scene: Scene) -> None:
    hostile = message("T", b"x", lite_topic="l\x02POP_CK\x01forged")
    asked = classes["SendMessageRequest"](messages=[hostile])
    answer = await scene.victim.ask("SendMessage", asked)
    assert answer.status.code == Code.ILLEGAL_LITE_TOPIC
    assert scene.stored("T") == []


async def test_a_receive_ends_with_its_account(scene: Scene, tmp_path: Path) -> None:
    """It waited for messages when its account was removed, and was given the next one."""
    await sent(scene.victim, "T", b"read")
    await scene.victim.ask_stream("ReceiveMessage", receiving("T", "g"))
    waiting = scene.victim.begin("ReceiveMessage", receiving("T", "g"))
    await sent(scene.intruder, "A", b"own")
    file = tmp_path / "acl.yml"
    file.write_text("\n".join(line for line in ACCOUNTS.splitlines() if "victim" not in line))
    await scene.victim.until(lambda: scene.victim.closed)
    assert not scene.victim.answers[waiting].messages
    await sent(scene.intruder, "A", b"is left in peace")
