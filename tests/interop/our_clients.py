"""Our clients at the brokers of these tests, and what they got."""

from typing import Any

from pocketmq.client import (
    ConsumeFromWhere,
    PushConsumer,
)
from tests.interop.brokers import RunningBroker

FROM_FIRST = ConsumeFromWhere.FIRST_OFFSET


def push(broker: RunningBroker, group: str, listener: object, **more: object) -> PushConsumer:
    options: dict[str, Any] = {"consume_from_where": FROM_FIRST, "listener": listener, **more}
    return PushConsumer(group, name_server=broker.namesrv, **options)
