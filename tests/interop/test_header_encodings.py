"""Which header encodings pass between official clients and PocketMQ, seen on the wire itself."""

from collections.abc import Iterator

import pytest

from tests.interop.asking import make_topic_at
from tests.interop.brokers import PocketBroker
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import Session, message, node_client
from tests.interop.tap import TAP_HOST, Tap

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
JSON, ROCKETMQ = 0, 1


@pytest.fixture(scope="module")
def tapped(shared: Shared) -> Iterator[tuple[PocketBroker, Tap]]:
    """A PocketMQ that clients reach through a tap only."""
    broker = PocketBroker(shared.folder / "tapped", config={"brokerIP1": TAP_HOST})
    try:
        broker.start()
        with Tap([broker.port, broker.namesrv_port]) as tap:
            broker.namesrv = f"{TAP_HOST}:{broker.namesrv_port}"
            yield broker, tap
    finally:
        broker.kill()


CLIENTS = {
    "4.9.8-JSON": JSON,
    "4.9.8-ROCKETMQ": ROCKETMQ,
    "5.5.0-JSON": JSON,
    "5.5.0-ROCKETMQ": ROCKETMQ,
    "go": JSON,
    "node": JSON,
}


@pytest.fixture
def client(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Session]:
    """A session of the client that the test names."""
    which = request.param
    if which == "node":
        # A process of its own: ali-ons ends when the tap does, long after the test.
        driver = or_missing(lambda: node_client(shared.folder))
        try:
            with driver.session() as session:
                yield session
        finally:
            driver.close()
    elif which == "go":
        yield request.getfixturevalue("go_client")
    else:
        with shared.java(which).session() as session:
            yield session


@pytest.mark.parametrize(("client", "encoding"), CLIENTS.items(), indirect=["client"], ids=CLIENTS)
def test_an_official_client_is_answered_in_its_own_encoding(
    tapped: tuple[PocketBroker, Tap],
    client: Session,
    encoding: int,
    topic: str,
    group: str,
) -> None:
    """A reply uses the request's encoding."""
    broker, tap = tapped
    # Past the tap, which sees only what the client says.
    make_topic_at(f"127.0.0.1:{broker.port}", topic)
    before = tap.connections
    producer = client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(5)))
    consumer = client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    consumer.wait(5)
    producer.send(message(topic, "after heartbeats"))
    consumer.wait(6)
    consumer.close()
    producer.close()

    # The clients of the tests before may still take their leave.
    frames = [each for each in tap.frames if each.connection > before]
    frames = [each for each in frames if each.connection not in tap.own]
    sent = {each.serialize_type for each in frames if each.from_client}
    answered = {each.serialize_type for each in frames if not each.from_client}
    assert sent == {encoding}
    # What the broker asks of its own accord (40 and its like) goes as JSON, which each client reads.
    assert answered <= {encoding, JSON}
    assert encoding in answered
