"""x"""

from pocketmq.broker.broker import Broker
from pocketmq.remoting.clock import ManualClock


class Turned(ManualClock):
    """A clock that the test turns; the broker's own loop runs in real time."""


def step(broker: Broker) -> None:
    """What the pop service does when it wakes."""
    broker.parts.services.pop.step()
