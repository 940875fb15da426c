"""The official SDKs of RocketMQ 5 over gRPC: Java 5.2.0, Python 5.1.2, Node 1.0.8, Go v5.1.4, Rust 5.0.0.

Each test is for each SDK. By default those run that differ between SDKs, --grpc-all runs each with each;
--reference lets them judge the real proxy 5.5.0 in local mode.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import sdks
from tests.interop.conftest import Shared
from tests.interop.driver import Driver, PeerError, Session, message
from tests.interop.grpc_places import ACCOUNT, Ours, Place, Proxy
from tests.interop.sdks import NAMES, ROOTS, Sdk
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
FIFO = {"consumeMessageOrderly": True}
SOON = {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_000]}}}


def some(*names: str, rust: bool = False) -> pytest.MarkDecorator:
    """These SDKs by default, the others by option."""
    others = [pytest.param(each, marks=pytest.mark.grpc_all) for each in NAMES if each not in names]
    if rust:
        others.append(pytest.param("rust", marks=pytest.mark.grpc_all))
    return pytest.mark.parametrize("driver", [*names, *others], indirect=True)


@pytest.fixture
def driver(request: pytest.FixtureRequest, shared: Shared) -> Driver:
    name: str = request.param
    # One for each server: it knows the certificates, and what it was told to release, of one only.
    where = {"place", "closed"} & request.node.callspec.params.keys()
    title = "-".join([f"sdk-{name}", *(request.node.callspec.params[each] for each in where)])
    return shared.get(title, lambda: sdks.start(name, shared.folder / title), Driver.close)


SERVERS = ["ours", pytest.param("proxy", marks=pytest.mark.reference)]


@pytest.fixture(params=SERVERS)
def place(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Place]:
    if request.param == "ours":
        with Ours() as running:
            yield running
    else:
        yield shared.get("proxy", lambda: Proxy(shared.folder / "proxy"), Proxy.close)


ACL = f"""
accounts:
  - accessKey: {ACCOUNT.access_key}
    secretKey: {ACCOUNT.secret_key}
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""
SIGNED = {"key": ACCOUNT.access_key, "secret": ACCOUNT.secret_key}


@pytest.fixture(params=SERVERS)
def closed(request: pytest.FixtureRequest, shared: Shared, tmp_path: Path) -> Iterator[Place]:
    """Only for ACCOUNT."""
    if request.param == "ours":
        file = tmp_path / "acl.yml"
        file.write_text(ACL)
        with Ours({"aclEnable": "true", "aclFile": str(file)}) as running:
            yield running
    else:
        folder = shared.folder / "closed"
        yield shared.get("closed", lambda: Proxy(folder, closed=True), Proxy.close)


@pytest.fixture
def sdk(place: Place, driver: Driver) -> Iterator[Sdk]:
    with Sdk(driver, place.grpc) as made:
        yield made


@some(*NAMES, rust=True)
def test_messages_of_all_kinds_come_as_they_were_sent(place: Place, sdk: Sdk) -> None:
    """With their filters, and but for the one that was recalled."""
    normal, fifo, delay = (place.topic(kind) for kind in ("NORMAL", "FIFO", "DELAY"))
    producer, later, in_order = sdk.producer(normal), sdk.producer(delay), sdk.producer(fifo)
    by_tag = sdk.simple(place.group(), {normal: "A"})
    by_sql = [{"topic": normal, "expression": "colour = 'red'", "sql": True}]
    chosen = sdk.simple(place.group(), by_sql)
    ordered = sdk.simple(place.group(**FIFO), {fifo: "*"})
    delayed = sdk.simple(place.group(), {delay: "*"})
    later.send({"topic": delay, "body": "later", "delay_ms": 10_000})
    if sdk.name != "rust":
        [recalled] = later.send({"topic": delay, "body": "recalled", "delay_ms": 9_000})
        assert later.recall(delay, recalled["recall_handle"]) == recalled["msg_id"]
    with pytest.raises(PeerError):
        later.recall(delay, "no handle")
    place.advance(12)
    assert [each.text for each in delayed.take(1)] == ["later"]

    blue, red = {"colour": "blue"}, {"colour": "red"}
    [sent, _] = producer.send(
        {"topic": normal, "body": "plain", "tag": "A", "key": "k1", "properties": blue},
        {"topic": normal, "body": "other", "tag": "B", "properties": red},
    )
    [plain] = by_tag.take(1)
    assert (plain.text, plain.tags, plain.keys) == ("plain", "A", "k1")
    assert (plain.properties["colour"], plain.reconsume_times) == ("blue", 0)
    assert "corrupted" not in plain.properties
    assert plain.msg_id == sent["msg_id"]
    assert [each.text for each in chosen.take(1)] == ["other"]

    in_order.send(*({"topic": fifo, "body": str(n), "shard": "o"} for n in range(4)))
    found = ordered.take(4)
    assert [each.text for each in found] == ["0", "1", "2", "3"]
    assert {each.properties["__SHARDINGKEY"] for each in found} == {"o"}


