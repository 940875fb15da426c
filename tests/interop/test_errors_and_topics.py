"""Refusals as the official Java clients report them, and the topics that sends create."""

import os

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, NewBroker
from tests.interop.driver import PeerError, Queue, Session, message
from tests.kit.waiting import until

ONE_OF_EACH_VERSION = pytest.mark.parametrize(
    "java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True
)


@ONE_OF_EACH_VERSION
@pytest.mark.parametrize(("asked", "made"), [(None, 4), (2, 2), (16, 8)])
def test_a_send_creates_a_topic_with_the_allowed_queues(
    broker: RunningBroker,
    java_client: Session,
    topic: str,
    group: str,
    asked: int | None,
    made: int,
) -> None:
    """S82: min(what the client asks for, the 8 queues of TBW102)."""
    settings = {} if asked is None else {"defaultTopicQueueNums": asked}
    producer = java_client.producer(broker.namesrv, group, settings=settings)
    [sent] = producer.send(message(topic, "first"))
    assert sent.status == "SEND_OK"
    fresh = java_client.producer(broker.namesrv, group + "2")
    queues = until(lambda: fresh.queues(topic), "the route of the new topic")
    assert [each.queue for each in queues] == list(range(made))


@ONE_OF_EACH_VERSION
def test_a_message_above_the_brokers_limit_is_refused(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """Code 13: the body is compared with maxMessageSize, 4 MiB; the connection lives on."""
    producer = java_client.producer(
        broker.namesrv,
        group,
        settings={"maxMessageSize": 8 << 20, "compressMsgBodyOverHowmuch": 16 << 20},
    )
    limit = 4 << 20
    [most] = producer.send(message(topic, os.urandom(limit)))
    assert most.status == "SEND_OK"
    with pytest.raises(PeerError) as refused:
        producer.send(message(topic, os.urandom(limit + 1)))
    assert refused.value.code == 13
    [after] = producer.send(message(topic, "after"))
    assert after.status == "SEND_OK"


@ONE_OF_EACH_VERSION
def test_properties_above_their_limit_are_refused(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """Code 13: 32,767 bytes of properties at most."""
    producer = java_client.producer(broker.namesrv, group)
    producer.send(message(topic, "fits", properties={"big": "x" * 32_000}))
    with pytest.raises(PeerError) as refused:
        producer.send(message(topic, "too big", properties={"big": "x" * 33_000}))
    assert refused.value.code == 13


@ONE_OF_EACH_VERSION
def test_a_topic_that_may_not_be_written_or_read(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Permissions reach clients through the route, and the broker holds to them."""
    make_topic(broker, topic, perm=4)
    producer = java_client.producer(broker.namesrv, group)
    with pytest.raises(PeerError) as refused:
        producer.send(message(topic, "x"))
    assert "No route info of this topic" in refused.value.text
    deaf = topic + "-write-only"
    make_topic(broker, deaf, perm=2)
    producer.send(message(deaf, "x"))
    puller = java_client.pull_consumer(broker.namesrv, group)
    with pytest.raises(PeerError) as forbidden:
        puller.pull(Queue(deaf, broker.broker_name, 0), 0)
    assert forbidden.value.code == 16


@ONE_OF_EACH_VERSION
def test_pulls_that_are_wrong_in_themselves(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Codes 17 and 1 (4.x) for a topic and a queue that are not there."""
    make_topic(broker, topic, queues=1)
    puller = java_client.pull_consumer(broker.namesrv, group)
    with pytest.raises(PeerError) as no_queue:
        puller.pull(Queue(topic, broker.broker_name, 7), 0)
    assert no_queue.value.code == 1
    with pytest.raises(PeerError) as no_topic:
        puller.pull(Queue(topic + "-missing", broker.broker_name, 0), 0)
    assert no_topic.value.code == 17


@ONE_OF_EACH_VERSION
def test_looking_up_what_is_not_there(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """Code 1 for a message id beyond the log."""
    producer = java_client.producer(broker.namesrv, group)
    [sent] = producer.send(message(topic, "x"))
    beyond = sent.offset_msg_id[:16] + f"{1 << 40:016X}"
    with pytest.raises(PeerError) as nothing:
        producer.view(topic, beyond)
    assert nothing.value.kind in {"MQBrokerException", "MQClientException"}


def test_without_auto_creation_a_missing_topic_is_refused(
    new_broker: NewBroker, java_498: Session, topic: str, group: str
) -> None:
    """autoCreateTopicEnable=false: TBW102 has no route, the client finds none for the topic."""
    broker = new_broker(autoCreateTopicEnable="false")
    producer = java_498.producer(broker.namesrv, group)
    with pytest.raises(PeerError) as refused:
        producer.send(message(topic, "x"))
    assert "No route info of this topic" in refused.value.text
    producer.send(message(broker.broker_name, "the broker's own topic is there"))


def test_without_auto_creation_a_missing_group_is_refused(
    new_broker: NewBroker, java_498: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """autoCreateSubscriptionGroup=false: code 26 for a group that was not created."""
    broker = new_broker(autoCreateSubscriptionGroup="false")
    make_topic(broker, topic)
    puller = java_498.pull_consumer(broker.namesrv, group)
    with pytest.raises(PeerError) as refused:
        puller.pull(Queue(topic, broker.broker_name, 0), 0)
    assert refused.value.code == 26
