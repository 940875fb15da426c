"""Which header encodings pass between official clients and PocketMQ, seen on the wire itself."""

from collections.abc import Iterator

import pytest
from tests.interop.brokers import PocketBroker
from tests.interop.conftest import Shared
from tests.interop.driver import Session, message
from tests.interop.tap import TAP_HOST, Tap
from tests.interop.waiting import until

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
    if which in ("go", "node"):
        yield request.getfixturevalue(f"{which}_client")
    else:
        with shared.java(which).session() as session:
            yield session


@pytest.mark.parametrize(("client", "encoding"), CLIENTS.items(), indirect=["client"], ids=CLIENTS)
def test_an_official_client_is_answered_in_its_own_encoding_and_never_in_ours(
    tapped: tuple[PocketBroker, Tap],
    shared: Shared,
    client: Session,
    encoding: int,
    topic: str,
    group: str,
) -> None:
    """Issue 3, part 2: a reply uses the request's encoding; MSGPACK is for who has asked for it."""
    broker, tap = tapped
    admin = shared.mqadmin("4.9.7").at(broker.namesrv)
    words = ("updateTopic", "-b", f"{TAP_HOST}:{broker.port}", "-t", topic)
    until(lambda: "success" in admin(*words).out, "a topic")
    tap.frames.clear()
    producer = client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(5)))
    consumer = client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    consumer.wait(5)
    # What follows comes behind heartbeats, in whose answers PocketMQ offers its own encoding.
    producer.send(message(topic, "after heartbeats"))
    consumer.wait(6)
    consumer.close()
    producer.close()

    sent = {each.serialize_type for each in tap.frames if each.from_client}
    answered = {each.serialize_type for each in tap.frames if not each.from_client}
    assert sent == {encoding}
    # What the broker asks of its own accord (40 and its like) goes as JSON, which each client reads.
    assert answered <= {encoding, JSON}
    assert encoding in answered