@some(*NAMES, rust=True)
def test_a_transaction_is_committed_rolled_back_or_asked_about(place: Place, sdk: Sdk) -> None:
    topic = place.topic("TRANSACTION")
    producer, consumer = sdk.producer(topic), sdk.simple(place.group(), {topic: "*"})
    given_up = {"check": "ROLLBACK"}
    producer.send(
        {"topic": topic, "body": "committed", "end": "COMMIT"},
        {"topic": topic, "body": "rolled back", "end": "ROLLBACK", "properties": given_up},
        {"topic": topic, "body": "forgotten", "end": "UNKNOWN"},
        {"topic": topic, "body": "given up", "end": "UNKNOWN", "properties": given_up},
    )
    seen = consumer.take(2)
    while len({each.text for each in seen}) < 2:
        # Asked about once more before its answer came, a transaction may be committed a second time.
        seen += consumer.take(1)
    assert {each.text for each in seen} == {"committed", "forgotten"}
    until(lambda: {"forgotten", "given up"} <= set(producer.asked), "both questions")


@some("python")
def test_classic_clients_and_those_over_grpc_share_a_topic(
    driver: Driver, java_498: Session
) -> None:
    """What either sends both have, with its tag, key and properties."""
    with Ours() as place, Sdk(driver, place.grpc) as sdk:
        topic, namesrv = place.topic("NORMAL"), place.server.namesrv
        over_grpc = sdk.simple(place.group(), {topic: "*"})
        over_grpc.until_started()
        classic = java_498.push_consumer(namesrv, place.group(), topic, settings=FIRST)
        sdk.producer(topic).send(
            {
                "topic": topic,
                "body": "new",
                "tag": "A",
                "key": "k1",
                "properties": {"colour": "red"},
            }
        )
        java_498.producer(namesrv, place.group()).send(
            message(topic, "old", tags="B", keys="k2", properties={"colour": "blue"})
        )
        expected = {("new", "A", "k1", "red"), ("old", "B", "k2", "blue")}
        for found in (over_grpc.take(2), classic.wait(2)):
            assert {
                (each.text, each.tags, each.keys, each.properties["colour"]) for each in found
            } == expected


@some(*NAMES)
def test_packed_bodies_of_any_total_size_arrive_unpacked(driver: Driver) -> None:
    """Beyond a bound they go out packed to SDKs that unpack them, and one by one to the others."""
    with Ours() as place, Sdk(driver, place.grpc) as sdk:
        topic = place.topic("NORMAL")
        consumer = sdk.simple(place.group(), {topic: "*"})
        consumer.until_started()
        bodies = {letter * (3 << 20) for letter in "abcd"}
        for body in bodies:
            place.server.send(topic, body)
        found = consumer.take(4)
        assert {each.text for each in found} == bodies
        assert {each.reconsume_times for each in found} == {0}


@some("python", "node")
def test_a_failing_message_is_redelivered_then_a_dead_letter(place: Place, sdk: Sdk) -> None:
    topic, group = place.topic("NORMAL"), place.group(retry_max_times=1, **SOON)
    producer, consumer = sdk.producer(topic), sdk.push(group, {topic: "*"})
    producer.send(
        {"topic": topic, "body": "once"},
        {"topic": topic, "body": "twice", "properties": {"fail_times": "1"}},
        {"topic": topic, "body": "never", "properties": {"fail_times": "9"}},
    )
    expected = [("never", 1), ("never", 2), ("once", 1), ("twice", 1), ("twice", 2)]
    assert sorted(consumer.wait(5)) == expected
    dead = sdk.simple(place.group(), {place.dead_letters(group): "*"})
    assert [each.text for each in dead.take(1)] == ["never"]
    assert len(consumer.seen) == 5


@some("java")
def test_a_push_consumer_is_handed_a_message_by_a_tool(driver: Driver) -> None:
    """Over its Telemetry call, beside the queues: it consumes the message a second time."""
    with Ours() as place, Sdk(driver, place.grpc) as sdk:
        topic, group = place.topic("NORMAL"), place.group()
        producer, consumer = sdk.producer(topic), sdk.push(group, {topic: "*"})
        producer.send({"topic": topic, "body": "again", "key": "k1"})
        assert consumer.wait(1) == [("again", 1)]
        admin = place.server.aio.admin
        connection = place.server.call(admin.groups.connection(group))
        [member] = connection.members
        [found] = place.server.call(admin.messages.by_key(topic, "k1"))
        result = place.server.call(admin.messages.consume_directly(found, group, member.client_id))
        assert result.result == "CR_SUCCESS"
        assert [text for text, _ in consumer.wait(2)] == ["again", "again"]


