"""TLS, signatures and packed bodies: our client and the Java client, at our broker and at the real ones."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.admin import Admin, GroupConfig
from pocketmq.client import (
    Compression,
    Credentials,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullStatus,
    Unauthorised,
    send_all,
)
from tests.interop.brokers import JavaBroker, RunningBroker, make_broker
from tests.interop.conftest import MakeTopic, Shared, or_missing
from tests.interop.driver import PeerError, Session, message
from tests.interop.our_clients import FROM_FIRST
from tests.interop.test_client_send_and_consume import FIRST
from tests.kit.waiting import until

PLAIN = "pocketmq"
JAVA = [
    pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
    pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference),
]


@pytest.fixture(scope="session", params=[PLAIN, *JAVA])
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """A broker as it comes: TLS is permissive, with a certificate that it has signed itself."""
    kind = request.param
    if kind == PLAIN:
        return shared.broker(kind)
    return shared.get(
        f"tls-{kind}",
        lambda: make_broker(kind, shared.folder / f"tls-{kind}", tls=True).start(),
        RunningBroker.kill,
    )


@pytest.mark.parametrize("java_client", ["5.5.0-JSON"], indirect=True)
async def test_everything_goes_through_tls(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """TLS of sends in each way, consumers and admin; a Java client with TLS reads the same."""
    await asyncio.to_thread(make_topic, broker, topic)
    async with Producer(group, name_server=broker.namesrv, tls=True) as producer:
        await producer.send(Message(topic, bytes(1_000_000)))
        sent = await send_all(producer, (Message(topic, b"%d" % n) for n in range(200)))
        assert len({each.offset_msg_id for each in sent}) == 200
    consumer = LitePullConsumer(
        f"{group}-lite", name_server=broker.namesrv, tls=True, consume_from_where=FROM_FIRST
    )
    consumer.subscribe(topic)
    bodies: set[bytes] = set()
    async with consumer, asyncio.timeout(60):
        while len(bodies) < 201:
            bodies |= {each.body for each in await consumer.poll(1_000)}
    assert bytes(1_000_000) in bodies
    async with Admin(name_server=broker.namesrv, tls=True) as admin:
        assert sum(each.max_offset for each in await admin.topics.status(topic)) == 201

    def java() -> int:
        settings = {**FIRST, "useTLS": True}
        reader = java_client.push_consumer(broker.namesrv, group, topic, settings=settings)
        return len(reader.wait(201))

    assert await asyncio.to_thread(java) >= 201


@pytest.mark.parametrize("compression", list(Compression), ids=lambda each: each.name)
@pytest.mark.parametrize("java_client", ["5.5.0-JSON"], indirect=True)
async def test_a_packed_body_is_unpacked_by_both_clients(
    broker: RunningBroker,
    java_client: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
    compression: Compression,
) -> None:
    """ZLIB, LZ4 and ZSTD as the Java client of 5.x reads them; brokers only store them."""
    await asyncio.to_thread(make_topic, broker, topic, queues=1)
    text = f"{compression.name} " * 2_000
    async with Producer(group, name_server=broker.namesrv, compression=compression) as producer:
        sent = await producer.send(Message(topic, text.encode()))

    def java() -> str:
        reader = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
        return str(reader.wait(1)[0].text)

    assert await asyncio.to_thread(java) == text
    async with PullConsumer(f"{group}-pull", name_server=broker.namesrv) as consumer:
        result = await consumer.pull(sent.message_queue, 0)
        assert result.status is PullStatus.FOUND
        assert [each.body for each in result.messages] == [text.encode()]


# ------------------------------------------------------------ ACL

ACCOUNTS = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: operator
    secretKey: operator-secret
    admin: true
  - accessKey: orders-app
    secretKey: orders-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [Orders=PUB|SUB, Audit=PUB]
    groupPerms: [orders_group=SUB]
"""
OPERATOR = Credentials("operator", "operator-secret")
APP = Credentials("orders-app", "orders-secret")


