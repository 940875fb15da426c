"""mqadmin 5.5.0 resets one queue: of a group that is offline, and under the feet of a Java consumer."""

from collections import Counter

from tests.interop.asking import offsets_of
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import Shared
from tests.interop.driver import Session, message
from tests.kit.waiting import until

FROM_FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def test_a_reset_of_one_queue_repeats_only_that_queue(
    five_broker: RunningBroker, shared: Shared, java_550: Session, topic: str, group: str
) -> None:
    broker = five_broker
    producer = java_550.producer(broker.namesrv, f"{group}-p")
    producer.create_topic(topic)
    producer.send(*(message(topic, f"m{number}") for number in range(40)))
    tool = shared.mqadmin("5.5.0").at(broker.namesrv)

    def reset(offset: int) -> None:
        words = ["-g", group, "-t", topic, "-b", broker.address, "-q", 0, "-s", "now", "-o", offset]
        assert f"reset consumer offset to {offset}" in tool("resetOffsetByTime", *words).out

    def consumed() -> bool:
        return all(
            end == offset for end, offset in offsets_of(broker.address, group, topic).values()
        )

    first = java_550.push_consumer(broker.namesrv, group, topic, settings=FROM_FIRST)
    first.wait(40)
    until(consumed, "the offsets at the ends")
    before = len(first.received)
    reset(5)
    # The client drops the queue, and takes it anew with its next rebalance.
    until(lambda: len(first.received) >= before + 5, "the messages behind the offset", within_s=90)
    until(consumed, "the offsets at the ends again", within_s=60)
    again = first.received[before:]
    assert {got.queue for got in again} == {0}
    assert Counter(got.offset for got in again) == Counter(range(5, 10))
    first.close()

    reset(7)
    assert offsets_of(broker.address, group, topic)[0] == (10, 7)
    second = java_550.push_consumer(broker.namesrv, group, topic, settings=FROM_FIRST)
    until(consumed, "the offsets at the ends", within_s=90)
    assert Counter((got.queue, got.offset) for got in second.received) == Counter(
        (0, offset) for offset in (7, 8, 9)
    )