# Those of Python and Node do not count up the attempt of a message that they try again, neither here nor at
# the real proxy.
@pytest.mark.parametrize(
    "driver", ["java", pytest.param("go", marks=pytest.mark.grpc_all)], indirect=True
)
def test_a_push_consumer_in_order_holds_back_what_follows(place: Place, sdk: Sdk) -> None:
    """A message that fails is tried again before the next one, and in the end gives way as a dead letter."""
    topic, group = place.topic("FIFO"), place.group(retry_max_times=2, **FIFO, **SOON)
    producer, consumer = sdk.producer(topic), sdk.push(group, {topic: "*"})
    fails = {"0": "1", "2": "9"}
    properties = {n: {"fail_times": fails.get(n, "0")} for n in "0123"}
    producer.send(
        *({"topic": topic, "body": n, "shard": "o", "properties": properties[n]} for n in "0123")
    )
    expected = [("0", 1), ("0", 2), ("1", 1), ("2", 1), ("2", 2), ("2", 3), ("3", 1)]
    seen = consumer.wait(len(expected))
    if sdk.name == "go":
        # v5.1.4 takes the next message of a batch while it waits to try the last one again.
        seen.sort()
    assert seen == expected
    dead = sdk.simple(place.group(), {place.dead_letters(group): "*"})
    assert [each.text for each in dead.take(1)] == ["2"]


@some("python")
def test_what_takes_long_stays_its_consumers(place: Place, sdk: Sdk) -> None:
    """Renewal: the invisible time of a minute is over, and no member gets the message twice."""
    topic, group = place.topic("NORMAL"), place.group()
    consumer, producer = sdk.push(group, {topic: "*"}), sdk.producer(topic)
    other = sdk.simple(group, {topic: "*"}, await_ms=5_000)
    producer.send({"topic": topic, "body": "slow", "properties": {"hold": "yes"}})
    consumer.wait(1)
    place.advance(70)
    assert other.receive() == []
    sdk.release()
    place.advance(70)
    assert other.receive() == []
    assert consumer.seen == [("slow", 1)]


@some("go")
def test_a_simple_consumer_changes_how_long_it_has(place: Place, sdk: Sdk) -> None:
    topic, group = place.topic("NORMAL"), place.group()
    producer, consumer = sdk.producer(topic), sdk.simple(group, {topic: "*"})
    producer.send({"topic": topic, "body": "again"})
    [first] = until(consumer.receive, "the message")
    consumer.change(first, 1_000)
    [second] = until(consumer.receive, "the message again")
    assert (second.text, second.reconsume_times) == ("again", 1)
    consumer.ack(second)


@some("java", "python", rust=True)
def test_clients_go_on_after_a_restart_of_the_server(place: Place, sdk: Sdk) -> None:
    topic = place.topic("NORMAL")
    producer, simple = sdk.producer(topic), sdk.simple(place.group(), {topic: "*"})
    consumer = None if sdk.name == "rust" else sdk.push(place.group(), {topic: "*"})
    producer.send({"topic": topic, "body": "before"})
    simple.until_started()
    if consumer is not None:
        consumer.wait(1)
    place.restart()
    until(
        lambda: producer.send({"topic": topic, "body": "after"}),
        "a send after the restart",
        ignoring=PeerError,
    )
    if consumer is not None:
        assert ("after", 1) in consumer.wait(2)
    texts: set[str] = set()

    def both() -> bool:
        for each in simple.receive():
            simple.ack(each)
            texts.add(each.text)
        return {"before", "after"} <= texts

    until(both, "both messages at the simple consumer", ignoring=PeerError)


@some("java", "python", rust=True)
def test_tls_is_spoken_on_the_port_of_plain_text(closed: Place, driver: Driver) -> None:
    """Java and Go take any certificate, Python and Node the one that they were told to trust.

    The SDK for Rust has the setting, and speaks no TLS.
    """
    topic, group = closed.topic("NORMAL"), closed.group()
    host, _, port = closed.grpc.rpartition(":")
    certificate = ssl.get_server_certificate((host, int(port)))
    Path(driver.log_path.parent / ROOTS).write_text(certificate)
    with Sdk(driver, closed.grpc, tls=True, **SIGNED) as sdk:
        producer, consumer = sdk.producer(topic), sdk.simple(group, {topic: "*"})
        if sdk.name == "rust":
            for each in (producer, consumer):
                with pytest.raises(PeerError):
                    each.until_started()
            return
        producer.send({"topic": topic, "body": "secret"})
        assert [each.text for each in consumer.take(1)] == ["secret"]


@some("java", "python", rust=True)
def test_an_account_may_what_it_may(closed: Place, driver: Driver) -> None:
    """The accounts are those of plain_acl.yml; what is refused is 40100 in each SDK."""
    topic, group = closed.topic("NORMAL"), closed.group()
    with Sdk(driver, closed.grpc, **SIGNED) as sdk:
        producer, consumer = sdk.producer(topic), sdk.simple(group, {topic: "*"})
        producer.send({"topic": topic, "body": "signed"})
        assert [each.text for each in consumer.take(1)] == ["signed"]
    others: tuple[dict[str, str], ...] = (
        {"key": ACCOUNT.access_key, "secret": "wrong"},
        {"key": "absent", "secret": "x"},
        {},
    )
    for forger in [Sdk(driver, closed.grpc, **account) for account in others]:
        with forger as sdk, pytest.raises(PeerError):
            sdk.producer(topic).send({"topic": topic, "body": "forged"})
    assert closed.count(topic) == 1