@pytest.fixture(
    params=[PLAIN, pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference)], scope="module"
)
def closed_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A broker that checks signatures, with two topics."""
    folder = tmp_path_factory.mktemp("acl")
    made = or_missing(lambda: make_broker(request.param, folder, config={"aclEnable": "true"}))
    # Each where its maker has it.
    path = made.store / "config" / "plain_acl.yml"
    if isinstance(made, JavaBroker):
        path = made.home / "conf" / "plain_acl.yml"
    path.parent.mkdir(parents=True)
    path.write_text(ACCOUNTS, encoding="utf-8")
    try:
        made.start()

        async def prepare() -> None:
            async with Admin(name_server=made.namesrv, credentials=OPERATOR) as admin:
                for name in ("Orders", "Audit", "Secrets"):
                    await admin.topics.create(name, queues=1)
                await admin.groups.create(GroupConfig("orders_group"))

        asyncio.run(prepare())
        yield made
    finally:
        made.kill()


async def test_a_signed_client_may_do_what_its_account_may(closed_broker: RunningBroker) -> None:
    """ACL signing of every request; what is refused is Unauthorised and says what to do."""
    name_server = closed_broker.namesrv
    async with Producer("orders_group", name_server=name_server, credentials=APP) as producer:
        await producer.send(Message("Orders", b"first"))
        await send_all(producer, (Message("Orders", b"%d" % n) for n in range(50)))
        await producer.send_batch([Message("Audit", b"a"), Message("Audit", b"b")])
        with pytest.raises(
            Unauthorised,
            match=r"topic 'Secrets'.*No default permission for topic:Secrets.*credentials",
        ):
            await producer.send(Message("Secrets", b"x"))
    async with Producer("orders_group", name_server=name_server) as producer:
        with pytest.raises(Unauthorised, match="No accessKey is configured"):
            await producer.send(Message("Orders", b"unsigned"))
    wrong = Credentials("orders-app", "another-secret")
    async with Producer("orders_group", name_server=name_server, credentials=wrong) as producer:
        with pytest.raises(Unauthorised, match="Check signature failed for accessKey=orders-app"):
            await producer.send(Message("Orders", b"forged"))
    consumer = LitePullConsumer(
        "orders_group", name_server=name_server, credentials=APP, consume_from_where=FROM_FIRST
    )
    consumer.subscribe("Orders")
    bodies: list[bytes] = []
    async with consumer, asyncio.timeout(60):
        while len(bodies) < 51:
            bodies += [each.body for each in await consumer.poll(1_000)]
    # The real broker takes messages that are under way together in any order.
    assert sorted(bodies) == sorted([b"first", *(b"%d" % n for n in range(50))])
    async with Admin(name_server=name_server, credentials=APP) as admin:
        with pytest.raises(Unauthorised, match="Need admin permission for request code=17"):
            await admin.topics.create("Mine")


@pytest.mark.parametrize("java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True)
def test_the_java_client_signs_and_is_refused_alike(
    closed_broker: RunningBroker, java_client: Session, group: str
) -> None:
    """AclClientRPCHook of both versions and in both header encodings."""
    namesrv = closed_broker.namesrv
    keys: dict[str, Any] = {"access_key": "orders-app", "secret_key": "orders-secret"}
    producer = java_client.producer(namesrv, f"{group}-p", **keys)
    [sent] = producer.send(message("Audit", "signed", tags="t", keys="k"))
    assert sent.status == "SEND_OK"
    refusals: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Secrets", keys),
        ("Audit", {**keys, "secret_key": "another-secret"}),
        ("Audit", {}),
    )
    for number, (topic, arguments) in enumerate(refusals):
        refused = java_client.producer(namesrv, f"{group}-{number}", **arguments)
        # Java tells the code of the last attempt, not its text.
        with pytest.raises(PeerError) as raised:
            refused.send(message(topic, "x"))
        assert raised.value.code == 1
    operator: dict[str, Any] = {"access_key": "operator", "secret_key": "operator-secret"}
    reader = java_client.push_consumer(namesrv, group, "Audit", settings=FIRST, **operator)
    until(lambda: "signed" in [each.text for each in reader.received], "what was signed", 90)
