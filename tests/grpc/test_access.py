"""Who may call what over gRPC, where the broker has accounts: every method, one account after the other."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.access.acl import PlainAccessValidator
from pocketmq.broker.access.users.policy import UserPolicies
from pocketmq.broker.access.users.user import User
from pocketmq.broker.broker import Broker
from pocketmq.grpc.messages import TelemetryCommand, classes
from pocketmq.grpc.schema import ROCKETMQ, ClientType, Code, Rpc
from pocketmq.model.names import AUDIT_TOPIC
from pocketmq.model.record import read_record
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import front, message
from tests.grpc.test_front import signed

RECORDED = Path(__file__).with_name("access.txt")
SECRET = "secret-words"
RIGHTS = {
    "nothing": "",
    "publisher": "topicPerms: [T=PUB]",
    "group-only": "groupPerms: [g=SUB]",
    "topic-only": "topicPerms: [T=SUB]",
    "subscriber": "topicPerms: [T=SUB], groupPerms: [g=SUB]",
    "elsewhere": "topicPerms: [U=PUB|SUB], groupPerms: [h=SUB]",
    "administrator": "admin: true",
}
GONE = "went-away"
# With these nothing may be done at all.
STRANGERS = {
    "unsigned": {},
    "wrong secret": signed("other-words", "administrator"),
    "unknown": signed(SECRET, "unknown"),
    "deleted": signed(SECRET, GONE),
}
TOPIC, GROUP = {"name": "T"}, {"name": "g"}


def accounts(*more: str) -> str:
    rows = [f"{{accessKey: {name}, {rights}}}" for name, rights in RIGHTS.items()]
    rows += [f"{{accessKey: {name}, admin: true}}" for name in more]
    return "accounts:\n" + "".join(
        "  - " + row.replace(", ", f", secretKey: {SECRET}, ", 1) + "\n" for row in rows
    )


def asks() -> dict[str, tuple[str, Any]]:
    """What is asked, by its row in the table: topic T and group g wherever a request has a place for them."""
    consumer, producer = ClientType.PUSH_CONSUMER, ClientType.PRODUCER
    subscribed = {"topic": TOPIC, "expression": {"type": 1, "expression": "*"}}
    subscription = {"group": GROUP, "subscriptions": [subscribed]}
    settings = {
        "consumer": {"client_type": consumer, "subscription": subscription},
        "producer": {"client_type": producer, "publishing": {"topics": [TOPIC]}},
    }
    found: dict[str, tuple[str, Any]] = {
        f"Telemetry of a {name}": ("Telemetry", TelemetryCommand(settings=each))
        for name, each in settings.items()
    }
    found["Telemetry, an answer"] = ("Telemetry", TelemetryCommand(verify_message_result={}))
    for name in ROCKETMQ.methods:
        if name == "Telemetry":
            continue
        request = classes[f"{name}Request"]()
        known = request.DESCRIPTOR.fields_by_name
        for field, value in (("topic", TOPIC), ("group", GROUP)):
            if field in known:
                getattr(request, field).CopyFrom(classes["Resource"](**value))
        if "message_queue" in known:
            request.message_queue.topic.name = "T"
        if "messages" in known:
            request.messages.append(message())
        found[name] = (name, request)
    beat = classes["HeartbeatRequest"]
    found["Heartbeat of a consumer"] = (
        "Heartbeat",
        beat(group=GROUP, client_type=consumer),
    )
    found["Heartbeat of a producer"] = ("Heartbeat", beat(client_type=producer))
    del found["Heartbeat"]
    found["NotifyClientTermination, no group"] = (
        "NotifyClientTermination",
        classes["NotifyClientTerminationRequest"](),
    )
    return dict(sorted(found.items()))


async def is_let_in(client: Asking, name: str, request: Any) -> bool:
    stream = client.begin(name, request)
    answer = await client.end_of(stream)
    rpc: Rpc = ROCKETMQ.methods[name]
    answer_of = classes[rpc.answer or f"{name}Response"]
    codes = {answer_of.FromString(each).status.code for each in answer.messages}
    return Code.UNAUTHORIZED not in codes


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[tuple[Broker, str]]:
    file = tmp_path / "acl.yml"
    file.write_text(accounts(GONE))
    settings: dict[str, Any] = {"acl_enable": True, "acl_file": str(file)}
    async with front(tmp_path / "store", **settings) as (running, server):
        yield running, server.address


async def test_the_recorded_table_says_who_may_call_each_method(
    broker: tuple[Broker, str], tmp_path: Path
) -> None:
    """Strangers get nowhere, nor does an account that had all rights until a moment ago."""
    running, address = broker
    rows: dict[str, list[str]] = {row: [] for row in asks()}
    async with AsyncExitStack() as stack:

        async def connected(account: str, metadata: dict[str, str]) -> Asking:
            client = await stack.enter_async_context(asking(address, f"{account}@1"))
            client.metadata |= metadata
            return client

        before = await connected("deleted before", signed(SECRET, GONE))
        for name, request in asks().values():
            assert await is_let_in(before, name, request)
        (tmp_path / "acl.yml").write_text(accounts())
        validator = running.parts.node.accounts
        assert isinstance(validator, PlainAccessValidator)
        validator.tick()
        await before.until(lambda: before.closed)
        for stranger, metadata in STRANGERS.items():
            client = await connected(stranger, metadata)
            for name, request in asks().values():
                assert not await is_let_in(client, name, request), (stranger, name)
        for account in RIGHTS:
            client = await connected(account, signed(SECRET, account))
            for row, (name, request) in asks().items():
                if await is_let_in(client, name, request):
                    rows[row].append(account)
    assert_recorded(rows)


def assert_recorded(rows: dict[str, list[str]]) -> None:
    table = "".join(f"{row:36} {', '.join(who)}".rstrip() + "\n" for row, who in rows.items())
    assert table == RECORDED.read_text(encoding="utf-8"), table


POLICIES = {
    "nothing": [],
    "publisher": [("Topic:T", "Pub")],
    "group-only": [("Group:g", "Sub")],
    "topic-only": [("Topic:T", "Sub")],
    "subscriber": [("Topic:T", "Sub"), ("Group:g", "Sub")],
    "elsewhere": [("Topic:U", "All"), ("Group:h*", "Sub")],
}


async def test_users_with_the_same_rights_get_the_same_table(tmp_path: Path) -> None:
    first = json.dumps({"username": "administrator", "password": SECRET})
    settings: dict[str, Any] = {"authentication_enabled": True, "authorization_enabled": True}
    rows: dict[str, list[str]] = {row: [] for row in asks()}
    folder = tmp_path / "store"
    async with front(folder, init_authentication_user=first, **settings) as (running, server):
        table = running.parts.node.users
        assert table is not None
        for name, lines in POLICIES.items():
            table.create_user(User(name, SECRET))
            for resource, action in lines:
                entry = {"resource": resource, "actions": [action], "decision": "Allow"}
                table.put_policies(name, UserPolicies.parse([{"entries": [entry]}]))
        users = {**{name: signed(SECRET, name) for name in RIGHTS}, **STRANGERS}
        for user, metadata in users.items():
            async with asking(server.address, f"{user}@1") as client:
                client.metadata |= metadata
                for row, (name, request) in asks().items():
                    if await is_let_in(client, name, request):
                        rows[row].append(user)
        (record,) = running.parts.messages.store.read(AUDIT_TOPIC, 0, 0, 1).buffers
        refusal = json.loads(bytes(read_record(record).body))
        assert (refusal["user"], refusal["act"]) == ("nothing", "AckMessage")
    assert_recorded(rows)
