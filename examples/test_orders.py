"""Tests of a service with a broker of their own: a fixture brings it, with a clock that a test can turn.

pytest examples/test_orders.py

The plug-in is part of the extra `test`. Nothing has to be started.
"""

from pocketmq import Message
from pocketmq.client import sync
from pocketmq.testing import PocketMQ


def take_order(namesrv: str, number: int) -> None:
    """The code under test: announces an order, and a reminder in two hours (delay level 18)."""
    with sync.Producer("shop", name_server=namesrv) as producer:
        producer.send(Message("Orders", b"order %d" % number, keys=str(number)))
        producer.send(Message("Reminders", b"order %d" % number), delay_level=18)


def test_an_order_is_announced(pocketmq: PocketMQ) -> None:
    take_order(pocketmq.namesrv, 7)
    [message] = pocketmq.wait_for_messages("Orders", 1)
    assert (message.body, message.keys) == (b"order 7", "7")


def test_the_reminder_comes_after_two_hours(pocketmq: PocketMQ) -> None:
    take_order(pocketmq.namesrv, 7)
    pocketmq.clock.advance(hours=1)
    assert pocketmq.messages("Reminders") == []
    pocketmq.clock.advance(hours=1, seconds=1)
    assert [message.body for message in pocketmq.messages("Reminders")] == [b"order 7"]
